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
from oncecron.log.silent_hosts import recent
from oncecron.watch.findings import finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import KeyHost, Pause
    from oncecron.core.text import Clock
    from oncecron.log.hosts import HostSummary
    from oncecron.log.job_summary import JobSummary
    from oncecron.watch.findings import Finding

_SEVERAL = 2
"""What is missed is said of the key where there is but one."""
_NAMED = 3
_FORGOTTEN_AFTER = DAY
"""A drain of one host that has no end is forgotten after this long."""


def silence(
    jobs: Iterable[JobSummary], rows: Iterable[KeyHost], now: float, clock: Clock
) -> Iterator[Finding]:
    """Yield that no host fires: several keys were due since any host has fired any of them, and all were missed."""
    fired: dict[str, float] = {}
    passes: dict[str, float] = {}
    for row in recent(rows, now):
        times, name = (passes, row.host) if is_internal(row.key) else (fired, row.key)
        times[name] = max([at for _, at in row.ticks] + [times.get(name, 0.0)])
    last = max(fired.values(), default=0.0)
    keys = tuple(job.key for job in jobs if last and _is_silent_since(job, last, fired, now))
    if len(keys) < _SEVERAL:
        return
    which = f"since {clock.logged(last)} ({many(len(keys), 'key')})"
    alive = sorted(host for host, at in passes.items() if at > last + 2 * MINUTE)
    if alive:
        what = f"no host has fired a key {which}, and only `oncecron notify` runs, on {listed(alive, _NAMED)}"
        reason = f"{what}: the other hosts are down, or the lines of the keys are gone"
    else:
        reason = f"no host has fired {which}: cron or the way to the store is down"
    yield finding("standstill", None, len(keys), reason, since=last)._replace(keys=keys)


def _is_silent_since(job: JobSummary, last: float, fired: Mapping[str, float], now: float) -> bool:
    if is_internal(job.key):
        return False
    if job.silent_since is not None:  # without a schedule: it was not late yet when all went silent
        return last - fired.get(job.key, 0.0) < now - last
    return bool(job.missed) and (instant_of(job.first_missed) or 0.0) > last


def stops(
    jobs: Iterable[JobSummary],
    rows: Iterable[KeyHost],
    pauses: Sequence[Pause],
    now: float,
    after: float,
    clock: Clock,
) -> Iterator[Finding]:
    """Yield that all hosts are drained or all keys are paused, for so many seconds; and drains that are forgotten."""
    seen: dict[str, float] = {}
    for row in recent(rows, now):
        if not is_internal(row.key):
            seen[row.host] = max(row.seen_at, seen.get(row.host, 0.0))
    newest = max(seen.values(), default=0.0)
    hosts = {host for host, at in seen.items() if at >= newest - DAY}
    drains = {pause.host: pause for pause in pauses if pause.host in seen}
    if is_whole := bool(hosts) and hosts <= {*drains}:
        which = "the only host is" if len(hosts) == 1 else f"all {len(hosts)} hosts are"
        yield from _stop(
            f"{which} drained", [drains[each] for each in sorted(hosts)], now - after, clock
        )
    keys = {job.key for job in jobs if not job.retired and not is_internal(job.key)}
    paused = {pause.key: pause for pause in pauses if pause.key is not None}
    if ALL_KEYS in paused:
        yield from _stop("all keys are paused", [paused[ALL_KEYS]], now - after, clock)
    elif keys and keys <= {*paused}:
        yield from _stop(
            "all keys are paused", [paused[each] for each in sorted(keys)], now - after, clock
        )
    for drain in () if is_whole else drains.values():
        if drain.until is None and drain.since <= now - _FORGOTTEN_AFTER:
            name = drain.end.removeprefix("undrain ")
            retired = f"or `oncecron forget --host {name}`, if it is retired"
            reason = f"{name} is drained {held_by(drain, clock)}; to end it: `oncecron {drain.end}`, {retired}"
            yield finding("stopped", None, 1, reason, since=drain.since, host=drain.host)


def _stop(what: str, pauses: Sequence[Pause], before: float, clock: Clock) -> Iterator[Finding]:
    """Yield that everything is held back, if it was before that time."""
    since = max(pause.since for pause in pauses)
    if since <= before:
        ends = listed([f"`oncecron {pause.end}`" for pause in pauses], _NAMED)
        by = [
            f"{visible(pause.host or pause.key or '')} {held_by(pause, clock)}" for pause in pauses
        ]
        who = f" {held_by(pauses[0], clock)}" if len(pauses) == 1 else f": {listed(by, _NAMED)}"
        reason = f"{what}{who}; nothing runs; to end it: {ends}"
        yield finding("stopped", None, len(pauses), reason, since=since)


def firing(hosts: Iterable[HostSummary], findings: Iterable[Finding]) -> int:
    """Return how many hosts fire, and start what they fire."""
    dead = {each.host for each in findings if each.finding == "silent-host" and each.key is None}
    if any(each.finding == "standstill" for each in findings):
        return 0
    return sum(each.drained_by is None and each.host not in dead for each in hosts)
