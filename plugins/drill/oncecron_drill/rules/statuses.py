"""Each firing ends, with the status that its jobs ask for, and not before they are dead: promise 4.

Of several attempts at a part the last one's status counts, of several parts that of the first that failed. A firing
that met a fault between two parts leaves with what it says of that, if no part had failed before.
"""

import math
from collections.abc import Iterator
from operator import itemgetter

from oncecron_drill.history import Firing
from oncecron_drill.rules.exclusion import is_excused
from oncecron_drill.rules.joined import (
    RECORDING,
    Joined,
    Out,
    Row,
    alive_until,
    goes_on,
    grace_of,
    has_succeeded,
    option,
    seconds,
)
from oncecron_drill.rules.verdict import Violation

KILLING = 5.0
"""Seconds beyond timeout and grace in which a job is certainly dead, on a loaded machine too."""

ENDING = (1, 2, 3, 15)
"""Signals that tell a firing to end."""

BETWEEN_PARTS = {69, 75, 78}
"""Statuses of a firing that could not ask for another part."""

_TIMED_OUT, _KILLED = 124, 137
_BUGS = ("Traceback (most recent call last)", "internal error", "the oncecron guard failed")
_WITHOUT_END = ("running", "not-started", "unclaimed")


def exits(joined: Joined) -> Iterator[Violation]:
    """Every firing ends, never by a bug of ours, and with the status that its job or its answer asks for."""
    for firing in joined.history.firings:
        what = None
        if firing.status is None or firing.ended is None:
            outs = joined.out(firing.id, "wrapper")
            if not any(out.since <= joined.history.end <= out.until for out in outs):
                what = "never ended"
        elif firing.status == 70 or any(bug in firing.stderr for bug in _BUGS):
            if not joined.hits(firing, "guard", "failed"):
                yield of_firing(
                    joined, firing, "bug", f"failed by itself ({firing.status}): {words(firing)}"
                )
        elif firing.status < 0:
            if not joined.hits(firing, "wrapper", "killed"):
                what = f"died of signal {-firing.status}, which nobody sent"
        elif joined.starts_of(firing):
            what = _wrong_status(joined, firing) or _outlived(joined, firing)
        if what:
            yield of_firing(joined, firing, "exit", what)


def _wrong_status(joined: Joined, firing: Firing) -> str | None:
    rows = joined.runs_of(firing)
    starts = joined.starts_of(firing)
    if not all(joined.rows_of(start) for start in starts) or any(
        row["outcome"] in _WITHOUT_END for start in starts for row in joined.rows_of(start)[:1]
    ):
        return None  # told by the rules of records
    allowed = _expected(joined, firing, rows)
    for row in filter(was_called_off, rows):
        allowed |= statuses_of(row)
    if joined.hits(firing, "guard"):
        allowed.add(75)
    if joined.hits(firing, state="signalled"):
        allowed |= {128 + number for number in ENDING}
    until = firing.ended or joined.history.end
    if goes_on(firing) and joined.felt(firing.host, firing.at, until, firing.key):
        allowed |= BETWEEN_PARTS
    if firing.status in allowed:
        return None
    told = ", ".join(map(_row_text, rows))
    return f"left with {firing.status}, though its job is recorded as {told}"


def _expected(joined: Joined, firing: Firing, rows: list[Row]) -> set[int]:
    found: set[int] = set()
    never_heard_of = [
        row for row in joined.rows_without_start.get(firing.id, []) if row["outcome"] == "lost"
    ]
    for row in _last_attempts(rows):
        allowed = statuses_of(row) | _if_its_record_is_lost(joined, firing, row)
        if row in never_heard_of:
            others = [other for other in rows if other not in never_heard_of]
            allowed = allowed.union(*(map(statuses_of, _last_attempts(others))))
        found |= allowed - {0}
        if 0 not in allowed:
            return found
    return found | {0}


def _last_attempts(rows: list[Row]) -> list[Row]:
    """Return the last attempt of each tick and part that was started, in the order in which they were run."""
    last: dict[tuple[str | None, int], Row] = {}
    for row in rows:  # by token
        if row["outcome"] != "not-started" and not was_called_off(row):
            last[row["tick"], int(row["shard"] or 0)] = row
    return sorted(last.values(), key=itemgetter("execution_id")) or rows[-1:]


