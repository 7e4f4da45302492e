"""Every start is recorded as it was, and nothing else is recorded as a start: promise 3.

What the job itself wrote is the truth. The log has the wrapper's pid. The number of an attempt, and the id, may differ
where the store had a fault meanwhile: what it lost is put back, or recorded later, as another row.
"""

import math
from collections.abc import Iterator

from oncecron.log.protocol import contradiction
from oncecron_drill.history import Firing, Start
from oncecron_drill.rules.joined import (
    MOMENT,
    RECORDING,
    Joined,
    Row,
    alive_until,
    execution_of,
    gives_up,
    option,
    part_of_row,
    seconds,
)
from oncecron_drill.rules.statuses import was_called_off
from oncecron_drill.rules.verdict import Violation

DYING = 15.0
"""Seconds in which a guard ends what a killed job has left: the grace, and what a loaded machine takes."""
STARTUP = 5.0
"""Seconds that a job may take to its first line; one that is killed before leaves a record and no start."""

_TOLD_ELSEWHERE = ("not-started", "running", "unclaimed")
_ENDED_BY_US = ("stopped", "timed-out")
_SPOOLED = "the record is spooled"


def recorded(joined: Joined) -> Iterator[Violation]:
    """Every start has one row, which says of it what it says of itself."""
    for start in joined.starts:
        if joined.firing_of(start) is None:
            yield _of(joined, start, "stray", "belongs to no firing")
        rows = joined.rows_of(start)
        if not rows:
            yield _unrecorded(joined, start)
        if len(rows) > 1:
            yield _of(joined, start, "unrecorded", f"is recorded {len(rows)} times")
        for row in rows[:1]:
            differences = _differences(joined, start, row)
            yield from (_of(joined, start, "unrecorded", what) for what in differences)
            if what := _contradiction(joined, start, row):
                yield _of(joined, start, "outcome", what)


def _unrecorded(joined: Joined, start: Start) -> Violation:
    if start.token is None:
        return _of(joined, start, "unrecorded", "had no fencing token: it ran without a lease")
    forgotten = joined.forgets(start.at, alive_until(start) + RECORDING)
    return _of(joined, start, "unrecorded", "is in no row of the log", hole=forgotten)


def _differences(joined: Joined, start: Start, row: Row) -> Iterator[str]:
    pairs: list[tuple[str, object, object]] = [
        ("host", start.host, row["host"]),
        ("pid", start.wrapper, row["pid"]),
        ("tick", start.tick, row["tick"]),
    ]
    if not _store_was_hit(joined, start):
        pairs.append(("attempt", start.attempt, row["attempt"]))
        pairs.append(("execution id", start.execution_id, row["execution_id"]))
    for name, its_own, recorded_as in pairs:
        if its_own != recorded_as:
            yield f"is recorded with {name} {recorded_as}, not {its_own}"


def _store_was_hit(joined: Joined, start: Start) -> bool:
    firing = joined.firing_of(start)
    since = firing.at if firing else start.at
    felt = joined.felt(start.host, since, alive_until(start) + RECORDING)
    return any(map(joined.is_shared, felt))


def _contradiction(joined: Joined, start: Start, row: Row) -> str | None:
    """Return how the row's outcome contradicts what the job wrote; `running` and `unclaimed` are told by `running`."""
    match row["outcome"]:
        case "running" | "unclaimed":
            return None
        case "not-started":
            return "is recorded as not-started"
        case "lost":
            return _wrongly_lost(joined, start, row)
    return (
        _impossible(row)
        or (_wrong_signal(joined, start, row) if row["exit_code"] is None else _wrong_code(start, row))
        or _wrongly_ended(joined, start, row)
    )  # fmt: skip


def _impossible(row: Row) -> str | None:
    """Return what the row says that cannot be, whatever happened; what was called off has no start."""
    if was_called_off(row):
        return "is recorded as stopped without exit code and signal"
    return contradiction(execution_of(row))


def _wrong_code(start: Start, row: Row) -> str | None:
    if start.ended is None:
        return f"is recorded as {row['outcome']} ({row['exit_code']}), but never said that it ended"
    if start.status != row["exit_code"]:
        return f"is recorded with exit code {row['exit_code']}, but ended with {start.status}"
    return None


def _wrong_signal(joined: Joined, start: Start, row: Row) -> str | None:
    if row["outcome"] != "failed" or (
        start.status is not None and start.status in (-row["signal"], 128 + row["signal"])
    ):
        return None
    killed = joined.hits_of(start, "guard", "killed")
    own = joined.hits_of(start, "job", "killed")
    if any(hit.at > alive_until(start) - DYING for hit in own) or any(
        hit.at > alive_until(start) for hit in killed
    ):
        return None  # a guard may see its job killed before it is killed itself
    if start.ended is not None:
        return f"is recorded as ended by signal {row['signal']}, but ended with {start.status}"
    return f"is recorded as ended by signal {row['signal']}, which nobody sent"


