"""What many connections keep that have ended: nothing. A firing never collects cycles (`gc` is off)."""

from collections.abc import Callable
from pathlib import Path

import pytest
from contract_stores import StoreKind
from hosts import TTL, Host, minute
from servers import Certificates, RedisServer
from servers.kept import assert_nothing_kept
from servers.scripted import Scripted, says

from oncecron.core.errors import StoreError
from oncecron.stores import open_lease_store, steady
from oncecron.stores.address import parse_address
from oncecron.stores.api import LeaseStore


def opened(url: str) -> LeaseStore:
    address = parse_address(url)
    return steady(open_lease_store(address, "oncecron", TTL), address, None)


def fails(store: LeaseStore, call: Callable[[LeaseStore], object]) -> Callable[[], None]:
    """Return a step: a call that fails, after which a firing closes the connection."""

    def step() -> None:
        with pytest.raises(StoreError):
            call(store)
        store.close()

    return step


def test_a_connection_that_is_closed(a: Host) -> None:
    """By the holder: after a call that failed, or while it waits. It listens on each new one."""
    firing = a.firing(minute(1))
    lease = a.ask(firing)

    def step() -> None:
        a.store.close()
        assert a.renew(lease)  # type: ignore[arg-type]
        a.store.listen(firing, deadline=a.deadline())

    assert_nothing_kept(step)


def test_a_claim_on_a_new_connection(a: Host, b: Host) -> None:
    """A host that stands by asks for days, and finds the holder alive."""
    lease = a.win(minute(1))

    def step() -> None:
        assert a.renew(lease)
        b.lose(minute(1))
        b.store.close()

    assert_nothing_kept(step)


def test_a_connection_that_the_store_ends(store: StoreKind, a: Host) -> None:
    """Its holder reads why, and connects again."""
    lease = a.win(minute(1))

    def step() -> None:
        store.cut()
        try:
            a.renew(lease)
        except StoreError:
            a.store.close()
        assert a.renew(lease)

    assert_nothing_kept(step, 100)  # what ends the connections costs far more


def test_connections_with_tls(
    new_redis: Callable[..., RedisServer], certificates: Certificates
) -> None:
    """Each of them reads the authorities, which are large."""
    server = new_redis(aof=True, tls=certificates)
    store = opened(server.tls_url().replace("127.0.0.1", "localhost"))
    host = Host(store, "a")
    lease = host.win(minute(1))

    def step() -> None:
        store.close()
        assert host.renew(lease)

    assert_nothing_kept(step)
    store.close()


NOWHERE = {
    "postgres": "postgresql://u@127.0.0.1:1/d",
    "redis": "redis://localhost:1",
    "redis with TLS": "rediss://localhost:1",
    "cluster": "redis+cluster://127.0.0.1:1,127.0.0.1:2",
    "sentinels": "redis+sentinel://127.0.0.1:1,127.0.0.1:2/m",
    "socket": "unix:///nowhere/socket",
    "sqlite": "sqlite:///nowhere/s.db",
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", NOWHERE)
def test_a_store_that_is_away(name: str, tmp_path: Path) -> None:
    """Its holder, and a host that claims, try again every few seconds."""
    assert_failures_keep_nothing(NOWHERE[name], tmp_path)


ANSWERS = {
    "script": b"-NOSCRIPT No matching script.\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "memory": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "replica": b"-READONLY You can't write against a read only replica.\r\n",
    "login": b"-NOAUTH Authentication required.\r\n",
    "moved": b"-MOVED 1 127.0.0.1:1\r\n",
    "value": b"-ERR user_script:12: bad argument\r\n",
    "web server": b"HTTP/1.1 400 Bad Request\r\n",
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_server_that_refuses(
    name: str, kind: str, tmp_path: Path, new_scripted: Callable[..., Scripted]
) -> None:
    """Likewise, while the server loads its data, has become a replica, wants a login, is none of Redis."""
    server = new_scripted(says(ANSWERS[name]))
    assert_failures_keep_nothing(server.url.replace("redis", kind), tmp_path)


def assert_failures_keep_nothing(url: str, tmp_path: Path) -> None:
    """Claim and renew often where both fail."""
    here = opened(f"sqlite://{tmp_path}/s.db")
    host = Host(here, "a")
    lease = host.win(minute(1))
    store = opened(url)
    firing = host.firing(minute(2))
    assert_nothing_kept(fails(store, lambda each: each.claim(firing, deadline=host.deadline())))
    assert_nothing_kept(fails(store, lambda each: each.renew(lease, deadline=host.deadline())))
    for each in (here, store):
        each.close()
