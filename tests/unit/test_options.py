"""One table of options, and what is made of it: two parsers of `run`, help, completion."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_tree import every_command
from hypothesis import example, given
from hypothesis import strategies as st
from servers.oncecron import Oncecron

from oncecron.__main__ import _status
from oncecron.cli import completion, main
from oncecron.cli import run as run_command
from oncecron.cli.command import TableCommand
from oncecron.config.options import (
    RUN_OPTIONS,
    STORE_OPTIONS,
    VARIABLES,
    Option,
    wrong_variables,
)
from oncecron.config.run_parser import ParsedRun, parse_run
from oncecron.core.errors import UsageError

COMMANDS = every_command()
STORELESS = ("completion", "config", "crontab")
OWN_NAMESPACE = ("drill",)
"""Those that use no namespace but one of their own."""
"""Commands and groups that ask no store."""
EVERY_OPTION = [(name, option) for name, one in COMMANDS.items() for option in one.table]


# Two parsers


def parsed_by_click(arguments: list[str]) -> ParsedRun:
    found: list[ParsedRun] = []

    def use(given: dict[str, str], words: list[str]) -> int:
        found.append(ParsedRun(given, words))
        return 0

    reader = TableCommand(
        "run", RUN_OPTIONS, use, about="",
        words=run_command.COMMAND.params[-1], greedy=True,  # type: ignore[arg-type]
    )  # fmt: skip
    with reader.make_context("run", list(arguments)) as context:
        reader.invoke(context)
    return found[0]


def _spelled(option: Option) -> st.SearchStrategy[list[str]]:
    name = f"--{option.name}"
    if not option.takes_value:
        return st.sampled_from([[name], ["-v"], ["-vv"]] if option.short else [[name]])
    short = f"-{option.short}" if option.short else name
    values = st.sampled_from(
        ["", "x", "-x", "--", "--key", "30s", "a=b", "-", "=", "ä b"]
    ) | st.text(max_size=5)
    spelled = values.map(lambda value: [[name, value], [f"{name}={value}"], [short, value]])
    joined = values.map(lambda value: [[f"{short}{value or 'x'}"], [f"-v{short[1:]}", value]])
    return (st.one_of(spelled, joined) if option.short else spelled).flatmap(st.sampled_from)


WORDS = st.lists(
    st.sampled_from(["true", "--", "-v", "--key", "-c", "", "--wait=3", "a b"])
    | st.text(max_size=4),
    max_size=4,
)
LINES = st.tuples(
    st.lists(st.one_of([_spelled(option) for option in RUN_OPTIONS]), max_size=6), WORDS
).map(lambda parts: [word for words in parts[0] for word in words] + parts[1])


@given(LINES)
@example(["--key", "k", "--", "true"])
@example(["--key=k", "-v", "-vv", "true", "--key", "x"])
@example(["--wait", "--", "true"])
@example(["--verbose", "--again", "--", "--", "x"])
def test_the_short_way_reads_a_line_as_click_does(arguments: list[str]) -> None:
    """Wherever it reads one at all."""
    parsed = parse_run(arguments)
    if parsed is not None:
        assert parsed_by_click(arguments) == parsed


@given(LINES)
def test_the_short_way_declines_only_what_has_something_wrong(arguments: list[str]) -> None:
    """Or asks for help, or abbreviates: the ordinary line never pays for click."""
    if parse_run(arguments) is None:
        try:
            parsed = parsed_by_click(arguments)
        except (click.UsageError, UsageError, click.exceptions.Exit):
            return
        assert parsed.command[0] == "-"  # a command of that name


@pytest.mark.parametrize(
    "line",
    [
        "--key", "-c", "-vc", "-vx", "--kee k -- true", "--again=yes -- true", "-x -- true", "--help", "-h",
        "--key a --key b -- true", "--key a --key=a -- true", "--shell x -c y", "-v -cx -vcy", "--key -- true",
        "--key -v -- true", "--key k --tick --no-tick true", "--key k -c -v",
    ],
)  # fmt: skip
def test_what_is_wrong_is_left_to_click(line: str) -> None:
    """It has the words for it."""
    assert parse_run(shlex.split(line)) is None
    with pytest.raises((click.UsageError, UsageError, click.exceptions.Exit)):
        parsed_by_click(shlex.split(line))


def test_an_option_that_takes_one_value_is_given_once(capfd: pytest.CaptureFixture[str]) -> None:
    """The first of two would be dropped without a word; flags, -v and lists may be repeated."""
    for name, option in EVERY_OPTION:
        words = [f"--{option.name}=1", f"--{option.name}", "1"]
        if not option.takes_value:
            words = [f"--{option.name}"] * 2
        line = [*name.split(), *words, *(["--key", "k"] if option.name != "key" else []), "--help"]
        status = _status(main.invoke, line[:-3] if name not in ("run", "each") else line[:-1])
        told = f"oncecron: --{option.name} is given twice; leave one of them out\n"
        refused = option.takes_value and not option.repeatable
        assert ((status, capfd.readouterr().err) == (64, told)) is refused, (name, option.name)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_next_option_is_no_value(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What an unset variable leaves: `--key $UNSET -- job` must not run the job under the key `--`."""
    for option in COMMANDS[name].table:
        if option.takes_value:
            _takes_no_option_for_its_value(name, option, capfd)


