"""What is known of one tick: executions, refusals, what is still spooled on this host, pauses."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron import tick
from oncecron.errors import NotFoundError
from oncecron.model import ALL_KEYS, HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.model import Execution, JobKey, LeaseView, Pause, Traced, TracedSkip
    from oncecron.spool import Spool
    from oncecron.store import PeopleStore

_LOOKED_AT = 50
"""Records of a key among which the newest tick and near names are looked for."""


class Facts(NamedTuple):
    """One tick of a key."""

    key: str
    tick: str | None
    """None: the newest firing that belonged to no tick."""
    instant: float | None
    parts: Sequence[JobKey]
    executions: Sequence[Traced]
    """By attempt."""
    skips: Sequence[TracedSkip]
    """The earliest first."""
    spooled: Sequence[dict[str, Any]]
    leases: Sequence[LeaseView]
    pauses: Sequence[Pause]
    after_loss: Execution | None
    """Who started the key after the last execution of this tick was lost."""
    near: Sequence[str]
    """Ticks that were fired, with nearly this name."""
    now: float


class Sources(NamedTuple):
    """Where is asked."""

    store: PeopleStore
    log: PeopleStore
    """The store itself where there is no log beside it."""
    spools: Sequence[Spool]
    now: float


def gather(sources: Sources, key: str, wanted: str | None) -> Facts:
    """Return what is known of a tick, by default the newest one. Raises `NotFoundError` for an unknown key."""
    parts = [*sources.store.job_keys()]
    if sources.log is not sources.store:
        parts += sources.log.job_keys()
    spooled = [record for spool in sources.spools for _, record in spool.pending(key)]
    _check_key(key, {part.key for part in parts}, known=bool(spooled))
    text = _newest(sources.log, key, spooled) if wanted is None else _canonical(wanted)
    executions = _executions(sources.log, key, text)
    skips = _skips(sources.log, key, text)
    return Facts(
        key=key,
        tick=text,
        instant=tick.named_tick(text).instant if text else None,
        parts=[part for part in parts if part.key == key],
        executions=executions,
        skips=skips,
        spooled=[record for record in spooled if record.get("tick") == text],
        leases=[lease for lease in sources.store.leases() if lease.key == key],
        pauses=[pause for pause in sources.store.pauses() if pause.key in (key, ALL_KEYS)],
        after_loss=_after_loss(sources.log, executions),
        near=[] if executions or skips or text is None else _near_ticks(sources.log, key, text),
        now=sources.now,
    )


def _check_key(key: str, keys: set[str], *, known: bool) -> None:
    if key in keys or known:
        return
    near = difflib.get_close_matches(key, sorted(keys), 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`oncecron jobs` lists all keys"
    raise NotFoundError(f"nothing is known of key {key}: no host ever fired it; {hint}")


def _canonical(wanted: str) -> str:
    """Return the text of a tick as it is recorded: a time with an offset, or a local one, is an instant."""
    from datetime import UTC, datetime  # noqa: PLC0415 - only where a tick was typed

    named = tick.named_tick(wanted)
    if named.instant is not None or "T" not in wanted:
        return wanted
    try:
        moment = datetime.fromisoformat(wanted).astimezone(UTC)
    except (ValueError, OverflowError):
        return wanted
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def _newest(log: PeopleStore, key: str, spooled: Iterable[dict[str, Any]]) -> str | None:
    """Return the newest tick that anybody fired: by its instant where all are instants, else by when."""
    query = HistoryQuery(key=key, limit=_LOOKED_AT)
    fired: list[tuple[float, str | None]] = [(e.started_at, e.tick) for e in log.history(query)]
    fired += [(skip.at, skip.tick) for skip in log.skips(query)]
    fired += [(record["fired_at"], record["tick"]) for record in spooled]
    instants = [
        (each.instant, text) for text in {text for _, text in fired} if text is not None
        for each in [tick.named_tick(text)] if each.instant is not None
    ]  # fmt: skip
    if instants and len(instants) == len({text for _, text in fired}):
        return max(instants)[1]
    return max(fired, key=lambda pair: pair[0], default=(0.0, None))[1]


def _executions(log: PeopleStore, key: str, text: str | None) -> list[Traced]:
    if text is not None:
        found = log.traced(HistoryQuery(key=key, tick=text, limit=None))
        return sorted(found, key=lambda each: (each.execution.shard, each.execution.attempt))
    newest = log.traced(HistoryQuery(key=key, limit=_LOOKED_AT))
    return [each for each in newest if each.execution.tick is None][:1]


def _skips(log: PeopleStore, key: str, text: str | None) -> list[TracedSkip]:
    limit = _LOOKED_AT if text is None else None
    found = log.traced_skips(HistoryQuery(key=key, tick=text, limit=limit))
    return sorted((each for each in found if each.skip.tick == text), key=lambda each: each.skip.at)


def _after_loss(log: PeopleStore, executions: Sequence[Traced]) -> Execution | None:
    if not executions or executions[-1].lost_at is None:
        return None
    lost = executions[-1].execution
    return next(log.history(HistoryQuery(key=lost.key, after_id=lost.execution_id, limit=1)), None)


def _near_ticks(log: PeopleStore, key: str, text: str) -> list[str]:
    query = HistoryQuery(key=key, limit=_LOOKED_AT)
    return difflib.get_close_matches(text, sorted(set(_ticks(log, query))), 3, 0.7)


def _ticks(log: PeopleStore, query: HistoryQuery) -> Iterator[str]:
    yield from (each.tick for each in log.history(query) if each.tick)
    yield from (each.tick for each in log.skips(query) if each.tick)
