"""`oncecron audit`: finds what was planted in each store's data, and nothing in the log of a busy cluster."""

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from answers import refused
from log_of import Store
from planting import alter, expect_since, forget
from servers import eventually
from servers.oncecron import Oncecron

Hosts = Callable[..., Oncecron]
FINDING = [
    *("finding", "key", "shard", "tick", "last_tick", "count", "at", "execution_id"),
    *("other_execution_id", "reason"),
]


def audit(host: Oncecron, *arguments: object) -> list[dict[str, Any]]:
    """Return the findings; the exit status says whether there are any."""
    ended = host("audit", *arguments, "--json")
    assert ended.err == ""
    found: list[dict[str, Any]] = json.loads(ended.out)
    assert ended.status == (1 if found else 0)
    return found


def kinds(host: Oncecron, *arguments: object) -> list[str]:
    return [each["finding"] for each in audit(host, *arguments)]


LAST = datetime.now(UTC).replace(minute=0) - timedelta(hours=12)
"""When a daily tick was due last: no other one is due while the tests run."""
DAILY = ("--schedule", f"0 {LAST.hour} * * *", "--tz", "UTC")


def day(ago: int) -> str:
    """Return the text of the daily tick so many days before the last."""
    return f"{LAST - timedelta(days=ago):%Y-%m-%dT%H:%MZ}"


def told_all(store: Store, number: int) -> None:
    """Wait until a log beside the store has that many ends."""

    def count() -> bool:
        found = store.executions("billing")
        return len(found) >= number and all(each.outcome != "running" for each in found)

    eventually(count)


@pytest.fixture
def busy(store: Store, new_host: Hosts) -> Oncecron:
    """Fire for some days on two hosts: winners, losers, failures, a further attempt, and a schedule."""
    a, b = new_host("host-a"), new_host("host-b")
    for ago in (7, 6, 5, 4, 3, 2, 1):
        at = ("--tick", day(ago), "--")
        firings = [
            a.fire("billing", *at, "sh", "-c", f"exit {ago % 2}"),
            b.fire("billing", *at, "true"),
        ]
        assert {firing.wait().status for firing in firings} <= {0, 1}
    b.run("billing", "--again", "--tick", day(4), "--", "true")
    a.run("billing", *DAILY, "--", "true")
    told_all(store, 9)
    expect_since(store, "billing", day(7))
    return a


def test_the_log_of_a_busy_cluster_has_nothing(store: Store, busy: Oncecron) -> None:
    """Neither whole nor since some time ago."""
    ended = busy("audit", "--format", "ndjson")
    assert (ended.status, ended.out, ended.err) == (0, b"", "")
    assert kinds(busy, "--since", "1h") == []


def test_what_was_run_later_by_hand_is_not_missing(store: Store, new_host: Hosts) -> None:
    """It divides what is missing in two."""
    host = new_host("host-a")
    for options in (("--tick", day(6)), ("--tick", day(3)), ("--tick", day(5), "--again"), DAILY):
        host.run("billing", *options, "--", "true")
    told_all(store, 4)
    expect_since(store, "billing", day(6))
    found = audit(host)
    assert list(found[0]) == FINDING
    assert [
        (each["finding"], each["tick"], each["last_tick"], each["count"]) for each in found
    ] == [("no-run", day(4), None, 1), ("no-run", day(2), day(1), 2)]
    assert "not started, and no skip is on record" in found[0]["reason"]
    until = [audit(host, "--until", day(days)) for days in (2, 1)]
    assert [[each["count"] for each in some] for some in until] == [[1], [1, 1]]
    host.environment["TZ"] = "Asia/Tokyo"
    since = (
        "--since",
        f"{LAST - timedelta(days=2, hours=-1):%Y-%m-%dT%H:%M}",
    )  # UTC or nine hours before
    assert [each["count"] for each in audit(host, *since, "--utc")] == [1]
    assert [each["count"] for each in audit(host, *since)] == [2]


class Ticks:
    """A clean log: three ticks of a key, each a minute long, half an hour apart by what is recorded."""

    def __init__(self, store: Store, host: Oncecron) -> None:
        self.store, self.host = store, host
        self.now = time.time()
        for number in (1, 2, 3):
            host.run("billing", "--tick", f"t{number}", "--", "true")
        told_all(store, 3)
        for number in (1, 2, 3):
            self.alter(
                number, started_at=self.at(number), finished_at=self.at(number) + 60, duration=60.0
            )

    def at(self, number: int) -> float:
        return self.now - 7200 + 1800 * number

    def alter(self, number: int, attempt: int = 1, /, **fields: Any) -> None:
        alter(self.store, "billing", f"t{number}", attempt, **fields)


