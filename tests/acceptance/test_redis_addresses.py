"""Every way to name a Redis server and to log in, from the installed command: it runs, or says what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Certificates, RedisServer
from servers.oncecron import Ended, Oncecron

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


def runs(ended: Ended) -> bool:
    """Return whether the command ran, with nothing but its output."""
    return ended == (0, b"ran\n", "")


def refused(ended: Ended, *words: str) -> bool:
    """Return whether nothing ran, with one line that has these words and no password: exit 78."""
    assert (ended.status, ended.out, ended.err.count("\n")) == (78, b"", 1), ended
    assert [word for word in words if word not in ended.err] == [], ended.err
    return "s%cret" not in ended.err and "s%25cret" not in ended.err


# TLS


# Sockets, users, files


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
