"""README, man pages and changelog say what the program does: compared with the tables, both ways."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manual_source import Paragraph, paragraphs, plain, sections
from servers.require import not_proven, program

from oncecron import __version__
from oncecron.config import file, options, run_parser
from oncecron.core import errors, model, timing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
MANUAL = ROOT / "man" / "oncecron.1"
GUARANTEES = ROOT / "man" / "oncecron-guarantees.7"
PAGES = (MANUAL, GUARANTEES)
RUN = "oncecron run"
STORE_OPTIONS = "Options of every command that asks a store"
STORE_NAMES = {option.name for option in options.STORE_OPTIONS}
FILE = {
    "never": "Not in the file.",
    "job": "In the file: [job.KEY].",
    "anywhere": "In the file: anywhere.",
}
NOT_USED = ("mutex", "leader", "worker", "task", "job instance")
OF_POSTGRES = re.compile(r"PostgreSQL|PgBouncer|pooler|advisory|session lock", re.IGNORECASE)


def documented(section: str) -> dict[str, Paragraph]:
    """Return the options of a section of oncecron(1), by name; each once."""
    found = [p for p in paragraphs(sections(MANUAL)[section]) if p.option]
    named = {p.option: p for p in found if p.option}
    assert len(named) == len(found), f"{section}: an option is documented twice"
    return named


def commands() -> dict[str, click.Command]:
    """Return the commands of the click tree by their full names, deepest last."""
    import click

    from oncecron.cli import main as cli

    found: dict[str, click.Command] = {}

    def descend(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name)
            for child in command.list_commands(context):
                below = command.get_command(context, child)
                assert below is not None
                if not below.hidden:
                    descend(below, f"{name} {child}")
        else:
            found[name] = command

    descend(cli_root(cli), "oncecron")
    return found


def cli_root(cli: object) -> click.Command:
    """Return the click group of oncecron.cli.main, whatever it is called."""
    import click

    groups = [value for value in vars(cli).values() if isinstance(value, click.Group)]
    assert len(groups) == 1, f"oncecron.cli.main has {len(groups)} groups"
    return groups[0]


def click_options(command: click.Command) -> dict[str, click.Option]:
    """Return the long options of a command by name."""
    import click

    return {
        name[2:]: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--") and name != "--help"
    }


# oncecron(1) and the option table


def test_run_is_documented_option_by_option() -> None:
    """Each option of the table has its paragraph, and no paragraph is about an option that is not there."""
    assert set(documented(RUN)) == {option.name for option in options.RUN_OPTIONS}


@pytest.mark.parametrize("option", options.RUN_OPTIONS, ids=lambda option: str(option.name))
def test_an_option_says_what_the_table_says(option: options.Option) -> None:
    """Metavariable, default, least value, environment variable, and where it may be configured."""
    paragraph = documented(RUN)[option.name]
    assert paragraph.tag.endswith(f"--{option.name} {option.metavar}".rstrip())
    assert paragraph.stated("Default") == option.default
    assert paragraph.stated("Environment") == option.environment
    assert paragraph.text.rstrip().endswith(FILE[option.config])
    if option.short:
        assert f"-{option.short}," in paragraph.tag
    if option.minimum is not None and option.minimum >= 1 and option.kind != "codes":
        unit = "s" if option.kind == "duration" else ""
        assert f"at least {option.minimum:g}{unit}" in paragraph.text
    for choice in option.choices:
        assert re.search(rf"^{choice}\b", paragraph.text, re.MULTILINE), choice


def test_the_gap_of_the_default_rule_is_stated() -> None:
    """It is no default of the table, since --no-tick has none."""
    from oncecron.core import timing

    assert f"{timing.DEFAULT_MIN_GAP:g}s unless given" in documented(RUN)["min-gap"].text


def test_the_options_of_every_command_are_documented() -> None:
    """Once, for all of them, with the table's words for default and environment."""
    found = documented(STORE_OPTIONS)
    assert set(found) == STORE_NAMES
    for option in options.STORE_OPTIONS:
        assert found[option.name].stated("Default") == option.default
        assert found[option.name].stated("Environment") == option.environment


# oncecron(1) and the command line


def test_every_command_is_documented_and_no_other() -> None:
    """In the manual as a section and in the synopsis; in the README by name."""
    titles = {title for title in sections(MANUAL) if title.startswith("oncecron ")}
    assert titles == set(commands())
    synopsis, readme = plain(sections(MANUAL)["SYNOPSIS"]), README.read_text(encoding="utf-8")
    for name in commands():
        assert name in synopsis
        assert re.search(rf"`{name}\b|`{name.removeprefix('oncecron ')}\b", readme), name


def test_every_option_of_every_command_is_documented_and_no_other() -> None:
    """Options that all commands share stand in one place."""
    for name, command in commands().items():
        there = set(click_options(command))
        if name != RUN:
            assert STORE_NAMES & there in (set(), {"config"}, STORE_NAMES), (
                f"{name}: some store options"
            )
            there -= STORE_NAMES
        assert set(documented(name)) == there, name