def _if_its_record_is_lost(joined: Joined, firing: Firing, row: Row) -> set[int]:
    """Return the statuses that say how a job ended where nobody could tell the store of it."""
    found: set[int] = set()
    for start in joined.starts_of(firing):
        if row not in joined.rows_of(start) or row["outcome"] != "lost":
            continue
        if "a record is lost" in firing.stderr or joined.forgets(start.at, firing.ended or 0.0):
            found.add(_KILLED if start.status is None else start.status)
            if option(firing, "--timeout"):
                found.add(_TIMED_OUT)
    return found


def _outlived(joined: Joined, firing: Firing) -> str | None:
    for start in joined.starts_of(firing):
        ended, until = firing.ended or 0.0, alive_until(start)
        if (
            until > ended and "cannot be killed" not in firing.stderr
            and not is_excused(joined, start, ended, until)
        ):  # fmt: skip
            return f"ended {until - ended:.3f} s before the last sign of its job (pid {start.pid})"
    return None


def timeouts(joined: Joined) -> Iterator[Violation]:
    """No process of a job outlives its timeout and grace, but for the time in which wrapper or guard could not act."""
    for firing in joined.history.firings:
        limit = seconds(firing, "--timeout")
        if limit is None:
            continue
        limit += grace_of(firing)
        for start in joined.starts_of(firing):
            lived = alive_until(start) - start.at
            outs = joined.out(firing.id, "wrapper") + joined.out(firing.id, "guard")
            if lived - _hindered(outs, start.at, alive_until(start)) > limit + KILLING:
                what = f"let its job live for {lived:.1f} s: timeout and grace were over after {limit:g} s"
                yield of_firing(joined, firing, "timeout", what)


def _hindered(outs: list[Out], since: float, until: float) -> float:
    """Return the seconds within a time that one or more of these last."""
    seconds = 0.0
    for out in sorted(outs):
        begin, end = max(out.since, since), min(out.until, until)
        if begin < end:
            seconds += end - begin
            since = end
    return seconds


def orphans(joined: Joined) -> Iterator[Violation]:
    """No job outlives a killed wrapper: its guard ends it, but for the time in which it could not act."""
    for firing in joined.history.firings:
        if firing.ended is None or (firing.status or 0) >= 0:
            continue
        guard = joined.out(firing.id, "guard")
        for start in joined.starts_of(firing):
            outlived = alive_until(start) - firing.ended
            hindered = _hindered(guard, firing.ended, alive_until(start))
            if outlived - hindered > grace_of(firing) + KILLING:
                what = f"was killed, and its guard let its job (pid {start.pid}) live for {outlived:.1f} s"
                yield of_firing(joined, firing, "orphan", what)


def leftovers(joined: Joined) -> Iterator[Violation]:
    """Nothing that a success leaves running gets a signal: it is there on purpose."""
    for start in joined.starts:
        ended = start.ended or math.inf
        late = [(at, name) for at, name in start.signals if at > ended]
        firing = joined.firing_of(start)
        if (
            late and firing and has_succeeded(start)
            and not joined.was_hindered(firing, "guard", ended, late[0][0], RECORDING)
        ):  # fmt: skip
            what = f"sent {late[0][1]} to what its job (pid {start.pid}) had left running"
            yield of_firing(joined, firing, "leftover", what)


def was_called_off(row: Row) -> bool:
    """Return whether somebody asked for the end of what was granted and not yet started."""
    return row["outcome"] == "stopped" and row["exit_code"] is None and row["signal"] is None


def statuses_of(row: Row) -> set[int]:
    """Return the exit statuses that say how an execution ended."""
    match row["outcome"]:
        case "timed-out":
            return {_TIMED_OUT}
        case "lost":
            return {75}
        case "not-started":
            return {69, 75, 78, 126, 127, *(128 + number for number in ENDING)}
        case "stopped" if was_called_off(row):
            return {128 + number for number in (*ENDING, 9)}
    if row["exit_code"] is not None:
        return {row["exit_code"]}
    return set() if row["signal"] is None else {128 + row["signal"]}


def _row_text(row: Row) -> str:
    code = row["exit_code"] if row["exit_code"] is not None else f"signal {row['signal']}"
    return f"{row['outcome']} ({code})"


def words(firing: Firing) -> str:
    """Return the last line that a firing said."""
    lines = [line for line in firing.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else "no word"


def of_firing(joined: Joined, firing: Firing, rule: str, what: str) -> Violation:
    """Return what a firing has broken."""
    starts = joined.starts_of(firing)
    moments = [firing.at] if firing.ended is None else [firing.at, firing.ended]
    text = f"{joined.firing_text(firing)} {what}"
    return Violation(rule, text, firing.key, firing.tick, moments, starts, [firing])
