"""Find the dead letters on Redis: failed executions that could have been retried and will not be."""

from __future__ import annotations

import itertools

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.redis.rows import stored_execution
from oncecron.stores.redis.scripts import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import Execution
    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.pipeline import Pipeline
    from oncecron.stores.redis.rows import StoredExecution
    from oncecron.stores.redis.scripts import Names

_PAGE = 100
_GIVEN_UP = ("failed", "timed-out", "lost")


def exhausted(
    pipeline: Pipeline, rows: Iterable[StoredExecution], unreadable: Unreadable
) -> Iterator[StoredExecution]:
    """Yield the rows that are the last attempts of their ticks, or of their owners, and have no lease."""
    names = pipeline.names
    candidates = (
        row for row in rows if row.retries > 0 and row.traced.execution.outcome in _GIVEN_UP
    )
    while page := list(itertools.islice(candidates, _PAGE)):
        executions = [row.traced.execution for row in page]
        newest = _newest(pipeline, page, unreadable)
        leases = pipeline.ask(
            [("HGET", _of(names, "lease", each), "execution_id") for each in executions]
        )
        for row, execution, last, lease in zip(page, executions, newest, leases, strict=True):
            execution_id = str(execution.execution_id)
            if last == execution_id and lease != execution_id.encode():
                yield row


def _newest(
    pipeline: Pipeline, page: Sequence[StoredExecution], unreadable: Unreadable
) -> list[str]:
    """Return for each row the execution_id of the last attempt of its tick that started."""
    names = pipeline.names
    answers = pipeline.ask(
        [
            ("HGET", _of(names, "ticks", execution), execution.tick)
            if execution.tick is not None
            else ("HGET", _of(names, "owners", execution), row.owner)
            for row in page
            for execution in [row.traced.execution]
        ]
    )
    ids = [(answer or b"").decode("utf-8", "replace").rpartition(":")[2] for answer in answers]
    return _started(pipeline, ids, unreadable)


def _started(pipeline: Pipeline, ids: list[str], unreadable: Unreadable) -> list[str]:
    """Return instead of attempts that did not start the last ones before them that did.

    There may be several in a row: one that was lost at first may turn out not to have started.
    """
    before: list[str | None] = [*ids]
    while asked := [number for number, execution_id in enumerate(before) if execution_id]:
        executions = pipeline.names.of_namespace("executions")
        [texts] = pipeline.ask([("HMGET", executions, *(before[number] or "" for number in asked))])
        for number, text in zip(asked, texts, strict=True):
            ids[number] = before[number] or ""
            before[number] = _earlier(text, ids[number], unreadable)
    return ids


def _earlier(text: bytes | None, execution_id: str, unreadable: Unreadable) -> str | None:
    """Return the attempt before one that did not start, if there is one on record."""
    if text is None:
        return None
    name = f"execution {execution_id}"
    row = unreadable.read(name, stored_execution, text, execution_id)
    return row.earlier if row and row.traced.execution.outcome == "not-started" else None


def _of(names: Names, name: str, execution: Execution) -> str:
    return names.of_shard(name, shard_of(execution.key, execution.shard))
