"""Read the skips of shards on Redis, page by page: a set of them by time, and a hash of their rows."""

from __future__ import annotations

import itertools

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.stores.redis.rows import is_wanted, order_of, reason_of, skip_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncecron.core.log_rows import HistoryQuery, SkipReason, TracedSkip
    from oncecron.core.readable import Unreadable
    from oncecron.core.tick import Tick
    from oncecron.stores.redis.people_client import Command, PeopleClient

_PAGE = 500


def reasons(
    pipeline: PeopleClient, shards: Sequence[str], since: Mapping[str, Tick], unreadable: Unreadable
) -> Iterator[SkipReason]:
    """Yield why ticks were skipped: page by page, of all shards at once."""
    for offset in itertools.count(0, _PAGE):
        pages = pipeline.ask([_skipped(pipeline, s, since[_key_of(s)], offset) for s in shards])
        for shard, page in zip(shards, pages, strict=True):
            for member in page:
                reason = unreadable.read(_skip_name(shard, member), reason_of, shard, member)
                if reason and reason.tick >= str(since[_key_of(shard)].text):
                    yield reason
        shards = [s for s, page in zip(shards, pages, strict=True) if len(page) == _PAGE]
        if not shards:
            return


def _skipped(pipeline: PeopleClient, shard: str, first: Tick, offset: int) -> Command:
    """Return the command for a page of the skips of a shard since a tick."""
    oldest = repr((first.instant or 0.0) - MAX_CLOCK_SKEW)
    name = pipeline.names.of_shard("skips", shard)
    return ("ZREVRANGEBYSCORE", name, "+inf", oldest, "LIMIT", offset, _PAGE)


def of_shard(
    pipeline: PeopleClient, shard: str, query: HistoryQuery, unreadable: Unreadable
) -> Iterator[TracedSkip]:
    """Yield the skips of a shard that are kept in full, the newest first."""
    name = pipeline.names.of_shard("skips", shard)
    rows_name = pipeline.names.of_shard("skip_rows", shard)
    oldest = "-inf" if query.since is None else repr(query.since)
    size = min(_PAGE, query.limit or _PAGE)
    for offset in itertools.count(0, size):
        command = ("ZREVRANGEBYSCORE", name, "+inf", oldest, "WITHSCORES")
        [flat] = pipeline.ask([(*command, "LIMIT", offset, size)])
        members = flat[::2]
        texts = pipeline.ask([("HMGET", rows_name, *members)])[0] if members else []
        skips = (
            unreadable.read(_skip_name(shard, member), skip_of, shard, member, at, text)
            for (member, at), text in zip(
                zip(flat[::2], flat[1::2], strict=True), texts, strict=True
            )
            if text is not None
        )
        found = (each for each in skips if each and is_wanted(each.skip, query))
        yield from sorted(found, key=order_of)
        if len(members) < size:
            return


def _key_of(shard: str) -> str:
    return shard.rpartition("#")[0]


def _skip_name(shard: str, member: bytes) -> str:
    return f"the skip {member.decode('utf-8', 'replace')} of {shard}"
