"""`oncecron check`: the answers of a monitoring plugin, by the installed console script."""

import json
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from answers import refused
from log_of import Store
from planting import last_started
from servers import Journal, eventually, job
from servers.oncecron import SHORT_TTL, Ended, Oncecron
from servers.process import kill_tree

from oncecron.core.errors import EX_UNKNOWN

Hosts = Callable[..., Oncecron]
MINUTELY = ("--schedule", "* * * * *", "--tz", "UTC")
FINDING = [
    *(
        *("finding", "state", "key", "shard", "count", "tick", "since", "reason", "host"),
        *("channel", "keys", "explained"),
    )
]


@pytest.fixture
def host(store: Store, new_host: Hosts) -> Oncecron:
    host = new_host("host-a")
    host.run("fine", "--tick", "t", "--", "true")
    return host


def answer(host: Oncecron, *words: object) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON answer."""
    ended = host("check", "--json", *words)
    assert ended.err == "", ended
    found = json.loads(ended.out)
    assert all(list(each) == FINDING for each in found["findings"])
    return ended.status, found


def kinds(host: Oncecron, *words: object) -> tuple[int, list[tuple[str, str | None, int]]]:
    """Return the exit status, and kind, key and count of each finding."""
    status, found = answer(host, *words)
    return status, [(each["finding"], each["key"], each["count"]) for each in found["findings"]]


def an_hour_ago() -> str:
    return (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%MZ")


def test_an_answer_is_not_followed_by_another(
    public_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The timer that gives up on the store ends with the question."""
    from oncecron.cli.check import _check

    store = f"sqlite://{public_path}/oncecron.db"
    assert Oncecron(store, public_path)("init").status == 0
    for status in (0, EX_UNKNOWN):  # the second time, another program's file is in its place
        assert _check({"store": store, "timeout": "30s"}, []) == status, capsys.readouterr()
        assert not [
            each
            for each in threading.enumerate()
            if isinstance(each, threading.Timer) and not each.finished.is_set()
        ]
        (public_path / "oncecron.db").write_text("another program's")


@pytest.mark.quick
def test_all_is_well(host: Oncecron) -> None:
    """One line with performance data, and status 0."""
    ended = host("check")
    assert (ended.status, ended.err) == (0, "")
    [line] = ended.out.decode().splitlines()
    assert line.startswith(
        "ONCECRON OK: 1 of 1 key ok | missed=0;;0 silent=0;;0 failed=0;;0 lost=0;;0 expired=0;;0 standstill=0;;0 "
        "slow=0;0 overrun=0;0 stopped=0;0 spooled=0;0 configuration=0;0 silent-host=0;0 clock=0;0 future=0;0 "
        "zone=0;0 same-name=0;0 "
    )  # and those of the plugins that are there
    assert line.endswith(" keys=1")
    assert answer(host) == (0, {"state": "ok", "keys": 1, "ok": 1, "findings": []})


@pytest.mark.quick
def test_a_mistake_in_the_configuration_is_a_warning(host: Oncecron, public_path: Path) -> None:
    """Of this host's file; a file that only another user may read is that one's."""
    file = public_path / "wrong.toml"
    file.write_text(
        "[[ping]]\nservice = 'webhook'\nurl = 'http://h/s3cret'\n[notify.channel.a]\nto = 'a b'\n"
    )
    file.chmod(0o644)
    ended = host("check", "--config", file)
    first, *lines = ended.out.decode().splitlines()
    assert (ended.status, ended.err) == (1, "")
    assert "; 1 of 1 key ok | " in first
    assert [line.partition(": url: this")[0].partition(": to: ")[0] for line in lines] == [
        f"warning: {file} [[ping]]",
        f"warning: {file} [notify.channel.a]",
    ]
    assert b"s3cret" not in ended.out
    assert host("check", "--config", file, "--ignore", "configuration").status == 0


def test_missed_ticks_are_critical_until_they_are_forgotten(
    store: Store, host: Oncecron, operator: Oncecron
) -> None:
    """How many, since when, and how many keys are well."""
    host.run("often", *MINUTELY, "--", "true")
    assert kinds(host) == (0, [])
    last_started(store, "often", an_hour_ago())
    status, [found] = kinds(host)
    assert (status, found[:2]) == (2, ("missed", "often"))
    assert 45 <= found[2] <= 51
    ended = host("check")
    first, second = ended.out.decode().splitlines()
    assert ended.status == 2
    missed = r"often missed \d+ ticks since \S+Z"
    assert re.match(rf"ONCECRON CRITICAL: {missed}; 1 of 2 keys ok \| missed=\d+;;0 ", first)
    assert re.fullmatch(f"critical: {missed}", second)
    assert kinds(host, "fine") == (0, [])
    assert operator("forget", "often").status == 0
    assert kinds(host) == (0, [])


