"""`?wait=1`: a claim counts only when a replica has it, and one that does not count is given back."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from log_of import RedisLog
from servers import Journal, RedisServer, eventually, job
from servers.oncecron import Oncecron
from servers.process import send

from oncecron.stores.redis.explain import acl_rule

pytestmark = pytest.mark.turns(3)

LEASE = "oncecron:{oncecron}:lease:k#0"
SHORT = ("--connect-timeout", "2s", "--tick", "one")


class Pair(NamedTuple):
    """A master and its replica; the way between them is a proxy's."""

    master: RedisServer
    replica: RedisServer
    link: Any

    def has_lease(self) -> bool:
        return bool(self.master.connect().exists(LEASE))


@pytest.fixture
def pair(new_redis: Callable[..., RedisServer], new_proxy: Any) -> Pair:
    """Start both and wait until they are connected."""
    master = new_redis(aof=True)
    link = new_proxy(master)
    replica = new_redis(aof=True, replicaof=f"{link.host} {link.port}")
    eventually(lambda: replica.connect().info("replication")["master_link_status"] == "up")
    eventually(lambda: master.connect().wait(1, 100) == 1)
    return Pair(master, replica, link)


@pytest.fixture
def host(pair: Pair, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host; `login` is a user's."""

    def make(name: str = "host-a", login: str = "") -> Oncecron:
        return Oncecron(pair.master.url(login=login, wait=1), public_path, name)

    return make


def outcomes(pair: Pair) -> list[tuple[int, str]]:
    return [(row.attempt, row.outcome) for row in RedisLog(pair.master).executions("k")]


def test_without_the_replica_nothing_starts_and_the_tick_stays_open(
    pair: Pair, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Exit 69 with one line; the claim is given back at once, and another host can run the tick."""
    pair.replica.sigstop()
    ended = host().run("k", *SHORT, "--", *job(journal))
    assert (ended.status, ended.out) == (69, b"")
    assert ended.err.count("\n") == 1, ended.err
    assert "0 of 1 replicas" in ended.err
    assert journal.starts() == []
    assert not pair.has_lease()
    assert outcomes(pair) == [(1, "not-started")]
    pair.replica.sigcont()
    ended = host("host-b").run("k", "--tick", "one", "--", *job(journal))
    assert (ended.status, ended.err) == (0, "")
    assert [(run.first.host, run.first.attempt) for run in journal.runs()] == [("host-b", "2")]
    assert outcomes(pair) == [(1, "not-started"), (2, "succeeded")]


def test_an_end_that_no_replica_has_is_kept_until_one_has_it(
    pair: Pair, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """A switchover would forget it: the job would be called lost. Delivered to the master alone it is kept too."""
    go = public_path / "go"
    command = job(journal, "--sleep", 60, "--until", go)
    firing = host().fire("k", "--ttl", 6, "--tick", "one", "--", *command)
    journal.wait_for("start")
    pair.replica.sigstop()
    go.touch()
    ended = firing.wait(60)
    assert ended.status == 0
    assert "the end of the run could not be recorded" in ended.err
    assert host()("flush").status == 69
    pair.replica.sigcont()
    assert host()("flush").status == 0
    with pair.replica.connect(decode_responses=True) as replica:
        row = json.loads(replica.hget("oncecron:{oncecron}:executions", "1"))
    assert row["outcome"] == "succeeded"


def test_when_the_command_starts_the_replica_has_the_claim(
    pair: Pair, host: Callable[..., Oncecron]
) -> None:
    """However slow the way to it is."""
    pair.link.delay(0.3)
    ask = ("redis-cli", "-h", pair.replica.host, "-p", pair.replica.port, "hget", LEASE, "owner")
    ended = host().run("k", "--tick", "one", "--", *ask)
    assert (ended.status, ended.err) == (0, "")
    row = pair.master.connect().hget("oncecron:{oncecron}:executions", "1")
    assert ended.out.decode().strip() == json.loads(row)["owner"]


def test_a_user_who_may_not_wait_is_told_the_rule(
    pair: Pair, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """At once, with exit 78, and the claim is given back."""
    rule = acl_rule("oncecron", "oncecron", login="on >secret")
    rule.remove("+wait")
    pair.master.connect().execute_command(*rule)
    ended = host(login="oncecron:secret").run("k", *SHORT, "--", *job(journal))
    assert ended.status == 78, ended.err
    assert "ACL SETUSER" in ended.err
    assert journal.starts() == []
    assert outcomes(pair) == [(1, "not-started")]


def test_a_firing_that_is_told_to_end_meanwhile_gives_the_claim_back(
    pair: Pair, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Only a positive word opens its tick again."""
    pair.replica.sigstop()
    firing = host().fire("k", "--tick", "one", "--", *job(journal))
    eventually(pair.has_lease)
    send([firing.wrapper], signal.SIGTERM)
    assert firing.wait().status == 128 + signal.SIGTERM
    assert journal.starts() == []
    assert outcomes(pair) == [(1, "not-started")]
    assert not pair.has_lease()


@pytest.mark.parametrize(("policy", "outcome"), [("skip", "not-started"), ("run", "succeeded")])
def test_the_policy_for_a_store_that_fails_holds(
    pair: Pair, host: Callable[..., Oncecron], journal: Journal, policy: str, outcome: str
) -> None:
    """`skip` leaves in silence of status; `run` runs under the claim that the master alone has."""
    pair.replica.sigstop()
    ended = host().run("k", *SHORT, "--on-store-error", policy, "--", *job(journal))
    assert ended.status == 0
    assert "0 of 1 replicas" in ended.err
    assert outcomes(pair) == [(1, outcome)]
    assert [run.first.token != "-" for run in journal.runs()] == [True] * (policy == "run")
