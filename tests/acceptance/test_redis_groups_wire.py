"""The wire to Redis by way of sentinels, and in a cluster: servers that say what real ones do not."""

import socket
from collections.abc import Callable

from redis_wires import Wires, at_most
from servers import Certificates, RedisServer
from servers.redis_groups import Sentinel
from servers.scripted import Scripted, says

from oncecron.core.errors import StoreRefusesError, StoreUnavailable

NewRedis = Callable[..., RedisServer]
NewScripted = Callable[..., Scripted]
SECRET = "s3cret"


def value(server: RedisServer, key: str, database: int = 0) -> bytes | None:
    with server.connect(db=database) as client:
        found: bytes | None = client.get(key)
        return found


def through(*sentinels: Scripted, master: str = "jobs", query: str = "") -> str:
    """Return the URL of a store that these sentinels know."""
    hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in sentinels)
    return f"redis+sentinel://{hosts}/{master}{query}"


def test_silent_sentinels_cost_the_patience_each(new_scripted: NewScripted, wires: Wires) -> None:
    """And all of them together no more than the deadline."""
    silent = [new_scripted(says(b"")) for _ in range(3)]
    with at_most(0.6):
        told = wires.complaint(StoreUnavailable, through(*silent), patience=0.2)
    assert told.count("no answer in time") == 3
    with at_most(0.3):
        wires.complaint(StoreUnavailable, through(*silent), patience=0.2, within=0.3)


def test_sentinels_have_passwords_of_their_own(
    new_redis: NewRedis, wires: Wires, certificates: Certificates
) -> None:
    """And talk TLS where the master does: the same certificates."""
    server = new_redis(tls=certificates, requirepass=SECRET)
    sentinel = Sentinel(tls=certificates, tls_replication="yes", requirepass="theirs")
    to = server.tls_endpoint
    sentinel.settings["sentinel"] = [
        f"monitor jobs {to.host} {to.port} 1",
        f"auth-pass jobs {SECRET}",
    ]
    try:
        sentinel.start()
        asked = sentinel.tls_endpoint
        url = (
            f"rediss+sentinel://:{SECRET}@{asked.host}:{asked.port}/jobs/1"
            f"?ssl_ca_certs={certificates['ca.crt']}"
        )
        assert wires.ask(url + "&sentinel_password=theirs", "SET", "k", "v") == b"OK"
        assert value(server, "k", 1) == b"v"
        for wrong in ("", "&sentinel_password=wrong"):
            told = wires.complaint(StoreRefusesError, url + wrong)
            assert "sentinel_username and sentinel_password" in told
            assert SECRET not in told
        assert "WRONGPASS" in wires.complaint(
            StoreRefusesError, url.replace(SECRET, "x") + "&sentinel_password=theirs"
        )
    finally:
        sentinel.remove()


def test_redirections_end(new_scripted: NewScripted, wires: Wires) -> None:
    """After five; without a host it is the same host; without a name it is told."""

    def back(connection: socket.socket, number: int) -> None:
        says(b"-MOVED 1 :%d\r\n" % loop.port)(connection, number)

    loop = new_scripted(back)
    url = loop.url.replace("redis:", "redis+cluster:")
    told = wires.complaint(StoreUnavailable, url, name="")
    assert "redirect to each other" in told
    assert loop.accepted == 6
    nameless = new_scripted(says(b"-MOVED 1 ?:6379\r\n"))
    told = wires.complaint(
        StoreRefusesError, nameless.url.replace("redis:", "redis+cluster:"), name=""
    )
    assert "cluster-announce-hostname" in told
