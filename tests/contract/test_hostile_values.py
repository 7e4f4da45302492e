"""Values that no store can have made, in each column of each view: named and left out, and no error of the program."""

from collections.abc import Callable
from typing import Any

import pytest
from contract_log import Log
from hostile_rows import judge
from hosts import EVERYTHING, KEY, Host, ending, minute

from oncecron.core.log_rows import HistoryQuery
from oncecron.core.model import Output
from oncecron.stores.reader import Reader

EVERY = HistoryQuery(limit=None)
QUESTIONS: dict[str, Callable[[Reader], Any]] = {
    "executions": lambda store: list(store.traced(EVERY)),
    "execution": lambda store: store.execution(1),
    "newest": lambda store: store.newest(5),
    "timeline": lambda store: list(store.timeline(None)),
    "runs": lambda store: list(store.runs(0.0)),
    "output": lambda store: store.output(1),
    "skips": lambda store: list(store.traced_skips(EVERY)),
    "reasons": lambda store: list(store.reasons({KEY: minute(1)})),
    "keys": lambda store: store.job_keys(),
    "key_hosts": lambda store: store.key_hosts(),
    "leases": lambda store: store.leases(),
    "pauses": lambda store: store.pauses(),
    "namespaces": lambda store: list(store.namespaces()),
    "least_retention": lambda store: store.least_retention(),
}


@pytest.fixture
def full(a: Host, b: Host, log: Log) -> Log:
    """Give a store with a row in each view."""
    schedule = {"schedule": "* * * * *", "zone": "Europe/Berlin"}
    lease = a.win(minute(1), **schedule)
    told = ending("succeeded", "a note", Output("printed", 3))
    a.store.finish(lease, told, EVERYTHING, deadline=a.deadline())
    a.store.close()
    for tick in (minute(1), minute(2)):
        if tick != minute(1):
            a.win(tick)
        b.lose(tick)
    log.people.pause("other", author="ann@desk", reason="why", seconds=60.0)
    log.people.drain("host-c", author="ann@desk")
    return log


@pytest.mark.parametrize("view", QUESTIONS)
def test_a_value_that_no_store_can_have_made(full: Log, view: str) -> None:
    """Of each column of a row, and of each length of a row."""
    judge(full.people, view, QUESTIONS[view])