def _takes_no_option_for_its_value(
    name: str, option: Option, capfd: pytest.CaptureFixture[str]
) -> None:
    path = name.split()
    spelled = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    shorts = [f"-{one.short}" for one in COMMANDS[name].table if one.short]
    for next_one in ("--", "--utc", *shorts):
        for word in spelled:
            assert _status(main.invoke, [*path, word, next_one]) == 64
            told = (
                f"oncecron: --{option.name} has no value before {next_one!r} (an unset variable?)"
            )
            assert capfd.readouterr().err.startswith(told)
    _status(main.invoke, [*path, f"--{option.name}=--", "--nonsense"])
    assert "has no value" not in capfd.readouterr().err


def test_completion_bears_an_option_that_is_given_twice() -> None:
    """A line that is still being typed is completed, right or wrong."""
    words = ["history", "--limit", "1", "--limit", "2"]
    assert offered(*words, "--ou") == [("plain", "--outcome")]


# The table


def test_an_option_is_declared_once() -> None:
    """No name twice in a command; those of the store everywhere the same objects."""
    for name, one in COMMANDS.items():
        names = [option.name for option in one.table]
        assert len(set(names)) == len(names)
        if name.split()[0] not in (*STORELESS, *OWN_NAMESPACE):
            assert set(STORE_OPTIONS) <= set(one.table)


def test_defaults_are_values_that_the_option_takes() -> None:
    """As if they had been typed."""
    from oncecron.config.options import convert

    for _, option in EVERY_OPTION:
        if option.default is not None:
            convert(option, option.default)


def test_a_wrong_value_names_the_words_that_the_option_takes() -> None:
    """Also where it takes durations beside them."""
    from oncecron.config.options import convert

    with_words = {option.name: option for _, option in EVERY_OPTION if option.choices}
    assert with_words["catch-up"].kind == "duration"
    for option in with_words.values():
        with pytest.raises(ValueError, match="soon") as refused:
            convert(option, "soon")
        assert all(word in str(refused.value) for word in option.choices)


# Help


def flat(text: str) -> str:
    """Return a text with every run of blanks as one."""
    return " ".join(text.split())


