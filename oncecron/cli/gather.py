"""Gather what `check`, `notify` and `metrics` judge: of the store, of the wings, and of this host.

The wings know nothing of each other. Each line about one of them stands here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron.alerts.changes import failing_channels
from oncecron.alerts.findings import Situation
from oncecron.cli.command import spools
from oncecron.config.file import job_section
from oncecron.config.options import AUTO_KEY
from oncecron.core.log_rows import Expectation, JobKey
from oncecron.core.silent_hosts import recent
from oncecron.core.text import Clock
from oncecron.core.tick import instant_of
from oncecron.core.units import parse_duration
from oncecron.each.reports import (
    fields_of_jobs,
    item_lists,
    items_in_doubt,
    items_left,
    newest_lists,
)
from oncecron.log.gaps import reason_text
from oncecron.log.gone_lines import gone_lines
from oncecron.log.jobs import jobs
from oncecron.log.wrong_times import future_marks, zones

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from oncecron.alerts.findings import Limits
    from oncecron.config.settings import Settings
    from oncecron.core.job_summary import JobSummary, Remark
    from oncecron.core.log_rows import HostTicks
    from oncecron.core.missed import Reasons
    from oncecron.each.reports import ListView
    from oncecron.log.jobs import Sources

_OF_HOSTS = ("silent-host", "clock", "zone", "same-name")
"""The findings for which all hosts of all keys are read. They may be many."""


def configured_keys(settings: Settings) -> Sequence[JobKey]:
    """Return the keys that the configuration file gives a schedule: they are expected from its last change on.

    None where another store is named than that of the file.
    """
    file = settings.file
    if file.path is None or _is_elsewhere(settings):
        return ()
    try:
        changed = os.stat(file.path).st_ctime  # not st_mtime, which a copy may keep
    except OSError:
        return ()
    return [
        JobKey(key, 0, _configured(job, changed))
        for key, job in file.jobs.items()
        if key != AUTO_KEY and "schedule" in job and not {"store", "namespace"} & job.keys()
    ]


def _is_elsewhere(settings: Settings) -> bool:
    """Return whether the command line names a store, or the environment another one than the file."""
    file, variables = settings.file, ("ONCECRON_STORE", "ONCECRON_STORE_FILE", "ONCECRON_NAMESPACE")
    names_one = bool({"store", "namespace"} & file.values.keys()) or file.store_file is not None
    is_typed = any(map(settings.is_typed, ("store", "namespace")))
    return is_typed or (names_one and any(map(os.environ.get, variables)))


def _configured(job: Mapping[str, str], since: float) -> Expectation:
    deadline = job.get("starting-deadline")
    within = None if deadline is None else parse_duration(deadline)
    return Expectation(job["schedule"], job.get("tz"), 1, within, since)


def every_job(
    sources: Sources, keys: Collection[str] = (), *, internal: bool = True
) -> Iterator[JobSummary]:
    """Yield every key by name, or only `keys`, with its items; for `internal` see `jobs`."""
    return jobs(sources, keys, internal=internal, items=fields_of_jobs(item_lists(sources.store)))


def gather(
    sources: Sources,
    limits: Limits,
    *,
    utc: bool = True,
    keys: Collection[str] = (),
    channels: Collection[str] = (),
    spooled: int = 0,
    brief: bool = True,
) -> Situation:
    """Read once all that is judged of every key, or of `keys`. Raises `StoreError`.

    `limits`: what nobody looks for is not read. `utc`: how the sentences show times.
    `channels`: those of `notify` that are configured. `brief`: see `jobs`.
    """
    store, states = sources.store, limits.states
    leases, lists = sources.leases, item_lists(store)
    items = fields_of_jobs(lists)
    found = list(jobs(sources, keys, items=items, brief=brief, missed_after=limits.missed_after))
    failing = {} if keys else failing_channels(store.notices(channels))
    hosts = sources.host_ticks if any(states[kind] for kind in _OF_HOSTS) else ()
    remarks = {
        kind: [remark for remark in of_kind if not keys or remark.key in keys]
        for kind, of_kind in _remarks(sources, lists, hosts, Clock(utc)).items()
        if states[kind]
    }
    return Situation(
        sources.now,
        found,
        leases,
        hosts,
        sources.pauses,
        _hints(sources, found) if states["missed"] or states["silent"] else {},
        remarks,
        failing,
        channels,
        spooled,
        is_complete=not (store.unreadable or sources.log.unreadable),
    )


def _hints(sources: Sources, found: Collection[JobSummary]) -> Mapping[str, str]:
    instants = {job.key: instant_of(job.first_missed) for job in found if job.missed}
    missed = {key: instant for key, instant in instants.items() if instant is not None}
    gone = gone_lines(sources.key_hosts, sources.store_keys, missed) if missed else {}
    return gone | {job.key: _never(sources, job.key) for job in found if _has_never_run(job)}


def _has_never_run(job: JobSummary) -> bool:
    is_expected = job.missed or job.silent_since is not None
    return bool(is_expected) and job.outcome is None and job.running_host is None


def _never(sources: Sources, key: str) -> str:
    """Say why a key has never run."""
    reasons: Reasons = {}
    for skip in sources.in_vain.get(key, ()):
        reasons.setdefault(skip.reason, {})[skip.host] = None
    if reasons:
        return f"it has never run; {reason_text(reasons)}"
    return f"no host has ever fired it: see that its line is in a crontab, or remove {job_section(key)}"


def _remarks(
    sources: Sources, lists: Collection[ListView], hosts: Collection[HostTicks], clock: Clock
) -> Mapping[str, Iterator[Remark]]:
    keys, now = sources.store_keys, sources.now
    return {
        "in-doubt": items_in_doubt(newest_lists(lists).values()),
        "left": items_left([*lists]),
        "future": future_marks(keys, sources.pauses, now, clock),
        "zone": zones(sources.log, keys, list(recent(hosts, now)), lambda: sources.key_hosts),
    }


def spooled_records(settings: Settings) -> int:
    """Return how many records wait in the spools of this user on this host."""
    return sum(1 for spool in spools(settings) for _ in spool.pending())
