"""What the reference lists is what the code has: statuses, outcomes, reasons, findings, variables, options."""

import re
from collections.abc import Iterator

from command_tree import every_command
from documents import CHANGELOG, COMMANDS, README, first_column, pages, section, sources

from oncecron.config.options import RUN_OPTIONS
from oncecron.core import errors, model, timing
from oncecron.core.log_rows import Execution

OVERVIEW = COMMANDS / "overview.md"
RECORDS = COMMANDS / "records.md"
OF_TESTS_AND_BUILDS = re.compile("ONCECRON_(TEST|REQUIRE|BUILD)_")


def listed(path_section: str) -> tuple[str, ...]:
    """Return the first column of a section of oncecron-records(7)."""
    return tuple(first_column(section(RECORDS, path_section)))


def test_exit_statuses_are_those_of_the_errors() -> None:
    """All of them and no other."""
    known = {value for name, value in vars(errors).items() if name.startswith("EX_")}
    known |= {error.exit_status for error in vars(errors).values() if hasattr(error, "exit_status")}
    assert {int(status) for status in first_column(section(OVERVIEW, "Exit status"))} - {0} == known


def test_a_page_states_only_statuses_that_exist() -> None:
    """The tables of single commands too."""
    known = set(first_column(section(OVERVIEW, "Exit status")))
    for name in every_command():
        page = COMMANDS / f"{name.replace(' ', '-')}.md"
        assert set(first_column(section(page, "Exit status"))) <= known, page.name


def test_records_are_those_of_the_model() -> None:
    """Outcomes, reasons, causes, losses: all of them, in the order of the model."""
    assert listed("Outcomes") == model.OUTCOMES
    assert set(listed("Skip reasons")) == set(model.REFUSAL_REASONS)
    assert listed("Causes") == model.CAUSES
    assert listed("Losses") == (*model.LOST_BY_STORE, *model.LOST_BY_HOLDER)
    assert set(listed("Fields")) <= set(Execution._fields)


def test_the_verdicts_of_why_are_documented_and_no_other() -> None:
    """Beside the outcomes; `incomplete` is of shards."""
    from oncecron.log.why import _HEADLINES

    documented = set(first_column(section(COMMANDS / "why.md", "Verdicts")))
    assert documented == set(_HEADLINES) - set(model.OUTCOMES) | {"incomplete"}


def test_the_findings_of_lint_are_documented_and_no_other() -> None:
    """All kinds, in the order of the code."""
    from oncecron_crontab.lint import FINDINGS

    documented = first_column(section(COMMANDS / "crontab-lint.md", "Findings"))
    assert tuple(documented) == FINDINGS


def test_the_environment_is_documented_and_no_other() -> None:
    """Every ONCECRON_ name in the code is listed, and no page has one that is not there."""
    in_code = set()
    for path in sources():
        in_code |= names(path.read_text(encoding="utf-8"))
    assert names(section(OVERVIEW, "Environment")) == in_code
    for page in (README, *pages()):
        unknown = names(page.read_text(encoding="utf-8")) - in_code
        assert not {name for name in unknown if not OF_TESTS_AND_BUILDS.match(name)}, page.name


def names(text: str) -> set[str]:
    """Return the environment variables that a text names."""
    return set(re.findall(r"\bONCECRON_[A-Z_]*[A-Z]\b", text))


def test_retention_is_stated_as_it_is() -> None:
    """In days, and the least of a new store."""
    text = " ".join((COMMANDS / "prune.md").read_text(encoding="utf-8").split())
    for name, seconds in model.Retention()._asdict().items():
        assert f"{seconds / 86400:g} days (`{name}`)" in text
    executions, skips = (f"{seconds / 86400:g}" for seconds in model.LEAST)
    assert f"it is {executions} days for executions and {skips} day for skips" in text


def test_the_parameters_of_a_redis_address_are_stated() -> None:
    """All of them, and none that is not there."""
    from oncecron.stores.redis.address import PARAMETERS

    text = "\n".join(page.read_text(encoding="utf-8") for page in (README, *pages()))
    text = re.sub(r"^```nginx\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    coded = set(re.findall(r"`([a-z_]+)`", text)) | set(re.findall(r"\?([a-z_]+)=", text))
    assert set(PARAMETERS) <= coded
    named = set(re.findall(r"\b(?:ssl|sentinel)_(?:[a-z]+_)*[a-z]+\b", text))
    assert named <= set(PARAMETERS)


def test_the_gap_of_the_default_rule_is_stated() -> None:
    """It is no default of the table, since --no-tick has none."""
    text = (COMMANDS / "run.md").read_text(encoding="utf-8")
    assert f"Default: {timing.DEFAULT_MIN_GAP:g}s" in text


def test_every_option_in_a_document_exists() -> None:
    """Also those that are mentioned in passing, and in examples of oncecron; another program's are not ours."""
    known = {"help", "version", *(option.name for option in RUN_OPTIONS)}
    for command in every_command().values():
        known |= {option.name for option in command.table}
    for page in (README, CHANGELOG, *pages()):
        for text in about_oncecron(page.read_text(encoding="utf-8")):
            for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text):
                assert name in known, f"{page.name}: --{name} in {text[:80]!r}"


def about_oncecron(text: str) -> Iterator[str]:
    """Yield code that begins with an option, and lines that call oncecron, without the commands that these run."""
    yield from re.findall(r"`(--[a-z][^`\n]*)`", text)
    for line in re.findall(r"^(?!.*(?:pip|uv|apt-get) ).*\boncecron [a-z].*$", text, re.MULTILINE):
        yield re.sub(r"--shell '.*", "--shell", line).split(" -- ", maxsplit=1)[0]