def help_of(*arguments: str) -> str:
    """Return what the installed program prints, as one line."""
    done = subprocess.run(
        [Path(sys.executable).with_name("oncecron"), *arguments, "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return flat(done.stdout)


def test_every_command_is_in_the_help() -> None:
    """With its sentence."""
    text = help_of()
    for name, one in COMMANDS.items():
        *groups, own_name = name.split()
        assert f"{own_name} {one.short_help}" in (help_of(*groups) if groups else text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_its_command_s_help(name: str) -> None:
    """With its metavariable, its default and its environment variable."""
    text = flat(COMMANDS[name].get_help(click.Context(COMMANDS[name], info_name=name)))
    for option in COMMANDS[name].table:
        assert f"--{option.name} {option.metavar}".rstrip() in text
        assert flat(option.help) in text
        if option.default is not None:
            assert f"default: {option.default}" in text
        if option.environment is not None:
            assert f"environment: ${option.environment}" in text
        if option.short:
            assert f"-{option.short}," in text


ASKED_FOR_HELP = """
import json, os, sys
from oncecron.cli.main import invoke

for arguments in json.loads(sys.argv[1]):
    if os.fork() == 0:
        status = invoke(arguments)
        loaded = {'psycopg', 'sqlite3', 'redis', 'tomllib', 'oncecron.run.guard'} & set(sys.modules)
        sys.stdout.flush()
        os._exit(1 if status or loaded else 0)
    if os.wait()[1]:
        print(*arguments, file=sys.stderr)
"""


def test_help_version_and_completion_import_no_driver() -> None:
    """Nor anything of a firing."""
    helps = [[*name.split(), "--help"] for name in COMMANDS]
    lines = json.dumps([["--help"], ["--version"], *helps, ["completion", "bash"]])
    command = [sys.executable, "-P", "-c", ASKED_FOR_HELP, lines]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"Usage: ") > len(helps)


@pytest.mark.parametrize(
    ("line", "traced", "hint"),
    [
        ("run -vv --key k -- true", True, True), ("run -v --key k -v -- true", True, True),
        ("run --key k -- ls -vv", False, True), ("run -v --key k -- true", False, True),
        ("each -0vv --key k --slots 2 -- true", True, True), ("each -v --key k -- ls -vv", False, True),
        ("next -vv k", False, False), ("-c -vv", False, False),
    ],
)  # fmt: skip
def test_a_bug_is_traced_where_that_can_be_asked_for(
    line: str, traced: bool, hint: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """By `run` and `each`, however their -v are spelt and whatever the command is given."""

    def broken(_arguments: list[str]) -> int:
        raise AssertionError("planted")

    assert _status(broken, line.split()) == 70
    told = capfd.readouterr().err
    assert "internal error: AssertionError: planted" in told
    assert ("Traceback" in told, "add -vv to see a traceback" in told) == (traced, hint)


# Completion


def offered(*words: str) -> list[tuple[str, str]]:
    """Return type and value of what is offered for the last word."""
    completer = ShellComplete(main.ONCECRON, {}, "oncecron", "")
    return [(item.type, item.value) for item in completer.get_completions([*words[:-1]], words[-1])]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_completed(name: str) -> None:
    """And none that is not there."""
    options = [f"--{option.name}" for option in COMMANDS[name].table]
    assert offered(*name.split(), "--") == [("plain", each) for each in (*options, "--help")]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_value_of_an_option_is_completed(name: str) -> None:
    """By its choices, and by what its metavariable says."""
    for option in COMMANDS[name].table:
        _is_completed(name, option)


def _is_completed(name: str, option: Option) -> None:
    for choice in option.choices:
        words = (*name.split(), f"--{option.name}")
        assert ("plain", choice) in offered(*words, choice[:-1])
    known = {"KEY": "key", "HOST": "host", "FILE": "file"}
    assert known.get(option.metavar, option.completion) == option.completion
    assert option.completion not in known.values() or option.metavar in known


@pytest.mark.parametrize("name", COMMANDS)
def test_the_argument_of_a_command_is_completed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what its metavariable says; a plugin may have a function for it."""

    def named(what: object, _context: object) -> list[str]:
        return ["key" if callable(what) else str(what)]

    monkeypatch.setattr(completion, "_stored_names", named)
    for argument in COMMANDS[name].params[len(COMMANDS[name].table) :]:
        kinds = {"KEY": ("plain", "key"), "HOST": ("plain", "host"), "FILE": ("file", "")}
        expected = [kinds[word] for word in re.findall("KEY|HOST|FILE", argument.metavar or "")]
        if name not in ("run", "each", "completion"):
            assert offered(*name.split(), "") == expected
            assert expected


@pytest.mark.parametrize(
    ("line", "drivers"),
    [
        *(("oncecron h", set()), ("oncecron history --f", set()), ("oncecron run --key x -- l", set())),
        ("oncecron why ", {"sqlite3"}),
    ],
)  # fmt: skip
def test_a_tab_imports_a_driver_only_to_ask_a_store(
    line: str, drivers: set[str], tmp_path: Path
) -> None:
    """Nor anything of a firing."""
    code = (
        "import sys; from oncecron.core import timing; timing.COMPLETION_TIMEOUT = 60;"
        "from oncecron.cli.main import invoke; invoke([]);"
        "print({'psycopg', 'sqlite3', 'redis', 'tomllib', 'oncecron.run.guard'} & set(sys.modules))"
    )
    environment = {
        "_ONCECRON_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")),
        "HOME": str(tmp_path), "ONCECRON_STORE": f"sqlite://{tmp_path}/none.db",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str(drivers)
    assert done.stderr == ""


# Variables


def test_the_variables_are_those_of_the_manual() -> None:
    """Which has them all, in two tables."""
    page = Path(__file__).parents[2] / "docs" / "commands" / "overview.md"
    named = {*re.findall(r"`ONCECRON_([A-Z_]+)`", page.read_text(encoding="utf-8"))}
    assert named == {*VARIABLES}
    used = {each.environment for _, each in EVERY_OPTION if each.environment}
    assert {each.removeprefix("ONCECRON_") for each in used} <= {*VARIABLES}


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("ONCECRON_STROE", "did you mean ONCECRON_STORE?"), ("ONCECRON_STOREFILE", "did you mean ONCECRON_STORE_FILE?"),
        ("ONCECRON_ZQX", "rename or remove it"), ("ONCECRON_", "rename or remove it"),
    ],
)  # fmt: skip
def test_a_variable_that_is_none_of_ours_is_named(name: str, cure: str) -> None:
    """With the one that was meant."""
    known = ["ONCECRON_STORE", "ONCECRON", "PATH", "MY_ONCECRON_STROE"]
    assert [*wrong_variables([*known, name])] == [
        (f"{name} is no variable of oncecron, and is ignored", cure)
    ]


@pytest.mark.quick
def test_a_firing_names_them_where_it_names_what_is_wrong_in_the_file(public_path: Path) -> None:
    """For a person who asks, and never with a failing status."""
    host = Oncecron("local", public_path, ONCECRON_STROE="redis://a")
    loud = host.run("k", "-v", "--no-tick", "--", "true")
    assert loud.status == 0
    assert (
        "oncecron: ONCECRON_STROE is no variable of oncecron, and is ignored; did you mean"
        in loud.err
    )
    assert host.run("k2", "--no-tick", "--", "true").err == ""
    found = json.loads(host("doctor", "--json").out)
    assert [each["cure"] for each in found if each["subject"] == "environment"] == [
        "did you mean ONCECRON_STORE?"
    ]
