"""Hosts have their own name and network, and a cut one really is cut."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from servers import Host, Journal, Network, PostgresServer, eventually, job
from servers.process import end, read_process

SELECT = """
import sys, psycopg
with psycopg.connect(sys.argv[1], connect_timeout=5) as connection:
    for line in sys.stdin:
        print(*connection.execute(line).fetchone(), flush=True)
"""


def reachable(host: Host, server: PostgresServer, seconds: float = 1) -> str:
    """Try to connect from a host: `yes`, or the name of the error."""
    return host.run(
        [sys.executable, "-I", "-S", "-c", TRY, server.host, str(server.port), str(seconds)]
    ).strip()


TRY = """
import socket, sys
host, port, seconds = sys.argv[1:]
try:
    socket.create_connection((host, int(port)), timeout=float(seconds))
except OSError as error:
    print(type(error).__name__ if not error.errno else error.strerror)
else:
    print("yes")
"""


@pytest.fixture
def hosts(network: Network) -> list[Host]:
    """Three hosts: a server's and two clients'."""
    return [network.host(name) for name in ("store", "alpha", "beta")]


@pytest.fixture
def server(hosts: list[Host], new_postgres: Callable[..., PostgresServer]) -> PostgresServer:
    """Start a PostgreSQL server on the first host."""
    return new_postgres(host=hosts[0].address, prefix=hosts[0].prefix)


def test_hosts_have_names_and_see_each_other_only(hosts: list[Host]) -> None:
    """Each has its hostname and one way out: to the others."""
    assert [host.run(["hostname"]).strip() for host in hosts] == ["store", "alpha", "beta"]
    for host in hosts:
        routes = host.run(["/usr/sbin/ip", "-4", "route"]).splitlines()
        assert [route.split()[0] for route in routes] == ["10.203.0.0/24"]


def test_server_of_a_host_is_out_of_reach_from_the_machine(server: PostgresServer) -> None:
    """Over TCP only the hosts reach it; the tests themselves use the unix socket."""
    assert server.execute("select 1") == [(1,)]
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url("runner"), connect_timeout=2)


def test_silent_cut_drops_what_comes_and_goes(hosts: list[Host], server: PostgresServer) -> None:
    """A cut client gets no answer and no error, and is not heard; others are; healing heals."""
    _, alpha, beta = hosts
    client: subprocess.Popen[Any] = alpha.popen(
        [sys.executable, "-c", SELECT, server.url("runner")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"select 'before'\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"before\n"
        alpha.cut()
        client.stdin.write(b"select 'after'\n")
        client.stdin.flush()
        assert reachable(alpha, server) == "TimeoutError"
        assert reachable(beta, server) == "yes"
        assert client.poll() is None
        arrived = "select 1 from pg_stat_activity where query like %s"
        assert server.execute(arrived, "%after%") == []
        assert server.execute(arrived, "%before%") == [(1,)]
        alpha.heal()
        assert client.stdout.readline() == b"after\n"
    finally:
        end(client)


def test_silent_cut_of_the_server_cuts_everybody(hosts: list[Host], server: PostgresServer) -> None:
    """The server's own host can be cut off too."""
    hosts[0].cut()
    assert {reachable(host, server) for host in hosts[1:]} == {"TimeoutError"}
    hosts[0].heal()
    assert {reachable(host, server) for host in hosts[1:]} == {"yes"}


def test_loud_cut_is_an_error_at_once(hosts: list[Host], server: PostgresServer) -> None:
    """With its link down a host has no route; healing brings it back."""
    hosts[1].cut(silent=False)
    assert reachable(hosts[1], server) == "Network is unreachable"
    hosts[1].heal()
    assert reachable(hosts[1], server) == "yes"


def test_power_off_kills_what_runs_there_alone(hosts: list[Host], journal: Journal) -> None:
    """All processes of a host die, whatever session they are in; other hosts do not notice."""
    jobs = [
        host.popen(job(journal, "--sleep", 60, "--beats", "--setsid-grandchild"))
        for host in hosts[1:]
    ]
    journal.wait_for("start", 4)
    hosts[1].power_off()
    assert hosts[1].processes() == []
    jobs[0].wait(timeout=5)
    count = len(journal.lines())
    journal.wait_for("beat", count + 5, where=lambda line: line.host == "beta")
    last = max(line.time for line in journal.lines() if line.host == "alpha")
    assert last < journal.lines()[-1].time
    assert jobs[1].poll() is None
    for process in jobs:
        end(process, 9)


def test_frozen_host_does_nothing_until_it_thaws(hosts: list[Host], journal: Journal) -> None:
    """sigstop() stops every process of a host, sigcont() lets them go on."""
    process = hosts[1].popen(job(journal, "--sleep", 60, "--beats"))
    journal.wait_for("beat")
    hosts[1].sigstop()
    eventually(lambda: (read_process(process.pid) or process).state == "T")  # type: ignore[union-attr]
    count = len(journal.lines())
    hosts[1].sigcont()
    journal.wait_for("beat", count + 2)
    end(process, 9)
