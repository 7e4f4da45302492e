"""A history that was kept is judged again as it was; a file that is none is refused, and the line says why."""

import contextlib
import copy
import dataclasses
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from invented import Invented
from servers.oncecron import CONSOLE_SCRIPT, Ended
from servers.process import spawn

from oncecron.core.errors import InputError
from oncecron_drill import history_file
from oncecron_drill.assess import assess
from oncecron_drill.history import History, ItemEvent, Never, Seen

DRAWN = 40
HISTORIES = Path(__file__).with_name("histories")


def whole() -> History:
    """Invent a history that has something of everything, and a tick that was started twice."""
    run = Invented(
        items={"letters": 1}, retried=[], began_at=1764426000.0, oncecron="0.1.0", python="3.11.2", loses=["failover"],
        wall=1764425900.0,
    )  # fmt: skip
    start = run.run()
    start.overlaps.append((100.2, "billing/none"))
    start.signals.append((100.3, "TERM"))
    start.fenced.append((100.4, True))
    run.run(110.0, "h2", "t1")
    run.skip(run.fire(100.2, "h3"), "done")
    run.fault(120.0, None, kind="failover")
    run.operate(130.0, "pause", "billing")
    history = run.history
    history.log.register.append(("billing", 7))
    history.items = [ItemEvent("letters", "begin", "1", "calm", 9, 210.0)]
    found = [Never("lost-write", "the store lost a write", 121.0)]
    history.seen = Seen(
        "redis://h/0", "Redis 7", ["master"], [("2026-11-29T14:00:00Z", "lost")], found
    )
    return history


def kept(path: Path, history: History) -> Path:
    """Write a history into a file."""
    path.write_text(history_file.as_json(assess(history), history))
    return path


def test_a_history_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    """All of it, and so is its certificate."""
    history = whole()
    certificate, again = history_file.judge(str(kept(tmp_path / "h.json", history)))
    assert again == history
    assert certificate == assess(history)
    assert certificate.verdict == "violated"
    assert {"double", "lost-write"} <= {finding.rule for finding in certificate.violations}


def test_a_history_is_judged_and_not_its_certificate(tmp_path: Path) -> None:
    """Whatever stands there."""
    history = whole()
    path = kept(tmp_path / "h.json", history)
    values = json.loads(path.read_text())
    values["certificate"] = {"verdict": "clean"}
    path.write_text(json.dumps(values))
    assert history_file.judge(str(path))[0] == assess(history)


def test_another_version_of_the_rules_says_so(tmp_path: Path) -> None:
    """With the version that was drilled, which judged it first."""
    history = whole()
    history.head["oncecron"] = "0.0.9"
    path = kept(tmp_path / "h.json", history)
    ended = drill("--judge", path)
    assert ended.status == 1
    assert (
        b"oncecron      0.0.9, Python 3.11.2; judged by the rules of 0.1.0\n" in ended.out.encode()
    )


def test_every_finding_is_kept_and_counted() -> None:
    """Not the first twenty."""
    run = Invented(items={}, retried=[], began_at=0.0, oncecron="0.1.0", python="3.11.2")
    for number in range(30):
        run.start(run.fire(100.0 + number, "h1", f"t{number}"))
        run.start(run.fire(100.5 + number, "h2", f"t{number}"))
    doubles = [each for each in assess(run.history).violations if each.rule == "double"]
    assert len(doubles) == 30
    assert [bool(each.timeline) for each in doubles] == [True, *[False] * 29]


# What drills have found


OVERLAP = (
    "two trees of leader lived at once, from +6.291 s to +8.124 s at least: attempt 1 on drill-1 (pid 32060, +0.120 s) "
    "and attempt 1 on drill-4 (pid 32413, +6.291 s); nothing documented explains it"
)
DOUBLE = (
    "tick t1 of failover was started twice: attempt 1 of tick t1 on drill-1 (pid 14776, +12.954 s) and attempt 1 of "
    "tick t1 on drill-4 (pid 16630, +35.238 s); the store had forgotten the first"
)