@pytest.fixture
def ticks(store: Store, host: Oncecron) -> Ticks:
    ticks = Ticks(store, host)
    assert audit(host) == []
    return ticks


def test_overlaps_are_found(ticks: Ticks) -> None:
    """By when one ended and the next began, and by when one was declared lost, unless that was found out much later."""
    ticks.alter(1, finished_at=ticks.at(2) + 30, duration=None)
    [found] = audit(ticks.host)
    assert (found["finding"], found["tick"]) == ("overlap", "t2")
    assert "host-a started at" in found["reason"]
    assert "of tick t1 ran until" in found["reason"]
    ended = ticks.host("audit")
    assert ended.status == 1
    heading, line = ended.out.decode().splitlines()
    assert heading.split() == ["KEY", "TICK", "LAST", "TICKS", "FINDING", "REASON"]
    assert line.split()[:5] == ["billing", "t2", "-", "1", "overlap"]
    ticks.alter(1, finished_at=ticks.at(2) - 1)
    assert kinds(ticks.host) == []
    lost = {"outcome": "lost", "lost_reason": "expired", "lost_at": ticks.at(3) + 1}
    ticks.alter(2, **lost, finished_at=None, duration=None)
    assert kinds(ticks.host) == ["no-end", "overlap"]
    ticks.alter(2, lost_reason="superseded")
    assert kinds(ticks.host) == ["no-end"]


def test_an_end_that_was_told_late_by_another_clock_is_no_overlap(ticks: Ticks) -> None:
    """How long it ran is what counts."""
    ticks.alter(1, finished_at=ticks.at(2) + 200, note="recorded later")
    assert kinds(ticks.host) == []


def test_ticks_that_ran_twice_are_found(ticks: Ticks) -> None:
    """Unless somebody asked for it, or the first was lost, or had not started."""
    ticks.host.run("billing", "--again", "--tick", "t1", "--", "true")
    told_all(ticks.store, 4)
    assert kinds(ticks.host) == []
    alter(ticks.store, "billing", "t1", 2, cause="schedule")
    [found] = audit(ticks.host)
    assert (found["finding"], found["tick"]) == ("twice", "t1")
    assert "started the tick again (attempt 2) after" in found["reason"]
    assert "no --again, retry or failover explains it" in found["reason"]
    assert kinds(ticks.host, "--since", "20m") == ["twice"]
    ticks.alter(1, outcome="not-started")
    assert kinds(ticks.host) == []
    ticks.alter(1, outcome="lost", lost_reason="expired", lost_at=ticks.at(1) + 60, duration=None)
    assert kinds(ticks.host) == ["no-end", "twice"]
    alter(ticks.store, "billing", "t1", 2, cause="takeover")
    assert kinds(ticks.host) == ["no-end"]


def test_what_has_no_end_is_found(ticks: Ticks) -> None:
    """Running without a lease, lost without what happened; not what was lost and told later."""
    ticks.alter(3, outcome="running", finished_at=None, duration=None)
    [found] = audit(ticks.host)
    assert (found["finding"], found["tick"]) == ("no-end", "t3")
    assert "recorded as running, but its lease has ended" in found["reason"]
    ticks.alter(3, outcome="lost", lost_reason="expired", lost_at=ticks.at(3) + 60)
    [found] = audit(ticks.host)
    assert "was declared lost at" in found["reason"]
    assert found["reason"].endswith("has no end on record")
    ticks.alter(3, outcome="succeeded", finished_at=ticks.at(3) + 30, duration=30.0)
    assert kinds(ticks.host) == []


class Retried(Ticks):
    """The same with a fourth tick, whose first attempt failed and was retried."""

    def __init__(self, store: Store, host: Oncecron) -> None:
        super().__init__(store, host)
        once = "test $ONCECRON_ATTEMPT = 2"
        at = ("--tick", "t4", "--retries", "1", "--retry-delay", "10ms")
        assert host.run("billing", *at, "--", "sh", "-c", once).status == 0
        told_all(store, 5)
        self.token = store.executions("billing")[3].fencing_token or 0

    def lost(self, number: int, after: float) -> None:
        """Let the lease of a tick be lost so long after its start, and its end be told later."""
        self.alter(number, lost_reason="expired", lost_at=self.at(number) + after)

    def runs_at(self, number: int, started: float, **fields: Any) -> None:
        """Let a tick have run for a second at another time."""
        self.alter(number, started_at=started, finished_at=started + 1, duration=1.0, **fields)


