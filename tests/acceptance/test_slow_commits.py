"""A PostgreSQL server whose commits take long: a claim may come to light after it was asked for again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import FaultProxy, Journal, PostgresServer, eventually, job
from servers.oncecron import Oncecron, installed

pytestmark = pytest.mark.own_log


def test_a_claim_that_is_committed_late_is_not_in_its_own_way(
    new_postgres: Callable[..., PostgresServer],
    new_proxy: Callable[[Any], FaultProxy],
    public_path: Path,
    journal: Journal,
) -> None:
    """Its connection was cut while it waited for a standby: its owner asks again, and runs once it is committed."""
    server = new_postgres(synchronous_commit="on")
    database = installed(server.create_database())
    proxy = new_proxy(server)
    host = Oncecron(database.url(via=proxy), public_path)
    assert host.run("k", "--tick", "one", "--", "true").status == 0

    def standbys(names: str) -> None:
        server.execute(f"alter system set synchronous_standby_names = '{names}'")
        server.execute("select pg_reload_conf()")
        eventually(lambda: server.execute("show synchronous_standby_names") == [(names,)])

    def claim_waits_for(event: str) -> bool:
        claims = "from pg_stat_activity where query like '%%grant_v1%%' and wait_event = %s"
        return server.execute(f"select count(*) {claims}", event) == [(1,)]

    standbys("none")
    words = ("--connect-timeout", "60s", "--tick", "two", "--", *job(journal))
    firing = host.fire("k", *words)
    eventually(lambda: claim_waits_for("SyncRep"))
    proxy.sever()
    eventually(lambda: claim_waits_for("transactionid"))  # after two seconds of `contended`
    standbys("")
    end = firing.wait()
    assert (end.status, end.err) == (0, "")
    assert len(journal.runs()) == 1
    rows = database.execute("select tick, outcome from oncecron.executions order by execution_id")
    assert rows == [("one", "succeeded"), ("two", "succeeded")]
