"""Hosts have their own name and network, and a cut one really is cut."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from servers import Host, Network, PostgresServer
from servers.process import end

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


def test_loud_cut_is_an_error_at_once(hosts: list[Host], server: PostgresServer) -> None:
    """With its link down a host has no route; healing brings it back."""
    hosts[1].cut(silent=False)
    assert reachable(hosts[1], server) == "Network is unreachable"
    hosts[1].heal()
    assert reachable(hosts[1], server) == "yes"
