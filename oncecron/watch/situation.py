"""Read what is judged of the keys: of the store, of its log, of this host and of the plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.config.file import job_section
from oncecron.core.tick import instant_of
from oncecron.log.gaps import reason_text
from oncecron.log.gone_lines import gone_lines
from oncecron.log.jobs import jobs
from oncecron.log.silent_hosts import recent
from oncecron.plugins import brought
from oncecron.watch.findings import Situation
from oncecron.watch.standstill import silence, stops
from oncecron.watch.wrong_times import future_marks, zones

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.config.file import File
    from oncecron.core.log_rows import JobKey, KeyHost
    from oncecron.core.text import Clock
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.missed import Reasons
    from oncecron.log.sources import Sources
    from oncecron.watch.findings import Finding, Limits

_OF_HOSTS = ("silent-host", "clock", "zone", "same-name", "standstill", "stopped")
"""The findings for which all hosts of all keys are read. They may be many."""


def situation_of(
    sources: Sources,
    file: File,
    limits: Limits,
    *,
    keys: Collection[str] = (),
    spooled: int = 0,
    brief: bool = True,
) -> Situation:
    """Read once all that is judged of every key, or of `keys`. Raises `StoreError`.

    `file`: what plugins find may depend on it. `limits`: what nobody looks for is not read. `spooled`: records
    that wait on this host. `brief`: see `jobs`.
    """
    store, states, store_keys = sources.store, limits.states, sources.store_keys
    found = list(jobs(sources, keys, brief=brief, missed_after=limits.missed_after))
    hosts = sources.key_hosts if any(states[kind] for kind in _OF_HOSTS) else ()

    def wanted(remarks: Iterable[Finding]) -> list[Finding]:
        return [each for each in remarks if states[each.finding] and (not keys or each.key in keys)]

    return Situation(
        sources.now,
        found,
        sources.leases,
        hosts,
        sources.pauses,
        _hints(sources, found) if states["missed"] or states["silent"] else {},
        wanted(_remarks(sources, file, hosts, limits)),
        spooled,
        is_complete=not (store.unreadable or sources.log.unreadable),
        timed=lambda clock: wanted(_timed(sources, store_keys, found, hosts, limits, clock)),
    )


def _remarks(
    sources: Sources, file: File, hosts: Collection[KeyHost], limits: Limits
) -> Iterator[Finding]:
    if limits.states["zone"]:
        yield from zones(sources.log, sources.store_keys, list(recent(hosts, sources.now)))
    yield from brought(lambda each: each.findings(sources, file))


def _timed(
    sources: Sources,
    store_keys: Sequence[JobKey],
    found: Collection[JobSummary],
    hosts: Collection[KeyHost],
    limits: Limits,
    clock: Clock,
) -> Iterator[Finding]:
    now, pauses = sources.now, sources.pauses
    yield from silence(found, hosts, now, clock)
    yield from stops(found, hosts, pauses, now, limits.stopped_after, clock)
    yield from future_marks(store_keys, pauses, now, clock)


def _hints(sources: Sources, found: Collection[JobSummary]) -> Mapping[str, str]:
    instants = {job.key: instant_of(job.first_missed) for job in found if job.missed}
    missed = {key: instant for key, instant in instants.items() if instant is not None}
    alone = sum(bool(job.missed) or job.silent_since is not None for job in found) == 1
    gone = gone_lines(sources.key_hosts, sources.store_keys, missed, alone=alone) if missed else {}
    return gone | {job.key: _never(sources, job.key) for job in found if _has_never_run(job)}


def _has_never_run(job: JobSummary) -> bool:
    is_expected = job.missed or job.silent_since is not None
    return bool(is_expected) and job.outcome is None and not job.running_on


def _never(sources: Sources, key: str) -> str:
    reasons: Reasons = {}
    for skip in sources.in_vain.get(key, ()):
        reasons.setdefault(skip.reason, {})[skip.host] = None
    if reasons:
        return f"it has never run; {reason_text(reasons)}"
    return f"no host has ever fired it: see that its line is in a crontab, or remove {job_section(key)}"
