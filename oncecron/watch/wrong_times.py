"""What wrong clocks and wrong zones have left: marks of the future, and keys that start long after their ticks.

A firing does not count a mark that is more than the allowed skew ahead (`core.decision`), but some clock was wrong.

A key whose --tz is not the zone of its cron starts each tick too late, by the same number of quarters of an hour: all
zones differ by these.

Hosts whose tz databases differ, or whose own zones do where there is no --tz, take one local time of a schedule for two
instants: these are two ticks, and each is run. Every firing tells how far its zone is ahead of UTC at its tick.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from oncecron.core import tick
from oncecron.core.clock import is_ahead
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery
from oncecron.core.text import listed
from oncecron.core.units import plain_duration
from oncecron.host.local_time import canonical, offsets
from oncecron.log.missed import has_tick
from oncecron.log.silent_hosts import last_ticks
from oncecron.watch.findings import finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import JobKey, KeyHost, Pause
    from oncecron.core.text import Clock
    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding

_ZONE_STEP = 900.0
"""The offsets of time zones are multiples of this."""
_ZONE_STEP_WITHIN = 20.0
"""Cron, the interpreter and a connection need less, from a tick in cron's zone to the start of a firing on record."""

_TWICE = 2
_NAMED_HOSTS = 3


def future_marks(
    keys: Iterable[JobKey], pauses: Iterable[Pause], now: float, clock: Clock
) -> Iterator[Finding]:
    """Yield what a clock that was ahead has written about keys."""
    found: dict[str | None, Finding] = {}
    names = {ALL_KEYS}
    for known in keys:
        names.add(known.key)
        mark = known.high_water or 0.0
        if is_ahead(mark, now):
            what = f"newest tick, {tick.minute_tick(mark).text},"
        elif is_ahead(known.last_start or 0.0, now):
            what = f"last start, {clock.logged(known.last_start)},"
        else:
            continue
        text = f"has a {what} in the future: a clock was ahead"
        cure = f"it does not count, and `oncecron release {known.key}` removes it"
        found.setdefault(known.key, finding("future", known.key, 1, f"{text}; {cure}"))
    for pause in pauses:
        if pause.key in names and is_ahead(pause.since, now):
            everything = pause.key == ALL_KEYS
            which, name = ("all keys are", "--all") if everything else ("is", pause.key)
            since = clock.logged(pause.since)
            text = f"{which} paused since {since}, which is in the future: a clock was ahead"
            key = None if everything else pause.key
            cure = f"`oncecron resume {name}` ends the pause"
            found[key] = finding("future", key, 1, f"{text}; {cure}")
    yield from found.values()


def zones(log: Reader, keys: Iterable[JobKey], rows: Sequence[KeyHost]) -> Iterator[Finding]:
    """Yield the keys whose zone is wrong, or is not the same on all hosts."""
    found = {each.key: each for each in differing_zones(rows)}
    yield from found.values()
    yield from (each for each in wrong_zones(log, keys, rows) if each.key not in found)


def wrong_zones(log: Reader, keys: Iterable[JobKey], rows: Iterable[KeyHost]) -> Iterator[Finding]:
    """Yield the keys whose last two ticks were first fired the same number of quarters of an hour too late.

    `rows` say when a host first reached the store with a tick. Where that is suspicious, the log says when it fired.
    """
    expected = {known.key: known.expected for known in keys if known.expected}
    for key, of_key in sorted(last_ticks(rows, ()).items()):
        plan = expected.get(key)
        fired = [(text, of_key.first_at[text]) for text in of_key.ticks[:_TWICE]]
        if plan is None or not _late_by(fired):
            continue
        late = _late_by([(text, _fired_at(log, key, text)) for text, _ in fired])
        if late and all(has_tick(plan, tick.instant_of(text) or 0.0) for text, _ in fired):
            zone = f"--tz {plan.zone}" if plan.zone else "the time zone of the host"
            text = f"starts {plain_duration(late)} after its ticks: {zone} is probably not that of cron"
            cure = "give --tz the zone in which cron reads the line"
            yield finding("zone", key, 1, f"{text}; {cure}")


