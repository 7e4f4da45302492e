"""Read what a store has on record: one Reader gives the plain rows of every store (`Views`) their meaning.

It converts each row to a value of `core.log_rows`, applies the filters and the limit of the question, and sorts what is
not too much to sort. A new column of the log is a field of its record here above, and a column in each store's query.

A row may be damaged, or written by another program: an infinite time, a year beyond 9999, a text instead of a number, a
field that is missing. Such a row is named on standard error and passed over, and the command exits with 1. So one bad
row hides itself alone, and what is printed is always what the formats promise.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache, wraps
from importlib import import_module
from itertools import islice

from oncecron.core import clock
from oncecron.core.clock import is_time
from oncecron.core.decision import PLAIN_BITS, PLAIN_DONE, PLAIN_WINDOW
from oncecron.core.errors import UNREADABLE, reason_of, unreadable_answer
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import (
    ALL_KEYS,
    FAILURES,
    EndedRuns,
    Execution,
    Expectation,
    HistoryQuery,
    JobKey,
    KeyHost,
    LeaseView,
    Pause,
    Skip,
    SkipReason,
    Traced,
    TracedSkip,
)
from oncecron.core.masking import without_logins
from oncecron.core.model import LEAST, OUTCOMES, Output, Retention, is_key, place_of
from oncecron.core.presence import fields_of
from oncecron.core.progress import no_progress
from oncecron.core.tick import instant_of, minute_tick
from oncecron.core.timing import PLAIN_SKIP_EARLY
from oncecron.core.units import DAY, HOUR
from oncecron.host.stderr import Patience, complain
from oncecron.stores.api import Views

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from oncecron.core.progress import Progress
    from oncecron.core.tick import Tick
    from oncecron.stores.api import Row

    Value = TypeVar("Value")
    Answer = TypeVar("Answer")
    Call = TypeVar("Call", bound=Callable[..., Any])

HOLDERS_AT_ONCE = 500
"""How many executions a store is asked for at once, for the holders of plain skips."""
_PAGE = 500
_NAMED = 10
"""The number of unreadable rows that are named; there may be millions."""
_LONGEST_NAME = 200
_ABSENT = ("?",) * 10
"""In the place of columns in the name of a row."""
_MOST_SHARDS = 1000
"""As for --shards: reports count the shards of a tick one by one."""


def answered(call: Call) -> Call:
    """Decorate a call of people's store: they are told of a slow answer, and one that is not ours is refused.

    A row that cannot be read is named and left out (`Reader.readable`). Refused is an answer that has no rows.
    """

    @wraps(call)
    def answered_call(reader: Reader, *values: Any, **named: Any) -> Any:
        return reader.answer(call, *values, **named)

    return answered_call  # type: ignore[return-value]


class Reader(Views):
    """The store of the commands for people: what each store's class has in common."""

    has_roles = False
    waits_for = ""
    """What a person is told who waits for an answer; nothing if it is empty."""

    def __init__(self) -> None:
        self.unreadable: set[str] = set()
        """The names of the rows that all queries have passed over."""
        self.named: set[str] = set()
        """Those that were named on standard error; who reads again and again passes them on to the next reader."""
        self.keeps: int | None = None
        """How many executions of each shard the store keeps at most."""
        self._patience = Patience()

    def answer(self, call: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Return what a call of this store answers; see `answered`. Raises `StoreRefusesError`."""
        if progress := named.get("progress"):
            named["progress"] = self._until_called(progress)
        found = self._waited(lambda: call(self, *values, **named))
        return self._each(found) if hasattr(found, "__next__") else found

    def _waited(self, ask: Callable[[], Answer]) -> Answer:
        """Return an answer: the one place that waits for it."""
        if self.waits_for:
            self._patience.wait("answer", self.waits_for)
        try:
            return ask()
        except UNREADABLE as error:
            raise unreadable_answer(error) from error
        finally:
            self._patience.over()

    def _each(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows of an answer, of which the first one is waited for."""
        try:
            row = self._waited(lambda: next(rows, None))
            while row is not None:
                iter(row)
                yield row
                row = next(rows, None)
        except UNREADABLE as error:
            raise unreadable_answer(error) from error

    def _until_called(self, progress: Callable[..., None]) -> Callable[..., None]:
        """Return what shows progress, and with its first call ends the wait: the store has answered."""

        def show(*values: Any) -> None:
            self._patience.over()
            progress(*values)

        return show

    def offered_roles(self) -> list[str]:
        """Return the roles to which `init` may give rights, if none but the owner has any yet; else none."""
        return []

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, newest first, or oldest first after an id."""
        return (traced.execution for traced in self.traced(query))

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with their unpublished details."""
        bounds = query._asdict()
        if query.failed and query.outcomes is None:
            bounds["outcomes"] = [*FAILURES]
        found = ((row, row.execution) for row in self._executions("executions", **bounds))
        fitting = (row for row, ran in found if _fits(ran, ran.started_at, query))
        return islice(fitting, query.limit)

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""
        found = self._executions("execution", execution_id=execution_id)
        return next((row.execution for row in found), None)

    def newest(self, limit: int, keys: Collection[str] | None = None) -> list[Execution]:
        """Return the newest executions of every key, or of some: of each key at most `limit`, the newest first.

        One question for all keys. All of them may be in memory at once, so they come `without_texts`.
        """
        named = None if keys is None else list(keys)
        found = self._executions("newest", limit=limit, keys=named)
        short = (row.execution.without_texts() for row in found)
        return sorted(short, key=lambda each: -each.execution_id)

    def timeline(
        self, since: float | None, keys: Collection[str] | None = None
    ) -> Iterator[Traced]:
        """Yield the executions since a time, of all keys or of some: shard by shard, each in the order of starts.

        Other methods may be called meanwhile.
        """
        named = None if keys is None else list(keys)
        found = self._executions("timeline", since=since, keys=named)
        return (row for row in found if since is None or row.execution.started_at >= since)

    def runs(
        self, since: float, keys: Collection[str] | None = None
    ) -> Iterator[Traced | EndedRuns]:
        """Yield the executions since a time, of all keys or of some, in no order: most of them packed.

        Packed ones may have started up to a day before. An execution that ends meanwhile may come twice: as it was, and
        packed.
        """
        for row in self.rows("runs", since=since, keys=None if keys is None else list(keys)):
            found: Traced | EndedRuns | None
            if isinstance(row, PackedRuns):
                found = self.readable("the runs of key {0} on host {1}", _unpacked_runs, *row)
            else:
                found = self.readable("execution {0}", _traced, *row)
            if isinstance(found, EndedRuns) or (found and found.execution.started_at >= since):
                yield found

    def _executions(self, view: str, **bounds: Any) -> Iterator[Traced]:
        return self.read(view, _traced, "execution {0}", **bounds)

    def output(self, execution_id: int) -> Output | None:
        """Return the captured output of an execution."""
        shown = f"the output of execution {execution_id}"
        return next(self.read("output", Output, shown, execution_id=execution_id), None)

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""
        return (traced.skip for traced in self.traced_skips(query))

    def skips_since(self, since: float, key: str | None = None) -> Iterator[Skip]:
        """Yield the skips since a time without the holders of plain ones, in no order: it costs less than `skips`."""
        query = HistoryQuery(key=key, since=since, limit=None)
        for row in self.rows("skips", **query._asdict(), minute=None):
            yield from (each.skip for each in self._unpacked([row])[0] if each.skip.at >= since)

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the skips of `skips` with their unpublished details."""
        return islice(self._ordered_skips(query), query.limit)

    def _ordered_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the wanted skips. Packed ones come by the newest, so each waits until the next page is older."""
        instant = instant_of(query.tick)
        minute = None if instant is None else int(instant // 60)
        rows = self.rows("skips", **query._asdict(), minute=minute)
        size = min(_PAGE, query.limit or _PAGE)
        waiting: list[TracedSkip] = []
        while page := list(islice(rows, size)):
            found, executions = self._unpacked(page)
            newest = max((each.skip.at for each in found), default=0.0)
            yield from sorted((each for each in waiting if each.skip.at > newest), key=_order)
            waiting = [each for each in waiting if each.skip.at <= newest]
            skips = ((each, each.skip) for each in found)
            wanted = [each for each, skip in skips if _fits(skip, skip.at, query)]
            waiting += self._with_holders(wanted, executions) if executions else wanted
        yield from sorted(waiting, key=_order)

    def _unpacked(self, rows: Iterable[Row]) -> tuple[list[TracedSkip], dict[TracedSkip, int]]:
        found: list[TracedSkip] = []
        executions: dict[TracedSkip, int] = {}
        for row in rows:
            if isinstance(row, PackedSkips):
                skips = self.readable("skips of key {0} by host {2}", _unpack, *row) or ()
                executions.update(skips)
                found.extend(each for each, _ in skips)
            elif traced := self.readable("a skip of key {0} by host {6}", _traced_skip, *row):
                found.append(traced)
        return found, executions

    def _with_holders(
        self, skips: Iterable[TracedSkip], executions: Mapping[TracedSkip, int]
    ) -> Iterator[TracedSkip]:
        """Yield skips; the plain ones with host, pid and outcome on record, if retention has not removed them."""
        ids = sorted({executions[each] for each in skips if each in executions})
        holders: dict[int | None, _Holder] = {}
        for first in range(0, len(ids), HOLDERS_AT_ONCE):
            some = ids[first : first + HOLDERS_AT_ONCE]
            for holder in self.read("holders", _Holder, "execution {0}", ids=some):
                holders[holder.execution_id] = holder
        for each in skips:
            known = holders.get(executions.get(each))
            if known is None:
                yield each
                continue
            detail = known.outcome if each.skip.reason == "done" else None
            parts: dict[str, Any] = {
                "holder_host": known.host,
                "holder_pid": known.pid,
                "detail": detail,
            }
            yield TracedSkip(each.skip._replace(**parts), None)

    def reasons(
        self, since: Mapping[str, Tick], wanted: Mapping[str, Sequence[float]] | None = None
    ) -> Iterator[SkipReason]:
        """Yield why ticks of some keys were skipped, in no order. `since`: the first tick of each, an instant.

        One question for all keys. There may be answers for named ticks. `wanted`: the instants of a few ticks, rising;
        others need not come.
        """
        ticks = {key: first.text for key, first in since.items()}
        minutes = {key: int((first.instant or 0.0) // 60) for key, first in since.items()}
        few = {key: [int(at // 60) for at in ats] for key, ats in (wanted or {}).items()} or None
        for row in self.rows("reasons", ticks=ticks, minutes=minutes, wanted=few):
            if isinstance(row, PackedSkips):
                found = self.readable(
                    "skips of key {0} by host {2}",
                    _unpack_reasons,
                    *row,
                    few and few.get(row.key, ()),
                )
                wanted_ones = (each for each in found or () if each.key in ticks)
                yield from (each for each in wanted_ones if each.tick >= str(ticks[each.key]))
            else:
                reason = self.readable("a skip of key {0} by host {2}", SkipReason, *row)
                if reason and reason.key in ticks and reason.tick >= str(ticks[reason.key]):
                    yield reason

    def job_keys(self) -> list[JobKey]:
        """Return every shard of every key as it was last claimed, by name."""
        return sorted(self.read("keys", _job_key, "key {0}"), key=lambda each: each[:2])

    def key_hosts(self) -> list[KeyHost]:
        """Return the hosts that fire each shard of each key, by key, shard and host.

        There may be tens of thousands. Retention removes a host that has not fired a key for `HOST_FORGOTTEN_AFTER`.
        """
        return sorted(self.read("key_hosts", _key_host, "host {2} of key {0}"))

    def namespaces(self) -> Iterator[str]:
        """Yield the namespaces on this server, or in files beside this one, in no order, perhaps repeated.

        This store's own namespace may be missing.
        """
        for row in self.rows("namespaces"):
            yield from (each for each in row[:1] if isinstance(each, str))

    def leases(self) -> list[LeaseView]:
        """Return every lease and every session lock of this namespace."""
        found = self.read("leases", LeaseView, "the lease of key {0}")
        return sorted(found, key=lambda each: each[:2])

    def pauses(self) -> list[Pause]:
        """Return the pauses that have not ended, that of all keys first, and then the drained hosts."""
        found = filter(None, map(self._pause, self.rows("pauses")))
        return sorted(found, key=lambda each: (each.host or "", each.key != ALL_KEYS, each.key))

    @answered
    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key, or of `ALL_KEYS`; return the pause and the one that it replaced."""
        return self._stop(key, None, author, reason, seconds)

    @answered
    def resume(self, key: str) -> Pause | None:
        """End the pause of a key, or the separate pause of `ALL_KEYS`; return it, or None if there was none."""
        return self._stop(key, None, None)[1]

    @answered
    def drain(
        self, host: str, *, author: str, reason: str | None = None, seconds: float | None = None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host, as `pause` does for a key."""
        return self._stop(None, host, author, reason, seconds)

    @answered
    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; return the drain, or None if there was none."""
        return self._stop(None, host, None)[1]

    def _stop(self, *wanted: Any) -> tuple[Any, Pause | None]:
        now, before = self.stop_starts(*wanted)
        return now and Pause(*now), self._pause(before) if before else None

    def _pause(self, row: Row) -> Pause | None:
        return self.readable("a pause of key {0} or host {1}", Pause, *row)

    def prune(
        self,
        retention: Retention,
        *,
        names_kept: int = 1000,
        dry_run: bool = False,
        progress: Progress = no_progress,
    ) -> tuple[int, int]:
        """Remove expired records; return how many executions and how many skips were removed; see `pruned`."""
        executions = skips = 0
        for removed in self.pruned(retention, names_kept, dry_run=dry_run):
            executions, skips = executions + removed[0], skips + removed[1]
            progress(executions + skips)
        return executions, skips

    def least_retention(self) -> Retention:
        """Return the least retention: where a caller's is shorter, this one counts."""
        return next(self.read("least_retention", _least_retention, "the least retention"), LEAST)

    def read(
        self, view: str, convert: Callable[..., Value], name: str, **bounds: Any
    ) -> Iterator[Value]:
        """Yield the rows of a view as `convert` makes them of the columns; for `name` see `readable`."""
        for row in self.rows(view, **bounds):
            value = self.readable(name, convert, *row)
            if value is not None:
                yield value

    def readable(self, name: str, convert: Callable[..., Value], *columns: Any) -> Value | None:
        """Return what `convert` makes of the columns of a row, or None after naming the row on standard error.

        `name` says which row it is, with the places of columns: `execution {0}`. Of a plain tuple nothing is checked.
        """
        try:
            value = convert(*columns)
            check(value)
        except UNREADABLE as error:
            self._pass_over(_name_of(name, columns), reason_of(error))
            return None
        return value

    def _pass_over(self, name: str, why: str) -> None:
        if name in self.unreadable:
            return
        self.unreadable.add(name)
        if name in self.named:
            return
        self.named.add(name)
        if len(self.named) <= _NAMED:
            complain(f"{name:.{_LONGEST_NAME}} cannot be read and is left out: {why}")
        elif len(self.named) == _NAMED + 1:
            complain("more rows cannot be read and are left out")


def _fits(row: Execution | Skip, at: float, query: HistoryQuery) -> bool:
    return (
        query.host in (None, row.host)
        and (query.without is None or not row.key.startswith(query.without))
        and query.takes_outcome(row)
        and query.tick in (None, row.tick)
        and (query.since is None or at >= query.since)
        and (query.until is None or at < query.until)
    )


def _order(traced: TracedSkip) -> tuple[object, ...]:
    skip = traced.skip
    return (-skip.at, skip.key, skip.shard, skip.host, skip.reason)


def _traced(*row: Any) -> Traced:
    execution = Execution._make(row[:-3])
    if execution.place is not None:
        shown = place_of(execution.place).decode("utf-8", "backslashreplace")
        execution = execution._replace(place=without_logins(shown) or None)
    return Traced(execution, *row[-3:])


def _traced_skip(*row: Any) -> TracedSkip:
    return TracedSkip(Skip(*row[:-1]), row[-1])


def _job_key(*row: Any) -> JobKey:
    key, shard, schedule, zone, shards, starting_deadline, since, *times = row
    expected = None
    if schedule is not None and since is not None:
        expected = Expectation(schedule, zone, shards or 1, starting_deadline, since)
    return JobKey(key, shard, expected, *times)


def _key_host(key: str, shard: int, host: str, seen_at: float, presence: str) -> KeyHost:
    fields = fields_of(presence)
    ticks = _words(fields.get("ticks", ""))
    times = [float(at) for at in fields.get("ticks_at", "").split()]
    if not all(map(is_time, times)):
        raise ValueError("the time of a tick is none")
    utc_offset = int(fields["utc_offset"]) if "utc_offset" in fields else None
    if utc_offset is not None and not -DAY < utc_offset < DAY:
        raise ValueError("the offset from UTC is none")
    hours = max(0, 24 - max(0, int(clock.wall() // HOUR) - int(fields["hour"])))
    counts = (map(int, fields[name].split()[::-1][:hours]) for name in ("wins", "skips"))
    wins, skips = map(sum, counts)
    return KeyHost(
        *(key, shard, host, seen_at, fields["version"], float(fields["clock_ahead"])),
        tuple(zip(ticks, times, strict=True)),
        *(fields.get("schedule"), fields.get("zone"), fields.get("command")),
        *(wins, skips),
        # One tick proves nothing: a host may fire it again after a reboot.
        min(2, max(1, len({*ticks} & {*fields.get("twice", "").split()}))),
        utc_offset,
        float(fields["catch_up"]) if "catch_up" in fields else None,
    )


@lru_cache(4096)  # the hosts of a key have fired the same: once in memory
def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _least_retention(*seconds: float | None) -> Retention:
    both = zip(seconds, LEAST, strict=True)
    return Retention(*(float(default if each is None else each) for each, default in both))


class PackedSkips(NamedTuple):
    """The plain skips (`oncecron.core.decision.plain_skip`) of one host in one window of `PLAIN_WINDOW` minutes."""

    key: str
    shard: int
    host: str
    window: int
    """The minute at which it begins, since the epoch."""
    words: str
    """`PlainSkip.word` of each: CODE:EXECUTION, hexadecimal. CODE: minute in the window, then `PlainSkip.code`."""


class PackedRuns(NamedTuple):
    """The fields of `EndedRuns`, but for their times."""

    key: str
    host: str
    outcome: str
    has_tick: bool
    minutes: str
    """Of each, since the epoch: words in any order."""


def _unpacked_runs(key: str, host: str, outcome: str, has_tick: object, minutes: str) -> EndedRuns:
    times = tuple(60 * minute for minute in sorted(map(int, minutes.split())))
    if not all(map(is_time, times[:1] + times[-1:])):
        raise ValueError("the time of a tick is none")
    return EndedRuns(key, host, outcome, bool(has_tick), times)


def is_wanted(minutes: Sequence[int], first: int, length: int = PLAIN_WINDOW) -> bool:
    """Return whether one of some rising minutes is in a window of plain skips, or in one of another length."""
    place = bisect_left(minutes, first)
    return place < len(minutes) and minutes[place] < first + length


def brought(name: str, kind: str) -> Any:
    """Return the function for a view or a change of a plugin (`PLUGIN/NAME`) on a kind of store."""
    plugin, _, function = name.partition("/")
    return getattr(import_module(f"oncecron_{plugin}.{kind}_views"), function)


class _Holder(NamedTuple):
    execution_id: int
    host: str
    pid: int
    outcome: str


def _unpack(*packed: Any) -> tuple[tuple[TracedSkip, int], ...]:
    """Return the skips in a text: one for each tick and reason, with the newest time, and the holder's execution."""
    key, shard, host, window, words = PackedSkips(*packed)
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    for word in words.split():
        code, execution_id = (int(part, 16) for part in word.split(":"))
        which = (code >> PLAIN_BITS, code & PLAIN_DONE)
        count, newest, _ = found.get(which, (0, 0, 0))
        found[which] = count + 1, max(newest, code & PLAIN_DONE - 1), execution_id
    skips = []
    for (minute, done), (count, milliseconds, execution_id) in found.items():
        begin = (window + minute) * 60
        at = begin - PLAIN_SKIP_EARLY + milliseconds / 1000
        tick, reason = str(minute_tick(begin).text), "done" if done else "held"
        skip = Skip(key, shard, tick, reason, None, None, host, None, at, count, None)
        check(skip)
        skips.append((TracedSkip(skip, None), execution_id))
    return tuple(skips)


def _unpack_reasons(
    key: str, shard: int, host: str, window: int, words: str, wanted: Sequence[int] | None
) -> tuple[SkipReason, ...]:
    if wanted is not None and not is_wanted(wanted, window):
        return ()
    codes = {int(word.partition(":")[0], 16) & ~(PLAIN_DONE - 1) for word in words.split()}
    found = []
    for code in codes:
        minute = window + (code >> PLAIN_BITS)
        if wanted is None or is_wanted(wanted, minute, 1):
            text = str(minute_tick(minute * 60).text)
            reason = SkipReason(key, text, host, "done" if code & PLAIN_DONE else "held", shard)
            check(reason)
            found.append(reason)
    return tuple(found)


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "tuple": (tuple,),
}
_ALLOWED: dict[str, Callable[[Any], bool]] = {
    "float": is_time,  # every float is a time, or a difference of two
    "int": range(-(1 << 63), 1 << 63).__contains__,  # as in SQL; JSON and Redis have larger ones
    "key": lru_cache(4096)(is_key),
    "outcome": OUTCOMES.__contains__,
    "shard": range(_MOST_SHARDS).__contains__,
    "shards": range(1, _MOST_SHARDS + 1).__contains__,
}
"""What a value of a type, or of a field, must be."""
_places: dict[tuple[type, ...], list[tuple[int, str, Callable[[Any], bool]]]] = {}
"""What is still to be checked in a row of these types; reports read tens of thousands of rows of few types."""


def check(row: Any) -> bool:
    """Return True. Raise `ValueError` if a field of a record, or of one in it, does not fit its annotation."""
    if type(row) is tuple:
        return True
    kinds = (type(row), *map(type, row))
    if kinds not in _places:
        _places[kinds] = list(_checked_places(row))
    for place, name, allowed in _places[kinds]:
        if not allowed(row[place]):
            raise _misfit(name, row[place])
    return True


def _checked_places(row: Any) -> Iterator[tuple[int, str, Callable[[Any], bool]]]:
    """Yield the fields whose types do not say enough. Raises `ValueError` for a type that does not fit."""
    fields = type(row).__annotations__.items()
    for place, ((name, annotation), value) in enumerate(zip(fields, row, strict=True)):
        kind, _, absent = annotation.partition(" | ")
        if hasattr(value, "_fields"):
            yield place, name, check
        elif value is None and absent:
            continue
        elif type(value) not in _TYPES.get(kind.partition("[")[0], ()):
            raise _misfit(name, value)
        elif isinstance(row, Pause) and name == "key":
            continue  # a pause that somebody has forged is to be seen, and resumed
        elif allowed := _ALLOWED.get(name, _ALLOWED.get(kind)):
            yield place, name, allowed


def _name_of(name: str, columns: Sequence[Any]) -> str:
    try:
        return name.format(*columns, *_ABSENT)
    except UNREADABLE:
        return name.format(*_ABSENT)


def _misfit(name: str, value: Any) -> ValueError:
    return ValueError(f"{name} is {value!r:.60}")
