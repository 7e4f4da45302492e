"""What a PostgreSQL server may answer to a firing, and at which addresses it is looked for: without a server."""

import contextlib
import itertools
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from oncecron.core import clock
from oncecron.core.decision import PlainSkip
from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.model import Ending, Firing, Holder, Lease, Refusal, Retention
from oncecron.core.tick import named_tick
from oncecron.stores import steady
from oncecron.stores.address import parse_address
from oncecron.stores.postgres import client, libpq
from oncecron.stores.postgres.address import (
    LoginError,
    explain,
    may_succeed_later,
    places,
    sqlstate_of,
)
from oncecron.stores.postgres.lease_store import PostgresLeaseStore
from oncecron.stores.postgres.libpq import Row
from oncecron_each.item_model import Chunk, Draw, ItemList
from oncecron_each.postgres_store import PostgresItemStore

pytestmark = pytest.mark.quick


# The addresses


@pytest.mark.parametrize(
    ("host", "hostaddr", "port", "expected"),
    [
        ("a", "", "", [("a", "", "")]),
        ("a,b", "", "5433", [("a", "", "5433"), ("b", "", "5433")]),
        ("a,b", "", "1,2", [("a", "", "1"), ("b", "", "2")]),
        ("", "192.0.2.1,192.0.2.2", "1", [("", "192.0.2.1", "1"), ("", "192.0.2.2", "1")]),
        ("a,b", "192.0.2.1,", "1", [("a", "192.0.2.1", "1"), ("b", "", "1")]),
        ("", "", "5433", [("", "", "5433")]),
        # What libpq refuses, and a socket in a list, are its own.
        ("a,b", "192.0.2.1", "1", [("", "", "")]),
        ("a,b", "", "1,2,3", [("", "", "")]),
        ("a,,b", "", "1", [("", "", "")]),
    ],
)  # fmt: skip
def test_each_server_is_a_place_of_its_own(
    host: str, hostaddr: str, port: str, expected: list[tuple[str, str, str]]
) -> None:
    """As libpq reads the lists."""
    assert places({"host": host, "hostaddr": hostaddr, "port": port}) == expected


def test_servers_in_any_order() -> None:
    """If libpq is to choose them by chance, which it cannot of one."""
    settings = {"host": "a,b,c", "port": "1", "load_balance_hosts": "random"}
    orders = {tuple(host for host, _, _ in places(settings)) for _ in range(200)}
    assert len(orders) == 6


class FakeLogin:
    """A login that goes on for ever, fails or succeeds."""

    def __init__(self, place: Mapping[str, str], status: int) -> None:
        self.place, self.status, self.is_closed = place, status, False
        self._end, self._other = os.pipe()

    @property
    def socket(self) -> int:
        return self._end

    def poll(self) -> int:
        return self.status

    def error(self) -> str:
        return f"refused at {self.place['hostaddr']}"

    def finish(self) -> None:
        self.is_closed = True
        os.close(self._end)
        os.close(self._other)


def test_each_address_of_a_name_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is silent, the one that refuses, and the one that lets in."""
    ways = {
        "192.0.2.1": libpq.POLLING_READING,
        "192.0.2.2": libpq.POLLING_FAILED,
        "192.0.2.3": libpq.POLLING_OK,
    }
    monkeypatch.setattr(client, "_addresses", lambda _: list(ways))
    made: list[FakeLogin] = []

    def start(place: Mapping[str, str]) -> FakeLogin:
        made.append(FakeLogin(place, ways[place["hostaddr"]]))
        return made[-1]

    settings = {"host": "db.example.com", "port": "5432"}
    login = client.log_in(start, settings, 0.01, clock.BOOTTIME)
    assert login.place == {"host": "db.example.com", "hostaddr": "192.0.2.3", "port": "5432"}
    assert [each.is_closed for each in made] == [True, True, False]
    login.finish()
    del ways["192.0.2.3"]
    with pytest.raises(LoginError) as caught:
        client.log_in(start, settings, 0.01, clock.BOOTTIME)
    assert str(caught.value) == (
        'connection to server at "db.example.com" (192.0.2.1), port 5432 failed: timeout expired\n'
        "refused at 192.0.2.2"
    )


def test_a_name_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of libpq, and the next server is tried."""

    def fail(_: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(client, "_addresses", fail)
    settings = {"host": "nowhere.example.com,/run", "port": "1"}
    login = client.log_in(
        lambda place: FakeLogin(place, libpq.POLLING_OK), settings, 0.01, clock.BOOTTIME
    )
    assert login.place == {"host": "/run", "port": "1"}
    login.finish()
    with pytest.raises(LoginError, match="could not translate host name"):
        client.log_in(lambda place: FakeLogin(place, 0), {"host": "n"}, 0.01, clock.BOOTTIME)


# The limit


def read(limit: client.Limit, times: int) -> None:
    """Let a byte arrive and be read so many times."""
    end, other = os.pipe()
    try:
        for _ in range(times):
            os.write(other, b"x")
            assert limit.wait(end, select.POLLIN) == select.POLLIN
            os.read(end, 1)
    finally:
        os.close(end)
        os.close(other)


def test_nothing_prolongs_a_limit() -> None:
    """Neither what arrives in time, nor how little it is."""
    now = time.clock_gettime(clock.BOOTTIME)
    read(client.Limit(clock.BOOTTIME, now + 60, most=100), 100)
    with pytest.raises(StoreRefusesError, match="MB for one answer"):
        read(client.Limit(clock.BOOTTIME, now + 60, most=100), 101)
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        read(client.Limit(clock.BOOTTIME, now + 0.05), 10**9)


# The code of a refusal


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('connection to server at "h", port 1 failed: FATAL:  28P01: Passwort falsch', "28P01"),
        ("致命错误:  28000: 没有", "28000"),
        ("FATAL: password authentication failed", None),
        ("FATAL:  password: authentication failed", None),
        ("DETAIL:  Error: something", None),
        ("FATAL:  28P01", None),
    ],
)
def test_the_code_in_a_line_of_libpq(line: str, code: str | None) -> None:
    """It follows the severity, which is translated, too."""
    assert sqlstate_of(line) == code


