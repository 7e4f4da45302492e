"""Parts without a start: of ticks of which another part was started.

A key's log is read the newest first, and a tick that has all its parts is forgotten, so that memory does not grow
with the log. What is left is asked for again, whole.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.timing import SETTLED
from oncecron.reports.gaps import Reasons, listed_reasons
from oncecron.reports.jobs import is_living

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.log_rows import Execution, Traced
    from oncecron.stores.api import Inspector

_COMPLETE_REMEMBERED = 4096
"""Ticks: an attempt that is older than the one that made its tick complete is not a tick of its own."""
_A_DAY = 86400.0
"""Seconds from the end of the retention in which some parts of a tick may be kept, and others not."""


class Missing(NamedTuple):
    """A part that was not started."""

    execution: Execution
    """The newest of the tick's other parts."""
    instant: float | None
    shard: int
    reason: str


class _OpenTick:
    """A tick of which not all parts have been met yet."""

    def __init__(self, traced: Traced) -> None:
        self.newest = traced
        self.shards = traced.execution.shards
        self.met: set[int] = set()


def missing_parts(
    store: Inspector, log: Inspector, key: str, *, since: float | None, kept: float, now: float
) -> Iterator[Missing]:
    """Yield what was not started of the ticks that began since, and that are over by now."""
    query = HistoryQuery(key=key, since=since, limit=None)
    running = {lease.tick for lease in store.leases() if lease.key == key and is_living(lease, now)}
    for found in _incomplete(log.traced(query)):
        execution = found.newest.execution
        tick = HistoryQuery(key=key, tick=execution.tick, limit=None)
        started = [each for each in log.history(tick) if each.outcome != "not-started"]
        over = max((each.finished_at or each.started_at for each in started), default=now)
        first = min((each.started_at for each in started), default=now)
        if execution.tick in running or over > now - SETTLED or first < now - kept + _A_DAY:
            continue
        met = {each.shard for each in started}
        reasons = _reasons(log, tick)
        for shard in range(found.shards):
            if shard not in met and "paused" not in reasons.get(shard, {}):
                why = listed_reasons(reasons.get(shard, {}))
                yield Missing(execution, found.newest.instant, shard, why)


def _incomplete(executions: Iterator[Traced]) -> list[_OpenTick]:
    """Return the ticks of which a part is missing; the executions the newest first."""
    opened: dict[str, _OpenTick] = {}
    complete: collections.OrderedDict[str, None] = collections.OrderedDict()
    for traced in executions:
        execution = traced.execution
        if (
            execution.tick is None
            or execution.shards == 1
            or execution.outcome == "not-started"
            or execution.tick in complete
        ):
            continue
        found = opened.setdefault(execution.tick, _OpenTick(traced))
        found.met.add(execution.shard)
        if len(found.met) == found.shards:
            del opened[execution.tick]
            complete[execution.tick] = None
            if len(complete) > _COMPLETE_REMEMBERED:
                complete.popitem(last=False)
    return list(opened.values())


def _reasons(log: Inspector, tick: HistoryQuery) -> dict[int, Reasons]:
    told: dict[int, Reasons] = {}
    for skip in log.skips(tick):
        told.setdefault(skip.shard, {}).setdefault(skip.reason, {})[skip.host] = None
    return told