@pytest.mark.parametrize(
    ("name", "rule", "sentence", "why"),
    [
        # Of a copy with the mutation no-watchdog, on SQLite: a guard was stopped, and its wrapper did not look.
        ("overlap", "overlap", OVERLAP, f"1 violation; the first: {OVERLAP}"),
        # Of the store `forgetful`: a Redis without an append-only file that crashed.
        ("double", "double", DOUBLE, f"the store lost what it had confirmed; 7 violations; the first: {DOUBLE}"),
    ],
)  # fmt: skip
def test_a_real_violation_is_found_again(name: str, rule: str, sentence: str, why: str) -> None:
    """In the history of a drill, cut to the firings that it is about; by its rule, with its timeline."""
    certificate, _ = history_file.judge(str(HISTORIES / f"{name}.json"))
    first = certificate.violations[0]
    assert (certificate.verdict, certificate.why) == ("violated", why)
    assert (first.rule, first.sentence) == (rule, sentence)
    assert first.timeline.count("STARTS") == 2


def test_a_history_is_excused_by_what_is_in_it(tmp_path: Path) -> None:
    """Had the wrapper been stopped together with its guard, it would be a documented hole."""
    _, history = history_file.judge(str(HISTORIES / "overlap.json"))
    [stopped] = [fault for fault in history.faults if fault.kind == "stop the guard of a new job"]
    stopped.hit += [(firing, "wrapper", state) for firing, _, state in stopped.hit]
    certificate, _ = history_file.judge(str(kept(tmp_path / "h.json", history)))
    assert "overlap" in [finding.rule for finding in certificate.holes]
    assert "overlap" not in [finding.rule for finding in certificate.violations]


# What is refused


def changed(*path: str | int, to: Any) -> bytes:
    """Return the file of a history with one value changed."""
    history = whole()
    values = json.loads(history_file.as_json(assess(history), history))
    place = values
    for name in path[:-1]:
        place = place[name]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return json.dumps(values).encode()


