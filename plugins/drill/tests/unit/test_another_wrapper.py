"""Another wrapper fires the same jobs; its parts are told by its jobs, and it is judged by what it promises."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from servers import eventually

from oncecron.core.errors import UsageError
from oncecron_drill.another_wrapper import OF_JOBS, Wrapper, parse
from oncecron_drill.checker import OF_JOBS as CARRIED_OUT
from oncecron_drill.checker import check
from oncecron_drill.firing_hosts import Tree
from oncecron_drill.generator import ITEM_KEYS, KEYS, WITNESS_WORDS, Shot, shots
from oncecron_drill.history import Fault, Firing, History, Log, Start, load
from oncecron_drill.stores.another import parse_server

if TYPE_CHECKING:
    from pathlib import Path


def test_its_words_are_filled() -> None:
    """The job as words of its own, or quoted within one."""
    shot = Shot(0, "h1", dataclasses.replace(KEYS[0], name="k"), "t1")
    wrapper = Wrapper(["lock", "/shared/{key}", "{command}"])
    assert wrapper.command(shot, ["sleep", "1 s"]) == ["lock", "/shared/k", "sleep", "1 s"]
    wrapper = Wrapper(["sh", "-c", "lock {key} {command}"])
    assert wrapper.command(shot, ["sleep", "1 s"]) == ["sh", "-c", "lock k sleep '1 s'"]
    wrapper = Wrapper(["lock", "--at={proxy}", "{key}-{tick}", "${tick}", "{}", "{command}"])
    filled = ["lock", "--at=127.0.0.1:7", "k-t1", "${tick}", "{}", "{tick}"]
    assert wrapper.command(shot, ["{tick}"], "127.0.0.1:7") == filled


def test_its_keys_have_the_same_jobs() -> None:
    """And nothing that only oncecron does: no further attempts, no parts, no items; every firing has a tick."""
    keys = Wrapper(["lock", "{command}"]).keys([*KEYS, *ITEM_KEYS])
    assert [key.job for key in keys] == [key.job for key in KEYS if not key.by_clock]
    assert {(key.run, key.parts, key.attempts, key.again) for key in keys} == {("", 1, 1, 0.0)}
    assert all(shot.tick for shot in shots(7, keys, ["h1"], 0.0, 60.0))


def test_its_jobs_are_told_what_oncecron_would_tell() -> None:
    """Else their ledger would not say which key they are of."""
    told = Wrapper([]).environment(Shot(0, "h1", KEYS[0], "t1"))
    assert (told["ONCECRON_KEY"], told["ONCECRON_TICK"]) == (KEYS[0].name, "t1")
    assert "ONCECRON_TICK" not in Wrapper([]).environment(Shot(0, "h1", KEYS[0], None))


def test_whatever_runs_between_wrapper_and_job_is_its_guard(tmp_path: Path) -> None:
    """A shell between the two too; where there is none, a fault of wrapper and guard is the wrapper's."""
    job = " ".join([*WITNESS_WORDS, str(tmp_path), "--seconds", "60", "--setsid"])
    words = ["sh", "-c", f"sh -c '{job}; true'; true"]
    told = dict(os.environ, WITNESS_FIRING="1", WITNESS_HOST="a", ONCECRON_KEY="k")
    with subprocess.Popen(words, env=told, start_new_session=True) as process:
        try:
            assert eventually(lambda: len(Tree(process.pid, has_guard=False).job) == 3)
            tree = Tree(process.pid, has_guard=False)
            assert tree.wrapper[0].pid == process.pid
            assert (len(tree.wrapper), len(tree.guard)) == (1, 1)
            assert tree.parts(["wrapper", "guard"]) == [*tree.wrapper, *tree.guard]
            alone = Tree(tree.guard[0].pid, has_guard=False)
            assert (alone.wrapper, alone.guard) == (tree.guard, [])
            assert alone.parts(["guard"]) == []
            assert alone.parts(["wrapper", "guard"]) == alone.wrapper
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("flock -n '{key} {command}", "cannot be split into words: No closing quotation"),
        ("flock -n /tmp/{key}", "it has no {command}"),
        ("flock -n /tmp/{key} {{command}", None),
        ("flock -n /tmp/lock {command}", "it has no {key}"),
        ("flock -n ${key} {command}", "it has no {key}"),
        ("flock -n /tmp/{key} {comand}", "unknown place {comand}; it may have {key}, {command}, {tick}, {proxy}"),
        ("env LOCK=/tmp/{key} {nam} {command}", "unknown place {nam}"),
        ("no-such-lock {key} {command}", "'no-such-lock' is no command that can be executed here"),
        ("/etc/passwd {key} {command}", "'/etc/passwd' is no command"),
        ("env {proxy} {key} {command}", "{proxy} needs --proxy HOST:PORT"),
    ],
)  # fmt: skip
def test_what_could_not_lock_is_refused(text: str, says: str | None) -> None:
    """Before anything is begun, and with what to write."""
    if says is None:
        assert parse(text, is_proxied=False).words
        return
    with pytest.raises(UsageError) as refused:
        parse(text, is_proxied=False)
    assert says in str(refused.value)


