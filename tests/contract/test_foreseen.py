"""`run --dry-run`: what it says is what a firing is then answered, and it writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, minute

from oncecron.cli.dry_run import foresee
from oncecron.core.decision import Grant
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import AskAgain, Lease, Refusal
from oncecron.core.tick import NO_TICK, named_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Log
    from contract_stores import StoreKind

    Past = Callable[[Host, StoreKind, Log], object]


def _expired(host: Host, store: StoreKind, _log: Log) -> None:
    host.win(minute(2))
    store.expire(KEY)


def _kept(host: Host, store: StoreKind, _log: Log) -> None:
    host.keep(host.win(minute(2), retries=1))
    store.expire(KEY)


def _pause(_host: Host, _store: StoreKind, log: Log) -> None:
    log.people.pause(KEY, author="ann@x", reason="why", seconds=None)


def _drain(_host: Host, _store: StoreKind, log: Log) -> None:
    log.people.drain("bb.example", author="ann@x")


CASES: dict[str, tuple[Past, dict[str, Any]]] = {
    "new": (lambda *_: None, {}),
    "late": (lambda *_: None, {"starting_deadline": 1.0, "tick": minute(1)}),
    "done": (lambda host, *_: host.run(minute(2), "failed"), {}),
    "again": (lambda host, *_: host.run(minute(2)), {"again": True}),
    "passed": (lambda host, *_: host.run(minute(3)), {}),
    "next": (lambda host, *_: host.run(minute(1)), {}),
    "name": (lambda host, *_: host.run(named_tick("x")), {"tick": named_tick("x")}),
    "recent": (lambda host, *_: host.run(NO_TICK), {"tick": NO_TICK, "min_gap": 60.0}),
    "held": (lambda host, *_: host.win(minute(2)), {}),
    "held by another tick": (lambda host, *_: host.win(minute(1)), {}),
    "lost": (_expired, {}),
    "lost, with failover": (_expired, {"failover": True, "retries": 2}),
    "lost before another tick": (_expired, {"tick": minute(3)}),
    "kept": (_kept, {}),
    "kept, with failover": (_kept, {"failover": True, "retries": 2}),
    "paused": (_pause, {}),
    "drained": (_drain, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_foreseen_is_what_is_answered(
    a: Host, b: Host, store: StoreKind, log: Log, case: str
) -> None:
    """A start, its number, or why not and because of whom. Between the two nothing has been written."""
    past, parts = CASES[case]
    past(a, store, log)
    a.store.close()
    firing = b.firing(**{"tick": minute(2), **parts})
    before = recorded(log)
    foreseen = foresee(firing, b.store)
    b.store.close()
    assert recorded(log) == before
    answer = b.ask(firing)
    if isinstance(foreseen, Grant):
        assert isinstance(answer, Lease), answer
        assert foreseen.attempt == answer.attempt
    elif isinstance(foreseen, AskAgain):
        assert isinstance(answer, AskAgain)
        assert foreseen.why == answer.why
    else:
        assert isinstance(answer, Refusal), answer
        assert foreseen._replace(blocked_by=None, recorded=answer.recorded) == answer._replace(
            blocked_by=None
        )


def recorded(log: Log) -> tuple[object, ...]:
    """Return all that a firing could have written."""
    people, every = log.people, HistoryQuery(limit=None)
    rows = (people.job_keys(), people.key_hosts(), people.pauses())
    return (log.executions(every), [*people.skips(every)], log.leases(), *rows)