def test_the_defaults_of_every_command_are_stated() -> None:
    """`Default: 50.` where the command line has one."""
    for name, command in commands().items():
        if name == RUN:
            continue  # from the table, see above
        for option, paragraph in documented(name).items():
            default = click_options(command)[option].default
            shown = (
                default
                if isinstance(default, str | int) and not isinstance(default, bool)
                else None
            )
            assert paragraph.stated("Default") == (None if shown is None else str(shown)), (
                name,
                option,
            )


def test_every_option_in_a_document_exists() -> None:
    """Also those that are mentioned in passing, and in examples of oncecron; another program's are not ours."""
    known = {"help", "version", *(option.name for option in options.RUN_OPTIONS)}
    for command in commands().values():
        known |= set(click_options(command))
    texts = [plain(page.read_text(encoding="utf-8")) for page in PAGES]
    texts.append(CHANGELOG.read_text(encoding="utf-8"))
    lines = README.read_text(encoding="utf-8").splitlines()
    texts += [line for line in lines if "apt-get" not in line and "tests/chaos" not in line]
    for text in texts:
        for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text):
            assert name in known, f"--{name}: {text[:80]}"


# The pages themselves


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_a_manual_page_is_free_of_warnings(page: Path) -> None:
    """As lintian asks man, and with all warnings of groff."""
    checks = (
        [program("man"), "--warnings", "-l", "-E", "UTF-8", "-Tutf8", "-Z", str(page)],
        [program("groff"), "-man", "-ww", "-z", str(page)],
    )
    for check in checks:
        ended = subprocess.run(check, capture_output=True, text=True, check=False)
        if "No such file or directory" in ended.stderr and "groff" in ended.stderr:
            not_proven(f"man without groff: {ended.stderr.strip()}")
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_a_manual_page_names_the_version(page: Path) -> None:
    """In its footer."""
    assert f'"oncecron {__version__}"' in page.read_text(encoding="utf-8")


def test_exit_statuses_are_those_of_the_errors() -> None:
    """In README and oncecron(1), all of them and no other."""
    known = {value for name, value in vars(errors).items() if name.startswith("EX_")}
    known |= {error.exit_status for error in vars(errors).values() if hasattr(error, "exit_status")}
    tags = [p.tag for p in paragraphs(sections(MANUAL)["EXIT STATUS"])]
    assert {int(tag) for tag in tags if tag.isdigit()} - {0} == known
    table = readme_section("Exit statuses")
    assert {int(status) for status in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} - {
        0
    } == known


def test_outcomes_and_refusals_are_those_of_the_model() -> None:
    """All of both."""
    outcomes = [p.tag for p in paragraphs(sections(MANUAL)["OUTCOMES"])]
    assert tuple(outcomes) == model.OUTCOMES
    reasons = [p.tag for p in paragraphs(sections(MANUAL)["REFUSALS"])]
    assert set(reasons) == set(model.REFUSAL_REASONS)


def test_causes_and_losses_are_those_of_the_model() -> None:
    """In the order of the model: what the store says, and then what the holder says."""
    causes = [p.tag for p in paragraphs(sections(MANUAL)["CAUSES"])]
    assert tuple(causes) == model.CAUSES
    losses = [tag for p in paragraphs(sections(MANUAL)["LOSSES"]) for tag in p.tag.split(", ")]
    assert tuple(losses) == (*model.LOST_BY_STORE, *model.LOST_BY_HOLDER)


def test_the_findings_of_lint_are_documented_and_no_other() -> None:
    """All kinds, in the order of the code."""
    from oncecron.crontab.lint import FINDINGS

    assert tuple(p.tag for p in paragraphs(sections(MANUAL)["FINDINGS"])) == FINDINGS


