"""Read what is judged of the keys: of the store, of its log, of this host and of the plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.config.file import job_section
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.text import listed, visible
from oncecron.core.tick import instant_of
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.log.gaps import reason_text
from oncecron.log.gone_lines import gone_lines
from oncecron.log.jobs import jobs
from oncecron.log.silent_hosts import recent
from oncecron.plugins import brought
from oncecron.watch.findings import Situation
from oncecron.watch.standstill import silence, stops
from oncecron.watch.wrong_times import future_marks, zones

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from oncecron.config.file import File
    from oncecron.core.text import Clock
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.missed import Reasons
    from oncecron.log.sources import Sources
    from oncecron.watch.findings import Finding, Limits

_OF_HOSTS = ("silent-host", "clock", "zone", "same-name", "standstill", "stopped")
"""The findings for which all hosts of all keys are read. They may be many."""
_AWAY_AT_MOST = 1000
"""So many records of firings that could not reach the store are looked at."""
_NAMED_HOSTS = 3


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

    rows = recent(hosts, sources.now)
    read = [*zones(sources.log, store_keys, [*rows])] if states["zone"] else []
    read += brought(lambda each: each.findings(sources, file))

    def remarks(clock: Clock) -> list[Finding]:
        every = [
            *read,
            *silence(situation, clock),
            *stops(situation, limits.stopped_after, clock, of_all=not keys),
        ]
        every += future_marks(store_keys, sources.pauses, sources.now, clock)
        wanted = [each for each in every if states[each.finding]]
        return [each for each in wanted if not keys or {*keys}.intersection(each.named())]

    situation = Situation(
        sources.now,
        found,
        sources.leases,
        hosts,
        sources.pauses,
        _hints(sources, found) if states["missed"] or states["silent"] else {},
        remarks,
        spooled,
        is_complete=not (store.unreadable or sources.log.unreadable),
    )
    return situation


def _hints(sources: Sources, found: Collection[JobSummary]) -> Mapping[str, str]:
    instants = {job.key: instant_of(job.first_missed) for job in found if job.missed}
    missed = {key: instant for key, instant in instants.items() if instant is not None}
    alone = sum(bool(job.missed) or job.silent_since is not None for job in found) == 1
    gone = gone_lines(sources.key_hosts, sources.store_keys, missed, alone=alone) if missed else {}
    ticks = {job.key: job.first_missed for job in found if job.key in missed}
    if missed:
        gone |= _away(sources, ticks, min(missed.values()))
    return gone | {job.key: _never(sources, job.key) for job in found if _has_never_run(job)}


def _away(sources: Sources, ticks: Mapping[str, str | None], since: float) -> Mapping[str, str]:
    """Return which hosts could not reach the store at the first missed tick of a key, by key."""
    hosts: dict[str, set[str]] = {}
    query = HistoryQuery(since=since - MAX_CLOCK_SKEW, outcomes=["no-store"], limit=_AWAY_AT_MOST)
    for skip in sources.log.skips(query):
        if skip.tick is not None and skip.tick == ticks.get(skip.key):
            hosts.setdefault(skip.key, set()).add(visible(skip.host))
    return {
        key: f"{listed(sorted(names), _NAMED_HOSTS)} could not reach the store then"
        for key, names in hosts.items()
    }


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
