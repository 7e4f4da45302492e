"""At most one start of a tick and part but for further attempts, and each of those for its reason: promise 1.

    by --again            a person asked for it
    of the same firing    --retries: the attempt before failed or timed out, and was not the last one allowed
    of another firing     --failover: the attempt before was lost, or was to be followed by another and its host was
                          hit; and it was not the last one allowed

An attempt that did not start (`not-started`) is none, but one that was lost before it said so may have been taken
over. What people stopped, and what succeeded, is final. Whether an attempt had been lost is what its record says, also
where it has told later how it ended.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from oncecron.core.model import FAILOVER_RETRIES
from oncecron.log.protocol import FAILED, why_not_again
from oncecron_drill.history import Firing, Start
from oncecron_drill.rules.joined import (
    Joined,
    Part,
    Row,
    alive_until,
    execution_of,
    option,
    part_of,
    part_of_row,
    was_lost,
)
from oncecron_drill.rules.verdict import Violation

_NONE = ("not-started", "unclaimed")
ASKED_BY = 5.0
"""Seconds after which a firing that nothing hinders has asked the store, on a loaded machine too."""


class Attempt(NamedTuple):
    """One attempt at a tick; without a start if it ended before its first line, without a row if it has none."""

    row: Row | None
    start: Start | None
    firing: Firing | None

    @property
    def token(self) -> int:
        """Its fencing token."""
        token = self.start.token if self.start else self.row and self.row["fencing_token"]
        return int(token or 0)

    @property
    def number(self) -> int:
        """Its number, as its job was told."""
        return int(self.start.attempt if self.start else self.row["attempt"] if self.row else 1)

    @property
    def outcome(self) -> str | None:
        """What is recorded of it."""
        return self.row["outcome"] if self.row else None

    @property
    def at(self) -> float:
        """When it began, or its firing."""
        return self.start.at if self.start else self.firing.at if self.firing else 0.0

    @property
    def by(self) -> float:
        """By when it had certainly begun."""
        if self.start:
            return self.start.at
        return math.inf if self.firing is None or self.firing.ended is None else self.firing.ended


def doubles(joined: Joined) -> Iterator[Violation]:
    """No start of a tick but the first, and further attempts that have a reason; none has another's number."""
    for every in _by_tick(joined).values():
        attempts = [each for each in every if each.start or each.outcome not in _NONE]
        for number, (before, attempt) in enumerate(itertools.pairwise(attempts), 1):
            same = [other for other in attempts[:number] if other.number == attempt.number]
            if same:
                yield _double(joined, same[0], attempt, f"both are attempt {attempt.number}")
            elif why := _has_no_reason(joined, before, attempt):
                lost = [other for other in every if before.token < other.token < attempt.token]
                if all(_has_no_reason(joined, other, attempt) for other in lost):
                    yield _double(joined, before, attempt, why)


def _by_tick(joined: Joined) -> dict[tuple[Part, str], list[Attempt]]:
    ticks: dict[tuple[Part, str], list[Attempt]] = defaultdict(list)
    for start in joined.starts:
        if start.tick is not None:
            row = next(iter(joined.rows_of(start)), None)
            attempt = Attempt(row, start, joined.firing_of(start))
            ticks[part_of(start), start.tick].append(attempt)
    for row, firing in joined.startless:
        counts = row["outcome"] not in _NONE or was_lost(row)
        if row["tick"] is not None and counts and row["fencing_token"] is not None:
            ticks[part_of_row(row), row["tick"]].append(Attempt(row, None, firing))
    for attempts in ticks.values():
        attempts.sort(key=lambda attempt: (attempt.token, attempt.at))
    return ticks


def _has_no_reason(joined: Joined, before: Attempt, attempt: Attempt) -> str | None:
    firing = attempt.firing
    if firing is not None and option(firing, "--again") is not None:
        return None
    if before.row and attempt.row and (why := _is_no_sequel(before.row, attempt.row)):
        return why if before.start else f"{why}; only not-started re-opens a tick"
    if firing is None or not (retries := _further(firing, before)):
        return "nobody had asked for it again"
    if before.firing != firing and not _was_left(joined, before, attempt.by):
        return f"the first is recorded as {before.outcome}, and was not lost"
    too_many = before.number > retries
    return f"no more than {retries} were to follow the first" if too_many else None


