"""The hosts of a key on PostgreSQL: the order of locks, which the other stores do not have."""

import threading

import pytest
from contract_log import Log
from hosts import KEY, Host, minute
from postgres_stores import PostgresKind
from servers import eventually

from oncecron.core.model import Refusal

pytestmark = pytest.mark.parametrize("store_kind", ["postgres"])

SKIP_WAITS = (
    "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%skip_v1%'"
)


def test_a_skip_and_a_grant_of_one_host_lock_in_the_same_order(
    a: Host, store: PostgresKind, log: Log
) -> None:
    """The row of the key first: a skip that waits for it does not keep a grant from the row of the host."""
    a.run(minute(1))
    skipping = threading.Thread(
        target=lambda: a.store.skip(a.firing(minute(2)), Refusal("broken"), deadline=a.deadline())
    )
    with store.database.connect("owner") as grant:
        grant.execute("begin")
        grant.execute("set local lock_timeout = '2s'")
        grant.execute("select from oncecron.job_key where key = %s for update", (KEY,))
        skipping.start()
        eventually(lambda: store.database.execute(SKIP_WAITS) != [])
        grant.execute("update oncecron.key_host set seen_at = seen_at where host = 'a.example'")
        grant.execute("commit")
    skipping.join()
    [host] = log.people.key_hosts()
    assert (host.wins, host.skips) == (1, 1)
