"""What the pages ask of the store and its log: a function a page, which returns what its template shows, by name.

The values are records of `core`, `log` and `watch` as they are. It only reads.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, NamedTuple

from oncecron.cli.command import moment, spooled_records, spools
from oncecron.core.errors import NotFoundError, UsageError
from oncecron.core.log_rows import HistoryQuery, is_internal
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS, Output
from oncecron.core.suggestion import not_one_of, similar
from oncecron.core.text import Clock
from oncecron.core.tick import instant_of
from oncecron.core.units import DAY
from oncecron.host.names import host_name
from oncecron.log.grid import Grid, Run, columns, days, gather
from oncecron.log.hosts import hosts
from oncecron.log.job_summary import is_living
from oncecron.log.jobs import as_is, states
from oncecron.log.missed import scheduled
from oncecron.log.output_tail import captured
from oncecron.log.tick_history import facts_of, spooled_of, which_of
from oncecron.log.timeline import Span, last_runs, ticks_of
from oncecron.log.which_tick import Choice, Ticks, wanted_tick
from oncecron.log.why import account, evidence, others
from oncecron.plugins import brought
from oncecron.watch.findings import check, is_of_all, usual_limits
from oncecron.watch.situation import situation_of
from oncecron_web.addresses import Link, NoSuchPageError, address, key_address
from oncecron_web.cards import cards
from oncecron_web.charts import BARS, share
from oncecron_web.looks import LOOKS, WRONG, look
from oncecron_web.page_times import PAGE_GRID, PAGE_TIMELINE, SHORTEST_HOST_GRID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import LeaseView, Told
    from oncecron.log.grid import Line, Mark
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.sources import Sources
    from oncecron.watch.findings import Checked, Finding, Situation

    Counts = tuple[tuple[str, int], ...]
    Query = Mapping[str, str]
    Shown = dict[str, Any]
    """By the names of a template."""
    States = Sequence[tuple[str | None, int]]
    """All that is wrong with a key and what it does, the worst first, each with a number of ticks or 0."""
    Explained = Mapping[Finding, tuple[Sequence[str], str | None]]
    """The account of the tick behind a finding, and what its command printed."""

_COLUMNS = 120
_HOST_COLUMNS = 60
"""So many marks of the ticks of a host fit beside its name."""
_DAYS = 90
_KEYS = 2000
"""Rows of the table; who may fire can make up more keys."""
_EXPLAINED = 5
"""Findings with an account, the first one of each card before the others; each asks the store a few questions."""
_LISTED = 500
"""Findings at most; more come from a store into which somebody has written junk."""
_HOSTS_OF = 6
"""Keys whose hosts are shown by time."""
_MISSED_BARS = 5
"""Bars of ticks that nobody has started since the newest run; how many there are stands beside them."""
_SHOWN, _MOST_SHOWN = 50, 1000
_LONGEST_TEXT, _LONGEST_OUTPUT = 2000, 65_536
"""Letters of a text, and of the end of an output, which may have 8 MiB."""
_OUTPUTS = 5
"""Attempts of a tick, the newest ones, whose output is shown."""
_TOLD = 12
"""Messages of `notify` that a page shows."""
_FAILED, _FAILED_SINCE = 10, 7 * DAY
"""What the page of a host begins with: so many runs that failed there, none of them older."""
_BAD = tuple(outcome for outcome in OUTCOMES if look(outcome) == "bad")
_WORDS = tuple(dict.fromkeys((*OUTCOMES, *REFUSAL_REASONS)))


class Coming(NamedTuple):
    """A key that is due within a day."""

    key: str
    at: float
    times: int
    """How often."""


def overview(
    sources: Sources,
    settings: Settings,
    *,
    since: float,
    keys: Collection[str] = (),
    explained: Explained | None = None,
) -> Shown:
    """Ask for the overview, of every key or of `keys`. Raises `StoreError`.

    `explained`: it is read again and again, so a finding that is as it was is not explained anew.
    """
    now, spooled, clock = sources.now, spooled_records(settings), _clock(sources, settings)
    situation, checked = _checked(sources, settings, keys=keys, spooled=spooled, brief=False)
    findings, named = checked.findings, {*keys}.union(*(each.named() for each in checked.findings))
    summaries = [each for each in situation.jobs if each.key in named or not is_internal(each.key)]
    table = _table(summaries, findings, last_runs(sources, BARS, keys), now)
    rows = [row for row in sources.key_hosts if not keys or row.key in keys]
    return {
        "since": since,
        "only": sorted(keys),
        "keys": checked.keys,
        "problems": findings[:_LISTED],
        "more_problems": len(findings[_LISTED:]),
        "explained": _explained(sources, findings, clock, explained or {}),
        **table,
        "running": _running(sources, table["states"]),
        "coming": _coming(table["jobs"], now),
        "told": _told(sources, settings, keys),
        "hosts": list(hosts(rows, sources.pauses, now)),
        **_charts(sources, settings, since, [job.key for job in table["jobs"]]),
        "hosts_of": list(_hosts_of(sources, settings, since, table)) if explained is None else [],
        **_reading(sources, settings),
    }


def live_overview() -> Callable[[Sources, Settings, Query], Shown]:
    """Return the question for the overview as the address has it; the page of a key has the rest."""
    explained: Explained = {}
    today = ""

    def ask(sources: Sources, settings: Settings, query: Query) -> Shown:
        nonlocal explained, today
        now = sources.now
        day = Clock(settings["utc"]).seconds(now)[:10]
        if day != today:  # an account says the time of today's ticks without their day
            explained, today = {}, day
        since = max(_since(query, settings, now) or now - DAY, now - PAGE_TIMELINE)
        found = overview(sources, settings, since=since, explained=explained)
        explained = found["explained"]
        return found

    return ask


def key_page(sources: Sources, settings: Settings, query: Query) -> Shown:
    """Ask for the page of a key. Raises `NotFoundError`, `UsageError`, `StoreError`."""
    key, limit = query.get("name", ""), _limit(query)
    now, clock = sources.now, _clock(sources, settings)
    outcomes, since = _outcomes(query), _since(query, settings, now)
    spooled = _spooled(sources, settings, key)
    situation, checked = _checked(sources, settings, keys=[key], brief=False)
    job = next(iter(situation.jobs), None)
    if job is None:
        raise _unknown("key", key, ())
    bars = last_runs(sources, _HOST_COLUMNS, [key]).get(key, [])
    begin = since or _begin(bars, now, settings.file.retention.skips)
    asked = HistoryQuery(key=key, host=query.get("host"), since=since, limit=limit)
    return {
        "job": job,
        "states": states(job),
        "problems": [each for each in checked.findings if key in each.named()],
        "running": _running(sources, [key]),
        "told": _told(sources, settings, [key]),
        "bars": bars,
        "grid": _hosts_by_time(sources, settings, key, max(begin, now - PAGE_GRID)),
        **_tick(sources, query, spooled, clock, job),
        "runs": _runs(sources, asked, outcomes),
        "skips": _rows(sources.log.skips, asked, outcomes, REFUSAL_REASONS),
        "hosts": [row for row in sources.key_hosts if row.key == key],
        "limit": limit,
        **_reading(sources, settings),
    }


def host_page(sources: Sources, settings: Settings, query: Query) -> Shown:
    """Ask for the page of a host. Raises `NotFoundError`, `UsageError`, `StoreError`."""
    name, limit = query.get("name", ""), _limit(query)
    outcomes, since = _outcomes(query), _since(query, settings, sources.now)
    known = {each.host: each for each in hosts(sources.key_hosts, sources.pauses, sources.now)}
    if name not in known:
        raise _unknown("host", name, known)
    asked = HistoryQuery(host=name, since=since, limit=limit)
    of_host = [each for each in sources.progressing() if is_living(each) and each.host == name]
    failed = HistoryQuery(host=name, since=sources.now - _FAILED_SINCE, limit=_FAILED)
    checked = _checked(sources, settings)[1]
    return {
        "host": known[name],
        "running": sorted(of_host, key=lambda each: each.acquired_at or 0.0),
        "failed": _rows(sources.log.history, failed, _BAD, OUTCOMES),
        "failed_shown": _FAILED,
        "problems": [each for each in checked.findings if is_of_all(each) or each.host == name],
        "keys": [row for row in sources.key_hosts if row.host == name],
        "runs": _runs(sources, asked, outcomes),
        "limit": limit,
        **_reading(sources, settings),
    }


# What the address says


def _limit(query: Query) -> int:
    text = query.get("limit", str(_SHOWN))
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_SHOWN):
        raise UsageError(f"limit: {text[:60]!r} is not a number from 1 to {_MOST_SHOWN}")
    return int(text)


def _outcomes(query: Query) -> list[str]:
    words = [word.strip() for word in query.get("outcome", "").split(",") if word.strip()]
    for word in words:
        if word not in _WORDS:
            raise UsageError(f"outcome: {not_one_of(word[:60], _WORDS)}")
    return words


def _since(query: Query, settings: Settings, now: float) -> float | None:
    """Return the time from when on something is shown. Raises `UsageError`."""
    if "since" not in query:
        return None
    since = moment(query["since"], now, utc=settings["utc"])
    if since >= now:
        raise UsageError(f"since: {query['since']} is not in the past")
    return since


def _unknown(kind: str, name: str, known: Iterable[str]) -> NoSuchPageError:
    what = "No host has fired key" if kind == "key" else "No key was fired by host"
    text = f"{what} {name}." if name else f"The address names no {kind}."
    near = [Link(each, address(kind, name=each)) for each in similar(name, known)]
    return NoSuchPageError(text, near)


def _spooled(sources: Sources, settings: Settings, key: str) -> list[dict[str, Any]]:
    try:
        return spooled_of(sources, key, spools(settings))
    except NotFoundError:
        raise _unknown("key", key, {known.key for known in sources.job_keys}) from None


# What the store says


def _reading(sources: Sources, settings: Settings) -> Shown:
    """Return what each page says of its reading, after all that was read."""
    return {
        "now": sources.now,
        "namespace": settings["namespace"],
        "made_on": host_name(),
        "unreadable": len(sources.store.unreadable | sources.log.unreadable),
    }


def _checked(sources: Sources, settings: Settings, **more: Any) -> tuple[Situation, Checked]:
    """Return what `oncecron check` reads and finds; `more`: for `situation_of`."""
    situation = situation_of(sources, settings.file, usual_limits(), **more)
    return situation, check(situation, usual_limits(), _clock(sources, settings))


def _clock(sources: Sources, settings: Settings) -> Clock:
    """Return how the texts of a page say the times of ticks: as its tables do."""
    return Clock(settings["utc"], now=sources.now)


def _table(
    summaries: Sequence[JobSummary],
    findings: Iterable[Finding],
    runs: Mapping[str, Sequence[Run]],
    now: float,
) -> Shown:
    """Return the table of keys: what is wrong first, then what runs, then by name."""
    of_keys = _states(summaries, findings)
    jobs = sorted(summaries, key=lambda job: _severity(job, of_keys[job.key]))[:_KEYS]
    return {
        "jobs": jobs,
        "states": of_keys,
        "bars": {job.key: _with_missed(job, runs.get(job.key, ()), now) for job in jobs},
        "usual": {job.key: job.usual_duration for job in summaries},
    }


def _charts(sources: Sources, settings: Settings, since: float, keys: Sequence[str]) -> Shown:
    """Return the timeline, with a line for each key, and what became of their ticks by day.

    The line of which the largest share went wrong comes first; else they are in the order of the keys.
    """
    now, utc = sources.now, settings["utc"]
    starts = columns(since, now, _COLUMNS, utc=utc)
    of_days = days(now - (_DAYS - 1) * DAY, now, utc=utc)
    span = Span(min(of_days[0], starts[0]), now, settings.file.retention)
    ticks = ticks_of(sources, span, keys)
    lines = (gather(key, ticks[key].ticks, starts, now) for key in keys if key in ticks)
    by_day = (gather(key, ticks[key].ticks, of_days, now) for key in keys if key in ticks)
    known: dict[Counts, Mark] = {}
    return {
        "timeline": Grid(starts, now, tuple(sorted(lines, key=lambda line: -share(line.counts)))),
        "days": Grid(of_days, now, tuple(_counts_alone(line, known) for line in by_day)),
    }


def _counts_alone(line: Line, known: dict[Counts, Mark]) -> Line:
    """Return a line of which a page shows the counts alone: marks that are the same are one, so memory is small."""
    marks = (
        mark and known.setdefault(mark.counts, mark._replace(at=0.0, tick=None, host=None))
        for mark in line.marks
    )
    return line._replace(marks=tuple(marks))


def _hosts_of(sources: Sources, settings: Settings, since: float, table: Shown) -> Iterator[Grid]:
    """Yield who fired the first keys with which something is wrong."""
    wrong = (job.key for job in table["jobs"] if look(table["states"][job.key][0][0]) in WRONG)
    for key in itertools.islice(wrong, _HOSTS_OF):
        begin = _begin(table["bars"][key], sources.now, settings.file.retention.skips)
        yield _hosts_by_time(sources, settings, key, max(since, begin))


def _states(jobs: Iterable[JobSummary], findings: Iterable[Finding]) -> dict[str, States]:
    """Return by key all that is wrong with it, also what its states do not say; else its one state."""
    found: dict[str, dict[str | None, int]] = {job.key: dict(states(job)) for job in jobs}
    for each in findings:
        if each.key in found:
            found[each.key].setdefault(each.finding, 0)
    return {
        key: sorted(each.items(), key=lambda of: LOOKS.index(look(of[0])))
        for key, each in found.items()
    }


def _severity(job: JobSummary, of_job: States) -> tuple[int, bool, str]:
    """Return the place of a key: what is wrong comes first, then what runs; one that is paused is as any other."""
    how = look(of_job[0][0])
    return LOOKS.index(how if how in WRONG else "well"), not job.running_on, job.key


def _explained(
    sources: Sources, findings: Sequence[Finding], clock: Clock, known: Explained
) -> Explained:
    found = cards(findings)
    first = [card.first for card in found] + [each for card in found for each in card.findings[1:]]
    some = [(each, each.key) for each in first if each.key is not None][:_EXPLAINED]
    return {
        each: known.get(each) or evidence(sources, key, each.tick, each.since, clock)
        for each, key in some
    }


def _told(
    sources: Sources, settings: Settings, keys: Collection[str] = ()
) -> list[tuple[str, Told]]:
    """Return who was told what, the newest first."""
    found = brought(lambda each: each.told(sources, settings.file))
    of_keys = [each for each in found if not keys or each[1].key in keys]
    return sorted(of_keys, key=lambda each: -each[1].at)[:_TOLD]


def _coming(jobs: Iterable[JobSummary], now: float) -> list[Coming]:
    """Return which keys are due within a day, the next one first, and how often."""
    known = functools.cache(_times)  # many keys have the same schedule
    found = [
        Coming(job.key, job.next_at, known(job.schedule, job.zone, job.next_at, now + DAY))
        for job in jobs
        if job.schedule and job.next_at is not None and job.next_at <= now + DAY
    ]
    return sorted(found, key=lambda each: (each.at, each.key))


def _times(schedule: str, zone: str | None, first: float, until: float) -> int:
    return len(scheduled(schedule, zone, first - 1, until))


def _with_missed(job: JobSummary, runs: Sequence[Run], now: float) -> list[Run]:
    """Return the newest runs, and then the ticks that were missed since."""
    known = [
        run._replace(duration=max(0.0, now - run.started_at)) if run.outcome == "running" else run
        for run in runs
    ]
    missed = Run(job.last_missed, "missed", instant_of(job.last_missed) or now, None, "", 0)
    return [*known, *itertools.repeat(missed, min(job.missed, _MISSED_BARS))][-BARS:]


def _running(sources: Sources, keys: Collection[str]) -> list[LeaseView]:
    """Return the leases of what runs; whose holder seems dead is told as a state of its key."""
    living = (each for each in sources.progressing() if is_living(each))
    found = (each for each in living if each.key in keys and each.state == "held")
    return sorted(found, key=lambda each: (each.acquired_at or 0.0, each.key))


def _begin(runs: Sequence[Run], now: float, kept: float) -> float:
    """Return where the hosts by time begin: each of the newest ticks has a mark of its own, and skips are on record."""
    oldest = min((run.started_at for run in runs), default=0.0)
    return max(now - kept, min(now - SHORTEST_HOST_GRID, oldest))


def _hosts_by_time(sources: Sources, settings: Settings, key: str, since: float) -> Grid:
    starts = columns(since, sources.now, _HOST_COLUMNS, utc=settings["utc"])
    span = Span(starts[0], sources.now, settings.file.retention)
    found = ticks_of(sources, span, [key], hosts=True)
    hosts_of = sorted(found[key].hosts.items()) if key in found else ()
    lines = (gather(host, each, starts, span.until) for host, each in hosts_of)
    return Grid(starts, span.until, tuple(lines), key)


def _runs(sources: Sources, asked: HistoryQuery, outcomes: Sequence[str]) -> list[Any]:
    leases = sources.leases  # before what they say is running
    found = _rows(sources.log.history, asked, outcomes, OUTCOMES)
    return [*as_is(found, leases, sources.now)]


def _rows(
    ask: Any, query: HistoryQuery, outcomes: Sequence[str], known: Sequence[str]
) -> list[Any]:
    """Return executions, or skips; none if the wanted outcomes are all of the other kind."""
    wanted = [word for word in outcomes if word in known]
    if outcomes and not wanted:
        return []
    return [_short(row) for row in ask(query._replace(outcomes=wanted or None))]


def _short(row: Any) -> Any:
    """Return an execution or a skip with texts as long as a page shows them: each may have 64 KiB."""
    longest = {
        name: text[:_LONGEST_TEXT] for name, text in row._asdict().items() if isinstance(text, str)
    }
    return row._replace(**longest)


def _tick(
    sources: Sources, query: Query, spooled: list[dict[str, Any]], clock: Clock, job: JobSummary
) -> Shown:
    """Return what happened at one tick; an empty account: there is none on record."""
    key = job.key
    try:
        choice = _choice(Ticks(sources, key, spooled, clock), sources, query, job)
    except NotFoundError as error:
        raise NoSuchPageError(f"{error}.", [Link(f"all of {key}", key_address(key))]) from None
    judges = not {"tick", "run"} & query.keys()
    facts = facts_of(sources, key, choice.which, spooled, judges=judges)
    is_known = facts.executions or facts.skips or facts.spooled or facts.tick
    runs = [each.execution for each in facts.executions[-_OUTPUTS:]]
    outputs = ((run, captured(sources.log, run)) for run in runs)
    lines = others(sources, key, choice, spooled, clock)
    return {
        "tick": choice.which.tick,
        "account": account(facts, clock).sentences if is_known else (),
        "note": choice.note,
        "others": [(tick, line.sentences[0].partition(" To see")[0]) for _, tick, line in lines],
        "outputs": [(_short(run), _end_of(found)) for run, found in outputs if found],
    }


def _end_of(found: Output) -> Output:
    cut = found.text[:-_LONGEST_OUTPUT]
    return Output(found.text[len(cut) :], found.cut + len(cut.encode()))


def _choice(ticks: Ticks, sources: Sources, query: Query, job: JobSummary) -> Choice:
    if "run" in query:
        number = query["run"]
        is_number = number.isascii() and number.isdigit() and len(number) < len(str(10**15))
        execution = sources.log.execution(int(number)) if is_number else None
        if execution is None or execution.key != job.key:
            raise NotFoundError(
                f"no run {number[:60]} of key {job.key} is on record; it may have been pruned"
            )
        return Choice(which_of(execution), "tick")
    if "tick" in query:
        return ticks.named(wanted_tick(query["tick"]))
    return ticks.worst(job)