def differing_zones(rows: Iterable[KeyHost]) -> Iterator[Finding]:
    """Yield the keys of which two hosts have fired one local time of the same schedule and zone as two ticks."""
    groups: dict[tuple[str, str, str], list[KeyHost]] = {}
    for row in rows:
        if row.schedule is not None and row.utc_offset is not None:
            which = row.key, row.schedule, canonical(row.zone or "")
            groups.setdefault(which, []).append(row)
    told: set[str] = set()
    for (key, schedule, zone), group in sorted(groups.items()):
        if len({row.utc_offset for row in group}) == 1:
            continue
        wrong = [row for row in group if not _agrees(row)]
        pairs = (
            pair
            for pair in itertools.combinations(group, 2)
            if any(row in wrong for row in pair) and _are_apart(*pair, schedule)
        )
        if key not in told and (pair := next(pairs, None)):
            told.add(key)
            yield _of_zone(key, zone, group, pair)


def _agrees(row: KeyHost) -> bool:
    """Return whether the zone has this offset at the last tick by the tz database of this host, too.

    Of two that agree with it, the clock has changed between their ticks.
    """
    with contextlib.suppress(ValueError):  # this host knows no such zone
        last = tick.instant_of(row.ticks[0][0]) if row.ticks else None
        return last is not None and offsets(row.zone)(int(last)) == row.utc_offset
    return False


def _are_apart(a: KeyHost, b: KeyHost, schedule: str) -> bool:
    if a.utc_offset is None or b.utc_offset is None or a.utc_offset == b.utc_offset:
        return False
    apart = b.utc_offset - a.utc_offset
    ticks = [{tick.instant_of(text) for text, _ in row.ticks} - {None} for row in (a, b)]
    return any(
        at is not None and at - apart in ticks[1] and not _is_tick(schedule, b.utc_offset, at)
        for at in ticks[0] - ticks[1]
    )


def _is_tick(schedule: str, utc_offset: int, instant: float) -> bool:
    with contextlib.suppress(ValueError):  # of another version
        return tick.Schedule(schedule, lambda _: utc_offset).latest(int(instant)) == instant
    return True


def _of_zone(
    key: str, zone: str, group: Sequence[KeyHost], pair: tuple[KeyHost, KeyHost]
) -> Finding:
    hosts: dict[int, list[str]] = {}
    for row in group:
        hosts.setdefault(row.utc_offset or 0, []).append(row.host)
    shown = [
        f"{_offset(each)} on {listed(names, _NAMED_HOSTS)}" for each, names in sorted(hosts.items())
    ]
    of = f"--tz {zone}" if zone else "the zone of the host"
    last = " and ".join(row.ticks[0][0] for row in pair)
    why = f"{of} is {', '.join(shown)} (last ticks {last})"
    text = f"has two ticks for one local time, because its hosts disagree about the zone: {why}"
    cure = (
        "bring tzdata up to date on each host; `oncecron doctor` names its version"
        if zone
        else "give --tz, the same zone on each host"
    )
    return finding("zone", key, 1, f"{text}; {cure}")


def _offset(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02d}:{minutes:02d}"


def _late_by(fired: Sequence[tuple[str, float | None]]) -> float:
    """Return how late ticks were fired, if that is the same for two of them and a difference of zones; else 0."""
    steps = set()
    for text, at in fired:
        instant = tick.instant_of(text)
        late = 0.0 if instant is None or at is None else at - instant
        step = late // _ZONE_STEP
        steps.add(step if late - step * _ZONE_STEP <= _ZONE_STEP_WITHIN else 0.0)
    return steps.pop() * _ZONE_STEP if len(fired) == _TWICE and len(steps) == 1 else 0.0


def _fired_at(log: Reader, key: str, text: str) -> float | None:
    """Return when the firing that started a tick began, by its host's clock."""
    found = log.traced(HistoryQuery(key=key, tick=text, limit=None))
    first = min(found, key=lambda each: each.execution.attempt, default=None)
    return None if first is None or first.execution.cause != "schedule" else first.fired_at
