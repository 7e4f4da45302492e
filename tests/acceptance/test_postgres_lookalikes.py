"""Servers that speak the protocol of PostgreSQL and do not keep its promises: no command hangs or grows."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.fake_postgres import (
    READY,
    columns,
    error,
    fake_postgres,
    message,
    notice,
    parameters,
    row,
    rows,
)
from servers.oncecron import Ended, Oncecron
from servers.require import program

COMMANDS = (("run", "--key", "k", "--tick", "one", "--", "true"), ("history",), ("init",))
ENOUGH = 500 << 20
"""In bytes of memory."""
FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "notices": lambda: itertools.repeat(notice() * 1000),
    "notifications": lambda: itertools.repeat(message(b"A", b"\0\0\0\1chan\0pay\0") * 1000),
    "settings": parameters,
    "rows": lambda: itertools.chain([columns(25)], itertools.repeat(row(b"x" * 10_000))),
    "results": lambda: itertools.repeat(message(b"C", b"SELECT 1\0") * 1000),
    "copy": lambda: itertools.repeat(message(b"H", b"\0\0\0") + message(b"d", b"x") * 1000),
}
INTEGER = 23
ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "nothing": lambda: iter([READY]),
    "an empty query": lambda: iter([message(b"I"), READY]),
    "a copy": lambda: iter([message(b"G", b"\0\0\0")]),
    "no number": lambda: iter([rows(INTEGER, b"abc")]),
    "a large number": lambda: iter([rows(INTEGER, b"9" * 400)]),
    "no column": lambda: iter([rows(INTEGER)]),
    "many columns": lambda: iter([rows(INTEGER, *[b"1"] * 60)]),
    "no UTF-8": lambda: iter([rows(25, b"\xff")]),
    "an error of its own": lambda: iter([error("P0001", "nein", "FEHLER"), READY]),
}


def fired(host: Oncecron, *more: str) -> Ended:
    """Fire a key whose job would say that it ran."""
    return host(
        "run", "--key", "k", "--tick", "one", "--connect-timeout", "1s", *more, "--", "echo", "ran"
    )


@pytest.mark.turns(2)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"crdb_version": "CockroachDB CCL v24.1.0", "server_version": "13.0.0"}, "CockroachDB"),
        ({"server_version": "11.2-YB-2.21.1.0-b0"}, "YugabyteDB"),
    ],
)
def test_it_is_refused_by_name(
    public_path: Path, words: tuple[str, ...], settings: dict[str, str], name: str
) -> None:
    """Before the first query, whoever connects."""
    with fake_postgres(**settings) as address:
        ended = Oncecron(address, public_path)(*words)
    assert ended.status == 78, ended
    assert f": this is {name}, whose " in ended.err


def test_postgresql_itself_is_not(public_path: Path) -> None:
    """The same server without these settings is asked."""
    with fake_postgres() as address:
        ended = Oncecron(address, public_path)("history")
    assert "this is" not in ended.err
    assert ended.status == 69, ended


# The language of a server


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("code", "cure"),
    [
        ("28P01", "; check the password in the store's URL or in ~/.pgpass"),
        (
            "28000",
            "; let this role log in from this host: by the right LOGIN, and by the server's pg_hba.conf",
        ),
        ("3D000", "; create the database, or correct the store's URL"),
        ("42501", "; grant CONNECT on the database to the role"),
        ("0A000", "; correct the store's URL, or what the server's log says of this login"),
    ],
)
def test_a_refusal_in_any_language_is_an_answer(public_path: Path, code: str, cure: str) -> None:
    """Nobody starts a job because of it, and people and firings are told the same."""
    with fake_postgres(greeting=lambda: iter([error(code, "nicht »erlaubt«", "FATAL")])) as address:
        host = Oncecron(address, public_path)
        said = [fired(host, "--on-store-error", each) for each in ("fail", "skip", "run")]
        said.append(host("history"))
    assert {(ended.status, ended.out) for ended in said} == {(78, b"")}, said
    for ended in said:
        assert ended.err.count("\n") == 1
        assert ended.err.rstrip("\n").endswith("FATAL: nicht »erlaubt«" + cure)


@pytest.mark.turns(1)
@pytest.mark.parametrize("code", ["53300", "57P03", "08006", "XX000"])
def test_a_server_that_is_busy_is_away_in_any_language(public_path: Path, code: str) -> None:
    """It may answer the next time."""
    with fake_postgres(greeting=lambda: iter([error(code, "später", "PANIK")])) as address:
        host = Oncecron(address, public_path)
        assert (fired(host).status, host("history").status) == (69, 69)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("SASL authentication failed", 78), ('database "d" does not exist', 78), ("no such user", 78),
        ("query_wait_timeout", 69), ("pgbouncer cannot connect to server", 69),
    ],
)  # fmt: skip
def test_the_one_code_of_pgbouncer(public_path: Path, text: str, status: int) -> None:
    """Before 1.19 it has no other one, and its words are never translated."""
    with fake_postgres(greeting=lambda: iter([error("08P01", text)])) as address:
        host = Oncecron(address, public_path)
        assert (fired(host).status, host("history").status) == (status, status)


# Floods


@pytest.mark.turns(2)
@pytest.mark.parametrize("words", [COMMANDS[0], ("jobs", "--utc")], ids=lambda words: str(words[0]))
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_has_an_end(public_path: Path, words: tuple[str, ...], name: str) -> None:
    """Of bytes, and so of memory, or of time, whichever comes first."""
    with fake_postgres(FLOODS[name]) as address:
        host = Oncecron(address, public_path, prefix=[program("prlimit"), f"--data={ENOUGH}", "--"])
        ended = fired(host) if words[0] == "run" else host(*words)
    assert ended.status in (69, 78), ended
    assert ended.err.count("\n") == 1


# Answers that mean nothing


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_is_an_internal_error(public_path: Path, name: str) -> None:
    """And none that a server has given is taken for its silence."""
    with fake_postgres(ANSWERS[name]) as address:
        host = Oncecron(address, public_path)
        commands = (
            *(["jobs"], ["history"], ["locks"], ["check"], ["init"], ["doctor"], ["prune"]),
            ["pause", "k"],
        )
        said = [fired(host, "--on-store-error", "run"), *(host(*words) for words in commands)]
    for ended in said:
        assert ended.status not in (0, 70), ended
        assert b"ran" not in ended.out
        assert "internal error" not in ended.err