WHOLE = changed("version", to=1)
DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (WHOLE[: len(WHOLE) // 2], "its end is missing"),
        (WHOLE[:-1], "its end is missing"),
        (b"\x1f\x8b\x08\x00", "it is not UTF-8"),
        (b"oncecron drill: CLEAN\n", "it is no JSON"),
        (DEEP, "it is nested too deeply"),
        (b"[]", "it was not written by `oncecron drill --json`"),
        (b'{"verdict": "clean"}', "it was not written by `oncecron drill --json`"),
        (changed("version", to=2), "it has version 2 of the format, and this oncecron reads version 1"),
        (changed("version", to=...), "it has version None of the format"),
        (changed("history", to=...), "history is missing"),
        (changed("history", "firings", to=...), "history.firings is missing"),
        (changed("history", "firings", 0, "at", to="now"), "history.firings[0].at is not as"),
        (changed("history", "firings", 0, "command", to=[1]), "history.firings[0].command[0] is not as"),
        (changed("history", "faults", 0, "hit", to=[[1, "job"]]), "history.faults[0].hit[0] is no list"),
        (changed("history", "quiet", to=True), "history.quiet is not as"),
        (changed("history", "colour", to=1), "history has a field that nobody knows: 'colour'"),
        (WHOLE.replace(b'"quiet": 200.0', b'"quiet": NaN'), "NaN is no number of seconds"),
        (WHOLE.replace(b'"quiet": 200.0', b'"quiet": 1e999'), "1e999 is no number of seconds"),
        (WHOLE.replace(b'"quiet": 200.0', b'"quiet": ' + b"9" * 5000), "too many digits"),
        (changed("history", "head", to={}), "'keys' is missing"),
        (changed("history", "head", "items", "letters", to=10**12), "parts or items"),
        (changed("history", "firings", 0, "command", to=["run", "--shards", "999999999"]), "parts or items"),
        (changed("history", "log", "executions", 0, to={}), "is missing"),
        (changed("history", "log", "executions", 0, "key", to=[]), "cannot be judged"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    """With what is wrong, where, and a status of its own."""
    path = tmp_path / "h.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as refused:
        history_file.judge(str(path))
    assert str(refused.value).startswith(f"{path} cannot be judged: ")
    assert why in str(refused.value)
    assert refused.value.exit_status == 65


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is parsed, and not kept in memory whole."""
    monkeypatch.setattr(history_file, "LARGEST", 1 << 20)
    path = tmp_path / "h.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="it is larger than 1 MiB"):
        history_file.judge(str(path))


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe"])
def test_what_cannot_be_read_is_told(tmp_path: Path, kind: str) -> None:
    """With 66, and nobody waits for a pipe."""
    path = tmp_path / "h.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    ended = drill("--judge", path)
    assert (ended.status, ended.out) == (66, "")
    assert f"cannot read {path}: " in ended.err


def test_each_field_is_refused_or_judged(tmp_path: Path) -> None:
    """Whatever stands in its place: no file makes the judge fail by a bug. Each run draws others."""
    history = whole()
    values = json.loads(history_file.as_json(assess(history), history))
    path = tmp_path / "h.json"
    every = itertools.product(places(values["history"]), (None, -1, "x", [], {}, 1e300, [[]]))
    for place, other in random.sample(list(every), DRAWN):
        wrong = copy.deepcopy(values)
        inner = wrong["history"]
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = other
        path.write_text(json.dumps(wrong))
        with contextlib.suppress(InputError):
            history_file.judge(str(path))


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the way to each value of a JSON text; of a list the first element."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    return [
        way for name, each in inner for way in [(name,), *((name, *rest) for rest in places(each))]
    ]


# The command


def drill(*words: object, **environment: str) -> Ended:
    """Call the installed `oncecron drill`, with no configuration."""
    command = [str(CONSOLE_SCRIPT), "drill", *map(str, words)]
    process = spawn(command, env={"PATH": "/usr/bin:/bin", **environment}, stdout=-1, stderr=-1)
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out.decode(), err.decode())


def test_judging_again_can_be_kept_again(tmp_path: Path) -> None:
    """The same history, with the certificate that is printed."""
    path, other = kept(tmp_path / "h.json", whole()), tmp_path / "again.json"
    assert drill("--judge", path, "--json", other).status == 1
    assert json.loads(other.read_text()) == json.loads(path.read_text())
    printed = drill("--judge", path, "--json", "-")
    assert (printed.status, json.loads(printed.out)) == (1, json.loads(path.read_text()))


def test_a_file_that_cannot_be_written_any_more_costs_no_certificate(tmp_path: Path) -> None:
    """It has been printed before."""
    ended = drill(
        "--judge", kept(tmp_path / "h.json", whole()), "--json", tmp_path / "no" / "h.json"
    )
    assert (ended.status, ended.out.startswith("oncecron drill: VIOLATED")) == (73, True)
    assert "cannot write " in ended.err


def test_control_characters_of_a_history_reach_no_terminal(tmp_path: Path) -> None:
    """A file of somebody else is text."""
    history = whole()
    history.seen = dataclasses.replace(history.seen, store="\x1b]0;owned\x07", version="\x9b31m")
    ended = drill("--judge", kept(tmp_path / "h.json", history))
    assert "owned" in ended.out
    assert not {"\x1b", "\x07", "\x9b"} & set(ended.out)


@pytest.mark.parametrize("words", [("--minutes", 2), ("--store", "local"), ("--yes",)])
def test_who_judges_does_not_drill(tmp_path: Path, words: tuple[object, ...]) -> None:
    """An option of a drill beside it is a mistake."""
    ended = drill("--judge", tmp_path / "h.json", *words)
    assert (ended.status, f"leave {words[0]} out" in ended.err) == (64, True)


@pytest.mark.parametrize("where", ["no/such/h.json", "", "dev"])
def test_a_file_that_cannot_be_written_is_told_before_the_drill(tmp_path: Path, where: str) -> None:
    """With a status of its own, before anything is asked or made."""
    path = "/dev/full" if where == "dev" else tmp_path / where
    store = tmp_path / "s.db"
    ended = drill("--store", f"sqlite://{store}", "--json", path, TMPDIR=str(tmp_path))
    assert (ended.status, ended.out) == (73, "")
    assert f"cannot write {path}: " in ended.err
    assert list(tmp_path.iterdir()) == []
