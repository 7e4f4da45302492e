"""What happens to a running job when somebody meddles with its server or its data, and what late words can do."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_of import RedisLog
from servers import Journal, RedisServer, assert_exclusive, eventually, job, skewed
from servers.oncecron import SHORT_TTL, Ended, Firing, Oncecron
from servers.process import send

TTL = SHORT_TTL
AT_ONCE = 15.0
"""Seconds within which a firing that waits for nothing has ended, on a busy machine."""
LEASE = "oncecron:{oncecron}:lease:k#0"


@pytest.fixture
def server(new_redis: Callable[..., RedisServer]) -> RedisServer:
    return new_redis(aof=True)


@pytest.fixture
def host(server: RedisServer, public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host; `via` is a proxy."""
    return lambda name="host-a", via=None: Oncecron(server.url(via=via), public_path, name)


def fire(host: Oncecron, tick: str, *command: object) -> Firing:
    return host.fire("k", "--ttl", TTL, "--tick", tick, "--", *command)


def run_true(host: Oncecron, tick: str) -> Ended:
    """Run a tick, with so few heartbeats that the calls can be counted."""
    return host.run("k", "--tick", tick, "--", "true")


def outcomes(server: RedisServer) -> dict[str | None, str]:
    return {row.tick: row.outcome for row in RedisLog(server).executions("k")}


def lease(server: RedisServer) -> dict[str, str]:
    fields: dict[str, str] = server.connect(decode_responses=True).hgetall(LEASE)
    return fields


# Late words


@pytest.mark.turns(2, "attacks")
def test_a_server_that_was_frozen_revives_no_lease(
    server: RedisServer, host: Callable[..., Oncecron], journal: Journal
) -> None:
    """The job is dead before its lease ends; what its holder said meanwhile is heard, and keeps nobody out."""
    command = job(journal, "--sleep", 60, "--ignore-term", "--beats")
    firing = fire(host(), "one", *command)
    journal.wait_for("start")
    granted = lease(server)["heartbeat_at"]
    eventually(lambda: lease(server)["heartbeat_at"] > granted)  # so that the server knows the step
    frozen = time.monotonic()
    server.sigstop()
    ended = firing.wait()
    assert ended.status == 75
    assert journal.runs()[0].last_sign - frozen < TTL
    assert time.monotonic() - frozen > TTL
    server.sigcont()
    began = time.monotonic()
    ended = fire(host("host-b"), "two", *job(journal, "--beats")).wait()
    assert (ended.status, ended.err) == (0, "")
    assert time.monotonic() - began < AT_ONCE
    assert lease(server) == {}
    assert outcomes(server) == {"one": "lost", "two": "succeeded"}
    assert_exclusive(journal)


@pytest.mark.turns(1)
@pytest.mark.parametrize("ahead", [-60, 60])
def test_a_host_whose_clock_is_off_learns_the_time_from_its_look(
    server: RedisServer, host: Callable[..., Oncecron], ahead: float
) -> None:
    """What it says cannot be taken for late: it has the server's time from its look, and needs no turn more."""
    run_true(host(), "warm-up")
    before = calls(server)[0]
    wrong = host()
    wrong.environment = skewed(ahead, wrong.environment)
    ended = run_true(wrong, "one")
    assert (ended.status, ended.err) == (0, "")
    assert calls(server)[0] - before == 3  # the look, the start, the end
    assert outcomes(server)["one"] == "succeeded"


