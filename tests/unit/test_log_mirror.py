"""The mailbox of the log's thread, and a host that has no thread left."""

import threading
from pathlib import Path
from typing import Any

import pytest
from servers.waiting import eventually

from oncecron.config.run_parser import ParsedRun
from oncecron.core.errors import StoreUnavailable
from oncecron.run.log_mirror import LogMirror
from oncecron.run.reporter import open_log
from oncecron.run.spec import RunSpec, make_spec


@pytest.fixture
def threaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """Give the spec of a firing with a log."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = {"key": "k", "tick": "t", "store": "local", "log": f"sqlite://{tmp_path}/log.db"}
    return make_spec(ParsedRun(given, ["true"]))


@pytest.fixture
def spec(threaded: RunSpec, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """Give the spec of a firing with a log that no thread will ever write to."""

    def no_thread_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread_left)
    return threaded


def record(outcome: str, attempt: int = 1, owner: str = "o") -> dict[str, Any]:
    """Return what the log and its spool look at."""
    fields = {"kind": "execution", "key": "k", "shard": 0, "tick": "t", "tick_instant": None}
    fields |= {"host": "h", "pid": 7, "fired_at": 1.0, "owner": owner}
    fields |= {"cause": "schedule", "lost_reason": None, "request": None, "requested_by": None}
    return {**fields, "outcome": outcome, "attempt": attempt, "fencing_token": None, "note": None}


def kept(spec: RunSpec) -> list[tuple[int, str]]:
    """Return attempt and outcome of what is in the log's spool."""
    assert spec.log is not None
    return sorted((taken["attempt"], taken["outcome"]) for _, taken in spec.log.spool.pending("k"))


def mirror(spec: RunSpec) -> LogMirror:
    """Return what takes the records for the log store."""
    log = open_log(spec)
    assert isinstance(log, LogMirror)
    return log


def test_without_a_thread_the_records_are_spooled(
    spec: RunSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the reason, and without a wait; the run is not told."""
    log = mirror(spec)
    log.send(record("succeeded"))
    log.close()
    assert kept(spec) == [(1, "succeeded")]
    assert "can't start new thread" in capfd.readouterr().err


def test_an_end_takes_the_place_of_its_start(spec: RunSpec) -> None:
    """Of its own attempt alone."""
    log = mirror(spec)
    for told in (record("running"), record("failed"), record("running", 2)):
        log.send(told)
    assert [(each["attempt"], each["outcome"]) for each in log._waiting] == [
        *((1, "failed"), (2, "running")),
    ]
    log.close()
    assert kept(spec) == [(1, "failed"), (2, "running")]


def test_what_is_made_up_takes_the_place_of_nothing(spec: RunSpec) -> None:
    """A firing with --catch-up starts one tick after the other, each as an owner of its own, all of them at once."""
    log = mirror(spec)
    told = [("running", 1, "a"), ("succeeded", 1, "a"), ("running", 1, "b"), ("succeeded", 1, "b")]
    for each in told:
        log.send(record(*each))
    assert [(each["owner"], each["outcome"]) for each in log._waiting] == [
        *(("a", "succeeded"), ("b", "succeeded")),
    ]
    log.close()
    assert kept(spec) == [(1, "succeeded")] * 2


def test_the_thread_rests_while_a_runner_is_forked(
    threaded: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork waits for the end of what the thread does in a library, and it begins nothing before the fork is over."""
    opening, go_on, opened = threading.Event(), threading.Event(), threading.Event()

    def open_slowly(*_: object) -> None:
        opening.set()
        assert go_on.wait(60)
        opened.set()
        raise OSError

    monkeypatch.setattr("oncecron.run.log_mirror.open_lease_store", open_slowly)
    monkeypatch.setattr("oncecron.run.log_mirror.LOG_GOODBYE", 60.0)
    log = mirror(threaded)
    log.hold()
    log.send(record("running"))
    assert not opening.wait(0.2)  # the thread has that long to break the promise
    log.resume()
    assert opening.wait(60)
    holder = threading.Thread(target=log.hold)
    holder.start()
    go_on.set()
    holder.join()
    assert opened.is_set()
    log.resume()
    log.close()


def test_a_fork_does_not_wait_for_the_network_for_long(
    threaded: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log store that does not answer."""
    monkeypatch.setattr("oncecron.run.log_mirror.LOG_GOODBYE", 0.01)
    opening, go_on = threading.Event(), threading.Event()

    def open_slowly(*_: object) -> None:
        opening.set()
        assert go_on.wait(60)
        raise OSError

    monkeypatch.setattr("oncecron.run.log_mirror.open_lease_store", open_slowly)
    log = mirror(threaded)
    log.send(record("running"))
    assert opening.wait(60)
    log.hold()
    log.resume()
    go_on.set()
    log.close()


def test_what_waits_for_a_log_that_is_away_is_spooled_beyond_a_bound(
    threaded: RunSpec, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A thousand attempts, with the output of each, are not kept in memory; each is on disk or waits."""
    monkeypatch.setattr("oncecron.run.log_mirror.LOG_LONGEST_PAUSE", 0.001)

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr("oncecron.run.log_mirror.open_lease_store", away)
    log = mirror(threaded)
    for attempt in range(1, 101):
        log.send(record("failed", attempt))
    eventually(lambda: len(log._waiting) == 20)
    log.close()
    assert [attempt for attempt, _ in kept(threaded)] == list(range(1, 101))
    assert capfd.readouterr().err.count("log store unreachable: away; the record is spooled") == 1


def test_a_fork_waits_for_one_older_record_alone(
    threaded: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are spooled: the thread rests after the one that is on its way."""
    delivering, go_on, delivered = threading.Event(), threading.Event(), []

    class Slow:
        lease_clock = 1

        def deliver(self, record: dict[str, Any], **_: object) -> None:
            delivering.set()
            assert go_on.wait(60)
            delivered.append(record["attempt"])

        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr("oncecron.run.log_mirror.open_lease_store", lambda *_: Slow())
    monkeypatch.setattr("oncecron.run.log_mirror.LOG_GOODBYE", 60.0)
    log = mirror(threaded)
    assert threaded.log is not None
    for attempt in range(1, 30):
        threaded.log.spool.add(record("failed", attempt))
    log.send(record("running", 30))
    assert delivering.wait(60)
    holder = threading.Thread(target=log.hold)
    holder.start()
    eventually(lambda: log._is_hold_wanted)
    go_on.set()
    holder.join()
    assert len(delivered) == 2
    assert delivered[-1] == 30
    log.resume()
    log.close()
