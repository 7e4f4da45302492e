"""A wrong value of every option, variable and key of the file: one line with the cure, 64 or 78, and nothing runs.

What is wrong for a kind of option is made from its kind, so that a new duration or number is tried by itself; a
new text, of which only a person knows what is wrong with it, has to be put into `TEXTS`, or a test fails.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from answers import refused
from command_tree import every_command
from log_of import Store
from servers.oncecron import Ended, Oncecron

from oncecron.config.options import RUN_OPTIONS, Option

NO_ROLES = "has no roles"
UNSET = "an unset variable?"
Wrong = tuple[object, int, str]
ROLES: list[Wrong] = [
    ("", 64, UNSET),
    (",", 64, UNSET),
    ("public", 64, "public means everybody"),
    ("cron, PUBLIC", 64, "PUBLIC means everybody"),
    ("r", 78, NO_ROLES),
]
TEXTS: dict[str, list[Wrong]] = {
    **{f"{name}-role": ROLES for name in ("job", "operator", "read", "run")},
    "config": [("/no/such/file", 78, "cannot be read"), ("/", 78, "not a regular file")],
    "host": [("", 64, UNSET)],
    "key": [
        ("", 64, "1 to 200 of A-Z a-z 0-9"),
        ("two words", 64, "1 to 200 of A-Z a-z 0-9"),
        ("ü", 64, "1 to 200 of A-Z a-z 0-9"),
        (b"\xff", 64, "1 to 200 of A-Z a-z 0-9"),
        ("k" * 201, 64, "1 to 200 of A-Z a-z 0-9"),
    ],
    "namespace": [("", 78, "namespace ''"), ("a/b", 78, "namespace 'a/b'")],
    "outcome": [("", 64, "is not one of"), ("good", 64, "is not one of running, succeeded")],
    "reason": [
        ("", 64, UNSET),
        ("one\ntwo", 64, "one line of at most 500"),
        ("x" * 501, 64, "one line of at most 500"),
    ],
    "schedule": [
        ("", 64, "use five"),
        ("* * * *", 64, "use five"),
        ("61 * * * *", 64, "use 0-59"),
        ("0 0 30 2 *", 64, "never fires"),
        ("@reboot", 64, "--no-tick"),
    ],
    **{
        name: [
            ("", 64, "write 90m, 14:47, today"),
            ("last week", 64, "write 90m, 14:47, today"),
            (b"\xff", 64, "write 90m, 14:47, today"),
        ]
        for name in ("since", "until")
    },
    "store": [
        ("", 78, "it is empty (an unset variable?)"),
        ("db.example.com", 78, "is not a store; write postgresql://"),
        ("mysql://u:s3cret@h/d", 78, "unknown kind 'mysql'; write postgresql://"),
        ("postgresql+psycopg://u:s3cret@h/d", 78, "drop '+psycopg'"),
        ("postgresql://u:s3cret@h/d?nonsense=1", 78, "correct the store's URL"),
        ("sqlite://relative.db", 78, "must be absolute, with three slashes"),
        ("sqlite:////dev/null/x.db", 78, "/dev/null/x.db"),
        ("redis://h?nonsense=1", 78, "unknown parameter 'nonsense'"),
        ("sentinel://h/m", 78, "write redis+sentinel://"),
    ],
    "log": [
        ("", 78, "it is empty (an unset variable?)"),
        ("redis://h", 78, "use postgresql://USER@HOST/DATABASE or sqlite:///"),
        ("sqlite://relative.db", 78, "must be absolute, with three slashes"),
    ],
    "line": [
        ("", 64, UNSET),
        *((value, 64, "is not a number, or FILE:N") for value in ("x", "/etc/crontab", b"\xff")),
    ],
    "minutes": [(value, 64, "is not a number from") for value in ("", "x", "0", "nan", b"\xff")],
    "listen": [
        (value, 64, "use ") for value in ("", "web1", "web1:", ":70000", "9" * 5000, b"\xff")
    ],
    **{name: [("", 64, UNSET)] for name in ("html", "json", "judge")},
    "wrapper": [("", 64, "it is empty"), ("flock /x", 64, "it has no {command}")],
    "proxy": [("", 64, "is not an address"), ("etcd", 64, "such as 127.0.0.1:2379")],
    "textfile": [(value, 64, "does not end in .prom") for value in ("", "metrics.txt", b"\xff")],
    "only": [("", 64, UNSET)],
    "only-if": [("", 64, UNSET)],
    "items": [("", 64, UNSET)],
    "item": [("", 64, UNSET)],
    "state": [
        ("", 64, UNSET),
        ("gone", 64, "is not one of queued, taken"),
        (b"\xff", 64, "is not one of queued, taken"),
    ],
    **{
        name: [("faild", 64, "is not one of missed, silent")]
        for name in ("warning", "critical", "ignore")
    },
    "shell": [("", 64, UNSET)],
    "user": [("", 64, "--user is ")],
    "tick": [("", 64, "empty"), ("a b", 64, "without spaces"), (b"\xff", 64, "without spaces")],
    "tz": [("", 64, "such as Europe/Berlin"), ("Mars", 64, "such as Europe/Berlin")],
}
"""By the name of the option: a wrong value, the exit status on the command line, and words of the cure."""

OF_KIND: dict[str, list[Wrong]] = {
    "flag": [("yes", 64, "does not take a value")],
    "count": [("yes", 64, "does not take a value")],
    "integer": [(value, 64, "is not a whole number") for value in ("", "x", "1.5", b"\xff")],
    "duration": [
        ("", 64, UNSET),
        *((value, 64, "such as 90s, 15m or 1h30m") for value in ("-1s", "soon", "5y", b"\xff")),
        ("999999d", 64, "at most 3653d"),
    ],
    "range": [
        ("", 64, UNSET),
        *((value, 64, "such as 90s, 15m or 1h30m") for value in ("soon", "1s..", "..1s", b"\xff")),
        ("5m..5s", 64, "5s..5m"),
    ],
    "codes": [(value, 64, "is not a whole number") for value in ("", "x", "64,", "64;65", b"\xff")],
    "size": [
        ("", 64, UNSET),
        *((value, 64, "bad size") for value in ("x", "1.5k", "64kb", "-1", b"\xff")),
        ("2M", 64, "at most 1M"),
    ],
}

NOTHING_WRONG = {
    ("history", "tick", b"\xff"),  # may be looked for
    ("history", "tick", "a b"),
    ("why", "tick", b"\xff"),  # refused in words of its own, which name all forms
    ("why", "tick", "a b"),
    ("again", "tick", b"\xff"),
    ("again", "tick", "a b"),
    ("drill", "store", "sqlite:////dev/null/x.db"),  # it names the file of its own beside it
    ("flush", "store", "sqlite:////dev/null/x.db"),  # with nothing to deliver it does not connect
}

BESIDE = {
    **{(name, "tz"): ["--schedule", "0 2 * * *"] for name in ("run", "each", "next")},
    ("drill", "proxy"): ["--wrapper", "true {key} {proxy} {command}"],
}
"""What has to be given so that the value is looked at."""


class Case(NamedTuple):
    """One wrong value of one option."""

    option: Option
    value: object
    status: int
    told: str


def wrong(option: Option) -> Iterator[Case]:
    for each in (*OF_KIND.get(option.kind, ()), *_out_of_bounds(option)):
        yield Case(option, *each)
    if option.kind == "choice":
        for value in ("", "other"):
            yield Case(option, value, 64, f"is not one of {', '.join(option.choices)}")
    if option.kind == "text":
        for each in TEXTS.get(option.name, ()):
            yield Case(option, *each)


def _out_of_bounds(option: Option) -> Iterator[Wrong]:
    if option.minimum:
        yield "0", 64, f"the minimum is {option.minimum:g}"
    elif option.minimum == 0:
        yield "-1", 64, "the minimum is 0"
    if option.maximum is not None:
        yield str(int(option.maximum) + 1), 64, f"the maximum is {option.maximum:g}"


COMMANDS = every_command()
EVERY = [
    (name, case)
    for name, command in COMMANDS.items()
    for option in command.table
    for case in wrong(option)
    if (name, option.name, case.value) not in NOTHING_WRONG
]
BEFORE = {
    **{name: ["--key", "k"] for name in ("run", "each")},
    "notify": ["--dry-run"],
    "report": ["--html", "-"],
    "drill": ["--yes"],
}
BEHIND = {
    "run": ["--", "touch", "ran"],
    "each": ["--", "touch", "ran"],
    "completion": ["bash"],
    "crontab wrap": ["crontab"],
    "crontab unwrap": ["crontab"],
    **{
        name: ["k"]
        for name in ("next", "why", "again", "pause", "resume", "stop", "release", "forget")
    },
}
WITHOUT_WORDS = {("next", "schedule"), ("next", "tz")}  # of a schedule that is typed


def checked(ended: Ended, case: Case, status: int, *names: str) -> None:
    """Check the one line: it names what is wrong and the cure, and no password."""
    refused(ended, status, case.told, *names)
    assert "s3cret" not in ended.err
    assert "internal" not in ended.err


def test_every_option_has_a_wrong_value() -> None:
    """A new one without any is found here."""
    tried = {(name, case.option.name) for name, case in EVERY}
    options = {(name, option.name) for name, one in COMMANDS.items() for option in one.table}
    assert options - tried == set()


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_told_with_its_cure(host: Oncecron, public_path: Path, name: str) -> None:
    """Of every command; whatever comes from a shell, also bytes that are no UTF-8."""
    host("init")
    (public_path / "crontab").touch()
    if name == "notify":  # without a channel it asks no store
        (public_path / "notify.toml").write_text('[notify.channel.log]\ncommand = "true"\n')
        host.environment["ONCECRON_CONFIG"] = str(public_path / "notify.toml")
    for case in (case for command_name, case in EVERY if command_name == name):
        if name in ("check", "doctor", "metrics", "web") and case.status == 78:
            continue  # it is in their answer: test_check.py and so on
        value = case.value if isinstance(case.value, bytes) else str(case.value).encode()
        typed = b"--%s=%s" % (case.option.name.encode(), value)
        before = BEFORE.get(name, []) if case.option.name not in ("key", "html") else []
        before = [*before, *BESIDE.get((name, case.option.name), [])]
        behind = BEHIND.get(name, []) if (name, case.option.name) not in WITHOUT_WORDS else []
        words = [*before, typed, *behind]
        ended = host(*name.split(), *words, cwd=public_path)
        names = () if case.status == 78 else (f"--{case.option.name}",)
        checked(ended, case, case.status, *names)
    assert not (public_path / "ran").exists()


@pytest.mark.turns(12)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "--key is missing"),
        (["run", "--key", "k"], "the command is missing"),
        (["run", "--key", "k", "-c", "x", "--", "touch", "ran"], "leave one of them out"),
        (["run", "--key", "k", "-c"], "-c"),
        (["crontab"], "see `oncecron crontab --help`"),
        (["crontab", "frob"], "unknown command 'frob'; the commands are wrap"),
        (["run", "--", "touch", "ran"], "--key is missing"),
        (["run", "--keys", "k", "--", "touch", "ran"], "did you mean --key?"),
        (["run", "--key", "k", "--tick", "t", "--no-tick", "touch", "ran"], "only one of them"),
        (["run", "--key", "k", "--tz", "UTC", "touch", "ran"], "--schedule"),
        (["run", "--key", "k", "--tick", "t", "--min-gap", "1s", "touch", "ran"], "--no-tick"),
        (["run", "--key", "k", "--no-tick", "--starting-deadline", "1s", "touch", "ran"], "scheduled"),
        (["run", "--key", "k", "--starting-deadline", "2s", "--spread", "2s", "touch", "ran"], "shorter --spread"),
        (["run", "--key", "k", "--spread", "often", "touch", "ran"], "--spread"),
        (["run", "--key", "k", "--again", "touch", "ran"], "name the tick"),
        (["each", "--", "touch", "ran"], "--key is missing"),
        (["each", "--key", "k", "--items", "seq 2"], "the command is missing"),
        (["each", "--key", "k", "--items", "seq 2", "{}", "ran"], "write the command first"),
        (["each", "--key", "k", "--json", "-0", "touch", "ran"], "leave one of them out"),
        (["each", "--key", "k", "--slots", "2", "--jobs", "3", "touch", "ran"], "raise --slots"),
        (["each", "--key", "k", "--no-tick", "touch", "ran"], "no such option --no-tick"),
        (["history", ""], UNSET),
        (["history", "--id", "1", "--host", "h"], "leave out --host"),
        (["history", "--outcome", "held"], "add --skips"),
        (["history", "--skips", "--outcome", "failed"], "--outcome"),
        (["history", "--follow", "--json"], "ndjson"),
        (["history", "--follow", "--skips"], "leave out --skips"),
        (["history", "--exhausted", "--follow"], "leave out --follow"),
        (["history", "--json", "--format", "csv"], "leave one out"),
        (["why"], "missing argument"),
        (["why", ""], UNSET),
        (["pause"], "the key is missing (an unset variable?); name a key, or use --all"),
        (["pause", ""], UNSET),
        (["pause", "two words"], "1 to 200 of A-Z a-z 0-9"),
        (["pause", "*"], "is a pattern; name a key"),
        (["pause", "k", "--all"], "leave out 'k' or --all"),
        (["resume"], "the key is missing"),
        (["resume", "--all", "k"], "leave out 'k' or --all"),
        (["drain", ""], UNSET),
        (["undrain", " "], UNSET),
        (["stop"], "missing argument"),
        (["stop", ""], UNSET),
        (["release"], "missing argument"),
        (["release", ""], UNSET),
        (["forget"], "the key is missing"),
        (["forget", ""], UNSET),
        (["forget", "--host", ""], UNSET),
        (["forget", "k", "--host", "web1"], "leave out 'k' or --host"),
        (["run", "--key", "k", "--no-tick", "--shards", "2", "touch", "ran"], "tick"),
        (["run", "--key", "k", "--failover", "--retries", "0", "touch", "ran"], "--failover"),
        (["completion"], "bash|zsh|fish"),
        (["completion", "tcsh"], "'tcsh' is not one of bash, zsh, fish"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_with_its_cure(
    host: Oncecron, public_path: Path, arguments: list[str], told: str
) -> None:
    """What is missing, what is too much, what does not go together."""
    refused(host(*arguments, cwd=public_path), 64, told)
    assert not (public_path / "ran").exists()


@pytest.mark.parametrize("option", [o for o in RUN_OPTIONS if o.environment], ids=lambda o: o.name)
def test_a_wrong_variable_is_named(host: Oncecron, public_path: Path, option: Option) -> None:
    """A variable is configuration: 78. An empty one is none."""
    assert option.environment
    for case in wrong(option):
        if not case.value:
            continue
        host.environment[option.environment] = str(case.value)
        checked(host.run("k", "--", "touch", public_path / "ran"), case, 78)
    assert not (public_path / "ran").exists()


@pytest.mark.turns(1)
@pytest.mark.parametrize("section", ["", "[job.k]"])
def test_a_wrong_key_of_the_file_is_named(
    any_store: Store, host: Oncecron, public_path: Path, section: str
) -> None:
    """Every key that may stand there, with its place; the file is configuration: 78."""
    del host.environment["ONCECRON_STORE"]
    config = public_path / "oncecron.toml"
    wanted = ("anywhere",) if section == "" else ("anywhere", "job")
    for option in (option for option in RUN_OPTIONS if option.config in wanted):
        for case in wrong(option):
            if isinstance(case.value, bytes):
                continue
            key, told = option.name.replace("-", "_"), case.told
            if option.kind == "flag":
                told = "is neither true nor false"
            beside = 'schedule = "0 2 * * *"\n' if option.name == "tz" else ""
            store = "" if option.name == "store" else f'store = "{any_store.url}"\n'
            config.write_text(f'{store}{section}\n{beside}{key} = "{case.value}"\n')
            config.chmod(0o600)
            ended = host.run("k", "--config", config, "--", "touch", public_path / "ran")
            names = () if option.name in ("store", "namespace") else (str(config), key)
            checked(ended, case._replace(told=told), 78, *names)
    assert not (public_path / "ran").exists()


@pytest.mark.parametrize(
    "line", ["run --key $UNSET --", "each --key $UNSET -v --items 'echo 1' --"]
)
def test_an_unset_variable_runs_nothing(host: Oncecron, public_path: Path, line: str) -> None:
    """Two such lines would share the key that the next option makes: `--`, `-v`."""
    host.prefix = ["/bin/sh", "-c", f'"$0" {line} touch {public_path / "ran"}']
    option = "'-v'" if "-v" in line else "'--'"
    message = (
        f"oncecron: --key has no value before {option} (an unset variable?); "
        "a value that begins with - is written --key=VALUE\n"
    )
    assert host() == Ended(64, b"", message)
    assert not (public_path / "ran").exists()
