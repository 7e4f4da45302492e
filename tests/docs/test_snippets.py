"""Every command that README and docs/ show is run and prints what is shown, or says why it is not run."""

import configparser
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from snippet_machine import (
    Machine,
    empty_postgres_machine,
    local_machine,
    postgres_machine,
    redis_machine,
)
from snippet_output import differences
from snippet_source import PROMPT, SHELL, Block, Command, Scenario, blocks, blocks_of, scenarios

from oncecron.config import file, run_parser
from oncecron_notify.notify_table import parse_notify

BLOCKS = blocks()
SCENARIOS = [
    pytest.param(each, marks=[pytest.mark.slow] if each.waits_for_a_lease else [], id=each.name)
    for each in scenarios(BLOCKS)
]
UNCHECKED = {"text", "sql", "java", "ruby", "php", "nginx", "mermaid", "dockerfile"}
PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "ini": lambda text: configparser.ConfigParser(strict=False, interpolation=None).read_string(
        text
    ),
    "python": lambda text: compile(text, "snippet", "exec"),
}


def of(*languages: str) -> list[Block]:
    return [b for b in BLOCKS if b.language in languages and "not parsed" not in b.comments]


def named(block: Block) -> str:
    return block.name


@pytest.fixture
def machine_at(request: pytest.FixtureRequest) -> Callable[[str], AbstractContextManager[Machine]]:
    """Give a function that makes the machine of a scenario, with the servers that it needs alone."""

    def make(place: str) -> AbstractContextManager[Machine]:
        if place == "local":
            return local_machine()
        if place == "redis":
            return redis_machine(request.getfixturevalue("redis_server"))
        server = request.getfixturevalue("postgres")
        return postgres_machine(server) if place == "postgres" else empty_postgres_machine(server)

    return make


def wrong(machine: Machine, scenario: list[Block]) -> list[str]:
    """Run a scenario and return what is not as the page shows it."""
    found = []
    for command, printed, status in machine.run(scenario):
        heading = f"{command.host}$ {command.text}"
        if status is None:
            found += [heading, "the shell ended in it:", *printed]
            break
        if command.shown is None and status != 0:
            found += [heading, f"status {status}:", *printed]
        elif command.shown is not None:
            differing = differences(command.shown, printed, datetime.now(UTC))
            found += [heading, *differing] if differing else []
    return found


# Shell


@pytest.mark.turns(30)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_command_prints_what_is_shown(
    scenario: Scenario, machine_at: Callable[[str], AbstractContextManager[Machine]]
) -> None:
    """Blocks that continue each other are run one after the other, by one shell."""
    with machine_at(scenario.place) as machine:
        found = wrong(machine, scenario.blocks)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language in SHELL and "not run" in b.comments], ids=named
)
def test_what_is_not_run_is_valid_and_says_why(block: Block) -> None:
    """As far as `bash -n` can tell; what a command needs that is not here is the only reason."""
    reason = block.comments["not run"]
    assert re.match(r"needs \w", reason), reason
    text = "\n".join(command.text for command in block.commands())
    ended = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_most_is_run() -> None:
    """Three of four blocks at least."""
    shell = [block for block in BLOCKS if block.language in SHELL]
    not_run = [block.name for block in shell if "not run" in block.comments]
    assert len(not_run) * 4 <= len(shell), not_run


# The checks bite


def example(text: str) -> list[Block]:
    return list(blocks_of(Path(__file__), text))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```console\n$ echo once\ntwice\n```", "printed:"),
        ("```console\n$ true\nanything\n```", "printed:"),
        ("```console\n$ date -d @0 +%F\n1970-01-02\n```", "printed:"),
        ("```sh\nfalse\ntrue\n```", "the shell ended in it:"),
        ("```console\n$ exit 3\n$ echo never\nnever\n```", "the shell ended in it:"),
        ("<!-- before:\nfalse\n-->\n```console\n$ true\n```", "the shell ended in it:"),
    ],
)
def test_a_wrong_page_is_found_out(text: str, complaint: str) -> None:
    """Other output, another date, a command that fails."""
    (scenario,) = scenarios(example(text))
    with local_machine() as machine:
        assert complaint in wrong(machine, scenario.blocks)


