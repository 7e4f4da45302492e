"""Gather what the page of a key and the page of a host show, of the store and of the plugins. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron import __version__
from oncecron.cli.command import moment, spools
from oncecron.core.errors import NotFoundError, UsageError
from oncecron.core.host import host_name
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron.core.suggestion import not_one_of, similar
from oncecron.core.text import part_of
from oncecron.core.units import DAY
from oncecron.log.grid import columns
from oncecron.log.hosts import hosts
from oncecron.log.job_summary import is_living
from oncecron.log.jobs import states
from oncecron.log.tick_history import facts_of, spooled_of, which_of
from oncecron.log.timeline import hosts_timeline, last_runs
from oncecron.log.which_tick import Choice, Ticks, wanted_tick
from oncecron.log.why import account, in_a_line
from oncecron.watch.findings import check, cure, usual_limits
from oncecron.watch.situation import situation_of
from oncecron_web.addresses import Link, address, key_address
from oncecron_web.application import NoSuchPageError
from oncecron_web.cli import page_contents
from oncecron_web.contents import Host, Problem, Running
from oncecron_web.host_page import HostPage
from oncecron_web.key_page import Captured, KeyPage, Tick
from oncecron_web.page_times import PAGE_GRID, PAGE_TIMELINE, SHORTEST_HOST_GRID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Execution, LeaseView
    from oncecron.core.model import Output
    from oncecron.core.text import Clock
    from oncecron.log.grid import Grid, Run
    from oncecron.log.sources import Sources
    from oncecron.watch.findings import Finding, Situation
    from oncecron_web.contents import Overview

    Query = Mapping[str, str]

_SHOWN, _MOST_SHOWN = 50, 1000
_COLUMNS = 60
"""So many marks of the ticks of a host fit beside its name."""
_EXPLAINED = 3
"""Findings of the overview with an account; each asks the store a few questions, once."""
_LONGEST_TEXT, _LONGEST_OUTPUT = 2000, 65_536
"""Letters of a text, and of the end of an output, which may have 8 MiB."""
_OUTPUTS = 5
"""Attempts of a tick, the newest ones, whose output is shown."""
_WORDS = tuple(dict.fromkeys((*OUTCOMES, *REFUSAL_REASONS)))


class LiveOverview:
    """The overview as it is read again and again: a finding that is as it was is not explained anew."""

    def __init__(self) -> None:
        self._explained: dict[Finding, tuple[Sequence[str], str | None]] = {}

    def __call__(
        self, sources: Sources, settings: Settings, query: Query, _clock: Clock
    ) -> Overview:
        """Return what it shows; the page of a key has the rest. Raises `UsageError`, `StoreError`."""
        since, known = _since(query, sources.now), self._explained
        now_known: dict[Finding, tuple[Sequence[str], str | None]] = {}

        def explain(of: Sources, found: Finding, clock: Clock) -> tuple[Sequence[str], str | None]:
            now_known[found] = known.get(found) or page_contents.evidence_of(of, found, clock)
            return now_known[found]

        contents = page_contents.overview(
            sources,
            settings,
            since=sources.now - DAY if since is None else max(since, sources.now - PAGE_TIMELINE),
            explain=explain,
            explained=_EXPLAINED,
            hosts_of=0,
        )
        self._explained = now_known
        return contents


def key_page(sources: Sources, settings: Settings, query: Query, clock: Clock) -> KeyPage:
    """Return what the page of a key shows. Raises `NotFoundError`, `UsageError`, `StoreError`."""
    key, limit = query.get("name", ""), _limit(query)
    outcomes, since = _outcomes(query), _since(query, sources.now)
    spooled = _spooled(sources, settings, key)
    situation = situation_of(
        sources, settings.file, usual_limits(), utc=clock.utc, keys=[key], brief=False
    )
    summary = next(iter(situation.jobs), None)
    if summary is None:
        raise _unknown("key", key, ())
    found = _findings(situation, clock, lambda each: key in each.named())
    runs = last_runs(sources, _COLUMNS, [key]).get(key, [])
    begin = since or _begin(runs, sources.now, settings.file.retention.skips)
    begin = max(begin, sources.now - PAGE_GRID)
    asked = HistoryQuery(key=key, host=query.get("host"), since=since, limit=limit)
    return KeyPage(
        sources.now,
        settings["namespace"],
        __version__,
        host_name(),
        summary,
        states(summary),
        found,
        [
            _running(each, summary.usual_duration)
            for each in situation.leases
            if _runs(each, key, sources.now)
        ],
        runs,
        _grid(sources, key, begin, clock),
        _tick(sources, key, query, spooled, clock, summary),
        _rows(sources.log.history, asked, outcomes, OUTCOMES),
        _rows(sources.log.skips, asked, outcomes, REFUSAL_REASONS),
        [row for row in sources.key_hosts if row.key == key],
        limit,
        _unreadable(sources),
    )


def host_page(sources: Sources, settings: Settings, query: Query, clock: Clock) -> HostPage:
    """Return what the page of a host shows. Raises `NotFoundError`, `UsageError`, `StoreError`."""
    name, limit = query.get("name", ""), _limit(query)
    outcomes, since = _outcomes(query), _since(query, sources.now)
    rows = sources.key_hosts
    known = {each.host: each for each in hosts(rows, sources.pauses, sources.now)}
    if name not in known:
        raise _unknown("host", name, known)
    situation = situation_of(sources, settings.file, usual_limits(), utc=clock.utc)
    asked = HistoryQuery(host=name, since=since, limit=limit)
    found = known[name]
    return HostPage(
        sources.now,
        settings["namespace"],
        __version__,
        host_name(),
        Host(
            *(
                name,
                found.seen_at,
                found.version,
                found.clock_ahead,
                found.keys,
                found.wins,
                found.skips,
            ),
            found.drained_by,
            found.silent_on.split(",") if found.silent_on else (),
            found.machines,
        ),
        _findings(situation, clock, lambda each: each.host == name),
        [row for row in rows if row.host == name],
        _rows(sources.log.history, asked, outcomes, OUTCOMES),
        limit,
        _unreadable(sources),
    )


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


def _since(query: Query, now: float) -> float | None:
    """Return the time from when on something is shown. Raises `UsageError`."""
    if "since" not in query:
        return None
    since = moment(query["since"], now)
    if since >= now:
        raise UsageError(f"since: {query['since']} is not in the past")
    return since


def _unknown(kind: str, name: str, known: Iterable[str]) -> NoSuchPageError:
    near = similar(name, known)
    what = "No host has fired key" if kind == "key" else "No key was fired by host"
    text = f"{what} {name}." if name else f"The address names no {kind}."
    return NoSuchPageError(text, [Link(each, address(kind, name=each)) for each in near])


def _spooled(sources: Sources, settings: Settings, key: str) -> list[dict[str, Any]]:
    try:
        return spooled_of(sources, key, spools(settings))
    except NotFoundError:
        raise _unknown("key", key, {known.key for known in sources.job_keys}) from None


# What the store says


def _findings(situation: Situation, clock: Clock, fits: Any) -> list[Problem]:
    found = check(situation, usual_limits(), clock).findings
    return [_problem(each) for each in found if fits(each)]


def _problem(of: Finding) -> Problem:
    return Problem(of.finding, of.state, of.key, of.host, of.reason, of.since, cure(of))


def _runs(lease: LeaseView, key: str, now: float) -> bool:
    return lease.key == key and is_living(lease, now)


def _running(of: LeaseView, usual: float | None) -> Running:
    shard = part_of(of.shard, of.shards) if of.shards > 1 else None
    return Running(of.key, shard, of.host, of.pid, of.acquired_at, usual, of.progress)


def _begin(runs: Sequence[Run], now: float, kept: float) -> float:
    """Return where the hosts by time begin: each of the newest ticks has a mark of its own, and skips are on record."""
    oldest = runs[0].started_at if runs else now
    return max(now - kept, min(now - SHORTEST_HOST_GRID, oldest))


def _grid(sources: Sources, key: str, since: float, clock: Clock) -> Grid:
    starts = columns(since, sources.now, _COLUMNS, utc=clock.utc)
    return hosts_timeline(sources, starts, sources.now, key)


def _rows(
    ask: Any, query: HistoryQuery, outcomes: Sequence[str], known: Sequence[str]
) -> list[Any]:
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
    sources: Sources,
    key: str,
    query: Query,
    spooled: list[dict[str, Any]],
    clock: Clock,
    summary: Any,
) -> Tick | None:
    ticks = Ticks(sources, key, spooled, clock)
    try:
        choice = _choice(ticks, sources, key, query, summary)
    except NotFoundError as error:
        raise NoSuchPageError(f"{error}.", [Link(f"all of {key}", key_address(key))]) from None
    judges = not {"tick", "run"} & query.keys()
    facts = facts_of(sources, key, choice.which, spooled, judges=judges)
    if not (facts.executions or facts.skips or facts.spooled or facts.tick):
        return None
    verdict, sentences = account(facts, clock)
    executions = [each.execution for each in facts.executions[-_OUTPUTS:]]
    outputs = ((each, sources.log.output(each.execution_id)) for each in executions)
    return Tick(
        choice.which.tick,
        verdict,
        sentences,
        choice.note,
        list(_others(sources, key, choice, spooled, clock)),
        [_captured(each, found) for each, found in outputs if found],
    )


def _captured(of: Execution, found: Output) -> Captured:
    cut = found.text[:-_LONGEST_OUTPUT]
    return Captured(of, found.text[len(cut) :], found.cut + len(cut.encode()))


def _choice(ticks: Ticks, sources: Sources, key: str, query: Query, summary: Any) -> Choice:
    if "run" in query:
        number = query["run"]
        is_number = number.isascii() and number.isdigit() and len(number) < len(str(10**15))
        execution = sources.log.execution(int(number)) if is_number else None
        if execution is None or execution.key != key:
            raise NotFoundError(
                f"no run {number[:60]} of key {key} is on record; it may have been pruned"
            )
        return Choice(which_of(execution), "tick")
    if "tick" in query:
        return ticks.named(wanted_tick(query["tick"], sources.now))
    return ticks.worst(summary)


def _others(
    sources: Sources, key: str, choice: Choice, spooled: list[dict[str, Any]], clock: Clock
) -> Iterator[tuple[str | None, str]]:
    subjects = ("The newest one that was fired", "The last one that went wrong")
    for subject, which in zip(subjects, (choice.newest, choice.trouble), strict=True):
        if which is not None:
            facts = facts_of(sources, key, which, spooled, suggests=False)
            yield which.tick, in_a_line(facts, clock, subject).sentences[0].partition(" To see")[0]


def _unreadable(sources: Sources) -> int:
    return len(sources.store.unreadable | sources.log.unreadable)