def _is_no_sequel(before: Row, row: Row) -> str | None:
    return why_not_again(execution_of(before), execution_of(row), lost=was_lost(before))


def _further(firing: Firing, before: Attempt) -> int:
    if before.firing is not None and before.firing.id == firing.id:
        return _retries(firing)
    if option(firing, "--failover") is None:
        return 0
    return _retries(firing) or FAILOVER_RETRIES


def _retries(firing: Firing | None) -> int:
    return int((firing and option(firing, "--retries")) or 0)


def _was_left(joined: Joined, before: Attempt, until: float) -> bool:
    """Return whether an attempt was lost, or failed and could not be followed; never without a fault of its own.

    What its firing met before it started may have kept it from renewing.
    """
    since = before.firing.at if before.firing else before.at
    if before.row is None or not joined.felt(before.row["host"], since, until, before.row["key"]):
        return False
    if was_lost(before.row):
        return True
    return before.outcome in FAILED and before.number <= _retries(before.firing)


def _double(joined: Joined, first: Attempt, second: Attempt, why: str) -> Violation:
    since = first.at
    until = since if first.start or not first.firing else first.firing.ended or since
    forgotten = joined.forgets(since, until)
    if forgotten:
        why = "the store had forgotten the first"
    starts = [start for start in (first.start, second.start) if start]
    firings = [firing for firing in (first.firing, second.firing) if firing]
    (key, shard), tick = _place(second)
    part = f" part {shard}" if shard else ""
    return Violation(
        "double",
        f"tick {tick} of {key}{part} was started twice: {_text(joined, first)} and {_text(joined, second)}; {why}",
        key, tick, [first.at, second.at], starts, firings, forgotten,
    )  # fmt: skip


def _place(attempt: Attempt) -> tuple[Part, str | None]:
    if attempt.start:
        return part_of(attempt.start), attempt.start.tick
    assert attempt.row is not None
    return part_of_row(attempt.row), attempt.row["tick"]


def _text(joined: Joined, attempt: Attempt) -> str:
    if attempt.start:
        return joined.start_text(attempt.start)
    assert attempt.row is not None
    row = attempt.row
    return f"attempt {row['attempt']} on {row['host']} (pid {row['pid']}, without a start)"


# Without a tick


def _lost_between(joined: Joined, before: Start, start: Start) -> bool:
    first, last = before.token or 0, start.token or 0
    return any(
        was_lost(row) and part_of_row(row) == part_of(start) and first < (row["fencing_token"] or 0) < last
        for row, _ in joined.startless
    )  # fmt: skip


def standbys(joined: Joined) -> Iterator[Violation]:
    """Who stands by without a tick goes on only after what was lost, or ended with its host and at nobody's request."""
    asked_by = joined.history.head.get("asked_by", ASKED_BY)
    for starts in joined.parts.values():
        for before, start in itertools.pairwise(starts):
            leader, firing = joined.firing_of(before), joined.firing_of(start)
            row = next(iter(joined.rows_of(before)), None)
            if not (start.tick is None and leader and firing and row) or leader.id == firing.id:
                continue
            ended = alive_until(before)
            waited = option(firing, "--wait") is not None  # for its turn, not as a standby
            if waited or option(firing, "--failover") is None or firing.at + asked_by > ended:
                continue
            hindered = joined.felt(firing.host, firing.at, ended, start.key) or joined.felt(
                leader.host, before.at, ended, start.key
            )
            handed_on = row["outcome"] == "stopped" and row["requested_by"] is None
            is_lost = was_lost(row) or _lost_between(joined, before, start)
            if not hindered and not handed_on and not is_lost:
                yield Violation(
                    "standby",
                    f"{joined.start_text(start)} of {start.key} stood by for {joined.start_text(before)}, which ended "
                    f"as {row['outcome']} and was not lost",
                    start.key, None, [ended, start.at], [before, start], [leader, firing],
                )  # fmt: skip