def test_a_right_page_passes() -> None:
    """Two hosts, two blocks of one shell, a status, a command of two lines, lines left out, a path, what varies."""
    first = "<!-- before:\nmade=before\n-->\n\n```console\n$ echo $made >/srv/made; cat /srv/made\nbefore\n```\n"
    second = """<!-- test: continues -->
```console
web2$ printf '%s\\n' $ONCECRON_HOST $made /srv \\
> "$(date -u +%FT%TZ) pid $$ took 0.1s"
web2
...
/srv
2020-01-01T00:00:00Z   pid 1  took 12.5s
$ sh -c 'exit 3'
$ echo $?
3
```
"""
    (scenario,) = scenarios(example(first + second))
    with local_machine() as machine:
        assert wrong(machine, scenario.blocks) == []


# Other languages


def test_every_block_follows_the_convention() -> None:
    """It has a language that is known, and what is typed is in a block that is run."""
    for block in BLOCKS:
        known = {*SHELL, *UNCHECKED, *PARSERS, "crontab", "toml"}
        assert block.language in known, block.name
        if block.language in UNCHECKED:
            typed = [line for line in block.text.splitlines() if PROMPT.fullmatch(line)]
            assert typed == [], f"{block.name}: commands stand in ```console"


@pytest.mark.parametrize("block", of("crontab"), ids=named)
def test_a_crontab_line_is_one_that_cron_runs(block: Block) -> None:
    """Five fields or @reboot, an absolute path, no bare %, and arguments of `run` that are understood."""
    for line in block.text.splitlines():
        if not line or line.startswith("#") or re.match(r"\w+ ?=", line):
            continue
        command = line.split(None, 1 if line.startswith("@") else 5)[-1]
        assert not re.search(r"(?<!\\)%", command), line
        words = shlex.split(command.replace("\\%", "%"))
        assert words[0].startswith("/") or re.match(r"\w+=\$\(/", words[0]), line
        if Path(words[0]).name == "oncecron" and words[1] == "run":
            check_firing(line, words[2:])


def check_firing(line: str, words: list[str]) -> None:
    """Check the arguments of one `oncecron run`."""
    parsed = run_parser.parse_run(words)
    assert parsed is not None, line
    assert "shell" in parsed.given or parsed.command[0].startswith("/"), line
    if "schedule" in parsed.given:
        assert parsed.given["schedule"] == " ".join(line.split(None, 5)[:5])


@pytest.mark.parametrize("block", of("toml"), ids=named)
def test_a_configuration_example_is_accepted(block: Block, tmp_path: Path) -> None:
    """By the reader of the configuration file itself."""
    path = tmp_path / "oncecron.toml"
    path.write_text(block.text, encoding="utf-8")
    path.chmod(0o640)  # it may hold secrets
    read = file.read_file(str(path))
    mistakes = [*read.problems, *parse_notify(read)[1]]
    assert [each for each in mistakes if "No such file" not in each.text] == []


@pytest.mark.parametrize("block", of(*PARSERS), ids=named)
def test_an_example_parses(block: Block) -> None:
    """As what it says it is."""
    PARSERS[block.language](block.text)


def test_commands_are_what_prompts_begin() -> None:
    """A host's name may stand before the prompt; `> ` begins the next line of a command, not of output."""
    (block,) = example("```console\n$ cat <<E\n> a\n> E\na\n> b\nweb2$ true\n```")
    assert block.commands() == [
        Command("web1", "cat <<E\na\nE", ("a", "> b")),
        Command("web2", "true", ()),
    ]
