"""What a firing says, and with which status it leaves, when the store is not as it should be."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis_wires import Scripted
from servers import Database, FaultProxy, PostgresServer
from servers.oncecron import Ended, Oncecron
from servers.process import free_port

SHORT = ("--connect-timeout", "2s")


@pytest.fixture
def fire(public_path: Path) -> Callable[..., Ended]:
    """Give a function that fires once against a store's URL."""

    def run(store: str, *options: object, key: str = "k", **environment: str) -> Ended:
        host = Oncecron(store, public_path, **environment)
        return host.run(key, *options, "--", "touch", public_path / "ran")

    return run


def one_line(ended: Ended) -> str:
    """Return the one line that was said."""
    assert ended.out == b""
    assert ended.err.startswith("oncecron: ")
    assert ended.err.count("\n") == 1, ended.err
    assert "owner-password" not in ended.err
    assert "Traceback" not in ended.err
    return ended.err


def url(port: int, host: str = "127.0.0.1", database: str = "postgres") -> str:
    """Return the URL of a server that may not be there."""
    return f"postgresql://owner@{host}:{port}/{database}"


def test_connection_refused_is_tried_for_the_budget_and_told(
    fire: Callable[..., Ended], public_path: Path
) -> None:
    """Nothing runs; one line; exit 69; the second time nothing is said until the store is reached."""
    store = url(free_port())
    ended = fire(store, *SHORT)
    assert ended.status == 69
    assert "refused" in one_line(ended)
    assert ended.err.endswith("; the command was not started\n")
    assert fire(store, *SHORT) == (69, b"", "")
    assert not (public_path / "ran").exists()


def test_a_start_without_a_lease_is_told(fire: Callable[..., Ended], public_path: Path) -> None:
    """Who reads the mail learns that another host may have started it too."""
    ended = fire(url(free_port()), *SHORT, "--on-store-error", "run")
    assert ended.status == 0
    assert one_line(ended).endswith("; the command starts without a lease\n")
    assert (public_path / "ran").exists()


def test_a_name_that_does_not_resolve_is_a_store_that_is_away(fire: Callable[..., Ended]) -> None:
    """A DNS failure is retried within the budget: exit 69."""
    ended = fire(url(5432, host="no-such-host.invalid"), *SHORT)
    assert ended.status == 69
    assert "no-such-host.invalid" in one_line(ended)


def test_a_server_that_accepts_and_never_answers_is_bounded(
    fire: Callable[..., Ended], postgres: PostgresServer, new_proxy: Callable[..., FaultProxy]
) -> None:
    """The kernel accepts, nobody speaks: exit 69 soon after the budget."""
    proxy = new_proxy(postgres)
    proxy.deaf()
    began = time.monotonic()
    ended = fire(url(proxy.port), *SHORT)
    assert ended.status == 69
    assert time.monotonic() - began < 15
    one_line(ended)


def test_a_host_that_cannot_be_routed_to_is_bounded(
    fire: Callable[..., Ended], network: Any, public_path: Path
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


def test_a_wrong_password_is_told_at_once(fire: Callable[..., Ended], database: Database) -> None:
    """Asking again does not help: exit 78, naming where the password came from."""
    wrong = database.url().replace("owner-password", "nonsense")
    ended = fire(wrong)
    assert ended.status == 78
    assert "; check the password in the store's URL" in one_line(ended)
    assert "nonsense" not in ended.err


def test_a_database_that_does_not_exist_is_told_at_once(
    fire: Callable[..., Ended], postgres: PostgresServer
) -> None:
    """Exit 78, naming the database."""
    ended = fire(postgres.url("owner", "nowhere"))
    assert ended.status == 78
    assert '"nowhere" does not exist' in one_line(ended)


def test_a_hot_standby_is_refused(
    fire: Callable[..., Ended], new_postgres: Callable[..., PostgresServer]
) -> None:
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


def test_a_role_that_may_not_create_the_schema_is_told_what_to_run(
    fire: Callable[..., Ended], database: Database
) -> None:
    """Exit 78, naming `oncecron init` for somebody who may."""
    ended = fire(database.url("runner"))
    assert ended.status == 78
    assert "oncecron init" in one_line(ended)


def test_a_schema_of_another_version_is_refused_before_the_claim(
    fire: Callable[..., Ended], database: Database, public_path: Path
) -> None:
    """Both versions and the cure are named: exit 78, and nothing has run."""
    with database.connect("owner") as connection:
        connection.execute("create schema oncecron")
        connection.execute("create table oncecron.meta (version int, oldest int)")
        connection.execute("insert into oncecron.meta values (99)")
    ended = fire(database.url())
    assert ended.status == 78
    line = one_line(ended)
    assert "version 99" in line
    assert "is for version 1; upgrade oncecron on this host" in line
    assert not (public_path / "ran").exists()


def test_a_firing_never_changes_a_schema_that_is_there(
    fire: Callable[..., Ended], database: Database
) -> None:
    """Missing functions of an old version are not put in by a firing."""
    fire(database.url())
    database.execute("drop function oncecron.renew_v1")
    before = database.execute(
        "select count(*) from pg_proc where pronamespace = 'oncecron'::regnamespace"
    )
    assert fire(database.url(), "--tick", "two").status == 0
    after = database.execute(
        "select count(*) from pg_proc where pronamespace = 'oncecron'::regnamespace"
    )
    assert before == after


@pytest.mark.parametrize(
    ("policy", "status", "ran"), [("fail", 69, False), ("skip", 0, False), ("run", 0, True)]
)
def test_on_store_error(
    fire: Callable[..., Ended], public_path: Path, policy: str, status: int, ran: bool
) -> None:
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


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("postgresql+psycopg://u@h/d", "drop '+psycopg'"),
        ("mysql://u@h/d", "unknown kind 'mysql'"),
        ("nonsense", "is not a store"),
        ("sqlite://relative.db", "absolute"),
        ("postgresql://u@h:port/d", "store's URL"),
        ("postgresql://u@h/d?nonsense=1", "nonsense"),
        ("postgresql://[::1/d", "store's URL"),
    ],
)
def test_a_broken_url_is_told_with_its_cure(
    fire: Callable[..., Ended], store: str, said: str
) -> None:
    """Exit 78, one line."""
    ended = fire(store)
    assert ended.status == 78
    assert said in one_line(ended)


def test_a_notice_while_connecting_is_not_mailed(
    fire: Callable[..., Ended], new_scripted: Callable[..., Scripted]
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
