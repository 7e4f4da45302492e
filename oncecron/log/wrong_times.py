"""What wrong clocks and wrong zones have left: marks of the future, and keys that start long after their ticks.

A firing does not count a mark that is more than the allowed skew ahead (`core.decision`), but some clock was wrong.

A key whose --tz is not the zone of its cron starts each tick too late, by the same number of quarters of an hour: all
zones differ by these.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from oncecron.core import tick
from oncecron.core.clock import is_ahead
from oncecron.core.job_summary import Remark
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery
from oncecron.core.silent_hosts import last_ticks
from oncecron.core.timing import ZONE_STEP, ZONE_STEP_WITHIN
from oncecron.core.units import plain_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Expectation, HostTicks, JobKey, KeyHost, Pause
    from oncecron.core.text import Clock
    from oncecron.stores.reader import Reader

_TWICE = 2


def future_marks(
    keys: Iterable[JobKey], pauses: Iterable[Pause], now: float, clock: Clock
) -> Iterator[Remark]:
    """Yield what a clock that was ahead has written about keys."""
    found: dict[str | None, Remark] = {}
    names = {ALL_KEYS}
    for known in keys:
        names.add(known.key)
        mark = known.high_water or 0.0
        if is_ahead(mark, now):
            what = f"newest tick, {tick.minute_tick(mark).text},"
        elif is_ahead(known.last_start or 0.0, now):
            what = f"last start, {clock.seconds(known.last_start)},"
        else:
            continue
        text = f"has a {what} in the future: a clock was ahead"
        cure = f"it does not count, and `oncecron release {known.key}` removes it"
        found.setdefault(known.key, Remark(known.key, text, cure))
    for pause in pauses:
        if pause.key in names and is_ahead(pause.since, now):
            everything = pause.key == ALL_KEYS
            which, name = ("all keys are", "--all") if everything else ("is", pause.key)
            since = clock.seconds(pause.since)
            text = f"{which} paused since {since}, which is in the future: a clock was ahead"
            key = None if everything else pause.key
            found[key] = Remark(key, text, f"`oncecron resume {name}` ends the pause")
    yield from found.values()


def wrong_zones(
    log: Reader, keys: Iterable[JobKey], rows: Iterable[HostTicks | KeyHost]
) -> Iterator[Remark]:
    """Yield the keys whose last two ticks were first fired the same number of quarters of an hour too late.

    `rows` say when a host first reached the store with a tick. Where that is suspicious, the log says when it fired.
    """
    expected = {known.key: known.expected for known in keys if known.expected}
    for key, of_key in sorted(last_ticks(rows, ()).items()):  # type: ignore[type-var]
        plan = expected.get(key)
        fired = [(text, of_key.first_at[text]) for text in of_key.ticks[:_TWICE]]
        if plan is None or not _late_by(fired):
            continue
        late = _late_by([(text, _fired_at(log, key, text)) for text, _ in fired])
        if late and all(_is_scheduled(text, plan) for text, _ in fired):
            zone = f"--tz {plan.zone}" if plan.zone else "the time zone of the host"
            text = f"starts {plain_duration(late)} after its ticks: {zone} is probably not that of cron"
            yield Remark(key, text, "give --tz the zone in which cron reads the line")


def _late_by(fired: Sequence[tuple[str, float | None]]) -> float:
    """Return how late ticks were fired, if that is the same for two of them and a difference of zones; else 0."""
    steps = set()
    for text, at in fired:
        instant = tick.instant_of(text)
        late = 0.0 if instant is None or at is None else at - instant
        step = late // ZONE_STEP
        steps.add(step if late - step * ZONE_STEP <= ZONE_STEP_WITHIN else 0.0)
    return steps.pop() * ZONE_STEP if len(fired) == _TWICE and len(steps) == 1 else 0.0


def _fired_at(log: Reader, key: str, text: str) -> float | None:
    """Return when the firing that started a tick began, by its host's clock."""
    found = log.traced(HistoryQuery(key=key, tick=text, limit=None))
    first = min(found, key=lambda each: each.execution.attempt, default=None)
    return None if first is None or first.execution.cause != "schedule" else first.fired_at


def _is_scheduled(text: str, plan: Expectation) -> bool:
    instant = tick.instant_of(text) or 0.0
    with contextlib.suppress(ValueError):  # this host knows no such zone
        return next(tick.next_ticks(plan.schedule, plan.zone, instant - 1)).instant == instant
    return False
