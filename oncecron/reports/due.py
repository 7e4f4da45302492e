"""What was due of a key since its newest start: overdue or missed ticks, overruns, and the next tick."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.timing import LEAST_SILENCE, MAX_CLOCK_SKEW
from oncecron.reports.expected import expected_shards, grace_of, was_held_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncecron.core.log_rows import Execution, Expectation, JobKey
    from oncecron.reports.expected import Reasons
    from oncecron.stores.api import Inspector

MISSED_AT_MOST = 1000
"""Ticks since the newest start that are looked at."""

GAPS_OF = 20
"""The newest starts whose gaps say how often a key without a schedule runs."""

FEWEST_STARTS = 3
"""With fewer starts, a key has no habit."""


class Due(NamedTuple):
    """What was due since the newest start of a key, and what is due next."""

    next_at: float | None = None
    overdue: str | None = None
    """The first tick that is due and not started, as long as none is missed."""
    missed: int = 0
    """How many ticks are missed; at most `MISSED_AT_MOST`."""
    first_missed: str | None = None
    last_missed: str | None = None
    overruns: int = 0
    """How many ticks were skipped because an earlier run was still running."""
    silent_since: float | None = None
    """Of a key without a schedule: its newest start, if the next one should have come long ago."""


def due_of(
    shards: Sequence[JobKey],
    log: Inspector,
    newest: Sequence[Execution],
    paused: float | None,
    now: float,
) -> Due:
    """Return what is due of a key, of which all `shards` are given.

    `newest`: its newest executions; `paused`: since when it is paused.
    """
    ticks: dict[str, tick.Tick] = {}
    late: set[str] = set()
    coming = math.inf
    for known, expected in expected_shards(shards):
        for each in _since_start(known, expected, newest):
            instant = each.instant or 0.0
            if instant > now or len(ticks) >= MISSED_AT_MOST:
                break
            if paused is None or instant < paused:
                ticks[str(each.text)] = each
                late |= {str(each.text)} if instant < now - grace_of(expected) else set()
        coming = min(coming, _next(expected, now))
    next_at = None if math.isinf(coming) else coming
    if not ticks:
        return Due(next_at, silent_since=_silent_since(shards, newest, paused, now))
    reasons = _reasons(log, shards[0].key, newest, ticks)
    held = {text for text in ticks if "held" in reasons.get(text, {})}
    open_ = sorted(text for text in ticks if text not in held and text in reasons)
    missed = [text for text in open_ if text in late]
    return Due(
        next_at,
        overdue=None if missed or not open_ else open_[0],
        missed=len(missed),
        first_missed=missed[0] if missed else None,
        last_missed=missed[-1] if missed else None,
        overruns=len(held),
    )


def _silent_since(
    shards: Sequence[JobKey], newest: Sequence[Execution], paused: float | None, now: float
) -> float | None:
    """Return the newest start of a key without a schedule, if three times its longest recent gap have passed."""
    starts = sorted({each.started_at for each in newest[:GAPS_OF]}, reverse=True)
    known = any(each.expected for each in shards)
    if known or paused is not None or len(starts) < FEWEST_STARTS:
        return None
    forgotten = max((each.forgotten_at or 0.0 for each in shards), default=0.0)
    longest = max(later - earlier for later, earlier in itertools.pairwise(starts))
    if forgotten > starts[0] or now - starts[0] <= max(3 * longest, LEAST_SILENCE):
        return None
    return starts[0]


def _since_start(
    known: JobKey, expected: Expectation, newest: Sequence[Execution]
) -> Iterator[tick.Tick]:
    """Yield the scheduled ticks since the newest start of a shard, without an end.

    A claim that was given back is no start.
    """
    started = known.high_water or -math.inf
    attempts = [each for each in newest if each.shard == known.shard and each.tick]
    if attempts and attempts[0].outcome == "not-started":
        instants = [
            tick.instant_of(each.tick) for each in attempts if each.outcome != "not-started"
        ]
        started = max((each for each in instants if each is not None), default=-math.inf)
    with contextlib.suppress(ValueError):  # this host knows no such zone: nothing is expected
        yield from tick.next_ticks(expected.schedule, expected.zone, max(expected.since, started))


def _next(expected: Expectation, now: float) -> float:
    with contextlib.suppress(ValueError, StopIteration):
        return next(tick.next_ticks(expected.schedule, expected.zone, now)).instant or math.inf
    return math.inf


def _reasons(
    log: Inspector, key: str, newest: Sequence[Execution], ticks: Mapping[str, tick.Tick]
) -> dict[str, Reasons]:
    """Return the skips of each tick that people did not hold back."""
    first = min(each.instant or 0.0 for each in ticks.values())
    hosts = {each.host for each in newest}
    reasons: dict[str, Reasons] = {text: {} for text in ticks}
    query = HistoryQuery(key=key, since=first - MAX_CLOCK_SKEW, limit=None)
    for skip in log.skips(query):
        hosts.add(skip.host)
        if skip.tick in reasons:
            reasons[skip.tick].setdefault(skip.reason, {})[skip.host] = None
    return {text: found for text, found in reasons.items() if not was_held_back(found, hosts)}
