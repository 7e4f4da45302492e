"""Shards without a start, of ticks of which another shard was started.

A key's log is read newest first. A tick is forgotten once all its shards were found, so memory does not grow with the
log. The ticks that are left are read again, completely.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.timing import SETTLED
from oncecron.core.units import DAY
from oncecron.log.gaps import listed_reasons
from oncecron.log.jobs import is_living

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.expected import Reasons
    from oncecron.core.log_rows import Execution, Traced
    from oncecron.stores.api import Inspector

_COMPLETE_REMEMBERED = 4096
"""Complete ticks that are remembered: an older attempt at one of them does not open the tick again."""


class Missing(NamedTuple):
    """A shard that was not started."""

    execution: Execution
    """The newest of the tick's other shards."""
    instant: float | None
    shard: int
    reason: str


class _OpenTick:
    """A tick of which not all shards have been found yet."""

    def __init__(self, traced: Traced) -> None:
        self.newest = traced
        self.shards = traced.execution.shards
        self.found: set[int] = set()


def missing_shards(
    store: Inspector, log: Inspector, key: str, *, since: float | None, kept: float, now: float
) -> Iterator[Missing]:
    """Yield the shards that were not started, of ticks that began after `since` and are over."""
    query = HistoryQuery(key=key, since=since, limit=None)
    running = {lease.tick for lease in store.leases() if lease.key == key and is_living(lease, now)}
    for found in _incomplete(log.traced(query)):
        execution = found.newest.execution
        tick = HistoryQuery(key=key, tick=execution.tick, limit=None)
        started = [each for each in log.history(tick) if each.outcome != "not-started"]
        over = max((each.finished_at or each.started_at for each in started), default=now)
        first = min((each.started_at for each in started), default=now)
        # Within a day of the end of the retention, some shards of a tick may be pruned already.
        if execution.tick in running or over > now - SETTLED or first < now - kept + DAY:
            continue
        known = {each.shard for each in started}
        reasons = _reasons(log, tick)
        for shard in range(found.shards):
            if shard not in known and "paused" not in reasons.get(shard, {}):
                why = listed_reasons(reasons.get(shard, {}))
                yield Missing(execution, found.newest.instant, shard, why)


def _incomplete(executions: Iterator[Traced]) -> list[_OpenTick]:
    """Return the ticks of which a shard is missing; `executions` are sorted newest first."""
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
        found.found.add(execution.shard)
        if len(found.found) == found.shards:
            del opened[execution.tick]
            complete[execution.tick] = None
            if len(complete) > _COMPLETE_REMEMBERED:
                complete.popitem(last=False)
    return list(opened.values())


def _reasons(log: Inspector, tick: HistoryQuery) -> dict[int, Reasons]:
    reasons: dict[int, Reasons] = {}
    for skip in log.skips(tick):
        reasons.setdefault(skip.shard, {}).setdefault(skip.reason, {})[skip.host] = None
    return reasons