def test_a_key_that_has_never_run_is_critical(host: Oncecron) -> None:
    """With a schedule it has missed its ticks, without one it is silent; the finding says why nothing has run."""
    late = ("--schedule", "0 0 1 1 *", "--tz", "UTC", "--starting-deadline", "1s", "--", "true")
    host.run("yearly", *late)
    for tick in ("1", "2", "3"):
        assert host("run", "--key", "broken", "--tick", tick, "--", "no-such-command").status == 127
    assert kinds(host) == (2, [("silent", "broken", 1), ("missed", "yearly", 1)])
    said = host("check").out.decode()
    assert "; it has never run; not started: broken on host-a" in said
    assert "yearly missed 1 tick since" in said
    assert "; it has never run; not started: late on host-a" in said
    found = json.loads(host("check", "--json").out)["findings"]
    assert [each["explained"] for each in found] == [True, True]
    assert b"late on host-a" in host("audit").out


def test_a_failure_is_critical_and_its_limit_can_be_raised(host: Oncecron) -> None:
    """With the exit status; a success ends it."""
    host.run("billing", "--tick", "1", "--", "sh", "-c", "exit 3")
    assert kinds(host) == (2, [("failed", "billing", 1)])
    assert kinds(host, "--failures", 2) == (0, [])
    host.run("billing", "--tick", "2", "--", "sh", "-c", "exit 3")
    assert kinds(host, "--failures", 2) == (2, [("failed", "billing", 2)])
    assert b"billing failed (exit status 3), 2 runs in a row" in host("check").out
    host.run("billing", "--tick", "3", "--", "true")
    assert kinds(host) == (0, [])


def test_a_run_that_ends_with_its_host_has_failed(
    host: Oncecron, operator: Oncecron, journal: Journal
) -> None:
    """A host that is shut down stops its jobs with TERM; one that a person has stopped is no failure."""
    firing = host.fire("billing", "--tick", "1", "--", *job(journal, "--sleep", 60))
    eventually(lambda: journal.runs() != [])
    firing.process.terminate()
    firing.wait()
    assert kinds(host) == (2, [("failed", "billing", 1)])
    reason = b"billing was stopped (signal 15), because oncecron was stopped or killed, perhaps with its host\n"
    assert reason in host("check").out
    firing = host.fire("billing", "--tick", "2", "--", *job(journal, "--sleep", 60))
    eventually(lambda: len(journal.runs()) == 2)
    assert operator("stop", "billing").status == 0
    firing.wait()
    assert kinds(host) == (0, [])


def test_a_daemon_is_well_while_another_host_runs_it(
    new_host: Hosts, operator: Oncecron, journal: Journal
) -> None:
    """After its host was shut down. One that has failed is not, until a person ends a run."""
    web1, web2 = new_host(), new_host()
    daemon = ("--no-tick", "--failover", "--")
    first = web1.fire("bot", *daemon, *job(journal, "--sleep", 60))
    eventually(lambda: journal.runs() != [])
    second = web2.fire("bot", *daemon, *job(journal, "--sleep", 60))
    first.process.terminate()
    first.wait()
    eventually(lambda: len(journal.runs()) == 2)
    eventually(lambda: kinds(web1) == (0, []))  # a log beside the store is told a little later
    second.process.terminate()
    second.wait()
    eventually(lambda: kinds(web1) == (2, [("failed", "bot", 2)]))
    web1.run("bot", *daemon, "false")
    third = web1.fire("bot", *daemon, *job(journal, "--sleep", 60))
    eventually(lambda: len(journal.runs()) == 3)
    eventually(lambda: kinds(web1) == (2, [("failed", "bot", 3)]))
    assert operator("stop", "bot").status == 0
    third.wait()
    eventually(lambda: kinds(web1) == (0, []))


def test_a_finding_gets_the_state_that_is_asked_for(host: Oncecron) -> None:
    """Warning, critical, or none; an unknown name is an unknown state."""
    host.run("billing", "--tick", "1", "--", "false")
    assert kinds(host, "-w", "failed,lost")[0] == 1
    assert kinds(host, "-c", "slow", "--warning", "failed")[0] == 1
    assert kinds(host, "--ignore", "failed") == (0, [])
    refused(host("check", "-w", "faild"), 64, "--warning: 'faild' is not one of missed, ")


