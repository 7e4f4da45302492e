"""Ticks begin in their order, and where a line makes up what was missed (--catch-up), none is left without a reason."""

import itertools
from collections.abc import Iterator

from oncecron.core.clock import is_ahead
from oncecron.core.tick import at, instant_of
from oncecron.host.local_time import instants_between
from oncecron_drill.history import Firing, Start
from oncecron_drill.rules.joined import (
    MOMENT,
    Joined,
    Part,
    clock_step,
    moment_of,
    option,
    part_of_row,
    seconds,
    taken_back,
)
from oncecron_drill.rules.verdict import Violation

_AT_ONCE = 100
"""So many ticks one firing makes up."""


def order(joined: Joined) -> Iterator[Violation]:
    """No tick is begun after a newer one that the store still believes, unless a person asked for it."""
    for starts in _firsts(joined).values():
        by_cron = [each for each in starts if not _is_by_hand(joined, each)]
        for before, start in itertools.pairwise(by_cron):
            if (instant_of(start.tick) or 0.0) < (instant_of(before.tick) or 0.0):
                disbelieved = _is_disbelieved(joined, before, start)
                yield _of(joined, before, start, "order", "was begun before", hole=disbelieved)


def _is_disbelieved(joined: Joined, before: Start, start: Start) -> bool:
    """Return whether the store's clock was so far back when a tick was claimed that the newer one did not count."""
    claimed, faults = joined.claimed_after(start), joined.history.faults
    steps = [clock_step(each) for each in faults if joined.is_shared(each) and each.at <= claimed]
    now = joined.history.head["wall"] + claimed + min([0.0, *steps])
    return is_ahead(instant_of(before.tick) or 0.0, now)


def not_made_up(joined: Joined) -> Iterator[Violation]:
    """No own tick of a firing that makes up is begun before all that were due since the last one."""
    rows = {(part_of_row(row), row["tick"]) for row in joined.history.log.executions}
    for part, starts in _firsts(joined).items():
        begun = {start.tick for start in starts} | {tick for its, tick in rows if its == part}
        for before, start in itertools.pairwise(starts):
            firing = joined.firing_of(start)
            makes_up = firing and option(firing, "--catch-up") is not None
            if firing is None or not makes_up or _is_by_hand(joined, start):
                continue
            until = instant_of(start.tick) or 0.0
            passed = max(instant_of(before.tick) or 0.0, _without_lease(joined, part, until))
            for instant in _due(joined, firing, starts[0], passed, until):
                tick = at(instant, "").text
                if tick not in begun and not _was_kept(joined, part, instant):
                    what = f"was begun, tick {tick} was left, and then came"
                    yield _of(joined, before, start, "not-made-up", what)


def _firsts(joined: Joined) -> dict[Part, list[Start]]:
    """Return the first attempts at the instants of each part, in the order of their tokens."""
    found = {}
    for part, starts in joined.parts.items():
        firsts = [each for each in starts if each.attempt == 1 and instant_of(each.tick)]
        found[part] = sorted(firsts, key=lambda each: each.token or 0)
    return found


def _is_by_hand(joined: Joined, start: Start) -> bool:
    firing = joined.firing_of(start)
    return firing is None or option(firing, "--again") is not None


def _without_lease(joined: Joined, part: Part, until: float) -> float:
    """Return the newest tick before `until` that was started without a lease: it passes older ones."""
    rows = (row for row in joined.history.log.executions if row["outcome"] == "unclaimed")
    ticks = (instant_of(row["tick"]) or 0.0 for row in rows if part_of_row(row) == part)
    return max((tick for tick in ticks if tick < until), default=0.0)


def _due(
    joined: Joined, firing: Firing, first: Start, passed: float, until: float
) -> Iterator[float]:
    """Yield what a firing would have made up: younger than it says, and than the first start of all."""
    known = joined.history.head["wall"] + first.at + MOMENT
    oldest = until - (seconds(firing, "--catch-up") or 0.0) + MOMENT
    after = max(passed, known, oldest)
    zone = option(firing, "--tz") or "UTC"
    yield from instants_between(option(firing, "--schedule") or "", zone, after, until - 1)[
        -_AT_ONCE:
    ]


def _was_kept(joined: Joined, part: Part, instant: float) -> bool:
    """Return whether people held a tick back, or another run was on its way."""
    history, (key, _) = joined.history, part
    slack = MOMENT + max((abs(clock_step(fault)) for fault in history.faults), default=0.0)
    at_then, tick = instant - history.head["wall"], at(instant, "").text
    return (
        any(
            (row["key"], row["tick"]) == (key, tick) and row["reason"] in ("paused", "drained")
            for row in history.log.skips
        )
        or any(
            each.words[0] in ("pause", "drain")
            and each.at - slack <= at_then <= taken_back(joined, each)[1] + slack
            for each in history.operations
        )
        or any(
            since - slack <= instant <= until + slack
            for row in history.log.executions
            if part_of_row(row) == part
            if (since := moment_of(row["started_at"])) and (until := moment_of(row["finished_at"]))
        )
    )


def _of(
    joined: Joined, before: Start, start: Start, rule: str, what: str, *, hole: bool = False
) -> Violation:
    firing = joined.firing_of(start)
    return Violation(
        rule, f"{joined.start_text(before)} of {start.key} {what} {joined.start_text(start)}",
        start.key, start.tick, [before.at, start.at], [before, start], [firing] if firing else [],
        hole or joined.forgets(before.at, start.at),
    )  # fmt: skip