def test_words_of_a_server_decide_nothing() -> None:
    """A code does, whatever its server says; what libpq says itself has none."""
    refused = [("a", "FATAL:  28P01: Connection refused")]
    away = [("a", "FATAL:  57P03: password authentication failed, no password supplied")]
    own = [("a", 'connection to server at "a" failed: fe_sendauth: no password supplied')]
    assert isinstance(explain(refused, "postgresql://a"), StoreRefusesError)
    assert isinstance(explain(away, "postgresql://a"), StoreUnavailable)
    assert isinstance(explain(own, "postgresql://a"), StoreRefusesError)
    assert [may_succeed_later(code) for code in ("53300", "57014", "55P03", "55000", "P0001")] == [
        True, True, True, False, False,
    ]  # fmt: skip


# Rows of another form


FIRING = Firing(
    key="k", shard=0, tick=named_tick("one"), owner="0b8f4a52-8d0e-4c57-8d8f-6a4b0c1d2e3f",
    holder=Holder("a.example", 1, "batch"), command="true", fired_at=1e9, ttl=60, min_gap=None,
    starting_deadline=None, again=False, schedule=None, zone=None, retries=1,
)  # fmt: skip
LEASE = Lease(
    key="k", shard=0, tick="one", owner=FIRING.owner, attempt=1, execution_id=1, token=1, ttl=60.0,
    started_at=1e9, trusted_until=1e9,
)  # fmt: skip
ENDING = Ending("failed", 1, None, 1.0)
VALUES = (
    *(None, b"", b"abc", b"t", b"1"),
    b"9" * 400,
    b"-1",
    b"nan",
    b"inf",
    b"1e999",
    b"[1,2]",
    b"{",
    b"\xff",
    b"\0",
)
WIDTHS = (0, 1, 2, 5, 6, 10, 17, 44, 49, 61, 100)


def answers() -> Iterator[list[Row]]:
    """Yield rows of each width, of one value and of all in turn."""
    yield []
    for width in WIDTHS:
        yield from ([(value,) * width] for value in VALUES)
        yield [tuple(itertools.islice(itertools.cycle(VALUES), width))]


class Connection:
    """A connection as a claim knows it."""

    backend_pid = 4711
    is_pooled = False
    began_on_primary = True
    notified_before = False

    def close(self) -> None:
        """Do nothing."""


class Answered:
    """A store whose server answers each statement with the same rows, until time is up."""

    rows: list[Row]
    asked = 0

    def _connection(self, deadline: float) -> Connection:
        del deadline
        return Connection()

    def _ask(self, *_: object) -> list[Row]:
        self.asked += 1
        if self.asked > MOST_QUESTIONS:
            raise StoreUnavailable
        return self.rows


class AnsweredStore(Answered, PostgresLeaseStore):
    """See `Answered`."""


class AnsweredItems(Answered, PostgresItemStore):
    """See `Answered`."""


MOST_QUESTIONS = 100
ADDRESS = parse_address("postgresql://h/d")
CALLS: dict[str, Callable[[Any], object]] = {
    "claim": lambda store: store.claim(FIRING, deadline=1e12),
    "renew": lambda store: store.renew(LEASE, deadline=1e12),
    "keep": lambda store: store.keep(LEASE, ENDING, deadline=1e12),
    "retry": lambda store: store.retry(LEASE, deadline=1e12),
    "listen": lambda store: store.listen(FIRING, deadline=1e12),
    "finish": lambda store: store.finish(LEASE, ENDING, Retention(), deadline=1e12),
    "skip": lambda store: store.skip(FIRING, Refusal("done"), deadline=1e12),
    "plain skip": lambda store: store.skip(
        FIRING, Refusal("done"), plain=PlainSkip(1, 1, 1), deadline=1e12
    ),
    "deliver": lambda store: store.deliver({}, deadline=1e12),
}
ITEMS: dict[str, Callable[[Any], object]] = {
    "load": lambda store: store.load(
        LEASE, ItemList("k", "one"), Chunk(0, (), is_last=True), deadline=1e12
    ),
    "draw": lambda store: store.draw(LEASE, Draw(1), deadline=1e12),
    "progress": lambda store: store.progress(ItemList("k", "one"), deadline=1e12),
}


@pytest.mark.parametrize("name", [*CALLS, *ITEMS])
def test_no_answer_to_a_firing_is_an_internal_error(name: str) -> None:
    """It means something, or the store is refused or away."""
    kind, call = (AnsweredItems, ITEMS[name]) if name in ITEMS else (AnsweredStore, CALLS[name])
    for rows in answers():
        store = kind(ADDRESS.target, namespace="oncecron", ttl=60.0)
        store.rows = rows
        steady(store, ADDRESS, None)
        with contextlib.suppress(StoreError):
            call(store)