def test_a_dead_host_is_found(store: Store, host: Oncecron) -> None:
    """Its lease has expired and no host has taken over."""
    firing = host.fire("billing", "--tick", "1", "--ttl", SHORT_TTL, "--", "sleep", "60")
    firing.job()
    eventually(lambda: store.executions("billing") != [])  # a log of its own hears of it later
    assert kinds(host) == (0, [])
    kill_tree(firing.process.pid)
    eventually(lambda: kinds(host)[1] == [("lost", "billing", 1)], 30)
    assert kinds(host, "--ignore", "lost") == (2, [("expired", "billing", 1)])
    account = b"billing was lost: the lease of host-a has expired at "
    assert account in host("check").out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["fin"], "no host has fired key fin; did you mean fine?"),
        (["--store", "postgresql://u:s3cret@h/d?nonsense=1"], "nonsense"),
        (["--store", "postgresql://u:s3cret@127.0.0.1:1/d"], "127.0.0.1"),
    ],
    ids=["key", "configuration", "away"],
)
def test_what_cannot_be_judged_is_unknown(host: Oncecron, words: list[str], why: str) -> None:
    """On standard output, because a monitoring system reads nothing else; without a password."""
    ended = host("check", *words)
    assert (ended.status, ended.err) == (3, "")
    [line] = ended.out.decode().splitlines()
    assert line.startswith("ONCECRON UNKNOWN: ")
    assert why in line
    assert "s3cret" not in line


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_store_that_never_answers_is_unknown_in_time(
    new_host: Hosts, scheme: str, as_json: bool
) -> None:
    """It accepts the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = ("--store", f"{scheme}://u:p@127.0.0.1:{port}/0", "--timeout", "1s")
        ended: Ended = new_host("host-a")("check", *words, *(["--json"] if as_json else []))
    assert (ended.status, ended.err) == (3, "")
    if as_json:
        assert json.loads(ended.out)["reason"] == "no answer from the store within 1 s"
    else:
        assert ended.out == b"ONCECRON UNKNOWN: no answer from the store within 1 s\n"


def test_a_host_that_has_stopped_to_fire(any_store: Store, new_host: Hosts) -> None:
    """A warning that can be made worse, or left out; a key may need several hosts."""
    del any_store
    a, b = new_host("host-a"), new_host("host-b")
    at_once = ("--silent-after", "0s")
    for tick in ("0", "00"):
        b.run("k", "--tick", tick, "--", "true")
        b.run("l", "--tick", tick, "--", "true")
    for tick in ("1", "2", "3"):
        assert kinds(a, *at_once) == (0, [])
        a.run("k", "--tick", tick, "--", "true")
    assert kinds(a) == (0, [])  # it may be rebooting
    assert kinds(a, *at_once) == (1, [("silent-host", None, 2)])
    assert b"host-b has fired nothing since " in a("check", *at_once).out
    assert kinds(a, *at_once, "-c", "silent-host") == (2, [("silent-host", None, 2)])
    assert kinds(a, *at_once, "--ignore", "silent-host") == (0, [])
    b.run("l", "--tick", "1", "--", "true")
    assert kinds(a, *at_once) == (1, [("silent-host", "k", 1)])
    assert a("drain", "host-b").status == 0
    assert kinds(a, *at_once) == (0, [])
    assert kinds(a, "--min-hosts", "3", "k") == (1, [("silent-host", "k", 2)])
    first, second = a("check", "--min-hosts", "2", "k").out.decode().splitlines()
    assert " silent-host=1;0 " in first
    assert second == ("warning: k has been fired by 1 host in its last 3 ticks, and not by 2")
    b.run("k", "--tick", "3", "--", "true")
    assert kinds(a, "--min-hosts", "2", "k") == (0, [])


def test_that_people_hold_everything_back_is_a_warning(
    new_host: Callable[..., Oncecron],
) -> None:
    """After an hour, with who did it and the command that ends it; before that, the keys are not missed."""
    a, b = new_host("host-a"), new_host("host-b")
    for host in (a, b):
        host.run("k", "--tick", "1", "--", "true")
        assert host("drain").status == 0
    assert kinds(a) == (0, [])
    assert kinds(a, "--stopped-after", "0s") == (1, [("stopped", None, 2)])
    assert kinds(a, "--stopped-after", "0s", "k") == (1, [("stopped", None, 2)])
    found = a("check", "--stopped-after", "0s").out.decode()
    assert found.startswith("ONCECRON WARNING: all 2 hosts are drained: host-a by ")
    assert "; 0 of 1 key ok | " in found
    assert "to end it: `oncecron undrain host-a`, `oncecron undrain host-b`" in found
    assert b("undrain").status == 0
    assert kinds(a, "--stopped-after", "0s") == (0, [])
    assert a("pause", "--all", "--reason", "a move").status == 0
    found = a("check", "--stopped-after", "0s").out.decode()
    assert "all keys are paused by " in found
    assert ": a move; nothing runs; to end it: `oncecron resume --all`" in found
