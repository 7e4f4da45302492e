"""A Redis, or what is in front of it, that answers well at first, and then what no Redis answers: one line says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hosts import EVERYTHING, Host, ending, minute
from servers.scripted import Scripted, between
from test_hostile_values import QUESTIONS

from oncecron.core import clock
from oncecron.core.errors import OncecronError
from oncecron.core.log_rows import Roles
from oncecron.core.model import Request
from oncecron.stores import open_lease_store, open_reader, steady
from oncecron.stores.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import RedisServer

    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

STRANGE = {
    "nil": b"$-1\r\n",
    "nil array": b"*-1\r\n",
    "number": b":7\r\n",
    "negative": b":-99999999999999999999999999\r\n",
    "text": b'$5\r\n{"a":\r\n',
    "bytes": b"$2\r\n\xff\xfe\r\n",
    "empty": b"*0\r\n",
    "odd": b"*3\r\n+a\r\n+b\r\n+c\r\n",
    "nested": b"*2\r\n*2\r\n:1\r\n$-1\r\n*1\r\n*0\r\n",
    "pairs": b"*2\r\n*2\r\n+1-0\r\n*2\r\n+a\r\n+b\r\n*2\r\n+2-0\r\n*2\r\n+a\r\n+b\r\n",
    "deep JSON": b"$20000\r\n" + b"[" * 20_000 + b"\r\n",
    "status": b"+OK\r\n",
}
CHANGES: dict[str, Callable[[Reader], Any]] = {
    "pause": lambda store: store.pause("k", author="a@b", reason=None, seconds=None),
    "resume": lambda store: store.resume("k"),
    "drain": lambda store: store.drain("h", author="a@b"),
    "undrain": lambda store: store.undrain("h"),
    "forget": lambda store: store.forget("k", "a@b"),
    "forget_host": lambda store: store.forget_host("h"),
    "request": lambda store: store.request("k", 0, 1, Request("stop", "a@b", 15, None)),
    "unblock": lambda store: store.unblock("k", None),
    "prune": lambda store: store.prune(EVERYTHING),
    "initialise": lambda store: store.initialise(Roles()),
    "versions": lambda store: store.versions(),
    "examine": lambda store: list(store.examine()),
}
LAST = 5
"""No question of people needs more replies before those that are strange."""


@pytest.fixture
def known(connect: Callable[..., Host], redis_server: RedisServer) -> Host:
    a, b = connect(redis_server.url()), connect(redis_server.url(), "b")
    a.run(minute(1), schedule="* * * * *", zone="UTC")
    a.win(minute(2))
    b.lose(minute(2))
    return a


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.usefixtures("known")
def test_people_are_told_in_one_line(
    name: str, redis_server: RedisServer, new_scripted: Callable[..., Scripted]
) -> None:
    """At each question, from each reply on."""
    for first in range(1, LAST):
        server = new_scripted(between(redis_server, STRANGE[name], first))
        for ask in (*QUESTIONS.values(), *CHANGES.values()):
            reader = open_reader(parse_address(server.url), "oncecron")
            try:
                ask(reader)
            except OncecronError as error:
                assert "\n" not in str(error)  # noqa: PT017
            finally:
                reader.close()


@pytest.mark.parametrize("name", STRANGE)
def test_a_firing_is_told_in_one_line(
    name: str, known: Host, redis_server: RedisServer, new_scripted: Callable[..., Scripted]
) -> None:
    """At each of its calls."""
    lease = known.win(minute(3), key="other")
    firing = known.firing(minute(4), key="third")
    told = ending("failed")
    calls: list[Callable[[LeaseStore, float], Any]] = [
        lambda store, end: store.claim(firing, deadline=end),
        lambda store, end: store.renew(lease, deadline=end),
        lambda store, end: store.keep(lease, told, deadline=end),
        lambda store, end: store.retry(lease, deadline=end),
        lambda store, end: store.finish(lease, told, EVERYTHING, deadline=end),
        lambda store, end: store.listen(firing, deadline=end),
    ]
    for first in range(1, 3):
        server = new_scripted(between(redis_server, STRANGE[name], first))
        address = parse_address(server.url + "?wait=1")
        for call in calls:
            store = steady(open_lease_store(address, "oncecron", 60.0), address, None)
            try:
                call(store, clock.lease_time(store.lease_clock) + 1)
            except OncecronError as error:
                assert "\n" not in str(error)  # noqa: PT017
            finally:
                store.close()
