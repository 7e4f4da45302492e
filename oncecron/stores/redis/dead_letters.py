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
    from oncecron.stores.redis.people_client import PeopleClient
    from oncecron.stores.redis.rows import StoredExecution
    from oncecron.stores.redis.scripts import Names

_PAGE = 100
_GIVEN_UP = ("failed", "timed-out", "lost")


def exhausted(
    pipeline: PeopleClient, rows: Iterable[StoredExecution], unreadable: Unreadable
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
    pipeline: PeopleClient, page: Sequence[StoredExecution], unreadable: Unreadable
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
    attempts = [
        [word.rpartition(b":")[2].decode("utf-8", "replace") for word in (answer or b"").split()]
        for answer in answers
    ]
    _drop_unstarted(pipeline, attempts, unreadable)
    return [ids[-1] if ids else "" for ids in attempts]


def _drop_unstarted(
    pipeline: PeopleClient, attempts: list[list[str]], unreadable: Unreadable
) -> None:
    """Remove from the end of each list what did not start, as long as there was something before.

    There may be several in a row: one that was lost at first may turn out not to have started.
    """
    while attempts := [ids for ids in attempts if len(ids) > 1]:
        executions = pipeline.names.of_namespace("executions")
        [texts] = pipeline.ask([("HMGET", executions, *(ids[-1] for ids in attempts))])
        attempts = [
            ids
            for ids, text in zip(attempts, texts, strict=True)
            if _did_not_start(text, ids[-1], unreadable)
        ]
        for ids in attempts:
            ids.pop()


def _did_not_start(text: bytes | None, execution_id: str, unreadable: Unreadable) -> bool:
    if text is None:
        return False
    row = unreadable.read(f"execution {execution_id}", stored_execution, text, execution_id)
    return row is not None and row.traced.execution.outcome == "not-started"


def _of(names: Names, name: str, execution: Execution) -> str:
    return names.of_shard(name, shard_of(execution.key, execution.shard))