def test_a_proxy_that_the_wrapper_does_not_use_is_refused() -> None:
    """No fault would reach it."""
    with pytest.raises(UsageError, match=r"--proxy: the wrapper has no \{proxy\}"):
        parse("flock -n /tmp/{key} {command}", is_proxied=True)


def test_a_tick_is_promised_only_by_who_is_told_of_it() -> None:
    """A lock that is free again may be taken for the same tick."""
    assert "double" not in parse("flock -n /tmp/{key} {command}", is_proxied=False).rules
    assert "double" in parse("flock -n /tmp/{key}-{tick} {command}", is_proxied=False).rules


def test_it_is_shown_as_it_was_typed() -> None:
    """But for a password, and behind that too."""
    for text in ("flock -n /tmp/{key} {command}", "sh -c ': {key}; exec {command}'"):
        assert parse(text, is_proxied=False).shown == text
    text = "env DB=postgresql://me:hunter2@db/x sh -c 'lock {key} {command}'"
    shown = parse(text, is_proxied=False).shown
    assert "hunter2" not in shown
    assert shown.endswith("sh -c 'lock {key} {command}'")


@pytest.mark.parametrize("text", ["", "db", ":1", "db:", "db:x", "db:0", "db:65536", "db:٣"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    """Else the line says what one looks like."""
    with pytest.raises(UsageError, match="is not an address such as"):
        parse_server(text)
    assert parse_server("[::1]:2379") == ("::1", 2379)
    assert parse_server("db.example.com:5432") == ("db.example.com", 5432)


def test_it_is_judged_by_what_it_promises() -> None:
    """Two jobs at once, and a tick twice; without a log that would say anything of it."""
    firings = [Firing(n, 1.0, f"h{n}", "k", "t1", ["lock"], n, 9.0, 0) for n in (1, 2)]
    starts = [
        Start(f"k/{n}", 1.0 + n, f"h{n}", 10 + n, n, "k", "0", "t1", 1, None, None, 8.0, ended=8.0, status=0)
        for n in (1, 2)
    ]  # fmt: skip
    head = {"ttl": 6.0, "hosts": ["h1", "h2"], "keys": {}, "promised": OF_JOBS}
    history = History(head, firings, [], starts, Log(), quiet=10.0, end=10.0)
    assert [each.rule for each in check(history).violations] == ["double", "overlap"]
    less = dataclasses.replace(history, head={**head, "promised": ["overlap"]})
    assert [each.rule for each in check(less).violations] == ["overlap"]
    assert set(OF_JOBS) == set(CARRIED_OUT)


def _overlap(*faults: Fault, own_sign: float | None = 20.0, last_sign: float = 20.0) -> str:
    """Return what is said of two jobs at once: one from 1 s on host h1, one from 12 s on h2."""
    firings = [
        Firing(n, at, f"h{n}", "k", "t1", ["--", "lock"], n, 25.0, 0)
        for n, at in ((1, 0.9), (2, 11.9))
    ]
    starts = [
        Start("k/1", 1.0, "h1", 11, 1, "k", "0", "t1", 1, None, None, last_sign, own_sign),
        Start("k/2", 12.0, "h2", 12, 2, "k", "0", "t2", 1, None, None, 24.0, 24.0, ended=24.0, status=0),
    ]  # fmt: skip
    head = {"ttl": 6.0, "hosts": ["h1", "h2"], "keys": {}, "promised": ["overlap"]}
    verdict = check(History(head, firings, list(faults), starts, Log(), quiet=30.0, end=30.0))
    [found] = [*verdict.violations, *verdict.holes]
    return f"{'hole' if found.hole else 'violation'}: {found.sentence.rpartition('; ')[2]}"


def test_two_at_once_say_what_was_done_before() -> None:
    """To the first's own processes, or its host's connections; not what befell others."""
    deaf = Fault(1, 3.0, "a deaf proxy", "h1", healed=11.5)
    killed = Fault(2, 4.0, "kill the wrapper", "h1", hit=[(1, "wrapper", "killed")], healed=4.0)
    other = Fault(3, 5.0, "kill the job", "h1", hit=[(9, "job", "killed")], healed=5.0)
    elsewhere = Fault(4, 6.0, "delay", "h2", healed=7.0)
    both = [(1, role, "stopped") for role in ("wrapper", "guard")]
    stopped = Fault(5, 2.0, "stop the wrapper", "h1", hit=both, healed=19.0)
    assert _overlap() == "violation: nothing had been done to the first"
    assert _overlap(deaf, other, elsewhere) == "violation: before that: a deaf proxy (+2.100 s)"
    assert "kill the wrapper" in _overlap(deaf, killed)
    assert _overlap(stopped).startswith("hole: wrapper and guard of the first could not act")


def test_what_a_job_leaves_running_is_not_promised() -> None:
    """By a lock that runs one command; what the job itself lived is."""
    said = "the first had ended, and what it had left running lived on"
    assert _overlap(own_sign=5.0) == f"hole: {said}"
    assert said not in _overlap(own_sign=12.5)
    stopped = Fault(1, 4.0, "stop the job", "h1", hit=[(1, "job", "stopped")], healed=19.0)
    assert said not in _overlap(stopped, own_sign=5.0)
    assert said in _overlap(dataclasses.replace(stopped, healed=9.0), own_sign=10.0)


def test_the_signs_of_a_job_are_told_from_those_of_what_it_started(tmp_path: Path) -> None:
    """And from the line that the drill itself adds where something lives in the end, even before the job's first."""
    (journal := tmp_path / "journal" / "k").mkdir(parents=True)
    start = {
        "event": "start",
        "at": 1.0,
        "pid": 11,
        "firing": 1,
        "attempt": 1,
        "token": None,
        "execution_id": None,
    }
    start |= {"host": "h1", "key": "k", "shard": "0", "tick": "t1"}
    lines = [
        start,
        {"event": "beat", "at": 2.0, "pid": 11},
        {"event": "beat", "at": 3.0, "pid": 12},
        {"event": "lives", "at": 9.0},
    ]
    (journal / "0-h1").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (journal / "0-h2").write_text("")
    (journal / "0-h3").write_text(json.dumps(lines[-1]) + "\n")
    firing = Firing(1, 0.5, "h1", "k", "t1", ["--", "lock"], 10)
    events = [
        {"event": "head", "items": {}},
        {"event": "firing", **dataclasses.asdict(firing)},
        {"event": "quiet", "at": 8.0},
        {"event": "end", "at": 9.0},
    ]
    text = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / "history.ndjson").write_text(text)
    (tmp_path / "log.json").write_text(json.dumps(dataclasses.asdict(Log())))
    [loaded] = load(tmp_path).starts
    assert (loaded.own_sign, loaded.last_sign, loaded.lives) == (2.0, 9.0, True)
