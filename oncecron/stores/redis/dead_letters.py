"""Find the dead letters on Redis: failed executions that could have been retried and will not be."""

from __future__ import annotations

import itertools

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.redis.rows import decoded, json_of
from oncecron.stores.redis.scripts import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.stores.redis.pipeline import Pipeline
    from oncecron.stores.redis.rows import Row
    from oncecron.stores.redis.scripts import Names

_PAGE = 100
_GIVEN_UP = ("failed", "timed-out", "lost")


def exhausted(pipeline: Pipeline, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows that are the last attempts of their ticks, or of their owners, and have no lease."""
    names = pipeline.names
    candidates = (row for row in rows if row.get("retries", 0) > 0 and row["outcome"] in _GIVEN_UP)
    while page := list(itertools.islice(candidates, _PAGE)):
        newest = _newest(pipeline, page)
        leases = pipeline.ask([("HGET", _of(names, "lease", row), "execution_id") for row in page])
        for row, last, lease in zip(page, newest, leases, strict=True):
            execution_id = str(row["execution_id"])
            if last == execution_id and (lease is None or lease.decode() != execution_id):
                yield row


def _newest(pipeline: Pipeline, page: Sequence[Row]) -> list[str]:
    """Return for each row the execution_id of the last attempt of its tick that started."""
    names = pipeline.names
    answers = pipeline.ask(
        [
            ("HGET", _of(names, "ticks", row), row["tick"])
            if row.get("tick") is not None
            else ("HGET", _of(names, "owners", row), row["owner"])
            for row in page
        ]
    )
    ids = [(answer or b"").decode().rpartition(":")[2] for answer in answers]
    return _started(pipeline, ids)


def _started(pipeline: Pipeline, ids: list[str]) -> list[str]:
    """Return instead of attempts that did not start the last ones before them that did.

    There may be several in a row: one that was lost at first may turn out not to have started.
    """
    before: list[str | None] = [*ids]
    while asked := [number for number, execution_id in enumerate(before) if execution_id]:
        executions = pipeline.names.of_namespace("executions")
        [texts] = pipeline.ask([("HMGET", executions, *(before[number] or "" for number in asked))])
        for number, text in zip(asked, texts, strict=True):
            ids[number] = before[number] or ""
            before[number] = _earlier(text)
    return ids


def _earlier(text: bytes | None) -> str | None:
    """Return the attempt before one that did not start, if there is one on record."""
    row = {} if text is None else decoded(json_of(text))
    earlier = row.get("earlier") if row.get("outcome") == "not-started" else None
    return None if earlier is None else str(earlier)


def _of(names: Names, name: str, row: Row) -> str:
    return names.of_shard(name, shard_of(row["key"], row["shard"]))
