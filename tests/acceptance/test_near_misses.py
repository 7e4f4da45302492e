"""A name with a typing error: whatever it is the name of, the same question says what was probably meant."""

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import refused
from servers.oncecron import Oncecron

Hosts = Callable[..., Oncecron]


@pytest.fixture
def host(new_host: Hosts) -> Oncecron:
    """Give a host that has fired two keys, one of them with items."""
    host = new_host("web1")
    host.run("billing", "--tick", "1", "--", "true")
    assert host("each", "--key", "digest", "--items", "echo a", "--", "true").status == 0
    return host


KEY, NO_KEY = (
    "no host has fired key biling; did you mean billing?",
    "`oncecron jobs` lists all keys",
)
HOST, NO_HOST = "host wbe1 has fired no key; did you mean web1?", "`oncecron hosts` lists all hosts"
WITH_KEY = (
    *(
        "history",
        "history --skips",
        *("why", "jobs", "locks", "audit", "check", "timeline"),
        "report --html -",
    ),
    *("stop", "release", "forget"),
)
MISTAKES = [
    *((f"{command} biling", KEY) for command in WITH_KEY), *((f"{command} zzz", NO_KEY) for command in WITH_KEY),
    ("next biling", "did you mean billing?"), ("items digets", "key digets has no items; did you mean digest?"),
    ("items zzz", "key zzz has no items; `oncecron items` shows the lists of all keys"),
    ("config show biling", "has no section [job.biling]; did you mean [job.billing]?"),
    ("run --key biling", "or set `command` in [job.biling]; did you mean [job.billing]?"),
    ("pause biling", KEY), ("pause zzz", f"zzz; {NO_KEY}; if it is to come: `oncecron pause zzz "),
    ("pause bilin --new", "paused bilin until "),
    ("resume bilni", "bilni was not paused; did you mean bilin?"),
    ("hosts wbe1", HOST), ("forget --host wbe1", HOST), ("hosts nohost", NO_HOST), ("forget --host nohost", NO_HOST),
    ("history --host wbe1", HOST), ("history billing --host nohost", NO_HOST), ("history --skips --host wbe1", HOST),
    ("drain wbe1", HOST), ("drain nohost", NO_HOST), ("drain web2 --new", "drained web2"),
    ("undrain bwe2", "bwe2 was not drained; did you mean web2?"),
    ("history --outcome faild", "did you mean failed?"), ("history --skips --outcome hold", "did you mean held?"),
    ("why billing --outcome succeded", "did you mean succeeded?"), ("items digest --state daed", "did you mean dead?"),
    *((f"check --{option} faild", "did you mean failed?") for option in ("warning", "critical", "ignore")),
    ("history --format jsn", "--format: 'jsn' is not one of table, json, ndjson, csv; did you mean json?"),
    ("stop billing --signal HPU", "did you mean HUP?"),
    ("run --key k --on-store-error skp -- true", "did you mean skip?"),
    ("completion bahs", "'bahs' is not one of bash, zsh, fish; did you mean bash?"),
    ("histroy", "unknown command 'histroy'; did you mean `oncecron history`?"),
    ("config shwo", "unknown command 'shwo'; did you mean `oncecron config show`?"),
    ("history --outcom failed", "no such option --outcom; did you mean --outcome?"),
    ("run --key k --scheduel @daily -- true", "no such option --scheduel; did you mean --schedule?"),
    ("next @dialy", "unknown schedule '@dialy'; did you mean @daily?"),
    ("next @daily --tz Europe/Berln", "unknown time zone 'Europe/Berln'; give a name such as Europe/Berlin"),
    ("jobs --store postgrsql://h/d", "unknown kind 'postgrsql'; did you mean postgresql://?"),
]  # fmt: skip
OTHER_WORDS = [
    ("disable billing", "did you mean `oncecron pause`?"),
    ("reset billing", "did you mean `oncecron release` (what a dead host holds), `oncecron forget`"),
    ("setup", "did you mean `oncecron init` (the store)"), ("history --sort x", "did you mean --format csv"),
    ("crontab undo", "did you mean `oncecron crontab unwrap`?"), ("crontab unwrap --all", "it unwraps all lines"),
    ("crontab wrap --dry-run x", "did you mean --diff, or --check"), ("jobs --sort next", "did you mean --next ("),
    ("prune --older-than 30d", "did you mean --executions AGE or --skips AGE?"),
    ("web --port 8080", "did you mean --listen [HOST:]PORT?"), ("report --output x", "did you mean --html FILE?"),
    *((f"{each} --key billing", f"the key is an argument: `oncecron {each} KEY`") for each in ("why", "stop")),
    ("doctor --key billing", "no such option --key; see `oncecron doctor --help`"),
    ("doctor web2", "`oncecron hosts web2`"), ("drain web1 web2", "`oncecron drain` takes one HOST at a time"),
    ("notify --test ops", "--test goes to every channel"), ("pause shop-*", "'shop-*' is a pattern; name a key"),
    ("history shop-*", "'shop-*' is a pattern; name a key"),
    ("history --outcome error", "did you mean failed?"), ("why billing --outcome ok", "did you mean succeeded?"),
    ("check -w 1 -c 2", "--warning takes findings, such as missed; for a count: --failures 1"),
    ("run --key k --timeout 0 -- true", "for none, leave it out"),
    ("run --name k -- true", "did you mean --key KEY?"),
    ("run --key k bililng -- true", "if it begins behind the `--`, leave bililng out"),
    ("history 12", "`oncecron history --id 12`"), ("locks web1", "web1 is a host, and no key"),
    ("why billing digest", "`oncecron why` takes one KEY at a time"),
]  # fmt: skip
"""What people type who know other programs."""


