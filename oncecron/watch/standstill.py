"""What stands still as a whole: no host fires any more, or people hold back all hosts or all keys.

Each is one event. A pass of notify counts for none of it: it runs on drained hosts, and during a pause of all keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.log_rows import ALL_KEYS, is_internal
from oncecron.core.text import count as many
from oncecron.core.text import held_by, listed, visible
from oncecron.core.tick import instant_of
from oncecron.core.units import DAY, MINUTE
from oncecron.log.silent_hosts import newest_rows, recent
from oncecron.watch.findings import finding, is_of_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.log_rows import Pause
    from oncecron.core.text import Clock
    from oncecron.log.hosts import HostSummary
    from oncecron.log.job_summary import JobSummary
    from oncecron.watch.findings import Finding, Situation

_SEVERAL = 2
"""What is missed is said of the key where there is but one."""
_NAMED = 3
_FORGOTTEN_AFTER = DAY
"""A drain of one host, or a pause of one key, that has no end is forgotten after this long."""


def silence(situation: Situation, clock: Clock) -> Iterator[Finding]:
    """Yield that no host fires: several keys were due since any host has fired any of them, and all were missed."""
    fired: dict[str, float] = {}
    passes: dict[str, float] = {}
    now = situation.now
    for row in recent(situation.hosts, now):
        times, name = (passes, row.host) if is_internal(row.key) else (fired, row.key)
        times[name] = max([at for _, at in row.ticks] + [times.get(name, 0.0)])
    last = max(fired.values(), default=0.0)
    silent = (job for job in situation.jobs if last and _is_silent_since(job, last, fired, now))
    keys = tuple(job.key for job in silent)
    if len(keys) < _SEVERAL:
        return
    which = f"since {clock.logged(last)} ({many(len(keys), 'key')})"
    alive = sorted(host for host, at in passes.items() if at > last + 2 * MINUTE)
    if alive:
        what = (
            f"no host has fired a key {which}, and only `notify` runs, on {listed(alive, _NAMED)}"
        )
        reason = f"{what}: the other hosts are down, or the lines of the keys are gone"
    else:
        reason = f"no host has fired {which}: cron or the way to the store is down"
    yield finding("standstill", None, len(keys), reason, since=last)._replace(keys=keys)


def _is_silent_since(job: JobSummary, last: float, fired: Mapping[str, float], now: float) -> bool:
    if is_internal(job.key):
        return False
    if job.silent_since is not None:  # without a schedule: it was not late yet when all went silent
        return last - fired.get(job.key, 0.0) < now - last
    first = (
        job.first_missed or job.first_caught_up
    )  # which no firing makes up as long as none comes
    return first is not None and (instant_of(first) or 0.0) > last


def as_a_whole(situation: Situation, clock: Clock) -> Iterator[Finding]:
    """Yield what stands still as a whole now."""
    yield from silence(situation, clock)
    yield from filter(is_of_all, stops(situation, 0.0, clock))


def stops(
    situation: Situation, after: float, clock: Clock, *, of_all: bool = True
) -> Iterator[Finding]:
    """Yield that all hosts are drained or all keys are paused, for so many seconds; and what is forgotten of it.

    `of_all`: whether the situation has all keys.
    """
    now, pauses = situation.now, situation.pauses
    keys = sorted(job.key for job in situation.jobs if not (job.retired or is_internal(job.key)))
    rows = (row for row in recent(situation.hosts, now) if not is_internal(row.key))
    seen = {row.host: row.seen_at for row in newest_rows(rows, 0.0)}
    drains = {pause.host: pause for pause in pauses if pause.host in seen}
    hosts = [host for host, at in seen.items() if at >= max(seen.values()) - DAY]
    which = "the only host is" if len(hosts) == 1 else f"all {len(hosts)} hosts are"
    found = list(_whole(f"{which} drained", hosts, drains, now - after, clock))
    paused = {pause.key: pause for pause in pauses if pause.key is not None}
    names = [ALL_KEYS] if ALL_KEYS in paused else keys
    if of_all or ALL_KEYS in paused:
        found += _whole("all keys are paused", names, paused, now - after, clock)
    yield from (each._replace(keys=tuple(keys)) for each in found)
    forgotten = [] if hosts and {*hosts} <= {*drains} else [*drains.values()]
    if not (of_all and {*names} <= {*paused}):
        forgotten += [paused[key] for key in keys if key in paused]
    for pause in forgotten:
        if pause.until is None and pause.since <= now - _FORGOTTEN_AFTER:
            yield _forgotten(pause, clock)


def _forgotten(pause: Pause, clock: Clock) -> Finding:
    name = pause.end.partition(" ")[2]
    what, which = (f"{name} is drained", "--host ") if pause.host else ("is paused", "")
    retired = f"or `oncecron forget {which}{name}`, if it is retired"
    reason = f"{what} {held_by(pause, clock)}; to end it: `oncecron {pause.end}`, {retired}"
    return finding("stopped", pause.key, 1, reason, since=pause.since, host=pause.host)


def _whole(
    what: str, names: Sequence[str], held: Mapping[Any, Pause], before: float, clock: Clock
) -> Iterator[Finding]:
    """Yield that all of these hosts or keys are held back, if they were before that time."""
    pauses = [held[name] for name in names if name in held]
    since = max((pause.since for pause in pauses), default=0.0)
    if pauses and len(pauses) == len(names) and since <= before:
        ends = listed([f"`oncecron {pause.end}`" for pause in pauses], _NAMED)
        by = [f"{visible(name)} {held_by(held[name], clock)}" for name in names]
        is_one = len({(each.author, each.reason, each.until) for each in pauses}) == 1
        newest = max(pauses, key=lambda each: each.since)
        who = f" {held_by(newest, clock)}" if is_one else f": {listed(by, _NAMED)}"
        reason = f"{what}{who}; nothing runs; to end it: {ends}"
        yield finding("stopped", None, len(pauses), reason, since=since)


def firing(hosts: Iterable[HostSummary], findings: Iterable[Finding]) -> int:
    """Return how many hosts fire, and start what they fire."""
    dead = {each.host for each in findings if each.finding == "silent-host" and each.key is None}
    if any(each.finding == "standstill" for each in findings):
        return 0
    return sum(each.drained_by is None and each.host not in dead for each in hosts)
