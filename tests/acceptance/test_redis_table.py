"""The table `[redis]` of the configuration file: what the URL of the store need not say."""

from collections.abc import Callable
from pathlib import Path

from servers import Certificates, RedisServer
from servers.oncecron import Oncecron

USER = ["default off", "cron on >s%cret ~oncecron:* +@all"]


def test_options_in_the_table_redis(
    new_redis: Callable[..., RedisServer], certificates: Certificates, public_path: Path
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
    host = Oncecron("", public_path, ONCECRON_CONFIG=str(file))
    firing = ("k", "--connect-timeout", "5s", "--tick", "one", "--", "echo", "ran")
    del host.environment["ONCECRON_STORE"]
    assert host.run(*firing) == (0, b"ran\n", "")
    other = f"rediss://{place}?ssl_ca_certs={certificates['other.crt']}"
    host.environment["ONCECRON_STORE"] = other
    ended = host.run(*firing)
    assert (ended.status, ended.out, ended.err.count("\n")) == (78, b"", 1), ended
    assert "ssl_ca_certs" in ended.err
    assert "s%cret" not in ended.err