def test_the_environment_is_documented_and_no_other() -> None:
    """Every ONCECRON_ name in the code is in oncecron(1), and the other way round."""
    in_code = set()
    for path in (ROOT / "oncecron").rglob("*.py"):
        in_code |= set(re.findall(r"\bONCECRON_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    manual = plain(MANUAL.read_text(encoding="utf-8"))
    assert set(re.findall(r"\bONCECRON_[A-Z_]+\b", manual)) == in_code


def test_retention_is_stated_as_it_is() -> None:
    """In the manual and in the README's example of a configuration file."""
    days = {name: f"{value / 86400:g}d" for name, value in model.Retention()._asdict().items()}
    manual = plain(sections(MANUAL)["CONFIGURATION"])
    for name, value in days.items():
        assert re.search(rf"{name}\s+\({value}\)", manual)
        assert f'{name} = "{value}"' in README.read_text(encoding="utf-8")


def test_the_parameters_of_a_redis_address_are_stated() -> None:
    """All of them, and none that is not there."""
    from oncecron.stores.redis.address import PARAMETERS

    text = plain(sections(MANUAL)["STORES"])
    named = set(re.findall(r"\b(?:ssl|sentinel)_\w+|\b(?:wait|keep|db|username|password)\b", text))
    assert named == set(PARAMETERS)


def test_the_trust_window_is_stated_as_it_is() -> None:
    """The arithmetic of oncecron-guarantees(7) is that of the code."""
    text = plain(GUARANTEES.read_text(encoding="utf-8"))
    end = model.trust_after(0, 60)
    for part in (timing.TERM_BEFORE, timing.GUARD_KILLS_BEFORE, timing.WRAPPER_KILLS_BEFORE):
        assert f"{end - 60 * part:.3f}" in text
        assert f"ttl/{1 / part:g}" in text
    assert f"{end:.3f}" in text
    assert f"ttl/{timing.HEARTBEATS_PER_TTL}" in text
    assert f"{timing.MAX_CLOCK_SKEW / 60:g} minutes" in text


# README


def readme_section(title: str) -> str:
    """Return the text below a heading of the second level."""
    text = README.read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def snippets(language: str) -> list[str]:
    """Return the fenced blocks of README in a language."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"README has no {language} snippet"
    return found


@pytest.mark.parametrize("snippet", snippets("sh"))
def test_a_shell_snippet_is_valid(snippet: str) -> None:
    """As far as `sh -n` can tell."""
    ended = subprocess.run(["sh", "-n"], input=snippet, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("snippet", snippets("crontab"))
def test_a_crontab_line_is_one_that_cron_runs(snippet: str, tmp_path: Path) -> None:
    """Five fields or @reboot, an absolute path, no bare %, and arguments of `run` that are understood."""
    import shlex

    for line in snippet.splitlines():
        command = line.split(None, 1 if line.startswith("@reboot ") else 5)[-1]
        assert not re.search(r"(?<!\\)%", command)
        words = shlex.split(command)
        assert words[0].startswith("/")
        parsed = run_parser.parse_run(words[2:])
        assert parsed is not None
        assert words[1] == "run"
        assert parsed.command[0].startswith("/")
        if "schedule" in parsed.given:
            assert parsed.given["schedule"] == " ".join(line.split(None, 5)[:5])


@pytest.mark.parametrize("snippet", snippets("toml"))
def test_a_configuration_example_is_accepted(snippet: str, tmp_path: Path) -> None:
    """By the reader of the configuration file itself."""
    tomllib.loads(snippet)
    path = tmp_path / "oncecron.toml"
    path.write_text(snippet, encoding="utf-8")
    assert file.read_file(str(path)).jobs


def test_the_manual_s_configuration_example_is_accepted(tmp_path: Path) -> None:
    """The same for oncecron(1)."""
    examples = re.findall(
        r"^\.EX\n(.*?)^\.EE", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    found = [example.replace("\\-", "-") for example in examples if "[job." in example]
    assert found
    for number, example in enumerate(found):
        path = tmp_path / f"{number}.toml"
        path.write_text(example, encoding="utf-8")
        assert file.read_file(str(path)).jobs


def test_links_lead_somewhere() -> None:
    """Relative ones to a file of the repository, anchors to a heading."""
    text = README.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        assert not path or (ROOT / path).exists(), target
        assert not anchor or anchor in anchors, target


def test_the_variables_of_the_tests_are_documented() -> None:
    """All of them and no others."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    shell = [ROOT / "tests" / name for name in ("run", "environment.sh")]
    sources = [*shell, *(ROOT / "tests").rglob("*.py")]
    used = {
        name
        for source in sources
        if source != Path(__file__).resolve()
        for name in re.findall(
            r"\bONCECRON_(?:TEST|REQUIRE)_[A-Z_]*[A-Z]\b", source.read_text(encoding="utf-8")
        )
    }
    assert set(re.findall(r"\bONCECRON_(?:TEST|REQUIRE)_[A-Z_]*[A-Z]\b", text)) == used


# Words


def blocks() -> Iterator[tuple[str, str]]:
    """Yield the paragraphs of all documents with their names."""
    for page in PAGES:
        for block in re.split(
            r"^\.(?:PP|TP|IP|SH|SS).*\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE
        ):
            yield page.name, plain(block)
    for block in re.split(r"\n\n|\n(?=[-|])", README.read_text(encoding="utf-8")):
        yield README.name, block


def test_one_word_means_one_thing() -> None:
    """The words that this field uses for too many things are not used; `session` only of PostgreSQL."""
    for name, block in blocks():
        for word in NOT_USED:
            assert not re.search(rf"\b{word}s?\b", block, re.IGNORECASE), (
                f"{name}: {word!r} in {block!r}"
            )
        if re.search(r"\bsessions?\b", block, re.IGNORECASE):
            assert OF_POSTGRES.search(block), f"{name}: 'session' in {block!r}"


def test_no_document_names_a_place_of_its_making() -> None:
    """No path of a developer's machine."""
    for path in (README, CHANGELOG, *PAGES):
        assert not re.search(r"/(?:work|root|home|tmp)/", path.read_text(encoding="utf-8")), (
            path.name
        )


# Changelog


def test_the_changelog_is_kept() -> None:
    """Keep a Changelog: newest first, known kinds of change, `Unreleased` on top."""
    text = CHANGELOG.read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