def test_every_near_miss_gets_the_same_question(host: Oncecron, tmp_path: Path) -> None:
    """Of keys, hosts, items, outcomes, findings, formats, commands, options and what else has a name."""
    path = tmp_path / "oncecron.toml"
    path.write_text('[job.billing]\ncommand = "true"\n')
    host.environment["ONCECRON_CONFIG"] = str(path)
    wrong = {}
    for line, meant in (*MISTAKES, *OTHER_WORDS):
        ended = host(*line.split())
        said = ended.err + ended.out.decode()
        if meant not in said or ended.err.count("\n") > 1:
            wrong[line] = said
    assert wrong == {}


@pytest.mark.parametrize(
    "command",
    [
        *(f"{each} zzz" for each in (*WITH_KEY, "pause")),
        "history --host zzz",
        "history zzz --follow",
        "hosts zzz",
        "forget --host zzz",
    ],
)
def test_a_name_that_nobody_has_fired_has_a_status_of_its_own(host: Oncecron, command: str) -> None:
    """Not an empty answer, which would be believed; `check` has the status that a monitor knows."""
    ended = host(*command.split())
    assert (ended.status, ended.out == b"") == ((3, False) if "check" in command else (66, True))


def test_a_command_that_a_message_names_is_of_the_store_that_was_typed(host: Oncecron) -> None:
    """Whatever the message is: it can be pasted."""
    store = host.environment["ONCECRON_STORE"]
    for words in ("why zzz", "stop zzz", "hosts nohost", "items zzz", "pause zzz", "drain nohost"):
        said = host(*words.split(), "--store", store).err
        assert said.count("`oncecron ") == said.count(" --store ") > 0, said
        assert " --store " not in host(*words.split()).err


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("history --since 2026-11-28 02:00", "--since '2026-11-28 02:00'"),
        ("audit --until=yesterday 2:00 --since 3d", "--until 'yesterday 2:00'"),
        ("why billing --tick Tue 14:47", "--tick 'Tue 14:47'"), ("timeline 02:00", "did you mean --since 02:00?"),
        ("why 02:00", "did you mean --tick 02:00?"),
        ("history billing yesterday 02:00", "did you mean --since 'yesterday 02:00'?"),
    ],
)  # fmt: skip
def test_a_time_is_not_taken_for_a_key(host: Oncecron, line: str, meant: str) -> None:
    """The shell parts it from its day; an empty answer would be believed."""
    refused(host(*line.split()), 64, meant, "is not a KEY")


def test_a_word_is_taken_for_the_option_that_it_is_meant_for(host: Oncecron) -> None:
    """Where there is only one, and it is safe."""
    for line, printed in (
        ("pause billing 5m", b"paused billing until 20"),
        ("pause billing 23:59", b":59:00"),
        ("why billing 3h", b"Tick 1 of key billing succeeded"),
        ("history billing 3h --json", b'"billing"'),
        ("drain web1 2h", b"drained web1 until 20"),
    ):
        ended = host(*line.split())
        assert (ended.status, printed in ended.out) == (0, True), ended
    refused(host("history", "billing", "12"), 64, "unexpected argument '12'")
