"""Every way to name a Redis server and to log in, from the installed command: it runs, or says what to do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Certificates, RedisServer
from servers.certificates import KEY_PASSWORD
from servers.oncecron import Ended, Oncecron
from servers.redis_groups import Sentinel

NewRedis = Callable[..., RedisServer]
USER = ["default off", "cron on >s%cret ~oncecron:* +@all"]
LOGIN = "cron:s%25cret"


@pytest.fixture
def fire(public_path: Path) -> Callable[..., Ended]:
    """Give a function that fires once against a URL, with more environment."""

    def run(url: str, **environment: str) -> Ended:
        host = Oncecron(url, public_path, **environment)
        if not url:
            del host.environment["ONCECRON_STORE"]
        return host.run("k", "--connect-timeout", "5s", "--tick", "one", "--", "echo", "ran")

    return run


@pytest.fixture
def new_sentinel() -> Iterator[Callable[..., Sentinel]]:
    """Give a function that starts one sentinel; it takes its settings."""
    started: list[Sentinel] = []

    def make(**settings: Any) -> Sentinel:
        started.append(Sentinel(**settings))
        started[-1].start()
        return started[-1]

    yield make
    for sentinel in started:
        sentinel.remove()


def runs(ended: Ended) -> bool:
    """Return whether the command ran, with nothing but its output."""
    return ended == (0, b"ran\n", "")


def refused(ended: Ended, *words: str) -> bool:
    """Return whether nothing ran, with one line that has these words and no password: exit 78."""
    assert (ended.status, ended.out, ended.err.count("\n")) == (78, b"", 1), ended
    assert [word for word in words if word not in ended.err] == [], ended.err
    return "s%cret" not in ended.err and "s%25cret" not in ended.err


# TLS


def test_tls_with_the_right_authority(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended], public_path: Path
) -> None:
    """It fires, and people read."""
    server = new_redis(aof=True, tls=certificates)
    assert runs(fire(server.tls_url()))
    ended = Oncecron(server.tls_url(), public_path)("history")
    assert (ended.status, b"succeeded" in ended.out, ended.err) == (0, True, "")


def test_tls_with_another_authority_is_refused(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended]
) -> None:
    """Without a retry: no later try mends it."""
    server = new_redis(aof=True, tls=certificates)
    url = server.tls_url(ssl_ca_certs=certificates["other.crt"])
    assert refused(fire(url), "certificate", "ssl_ca_certs")


def test_tls_with_another_name_is_refused(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended]
) -> None:
    """The certificate names 127.0.0.1, and not 127.0.0.2; the check can be left out in so many words."""
    server = new_redis(aof=True, tls=certificates, bind="127.0.0.1 127.0.0.2")
    url = server.tls_url().replace("127.0.0.1", "127.0.0.2")
    assert refused(fire(url), "127.0.0.2", "ssl_check_hostname=false")
    assert runs(fire(url + "&ssl_check_hostname=false"))


def test_tls_with_a_client_certificate(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended]
) -> None:
    """The server asks for one: none and a stranger's are refused, a locked key is opened."""
    server = new_redis(aof=True, tls=certificates, tls_auth_clients="yes")
    assert refused(fire(server.tls_url()), "ssl_certfile")
    stranger, client = (
        {"ssl_certfile": certificates[f"{name}.crt"], "ssl_keyfile": certificates[f"{name}.key"]}
        for name in ("stranger", "client")
    )
    assert refused(fire(server.tls_url(**stranger)), "ssl_certfile")
    locked = {"ssl_keyfile": certificates["locked.key"], "ssl_keyfile_password": KEY_PASSWORD}
    assert runs(fire(server.tls_url(**{**client, **locked})))
    wrong = fire(server.tls_url(**{**client, **locked, "ssl_keyfile_password": "s%25cret"}))
    assert refused(wrong, "ssl_keyfile_password")


def test_tls_through_a_sentinel(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended], new_sentinel: Callable[..., Sentinel]
) -> None:  # fmt: skip
    """It speaks TLS itself, and names the server's TLS port."""
    server = new_redis(aof=True, tls=certificates)
    monitor = f"monitor jobs {server.host} {server.tls_endpoint.port} 1"
    sentinel = new_sentinel(tls=certificates, tls_replication="yes", sentinel=[monitor])
    at = f"{sentinel.host}:{sentinel.tls_endpoint.port}/jobs"
    assert runs(fire(f"rediss+sentinel://{at}?ssl_ca_certs={certificates['ca.crt']}"))
    other = f"rediss+sentinel://{at}?ssl_ca_certs={certificates['other.crt']}"
    assert refused(fire(other), "ssl_ca_certs")


# Sockets, users, files


def test_a_unix_socket(new_redis: NewRedis, fire: Callable[..., Ended]) -> None:
    """Also a database of its own behind it."""
    server = new_redis(aof=True)
    assert runs(fire(server.unix_url()))
    assert runs(fire(server.unix_url(3)))
    assert server.connect(db=3).exists("oncecron:{oncecron}:parts")


def test_a_user_in_the_url(new_redis: NewRedis, fire: Callable[..., Ended]) -> None:
    """With the right password; a wrong one and none are refused and not shown."""
    server = new_redis(aof=True, user=USER)
    assert runs(fire(server.url(login=LOGIN)))
    assert refused(fire(server.url(login=LOGIN + "wrong")), "WRONGPASS", "password")
    assert refused(fire(server.url()), "NOAUTH", "password")


def test_a_password_in_a_file(
    new_redis: NewRedis, fire: Callable[..., Ended], public_path: Path
) -> None:
    """$ONCECRON_STORE_FILE holds the URL, and nobody else may read it."""
    server = new_redis(aof=True, user=USER)
    file = public_path / "store-url"
    file.write_text(server.url(login=LOGIN) + "\n")
    file.chmod(0o600)
    assert runs(fire("", ONCECRON_STORE_FILE=str(file)))
    file.chmod(0o644)
    assert refused(fire("", ONCECRON_STORE_FILE=str(file)), str(file))


def test_options_in_the_table_redis(
    new_redis: NewRedis, certificates: Certificates, fire: Callable[..., Ended], public_path: Path
) -> None:
    """User, password and certificates stand in the configuration; what the URL says goes before."""
    server = new_redis(aof=True, tls=certificates, tls_auth_clients="yes", user=USER)
    file = public_path / "oncecron.toml"
    place = f"{server.tls_endpoint.host}:{server.tls_endpoint.port}"
    file.write_text(
        f'store = "rediss://{place}"\n[redis]\nusername = "cron"\npassword = "s%cret"\n'
        f'ssl_ca_certs = "{certificates["ca.crt"]}"\n'
        f'ssl_certfile = "{certificates["client.crt"]}"\nssl_keyfile = "{certificates["client.key"]}"\n'
    )
    file.chmod(0o600)
    assert runs(fire("", ONCECRON_CONFIG=str(file)))
    other = f"rediss://{place}?ssl_ca_certs={certificates['other.crt']}"
    assert refused(fire(other, ONCECRON_CONFIG=str(file)), "ssl_ca_certs")
