"""Read the plain skips of shards on Redis (`oncecron.stores.plain_skips`): a text for each host and window."""

from __future__ import annotations

import itertools

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import SkipReason, TracedSkip
from oncecron.core.timing import PLAIN_SKIP_EARLY
from oncecron.stores.plain_skips import KeptSkips, shown, window_of
from oncecron.stores.redis.rows import is_wanted, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import HistoryQuery
    from oncecron.core.readable import Unreadable
    from oncecron.core.tick import Tick
    from oncecron.stores.plain_skips import KeptSkip, Window
    from oncecron.stores.redis.people_client import PeopleClient
    from oncecron.stores.redis.rows import StoredExecution

    Executions = Callable[[Sequence[int | bytes]], list[StoredExecution | None]]

_PAGE = 500


def reasons(
    pipeline: PeopleClient, shards: Sequence[str], since: Mapping[str, Tick], unreadable: Unreadable
) -> Iterator[SkipReason]:
    """Yield why ticks were skipped: two questions, however many shards there are."""
    names = pipeline.names
    first = {shard: since[shard.rpartition("#")[0]] for shard in shards}
    asked = [
        ("ZRANGEBYSCORE", names.of_shard("plain", s), _oldest(first[s].instant or 0.0), "+inf")
        for s in shards
    ]
    found = [
        (s, members) for s, members in zip(shards, pipeline.ask(asked), strict=True) if members
    ]
    texts = pipeline.ask([("HMGET", names.of_shard("plain_rows", s), *m) for s, m in found])
    for (shard, members), of_shard_ in zip(found, texts, strict=True):
        for each in _read(shard, members, of_shard_, unreadable):
            if each.tick >= str(first[shard].text):
                yield SkipReason(each.of.key, each.tick, each.of.host, each.reason)


def of_shard(
    pipeline: PeopleClient,
    shard: str,
    query: HistoryQuery,
    unreadable: Unreadable,
    executions: Executions,
) -> Iterator[TracedSkip]:
    """Yield the plain skips of a shard, the newest first.

    The texts are sorted by their newest skip: what is newer than that of the next page can be yielded.
    """
    name, rows = (pipeline.names.of_shard(each, shard) for each in ("plain", "plain_rows"))
    oldest = "-inf" if query.since is None else repr(query.since)
    waiting: list[TracedSkip] = []
    for offset in itertools.count(0, _PAGE):
        command = ("ZREVRANGEBYSCORE", name, "+inf", oldest, "WITHSCORES")
        [flat] = pipeline.ask([(*command, "LIMIT", offset, _PAGE)])
        members, newest = flat[::2], float(flat[1]) if flat else 0.0
        ready = [each for each in waiting if each.skip.at > newest]
        yield from sorted(ready, key=order_of)
        waiting = [each for each in waiting if each.skip.at <= newest]
        if members:
            [texts] = pipeline.ask([("HMGET", rows, *members)])
            kept = _read(shard, members, texts, unreadable)
            waiting += _wanted(kept, query, executions)
        if len(members) < _PAGE:
            yield from sorted(waiting, key=order_of)
            return


def _read(
    shard: str, members: Sequence[bytes], texts: Sequence[bytes | None], unreadable: Unreadable
) -> Iterator[KeptSkip]:
    for member, text in zip(members, texts, strict=True):
        if text is not None:
            name = f"the skips {member.decode('utf-8', 'replace')} of {shard}"
            window = unreadable.read(name, _window, shard, member, text)
            yield from window.skips if window else ()


def _window(shard: str, member: bytes, text: bytes) -> Window:
    key, _, number = shard.rpartition("#")
    window, _, host = member.decode("utf-8", "replace").partition(" ")
    return window_of(KeptSkips(key, int(number), host, int(window), text.decode("ascii")))


def _wanted(
    kept: Iterator[KeptSkip], query: HistoryQuery, executions: Executions
) -> Iterator[TracedSkip]:
    while page := list(itertools.islice(kept, _PAGE)):
        holders = executions([each.execution_id for each in page])
        for each, holder in zip(page, holders, strict=True):
            execution = holder and holder.traced.execution
            skip = shown(each, execution and (execution.host, execution.pid, execution.outcome))
            if is_wanted(skip, query):
                yield TracedSkip(skip, None)


def _oldest(instant: float) -> str:
    return repr(instant - PLAIN_SKIP_EARLY)