@pytest.mark.turns(2, "attacks")
def test_a_holder_that_thaws_late_takes_nothing_away(
    server: RedisServer, host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """Wrapper and guard are frozen together, beyond their lease: they neither renew nor end somebody else's."""
    ends = [public_path / name for name in ("one-ends", "two-ends")]
    one, two = (("--sleep", 60, "--until", end, "--beats", "--exit") for end in ends)
    firing = fire(host(), "one", *job(journal, *one, 3))
    journal.wait_for("start")
    both = [firing.wrapper, firing.guard()]
    send(both, signal.SIGSTOP)
    ends[0].touch()
    journal.wait_for("end")
    told = float(lease(server)["heartbeat_at"])
    # Then a newer tick waits, and is not `held`.
    eventually(lambda: server.connect().time()[0] > told + TTL / 3)
    other = host("host-b").fire("k", "--tick", "two", "--", *job(journal, *two, 4))
    journal.wait_for("start", 2)
    taken = lease(server)
    send(both, signal.SIGCONT)
    assert firing.wait().status in (3, 75)
    # It tells first what its host has kept.
    late = host().run("k", "--tick", "three", "--", *job(journal))
    assert (late.status, late.err) == (0, "")
    kept = lease(server)
    assert (kept["owner"], kept["execution_id"]) == (taken["owner"], taken["execution_id"])
    ends[1].touch()
    assert other.wait().status == 4
    assert outcomes(server)["two"] == "failed"
    [first] = [row for row in RedisLog(server).executions("k") if row.tick == "one"]
    assert first.outcome in ("failed", "lost")
    assert "its lease ended" in (first.note or "")
    assert_exclusive(journal)


# One request, once


def calls(server: RedisServer) -> list[int]:
    """Return how often EVALSHA and EVAL came to the server."""
    stats = server.connect().info("commandstats")
    return [stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")]


@pytest.mark.parametrize(
    ("step", "sent"),
    [
        pytest.param(b"if_version", [5, 1], id="grant"),  # then a look, and a step that is new to the server
        pytest.param(b"keep_executions", [4, 0], id="finish"),
    ],
)  # fmt: skip
def test_a_request_whose_answer_is_lost_is_sent_once_an_attempt(
    server: RedisServer, host: Callable[..., Oncecron], new_proxy: Any, step: bytes, sent: list[int]
) -> None:
    """On a second connection the start is found, not made again, and the end is told again."""
    run_true(host(), "warm-up")
    before = calls(server)
    proxy = new_proxy(server)
    proxy.drop_next_reply(containing=step)
    ended = run_true(host(via=proxy), "one")
    assert (ended.status, ended.err, proxy.dropped_replies()) == (0, "", 1)
    assert [now - then for now, then in zip(calls(server), before, strict=True)] == sent
    assert sum(connection.requests for connection in proxy.connections()) == sum(sent)
    assert outcomes(server)["one"] == "succeeded"


def test_the_text_of_a_step_is_sent_once_an_attempt(
    server: RedisServer, host: Callable[..., Oncecron], new_proxy: Any
) -> None:
    """A server that knows no step yet executes an EVAL whose answer is lost; its next answer tells the same lease."""
    proxy = new_proxy(server)
    proxy.drop_next_reply(containing=b"is_taken")
    ended = run_true(host(via=proxy), "one")
    assert (ended.status, ended.err, proxy.dropped_replies()) == (0, "", 1)
    assert calls(server) == [
        5,
        4,
    ]  # the second look is known; look, grant, regain and finish come in full
    assert [row.attempt for row in RedisLog(server).executions("k")] == [1]


def test_requests_into_a_black_hole_are_sent_once_an_attempt(
    server: RedisServer, host: Callable[..., Oncecron], new_proxy: Any
) -> None:
    """The server hears all of them and nobody hears the server: as many requests as connections."""
    run_true(host(), "warm-up")
    before = calls(server)
    proxy = new_proxy(server)
    proxy.one_way("server")
    options = ("--ttl", TTL, "--connect-timeout", "3s", "--tick", "one")
    ended = host(via=proxy).run("k", *options, "--", "true")
    assert ended.status == 69
    connections = proxy.connections()
    assert [connection.requests for connection in connections] == [1] * len(connections)
    eventually(lambda: calls(server)[0] - before[0] == len(connections))
