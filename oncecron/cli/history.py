"""`oncecron history`: the job-execution log, the skips, or one record in full.

--follow asks once a second. An execution gets its id before its row is visible, so a later id may appear first.
Therefore each poll asks for the last seconds again and leaves out what was shown. Running executions are watched
until they end.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import select
import time
import types
from typing import TYPE_CHECKING, Any

from oncecron.cli import table
from oncecron.cli.command import (
    ALL,
    QUERY_OPTIONS,
    SINCE,
    UNTIL,
    TableCommand,
    incomplete,
    output_format,
    span_of,
    store_reader,
    writer,
)
from oncecron.cli.meant import wanted_outcomes
from oncecron.cli.sentences import (
    known_hosts,
    known_keys,
    refuse_unknown_keys,
    unknown_host,
    valid_key,
    valid_text,
    valid_tick,
)
from oncecron.cli.table import Column, Kind
from oncecron.config.options import Option, in_group
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import NotFoundError, StoreError, StoreUnavailable, UsageError
from oncecron.core.log_rows import INTERNAL, Execution, HistoryQuery, Skip
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron.core.text import ABSENT, Clock
from oncecron.host.stderr import complain
from oncecron.log.jobs import as_is, dead_letters
from oncecron.log.state_kinds import kind_of_skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.cli.output import Writer
    from oncecron.core.log_rows import LeaseView
    from oncecron.stores.reader import Reader

_FOLLOW_POLL = 1.0
"""Between two polls of `history --follow`."""

_MOST = 10**15  # a store's integers hold no more
_POLLS_AGAIN = 5  # seconds within which ids may appear out of order: a claim takes milliseconds
_LOST_WATCHED = 20  # a spool may still report how they ended

EXECUTIONS = Kind(
    Execution._fields, ("started_at", "finished_at"),
    (
        table.number("execution_id", "ID", 5), table.key(), table.tick(1), table.state("outcome"),
        table.exit_status(3), table.logged("started_at", "STARTED", 4), table.duration("duration", "DURATION", 3),
        table.field("host", "HOST", 2, 10), table.number("attempt", "ATTEMPT", 7), table.shard(6),
        table.field("command", "COMMAND", 8, 12),
    ),
)  # fmt: skip
IN_FULL = EXECUTIONS._replace(fields=(*EXECUTIONS.fields, "output", "output_cut"))
"""For one execution, with its output."""


def _holder(skip: Skip, _clock: Clock) -> str:
    return ABSENT if skip.holder_host is None else f"{skip.holder_host}/{skip.holder_pid}"


SKIPS = Kind(
    Skip._fields, ("at",),
    (
        table.logged("at", "AT", 1), table.key(), table.tick(4),
        table.state("reason", kind=kind_of_skip), table.field("host", "HOST", 2, 10), Column("HOLDER", _holder, 5, 12),
        table.number("count", "COUNT", 7), table.shard(6), table.field("detail", "DETAIL", 3, 16),
    ),
)  # fmt: skip

OPTIONS = (
    *in_group(
        "Which records",
        SINCE,
        UNTIL,
        Option("host", "text", "Show only this host.", "HOST", completion="host"),
        Option(
            "outcome", "text", "Show only these outcomes: running, succeeded, failed, timed-out, stopped, lost, "
            "not-started, unclaimed. With --skips, only these reasons: held, done, passed, recent, late, paused, "
            "drained, exhausted, broken, unmet, no-store, interrupted.", "OUTCOME,...", repeatable=True,
            completion=tuple(dict.fromkeys((*OUTCOMES, *REFUSAL_REASONS))),
        ),
        Option(
            "failed", "flag", "Show only what ended badly: what neither succeeded nor runs, and was not stopped by a "
            "person.",
        ),
        Option("tick", "text", "Show only this tick, by the name that --wide shows.", "TICK"),
        Option(
            "exhausted", "flag",
            "Show only ticks that failed after all --retries (dead letters): the last attempt of each.",
        ),
        Option(
            "id", "integer", "Show one execution in full, with the output that --capture recorded.", "ID", minimum=1,
            maximum=_MOST,
        ),
        Option(
            "limit", "integer", "Show at most N, newest first. 0: no limit, which is also the default with --since.",
            default="50", short="n", minimum=0, maximum=_MOST,
        ),
        ALL,
        Option("skips", "flag", "Show skips instead of executions."),
        Option(
            "follow", "flag", "Show the oldest first, then wait for new executions and outcomes until Ctrl-C.",
        ),
    ),
    *QUERY_OPTIONS,
)  # fmt: skip
_FILTERS = ("since", "until", "host", "outcome", "failed", "tick", "exhausted")
_MIXTURES = (
    ("exhausted", "shows executions that have ended", "skips", "follow"),
    ("follow", "never ends", "until"),
    ("follow", "shows executions", "skips"),
    ("failed", "chooses outcomes of executions", "skips", "outcome"),
)
"""What contradicts an option, and why."""


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    query = _query(settings, words)
    kind = SKIPS if settings["skips"] else EXECUTIONS
    answer = writer(kind if settings["id"] is None else IN_FULL, settings)
    with store_reader(settings, log=True) as store:
        if settings["id"] is not None:
            _show_one(store, settings["id"], answer)
        elif settings["follow"]:
            _follow(store, query, answer)
        else:
            for_people = answer.is_watched and output_format(settings) == "table"
            records = _records(settings, store, query, for_people=for_people)
            count = answer.write(_of_known_names(records, store, query))
            if answer.is_watched or (not count and os.isatty(2)):
                _note_what_is_missing(settings, query, count)
    return incomplete(store)


def _of_known_names(
    records: Iterator[Execution] | Iterator[Skip], log: Reader, query: HistoryQuery
) -> Iterator[Any]:
    """Return the records. Raises `NotFoundError` where there is none, and nobody knows the key or the host."""
    first = next(records, None)
    if first is None and query.key is not None:
        refuse_unknown_keys([query.key], known_keys(log), log)
    if first is None and query.host is not None and query.host not in (hosts := known_hosts(log)):
        raise unknown_host(query.host, hosts)
    return itertools.chain([] if first is None else [first], records)


def _records(
    settings: Settings, log: Reader, query: HistoryQuery, *, for_people: bool
) -> Iterator[Execution] | Iterator[Skip]:
    """Return the records to show; only the store, not a log beside it, knows what is still running.

    `for_people`: what has lost its holder does not run; a program gets what is on record.
    """
    if settings["skips"]:
        return _with_shards(log, query)
    if query.exhausted and settings.log():
        return dead_letters(log, query, _leases(settings, log))
    if for_people:
        with contextlib.suppress(StoreError):  # the log alone can be read
            now, leases = clock.wall(), _leases(settings, log)
            return as_is(log.history(query), leases, now)
    return log.history(query)


def _leases(settings: Settings, log: Reader) -> Sequence[LeaseView]:
    with store_reader(settings) if settings.log() else contextlib.nullcontext(log) as store:
        return store.leases()


def _with_shards(log: Reader, query: HistoryQuery) -> Iterator[Any]:
    counted = collections.Counter(part.key for part in log.job_keys())
    for skip in log.skips(query):
        shards = max(counted[skip.key], skip.shard + 1)
        yield types.SimpleNamespace(**skip._asdict(), shards=shards)


def _note_what_is_missing(settings: Settings, query: HistoryQuery, shown: int) -> None:
    if not shown:
        matching = "matching " if any(map(settings.is_typed, _FILTERS)) else ""
        what = "skip" if settings["skips"] else "execution"
        of = f" for key {query.key}" if query.key else ""
        complain(f"no {matching}{what} on record{of}")
    elif shown == query.limit and not settings.is_typed("limit"):
        complain(f"these are the newest {shown}; add --limit 0 to show all")


def _query(settings: Settings, words: list[str]) -> HistoryQuery:
    """Return the query for the wanted records. Raises `UsageError` for a wrong mix of options."""
    _refuse_mixtures(settings, words)
    limit = settings["limit"]
    known = REFUSAL_REASONS if settings["skips"] else OUTCOMES
    since, until = span_of(settings, time.time())
    if limit == 0 or (since is not None and not settings.is_typed("limit")):
        limit = None
    return HistoryQuery(
        key=valid_key(words[0]) if words and _filter("the key", words[0]) else None,
        since=since,
        until=until if settings.is_typed("until") else None,
        host=_filter("--host", settings["host"]),
        outcomes=wanted_outcomes(settings["outcome"], known),
        failed=settings["failed"],
        without=None if words or settings["all"] else INTERNAL,
        tick=valid_tick(settings["tick"]),
        limit=limit,
        exhausted=settings["exhausted"],
    )


def _filter(name: str, text: str | None) -> str | None:
    return valid_text(text, f"{name} is empty (an unset variable?); leave it out to see all")


def _refuse_mixtures(settings: Settings, words: list[str]) -> None:
    names = (*_FILTERS, "limit", "all", "skips", "follow")
    others = [f"--{name}" for name in names if settings.is_typed(name)]
    if settings["id"] is not None and (others or words):
        raise UsageError(f"--id selects one execution; leave out {(words or others)[0]}")
    for option, why, *clashes in _MIXTURES:
        for other in clashes:
            if settings[option] and settings.is_typed(other):
                raise UsageError(f"--{option} {why}; leave out --{other}")
    if settings["follow"] and output_format(settings) == "json":
        raise UsageError("--follow never ends, but a JSON array must; use --format ndjson")


def _show_one(store: Reader, execution_id: int, writer: Writer) -> None:
    execution = store.execution(execution_id)
    if execution is None and store.unreadable:
        return
    if execution is None:
        raise NotFoundError(f"no execution {execution_id} on record; it may have been pruned")
    captured = store.output(execution_id)
    written = types.SimpleNamespace(
        **execution._asdict(),
        output=None if captured is None else captured.text,
        output_cut=None if captured is None else captured.cut,
    )
    writer.write_in_full(written)


# Following


def _follow(store: Reader, query: HistoryQuery, writer: Writer) -> None:
    follower = Follower(store, query)
    writer.is_endless = True
    writer.write(_of_known_names(iter(follower.begin()), store, query))
    reported = False
    while True:
        select.select((), (), (), _FOLLOW_POLL)  # not time.sleep: libfaketime
        try:
            news = follower.news()
        except StoreUnavailable as error:
            if not reported:
                complain(f"{error}; retrying")
            reported = True
        else:
            reported = False
            if news:
                writer.write(news)


class Follower:
    """The records that were shown, and those that are new."""

    def __init__(self, store: Reader, query: HistoryQuery) -> None:
        self._store = store
        self._query = query
        self._shown: dict[int, str] = {}
        self._newest: collections.deque[int] = collections.deque(maxlen=_POLLS_AGAIN)

    def begin(self) -> list[Execution]:
        """Return the last executions, oldest first."""
        self._newest.append(self._newest_id())
        first = list(self._store.history(self._query))[::-1]
        for execution in (*self._running(), *first):
            self._shown[execution.execution_id] = execution.outcome
        return first

    def news(self) -> list[Execution]:
        """Return what is new or has a new outcome since the last call, by id."""
        after = self._newest[0]
        self._newest.append(self._newest_id())
        anything = self._query._replace(outcomes=None, failed=False, since=None, limit=None)
        found = {
            execution.execution_id: execution
            for execution in self._store.history(anything._replace(after_id=after))
        }
        running = {execution.execution_id for execution in self._running()}
        for execution_id in self._new_ends(running):
            if execution_id not in found:
                execution = self._store.execution(execution_id)
                if execution is not None:
                    found[execution_id] = execution
        changed = [found[number] for number in sorted(found) if self._is_news(found[number])]
        self._forget(after, {*found, *running})
        return changed

    def _newest_id(self) -> int:
        return next((e.execution_id for e in self._store.history(HistoryQuery(limit=1))), 0)

    def _running(self) -> Iterator[Execution]:
        anything = self._query._replace(failed=False, since=None, limit=None)
        return self._store.history(anything._replace(outcomes=["running"]))

    def _new_ends(self, running: set[int]) -> list[int]:
        shown = self._shown.items()
        lost = [number for number, outcome in shown if outcome == "lost"][-_LOST_WATCHED:]
        return [n for n, outcome in shown if outcome == "running" and n not in running] + lost

    def _is_news(self, execution: Execution) -> bool:
        news = self._shown.get(execution.execution_id) != execution.outcome
        self._shown[execution.execution_id] = execution.outcome
        return news and self._query.takes_outcome(execution)

    def _forget(self, after: int, present: set[int]) -> None:
        self._shown = {
            number: outcome
            for number, outcome in self._shown.items()
            if number > after or outcome == "lost" or number in present
        }


COMMAND = TableCommand(
    "history", OPTIONS, _show,
    about="Show the job-execution log, newest first, for all keys or for one. With --log, read that log.",
    examples=(
        "oncecron history billing-nightly --limit 5",
        "oncecron history --since 24h --failed",
        "oncecron history --skips --since 1h",
    ),
    words="[KEY]",
)  # fmt: skip
