"""Fill the records of the overview: of the store, of the plugins, and of this host."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oncecron import __version__
from oncecron.cli.command import spooled_records
from oncecron.core.host import host_name
from oncecron.core.log_rows import is_internal
from oncecron.core.text import Clock, part_of
from oncecron.core.tick import instant_of
from oncecron.core.units import DAY, HOUR
from oncecron.log.grid import WORST_FIRST, Grid, Run, columns, days
from oncecron.log.grid import gather as gather_line
from oncecron.log.hosts import hosts
from oncecron.log.job_summary import is_living
from oncecron.log.jobs import states
from oncecron.log.timeline import Span, last_runs, ticks_of
from oncecron.log.why import evidence
from oncecron.watch.findings import check, cure, usual_limits
from oncecron.watch.situation import situation_of
from oncecron_web.charts import BARS
from oncecron_web.contents import Day, Host, Job, Overview, Problem, Running
from oncecron_web.looks import LOOKS, WRONG, look

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.config.settings import Settings
    from oncecron.core.model import Retention
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.sources import Sources
    from oncecron.log.timeline import KeyTicks
    from oncecron.watch.findings import Checked, Finding

    Explain = Callable[[Sources, Finding, Clock], tuple[Sequence[str], str | None]]

_COLUMNS = 120
_HOST_COLUMNS = 60
_DAYS = 90
_KEYS = 2000
"""Rows of the table; who may fire can make up more keys."""
_EXPLAINED = 10
"""Findings with an account; each asks the store a few questions."""
_LISTED = 500
"""Findings at most; more come from a store into which somebody has written junk."""
_HOSTS_OF = 6
"""Keys whose hosts are shown by time."""
_MISSED_BARS = 5
"""Bars of ticks that nobody has started since the newest run; how many there are stands beside them."""


def evidence_of(sources: Sources, found: Finding, clock: Clock) -> tuple[Sequence[str], str | None]:
    """Return the account of the tick behind a finding, and what its command printed; nothing if it has no key."""
    if found.key is None:
        return (), None
    return evidence(sources, found.key, found.tick, found.since, clock)


def overview(
    sources: Sources,
    settings: Settings,
    *,
    since: float,
    keys: Collection[str] = (),
    explain: Explain = evidence_of,
    explained: int = _EXPLAINED,
    hosts_of: int = _HOSTS_OF,
) -> Overview:
    """Read once all that the overview shows, of every key or of `keys`. Raises `StoreError`.

    `explain`: how the first `explained` findings are explained. `hosts_of`: how many keys have their hosts by time.
    """
    now, utc, kept = sources.now, settings["utc"], settings.file.retention
    checked, summaries = _judged(sources, settings, keys)
    jobs = _jobs(sources, checked.findings, summaries, keys)[:_KEYS]
    names = [job.summary.key for job in jobs]
    wrong = [job for job in jobs if look(job.states[0][0]) in WRONG]
    of_days = days(now - (_DAYS - 1) * DAY, now, utc=utc)
    starts = columns(since, now, _COLUMNS, utc=utc)
    ticks = ticks_of(sources, Span(min(of_days[0], starts[0]), now, kept), names)
    return Overview(
        now=now,
        since=since,
        namespace=settings["namespace"],
        version=__version__,
        made_on=host_name(),
        keys=checked.keys,
        problems=list(_problems(sources, checked.findings, Clock(utc), explain, explained)),
        jobs=jobs,
        running=_running(sources, {job.key: job for job in summaries}),
        hosts=_hosts(sources, keys),
        timeline=_grid(ticks, names, starts, now),
        hosts_of=list(_hosts_of(sources, wrong[:hosts_of], since, kept, utc=utc)),
        days=_days(ticks.values(), of_days, utc=utc),
        more_problems=max(0, len(checked.findings) - _LISTED),
        unreadable=len({*sources.store.unreadable, *sources.log.unreadable}),
    )


def _judged(
    sources: Sources, settings: Settings, keys: Collection[str]
) -> tuple[Checked, list[JobSummary]]:
    limits = usual_limits()
    situation = situation_of(
        sources,
        settings.file,
        limits,
        utc=settings["utc"],
        keys=keys,
        spooled=spooled_records(settings),
        brief=False,
    )
    checked = check(situation, limits, Clock(settings["utc"]))
    named = {key for each in checked.findings for key in each.named()}
    return checked, [
        job for job in situation.jobs if keys or job.key in named or not is_internal(job.key)
    ]


def _problems(
    sources: Sources, findings: Sequence[Finding], clock: Clock, explain: Explain, explained: int
) -> Iterator[Problem]:
    for place, each in enumerate(findings[:_LISTED]):
        account, output = explain(sources, each, clock) if place < explained else ((), None)
        yield Problem(
            each.finding,
            each.state,
            each.key,
            each.host,
            each.reason,
            _since(each),
            cure(each),
            account,
            output,
        )


def _since(found: Finding) -> float | None:
    return found.since if found.since is not None else instant_of(found.tick)


def _jobs(
    sources: Sources,
    findings: Iterable[Finding],
    summaries: Iterable[JobSummary],
    keys: Collection[str],
) -> list[Job]:
    runs = last_runs(sources, BARS, keys)
    kinds: dict[str, list[str]] = {}
    for each in findings:
        if each.key is not None:
            kinds.setdefault(each.key, []).append(each.finding)
    found = [
        Job(
            job,
            _states(job, kinds.get(job.key, ())),
            _with_missed(job, runs.get(job.key, []), sources.now),
        )
        for job in summaries
    ]
    return sorted(found, key=_severity)


def _states(job: JobSummary, kinds: Iterable[str]) -> list[tuple[str | None, int]]:
    found: dict[str | None, int] = dict(states(job))
    found |= {kind: 0 for kind in kinds if kind not in found}
    return sorted(found.items(), key=lambda each: LOOKS.index(look(each[0])))


def _severity(job: Job) -> tuple[int, bool, str]:
    return LOOKS.index(_look(job)), job.summary.running_host is None, job.summary.key


def _look(job: Job) -> str:
    how = look(job.states[0][0])
    return how if how in WRONG else "well"


def _with_missed(job: JobSummary, runs: Sequence[Run], now: float) -> list[Run]:
    known = [
        run._replace(duration=max(0.0, now - run.started_at)) if run.outcome == "running" else run
        for run in runs
    ]
    at = instant_of(job.last_missed) or now
    missed = Run(job.last_missed, "missed", at, None, "", 0)
    return [*known, *itertools.repeat(missed, min(job.missed, _MISSED_BARS))][-BARS:]


def _running(sources: Sources, jobs: Mapping[str, JobSummary]) -> list[Running]:
    living = [
        each for each in sources.progressing() if each.key in jobs and is_living(each, sources.now)
    ]
    found = (
        Running(
            key=lease.key,
            shard=part_of(lease.shard, lease.shards) if lease.shards > 1 else None,
            host=lease.host,
            pid=lease.pid,
            since=lease.acquired_at,
            usual=jobs[lease.key].usual_duration,
            progress=lease.progress,
        )
        for lease in living
    )
    return sorted(found, key=lambda each: (each.since or 0.0, each.key))


def _hosts(sources: Sources, keys: Collection[str]) -> list[Host]:
    rows = [row for row in sources.key_hosts if not keys or row.key in keys]
    return [
        Host(
            name=each.host,
            seen_at=each.seen_at,
            version=each.version,
            clock_ahead=each.clock_ahead,
            keys=each.keys,
            wins=each.wins,
            skips=each.skips,
            drained_by=each.drained_by,
            silent_on=each.silent_on.split(",") if each.silent_on else (),
            machines=each.machines,
        )
        for each in hosts(rows, sources.pauses, sources.now)
    ]


def _hosts_of(
    sources: Sources, jobs: Iterable[Job], since: float, kept: Retention, *, utc: bool
) -> Iterator[Grid]:
    """Yield who fired each of some keys, for about as long as its bars, and as skips are kept.

    Keys that run often are asked for together, and so are the others, of which as much is read.
    """
    now = sources.now
    earliest = max(since, now - kept.skips)
    begins = {
        job.summary.key: max(earliest, min(now - HOUR, *(run.started_at for run in job.runs)))
        if job.runs
        else earliest
        for job in jobs
    }
    ticks: dict[str, KeyTicks] = {}
    for is_frequent in (True, False):
        keys = [key for key, begin in begins.items() if (begin > now - DAY) == is_frequent]
        if keys:
            span = Span(min(begins[key] for key in keys), now, kept)
            ticks |= ticks_of(sources, span, keys, hosts=True)
    for key, begin in begins.items():
        starts = columns(begin, now, _HOST_COLUMNS, utc=utc)
        hosts_of = sorted(ticks[key].hosts.items()) if key in ticks else []
        lines = (gather_line(host, each, starts, now) for host, each in hosts_of)
        yield Grid(starts, now, tuple(lines), key)


def _grid(
    ticks: Mapping[str, KeyTicks], keys: Sequence[str], starts: Sequence[float], until: float
) -> Grid:
    lines = (gather_line(key, ticks[key].ticks, starts, until) for key in keys if key in ticks)
    return Grid(tuple(starts), until, tuple(lines))


def _days(ticks: Iterable[KeyTicks], starts: Sequence[float], *, utc: bool) -> list[Day]:
    counts: list[Counter[str]] = [Counter() for _ in starts]
    for each in (each for of_key in ticks for each in of_key.ticks):
        at = bisect_left(each.times, starts[0])
        for day, end in enumerate([*starts[1:], math.inf]):
            first, at = at, bisect_left(each.times, end, at)
            if at > first:
                counts[day][each.word] += at - first
    zone = UTC if utc else None
    return [
        Day(
            datetime.fromtimestamp(begin, zone).date(),
            sorted(of_day.items(), key=lambda each: WORST_FIRST.index(each[0])),
        )
        for begin, of_day in zip(starts, counts, strict=True)
    ]