def between_two_attempts(ticks: Retried) -> None:
    """Start another tick while the lease is kept for the retry."""
    ticks.alter(4, started_at=ticks.now + 600, finished_at=ticks.now + 601, duration=1.0)
    ticks.alter(4, 2, started_at=ticks.now + 660, finished_at=ticks.now + 661, duration=1.0)
    ticks.alter(4, 2, fencing_token=ticks.token + 7)
    ticks.runs_at(3, ticks.now + 630, fencing_token=ticks.token + 6)


def start_now(ticks: Retried, *command: str) -> None:
    """Let somebody stop new starts, and tick 3 begin after that."""
    ended = ticks.host(*command, "--store", ticks.store.operator_url)
    assert ended.status == 0, ended
    ticks.runs_at(3, time.time() + 2, fencing_token=ticks.token + 10**12)


FORGED: dict[str, tuple[str, str, Callable[[Retried], None]]] = {
    "token that fell": (
        "token", "t3", lambda ticks: ticks.alter(3, fencing_token=1_000_000)
    ),
    "token of an earlier start": (
        "token", "t3",
        lambda ticks: ticks.alter(3, fencing_token=ticks.store.executions("billing")[0].fencing_token),
    ),
    "attempt without its predecessor": (
        "gap", "t4", lambda ticks: ticks.alter(4, 2, attempt=3)
    ),
    "retry of a success": (
        "twice", "t4", lambda ticks: ticks.alter(4, outcome="succeeded", exit_code=0)
    ),
    "takeover of a success": (
        "twice", "t4",
        lambda ticks: [ticks.alter(4, outcome="succeeded", exit_code=0), ticks.alter(4, 2, cause="takeover")],
    ),
    "retry of another firing": (
        "twice", "t4", lambda ticks: ticks.alter(4, 2, owner=str(uuid.uuid4()))
    ),
    "start before the loss of the last lease": (
        "lease", "t3", lambda ticks: ticks.lost(2, 1900)
    ),
    "start between two attempts": ("lease", "t3", between_two_attempts),
    "end after a takeover": ("late-end", "t2", lambda ticks: ticks.lost(2, 20)),
    "start under a pause": ("in-pause", "t3", lambda ticks: start_now(ticks, "pause", "billing")),
    "start under a pause of all keys": ("in-pause", "t3", lambda ticks: start_now(ticks, "pause", "--all")),
    "start on a drained host": ("in-pause", "t3", lambda ticks: start_now(ticks, "drain", "host-a")),
    "success with an exit code": ("record", "t2", lambda ticks: ticks.alter(2, exit_code=3)),
    "end without a status": ("record", "t2", lambda ticks: ticks.alter(2, outcome="failed", exit_code=None)),
    "two that ran at once": ("overlap", "t3", lambda ticks: ticks.runs_at(3, ticks.at(2) + 30)),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_row_is_found(store: Store, host: Oncecron, forged: str) -> None:
    """Alone, with the rows that it concerns, and with what to do."""
    ticks = Retried(store, host)
    assert audit(host) == []
    kind, tick, forge = FORGED[forged]
    forge(ticks)
    [found] = audit(host)
    assert (found["finding"], found["tick"]) == (kind, tick)
    assert f"execution {found['execution_id']} on host-a" in found["reason"]
    if found["other_execution_id"]:
        assert f"execution {found['other_execution_id']} on host-a" in found["reason"]
    assert ";" in found["reason"]


def test_gaps_are_found_as_ranges_with_their_reasons(store: Store, busy: Oncecron) -> None:
    """What was forgotten, and what was skipped on every host."""
    for ago in (5, 6, 2):
        forget(store, "billing", day(ago))
    found = audit(busy)
    assert {each["finding"] for each in found} == {"no-run"}
    assert sum(each["count"] for each in found) == 3
    assert {each["tick"] for each in found} >= {day(6), day(2)}
    assert all("on host-" in each["reason"] for each in found)
    assert len(busy("audit").out.decode().splitlines()) == len(found) + 1


def test_since_limits_what_is_looked_at(ticks: Ticks) -> None:
    """By when an execution started."""
    ticks.alter(1, finished_at=ticks.at(2) + 30, duration=None)
    assert kinds(ticks.host, "--since", "100m") == ["overlap"]
    assert kinds(ticks.host, "--since", "70m") == []


def test_an_audit_that_cannot_ask_says_so(host: Oncecron) -> None:
    """With the statuses of every command: nothing configured, a wrong line, a store that is away."""
    refused(host("audit", "--since", "soon"), 64, "--since")
    refused(host("audit", "--store", "postgresql://u@127.0.0.1:1/d"), 69, "127.0.0.1")
    del host.environment["ONCECRON_STORE"]
    for command in (("audit",), ("jobs",), ("why", "k")):
        refused(host(*command), 78, "no store is configured")
