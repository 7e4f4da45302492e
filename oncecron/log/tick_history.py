"""What is known of one tick: executions, skips, records that are still spooled on this host, pauses.

Of a tick that is divided into shards: the outcome of each, and which were not started (`Division`).
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core import tick
from oncecron.core.clock import believed
from oncecron.core.errors import NotFoundError
from oncecron.core.job_summary import NO_END
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery, is_success
from oncecron.core.missed import Due, Known, dues, paused_time
from oncecron.log.jobs import dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, JobKey, LeaseView, Pause, Traced, TracedSkip
    from oncecron.log.jobs import Sources
    from oncecron.run.spool import Spool
    from oncecron.stores.reader import Reader

_LOOKED_AT = 50
"""Records of a key that are searched for the newest tick and for similar names."""

_WORDS = {
    "running": "running",
    NO_END: "without an end on record",
    "lost": "lost",
    "failed": "failed",
    "timed-out": "timed out",
    "stopped": "stopped",
    "unclaimed": "run without a lease",
    "succeeded": "succeeded",
}
"""The worst first, once nothing runs."""


class Facts(NamedTuple):
    """One tick of a key."""

    key: str
    tick: str | None
    """None: the newest firing that belonged to no tick."""
    instant: float | None
    job_keys: Sequence[JobKey]
    """The shards of the key as they were last claimed."""
    executions: Sequence[Traced]
    """By shard and attempt."""
    skips: Sequence[TracedSkip]
    """The earliest first."""
    spooled: Sequence[dict[str, Any]]
    leases: Sequence[LeaseView]
    pauses: Sequence[Pause]
    after_loss: dict[int, Execution]
    """The next execution of a shard, by shard, where the last one of this tick was lost."""
    exhausted: frozenset[int]
    """Ids of last attempts whose ticks were given up."""
    near: Sequence[str]
    """Ticks on record with a similar name."""
    now: float
    due: Due = Due()
    """What was due since the newest start, where no tick was named."""


def facts_of(
    sources: Sources,
    key: str,
    wanted: str | None,
    spools: Iterable[Spool] = (),
    *,
    suggests: bool = True,
) -> Facts:
    """Return what is known of a tick, by default the newest one. Raises `NotFoundError` for an unknown key.

    `suggests`: also look for ticks with a name like that of a tick about which nothing is known.
    """
    spooled = [record for spool in spools for _, record in spool.pending(key)]
    _check_key(key, {known.key for known in sources.job_keys}, spooled=bool(spooled))
    newest = (
        list(sources.log.history(HistoryQuery(key=key, limit=_LOOKED_AT))) if wanted is None else []
    )
    text = _newest(sources, key, newest, spooled) if wanted is None else _canonical(wanted)
    leases = [lease for lease in sources.leases if lease.key == key]
    executions = _executions(sources.log, key, text)
    skips = _skips(sources.log, key, text)
    pauses = [pause for pause in sources.pauses if pause.key in (key, ALL_KEYS)]
    job_keys = [known for known in sources.job_keys if known.key == key]
    return Facts(
        key=key,
        tick=text,
        instant=tick.instant_of(text),
        job_keys=job_keys,
        executions=executions,
        skips=skips,
        spooled=[record for record in spooled if record.get("tick") == text],
        leases=leases,
        pauses=pauses,
        after_loss=_after_loss(sources.log, executions),
        exhausted=_exhausted(sources, text, executions, leases),
        near=_near_ticks(sources.log, key, text)
        if suggests and text is not None and not (executions or skips)
        else [],
        now=sources.now,
        due=_due(sources, job_keys, newest, pauses) if wanted is None and job_keys else Due(),
    )


def _due(
    sources: Sources,
    job_keys: Sequence[JobKey],
    newest: Sequence[Execution],
    pauses: Sequence[Pause],
) -> Due:
    key = job_keys[0].key
    known = Known(job_keys, newest, *paused_time(key, pauses))
    return dues({key: known}, sources.log.reasons, sources.now)[key]


def _check_key(key: str, keys: set[str], *, spooled: bool) -> None:
    if key in keys or spooled:
        return
    near = difflib.get_close_matches(key, sorted(keys), 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`oncecron jobs` lists all keys"
    raise NotFoundError(f"no host has fired key {key}; {hint}")


def _canonical(wanted: str) -> str:
    """Return the text of a tick as it is recorded: a local time, or one with an offset, becomes an instant."""
    from datetime import UTC, datetime  # noqa: PLC0415 - only where a tick was typed

    named = tick.named_tick(wanted)
    if named.instant is not None or "T" not in wanted:
        return wanted
    try:
        moment = datetime.fromisoformat(wanted).astimezone(UTC)
    except (ValueError, OverflowError):
        return wanted
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def _newest(
    sources: Sources, key: str, newest: Iterable[Execution], spooled: Iterable[dict[str, Any]]
) -> str | None:
    """Return the newest tick that any host fired: the latest instant where all are instants, else the last fired.

    What a clock has written that was ahead is not the newest.
    """
    query = HistoryQuery(key=key, limit=_LOOKED_AT)
    fired: list[tuple[float, str | None]] = [(e.started_at, e.tick) for e in newest]
    fired += [(skip.at, skip.tick) for skip in sources.log.skips(query)]
    fired += [(record["fired_at"], record["tick"]) for record in spooled]
    instants = [
        (instant, text) for text in {text for _, text in fired} if text is not None
        for instant in [tick.instant_of(text)] if instant is not None
    ]  # fmt: skip
    ranked: Iterable[tuple[float, str | None]] = fired
    if instants and len(instants) == len({text for _, text in fired}):
        ranked = instants
    return max(ranked, key=lambda pair: believed(pair[0], sources.now), default=(0.0, None))[1]


def _executions(log: Reader, key: str, text: str | None) -> list[Traced]:
    query = HistoryQuery(key=key, tick=text, limit=None if text else _LOOKED_AT)
    found = [each for each in log.traced(query) if each.execution.tick == text]
    if text is None:  # the newest firing
        found = [each for each in found if each.execution.owner == found[0].execution.owner]
    return sorted(found, key=_by_attempt)


def _by_attempt(each: Traced) -> tuple[int, int, int]:
    execution = each.execution
    return execution.shard, execution.attempt, execution.execution_id


def _skips(log: Reader, key: str, text: str | None) -> list[TracedSkip]:
    limit = _LOOKED_AT if text is None else None
    found = log.traced_skips(HistoryQuery(key=key, tick=text, limit=limit))
    return sorted((each for each in found if each.skip.tick == text), key=lambda each: each.skip.at)


def _after_loss(log: Reader, executions: Sequence[Traced]) -> dict[int, Execution]:
    found = {}
    last = {each.execution.shard: each for each in executions}
    for shard, each in last.items():
        if each.lost_at is None:
            continue
        lost = each.execution
        query = HistoryQuery(key=lost.key, after_id=lost.execution_id, limit=_LOOKED_AT)
        later = next((other for other in log.history(query) if other.shard == shard), None)
        if later:
            found[shard] = later
    return found


def _exhausted(
    sources: Sources, text: str | None, executions: Sequence[Traced], leases: Sequence[LeaseView]
) -> frozenset[int]:
    if all(is_success(each.execution) for each in executions):
        return frozenset()
    key = executions[0].execution.key
    query = HistoryQuery(key=key, tick=text, limit=_LOOKED_AT if text is None else None)
    found = dead_letters(sources.log, query, leases, sources.now)
    return frozenset(each.execution_id for each in found)


def _near_ticks(log: Reader, key: str, text: str) -> list[str]:
    query = HistoryQuery(key=key, limit=_LOOKED_AT)
    return difflib.get_close_matches(text, sorted(set(_ticks(log, query))), 3, 0.7)


def _ticks(log: Reader, query: HistoryQuery) -> Iterator[str]:
    yield from (each.tick for each in log.history(query) if each.tick)
    yield from (each.tick for each in log.skips(query) if each.tick)


class Division(NamedTuple):
    """The known shards of a tick."""

    shards: int
    outcomes: dict[int, str]
    """The outcome of the last attempt, by shard."""

    def missing(self) -> list[int]:
        """Return the shards that were not started."""
        return [shard for shard in range(self.shards) if shard not in self.outcomes]

    def verdict(self) -> str:
        """Return the worst outcome; `running` where any shard runs, `incomplete` where one was not started."""
        found = set(self.outcomes.values())
        if "running" in found:
            return "running"
        if self.missing():
            return "incomplete"
        return next(outcome for outcome in _WORDS if outcome in found)

    def summary(self) -> str:
        """Return the shards by outcome, with their numbers: `3 succeeded (0-2), 1 not started (3)`."""
        shards: dict[str, list[int]] = {outcome: [] for outcome in _WORDS}
        for shard, outcome in sorted(self.outcomes.items()):
            shards[outcome].append(shard)
        described = [
            f"{len(found)} {_WORDS[outcome]} ({number_ranges(found)})"
            for outcome, found in reversed(shards.items())
            if found
        ]
        if missing := self.missing():
            described.append(f"{len(missing)} not started ({number_ranges(missing)})")
        return ", ".join(described)


def division(executions: Sequence[Traced]) -> Division | None:
    """Return how a tick is divided, None if it is not; `executions` are sorted by attempt."""
    started = [each.execution for each in executions if each.execution.outcome != "not-started"]
    shards = max((each.shards for each in started), default=1)
    if shards == 1:
        return None
    return Division(shards, {each.shard: each.outcome for each in started})


def number_ranges(numbers: Iterable[int]) -> str:
    """Return rising numbers as text, with runs as ranges: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