def _wrongly_ended(joined: Joined, start: Start, row: Row) -> str | None:
    firing = joined.firing_of(start)
    if firing is None or row["outcome"] not in _ENDED_BY_US:
        return None
    if row["outcome"] == "timed-out":
        limit = seconds(firing, "--timeout")
        if limit is None:
            return "is recorded as timed-out without --timeout"
        lived = alive_until(start) - firing.at  # its first word may come late
        if not start.signals and lived < limit - MOMENT:
            return f"is recorded as timed-out after {lived:.1f} s"
    else:
        asked = _was_asked(joined, row, firing)  # who is frozen gives no sign before it is killed
        if row["requested_by"] is not None and not asked:
            by = f"{row['request']} by {row['requested_by']}"
            return f"is recorded as stopped ({by}), but nobody had asked for it"
        if not start.signals and not joined.hits_of(start) and not asked:
            return "is recorded as stopped, but no signal reached it"
    return None


def _wrongly_lost(joined: Joined, start: Start, row: Row) -> str | None:
    firing = joined.firing_of(start)
    since = firing.at if firing else start.at
    if not joined.felt(start.host, since, alive_until(start) + RECORDING, start.key):
        return "is recorded as lost, but no fault touched its host or the store"
    if row["exit_code"] is not None and start.ended is not None:
        return _wrong_code(start, row)
    return None


def running(joined: Joined) -> Iterator[Violation]:
    """Nothing is recorded as running when all is over, and nothing as unclaimed."""
    for row in joined.history.log.executions:
        if row["outcome"] == "running" or (
            row["outcome"] == "unclaimed" and not joined.gave_up(row)
        ):
            starts = [
                start
                for start in joined.parts.get(part_of_row(row), [])
                if row in joined.rows_of(start)
            ]
            yield Violation(
                row["outcome"],
                f"execution {row['execution_id']} of {row['key']} on {row['host']} stays {row['outcome']} in the log",
                row["key"], row["tick"], [start.at for start in starts], starts,
            )  # fmt: skip


def started(joined: Joined) -> Iterator[Violation]:
    """Every row has its start, but for what says that it has none, or died before it could write."""
    for row, firing in joined.startless:
        outcome = row["outcome"]
        what = None
        if firing is None:
            given_up = outcome == "unclaimed" and joined.gave_up(row)
            what = None if given_up else "belongs to no firing"
        elif outcome == "lost":
            until = (joined.history.end if firing.ended is None else firing.ended) + RECORDING
            if not joined.felt(row["host"], firing.at, until, row["key"]):
                what = "was never started, and no fault touched its host or the store"
            elif row["duration"] is None and not _may_be_silent(joined, firing):
                what = "was never started, and its firing has not said so"
        elif outcome == "stopped" and was_called_off(row):
            if not joined.hits(firing) and not _was_asked(joined, row, firing):
                what = "was not started, and nobody had asked for its end"
        elif outcome not in _TOLD_ELSEWHERE and not _died_at_once(joined, row, firing):
            what = "was never started"
        if what:
            yield Violation(
                "phantom",
                f"execution {row['execution_id']} of {row['key']} on {row['host']} (pid {row['pid']}) is recorded as "
                f"{outcome}, but {what}",
                row["key"], row["tick"], [firing.at] if firing else [], [], [firing] if firing else [],
            )  # fmt: skip


_NOT_STARTED = ("a record is lost", "no command is running", "the next attempt could not start")
"""Words of a firing, or of its rows' notes, by which it tells that a row has no start."""


def _may_be_silent(joined: Joined, firing: Firing) -> bool:
    said = [firing.stderr, *(row["note"] or "" for row in joined.runs_of(firing))]
    has_told = any(words in text for words in _NOT_STARTED for text in said)
    until = (firing.ended or math.inf) + RECORDING
    if _SPOOLED in firing.stderr:  # and delivered at any time
        until = math.inf
    is_lost = has_told or joined.forgets(firing.at, until)
    is_dead = any(joined.hits(firing, "guard", how) for how in ("killed", "failed"))
    return is_lost or gives_up(firing) or is_dead


def _died_at_once(joined: Joined, row: Row, firing: Firing) -> bool:
    if row["signal"] is None or (row["duration"] or 0.0) > STARTUP:
        return False
    timed_out = row["outcome"] == "timed-out" and option(firing, "--timeout") is not None
    asked = row["outcome"] == "stopped" and _was_asked(joined, row, firing)
    return timed_out or asked or bool(joined.hits(firing))


def _was_asked(joined: Joined, row: Row, firing: Firing) -> bool:
    until = firing.ended or joined.history.end
    if joined.hits(firing, "wrapper", "killed"):
        until += RECORDING + joined.history.head["ttl"]  # its guard goes on, or its lease
    if _SPOOLED in firing.stderr:  # its lease may last for as long as the store's clock is set back
        until = joined.history.end
    return bool(joined.asked(row["key"], firing.at, until))


def _of(joined: Joined, start: Start, rule: str, what: str, *, hole: bool = False) -> Violation:
    firing = joined.firing_of(start)
    return Violation(
        rule, f"{joined.start_text(start)} of {start.key} {what}",
        start.key, start.tick, [start.at, alive_until(start)], [start], [firing] if firing else [], hole,
    )  # fmt: skip
