"""What a firing says, and with which status it leaves, when the store is not as it should be."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import PostgresServer
from servers.oncecron import Ended, Oncecron
from servers.process import free_port
from servers.scripted import Scripted

Fire = Callable[..., Ended]
SHORT = ("--connect-timeout", "2s")


@pytest.fixture
def fire(public_path: Path) -> Fire:
    """Give a function that fires once against a store's URL."""

    def run(store: str, *options: object, key: str = "k", **environment: str) -> Ended:
        host = Oncecron(store, public_path, **environment)
        return host.run(key, *options, "--", "touch", public_path / "ran")

    return run


def one_line(ended: Ended) -> str:
    assert ended.out == b""
    assert ended.err.startswith("oncecron: ")
    assert ended.err.count("\n") == 1, ended.err
    assert "owner-password" not in ended.err
    assert "Traceback" not in ended.err
    return ended.err


def url(port: int, host: str = "127.0.0.1", database: str = "postgres") -> str:
    """Return the URL of a server that may not be there."""
    return f"postgresql://owner@{host}:{port}/{database}"


def test_connection_refused_is_tried_for_the_budget_and_told(fire: Fire, public_path: Path) -> None:
    """Nothing runs; one line; exit 69; the second time nothing is said until the store is reached."""
    store = url(free_port())
    ended = fire(store, *SHORT)
    assert ended.status == 69
    assert "refused" in one_line(ended)
    assert ended.err.endswith("; the command was not started\n")
    assert fire(store, *SHORT) == (69, b"", "")
    assert not (public_path / "ran").exists()


def test_a_host_that_cannot_be_routed_to_is_bounded(
    fire: Fire, network: Any, public_path: Path
) -> None:
    """Packets vanish: exit 69 soon after the budget."""
    lonely = network.host("lonely")
    store = network.host("store")
    store.cut()
    began = time.monotonic()
    host = Oncecron(url(5432, host=store.address), public_path, prefix=lonely.prefix)
    ended = host.run("k", *SHORT, "--", "true")
    assert ended.status == 69
    assert time.monotonic() - began < 15
    one_line(ended)


def test_a_hot_standby_is_refused(fire: Fire, new_postgres: Callable[..., PostgresServer]) -> None:
    """A standby grants advisory locks that its primary has given away: exit 78, whatever libpq was told."""
    primary = new_postgres()
    database = primary.create_database()
    assert fire(database.url(), "--tick", "one").status == 0
    standby = primary.make_standby()
    try:
        store = standby.url("owner", database.name)
        for target in (store, store + "?target_session_attrs=any"):
            ended = fire(target, "--tick", "two")
            assert ended.status == 78
            assert "primary" in one_line(ended)
    finally:
        standby.remove()


@pytest.mark.parametrize(
    ("policy", "status", "ran"), [("fail", 69, False), ("skip", 0, False), ("run", 0, True)]
)
def test_on_store_error(fire: Fire, public_path: Path, policy: str, status: int, ran: bool) -> None:
    """Policy fail leaves with 69, skip with the skip's status, run gives up the promise in so many words."""
    ended = fire(url(free_port()), *SHORT, "--on-store-error", policy)
    assert ended.status == status
    one_line(ended)
    assert (public_path / "ran").exists() is ran


def test_no_store_at_all_is_a_configuration_error(public_path: Path) -> None:
    """A default that is silently per host would run everything twice: exit 78."""
    host = Oncecron("", public_path)
    del host.environment["ONCECRON_STORE"]
    ended = host.run("k", "--", "true")
    assert ended.status == 78
    assert "ONCECRON_STORE" in one_line(ended)


def test_a_notice_while_connecting_is_not_mailed(
    fire: Fire, new_scripted: Callable[..., Scripted]
) -> None:
    """A server that is being stopped says so to whoever is just logging in; libpq would print it."""

    def warn(connection: socket.socket, _: int) -> None:
        if len(connection.recv(8)) == 8:  # asks for TLS
            connection.sendall(b"N")
        connection.recv(1 << 16)
        fields = b"SWARNING\0C57P02\0Mterminating connection\0\0"
        notice = b"N" + (4 + len(fields)).to_bytes(4, "big") + fields
        connection.sendall(b"R\0\0\0\x08\0\0\0\0" + notice)
        connection.close()

    said = one_line(fire(url(new_scripted(warn).port), *SHORT))
    assert "server closed the connection" in said
    assert "WARNING" not in said
