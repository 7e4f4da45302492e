"""Who the wire to Redis is, and over what: users, databases, TLS; nothing is executed as somebody else."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from redis_wires import COUNT, Wires, at_most, soon
from servers import Certificates, FaultProxy, RedisServer
from servers.certificates import KEY_PASSWORD

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.stores.redis.resp import ReplyError

NewRedis = Callable[..., RedisServer]
NewProxy = Callable[..., FaultProxy]
SECRET = "s3cret"
CRON = f"cron on >{SECRET} ~oncecron:* +@all"


def counted(server: RedisServer, database: int = 0) -> int:
    with server.connect(db=database) as client:
        return int(client.get("n") or 0)


# Users and databases


def test_a_password(new_redis: NewRedis, new_proxy: NewProxy, wires: Wires) -> None:
    """Right: in the same round trip. Wrong, or none: refused, with the cure, and nothing is executed."""
    server = new_redis(requirepass=SECRET)
    proxy = new_proxy(server)
    assert wires.ask(server.url(via=proxy, login=f":{SECRET}"), "EVAL", COUNT, 1, "n") == 1
    assert proxy.round_trips() == 1
    for login, told in (("", "NOAUTH"), (":wrong", "WRONGPASS"), ("default:wrong", "WRONGPASS")):
        line = wires.complaint(StoreRefusesError, server.url(login=login), "EVAL", COUNT, 1, "n")
        assert told in line
        assert "username and password in the store's URL, in store_file or under [redis]" in line
        assert "wrong" not in line
    assert counted(server) == 1


def test_a_password_that_nobody_asks_for(redis_server: RedisServer, wires: Wires) -> None:
    """It is not wrong: the same line of a crontab serves before and after passwords are introduced."""
    assert wires.ask(redis_server.url(login=":unasked")) == b"PONG"
    assert wires.ask(redis_server.url(login="default:unasked")) == b"PONG"


def test_a_user_with_few_rights(new_redis: NewRedis, wires: Wires) -> None:
    """What he may not do is the answer to that command; the name is a courtesy."""
    server = new_redis(user=["default off", CRON + " -client"])
    wire = wires(server.url(login=f"cron:{SECRET}"))
    assert wire.ask("SET", "oncecron:k", "v", deadline=soon()) == b"OK"
    with pytest.raises(ReplyError) as caught:
        wire.ask("SET", "k", "v", deadline=soon())
    assert caught.value.code == "NOPERM"
    assert wire.ask("GET", "oncecron:k", deadline=soon()) == b"v"


def test_nothing_is_executed_as_somebody_else(new_redis: NewRedis, wires: Wires) -> None:
    """Where everybody may do everything, a wrong password would else claim every tick and run none."""
    server = new_redis(user=[CRON])
    for login in ("cron:wrong", "nobody:wrong"):
        url = server.url(login=login)
        assert "WRONGPASS" in wires.complaint(StoreRefusesError, url, "EVAL", COUNT, 1, "n")
    assert counted(server) == 0


def test_nothing_is_executed_in_another_database(new_redis: NewRedis, wires: Wires) -> None:
    """The server has four; so a user who may not choose one."""
    server = new_redis(databases=4, user=[CRON + " ~* -select"])
    question = ("EVAL", COUNT, 1, "n")
    assert wires.ask(server.url(3), *question) == 1
    assert "choose another database" in wires.complaint(StoreRefusesError, server.url(4), *question)
    url = server.url(3, login=f"cron:{SECRET}")
    assert "ACL SETUSER cron +select" in wires.complaint(StoreRefusesError, url, *question)
    assert (counted(server), counted(server, 3)) == (0, 1)


# TLS


@pytest.fixture
def server(new_redis: NewRedis, certificates: Certificates) -> RedisServer:
    """Start a server that talks TLS on a second port."""
    return new_redis(tls=certificates)


def test_the_right_certificate(server: RedisServer, wires: Wires) -> None:
    """By address and by name; large values too."""
    wire = wires(server.tls_url(2))
    assert wire.ask("SET", "k", b"x" * 5_000_000, deadline=soon()) == b"OK"
    assert wire.ask("GET", "k", deadline=soon()) == b"x" * 5_000_000
    assert wires.ask(server.tls_url().replace("127.0.0.1", "localhost")) == b"PONG"


def test_another_authority_s_certificate(
    server: RedisServer, certificates: Certificates, wires: Wires
) -> None:
    """Refused before a password is sent, unless nothing is to be verified."""
    for authority in ({}, {"ssl_ca_certs": certificates["other.crt"]}):
        url = server.tls_url(login=f"u:{SECRET}", **authority)
        if not authority:
            url = url.partition("?")[0]  # the system's authorities
        told = wires.complaint(StoreRefusesError, url)
        assert "certificate" in told
        assert "check ssl_ca_certs" in told
    url = server.tls_url(ssl_ca_certs=certificates["other.crt"], ssl_cert_reqs="none")
    assert wires.ask(url) == b"PONG"


def test_a_certificate_for_another_name(server: RedisServer, wires: Wires) -> None:
    """127.1 is the same address by another name."""
    url = server.tls_url().replace("127.0.0.1", "127.1")
    told = wires.complaint(StoreRefusesError, url)
    assert "not valid for '127.1'" in told
    assert "use the host name that the certificate has" in told
    assert wires.ask(url + "&ssl_check_hostname=false") == b"PONG"
    assert wires.ask(url, ssl_check_hostname="false") == b"PONG"


def test_a_certificate_of_our_own(
    new_redis: NewRedis, certificates: Certificates, wires: Wires
) -> None:
    """Asked for by the server: given, missing, a stranger's, with its key under a password."""
    server = new_redis(tls=certificates, tls_auth_clients="yes")

    def url(certificate: str, key: str, **more: Any) -> str:
        files = {"ssl_certfile": certificates[certificate], "ssl_keyfile": certificates[key]}
        return server.tls_url(**files, **more)

    assert wires.ask(url("client.crt", "client.key")) == b"PONG"
    locked = url("client.crt", "locked.key", ssl_keyfile_password=KEY_PASSWORD)
    assert wires.ask(locked) == b"PONG"
    assert "set ssl_certfile" in wires.complaint(StoreRefusesError, server.tls_url())
    stranger = wires.complaint(StoreRefusesError, url("stranger.crt", "stranger.key"))
    assert "signed ssl_certfile" in stranger


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ssl_ca_certs": "/none.crt"}, "ssl_ca_certs /none.crt cannot be used: No such file"),
        ({"ssl_ca_certs": "client.key"}, "ssl_ca_certs"),
        ({"ssl_certfile": "/none.crt"}, "ssl_certfile /none.crt"),
        ({"ssl_certfile": "client.crt"}, "ssl_keyfile"),
        ({"ssl_certfile": "client.crt", "ssl_keyfile": "server.key"}, "ssl_keyfile"),
        ({"ssl_certfile": "client.crt", "ssl_keyfile": "locked.key"}, "ssl_keyfile_password"),
        (
            {
                "ssl_certfile": "client.crt",
                "ssl_keyfile": "locked.key",
                "ssl_keyfile_password": SECRET,
            },
            "ssl_keyfile_password",
        ),
    ],
)
def test_files_that_cannot_be_used(
    server: RedisServer,
    certificates: Certificates,
    wires: Wires,
    options: dict[str, str],
    told: str,
) -> None:
    """Named; nobody is asked for a password on the terminal."""
    paths: dict[str, Any] = {
        name: value if value.startswith("/") or name.endswith("password") else certificates[value]
        for name, value in options.items()
    }
    line = wires.complaint(StoreRefusesError, server.tls_url(**paths))
    assert told in line
    assert SECRET not in line


def test_nobody_is_asked_for_a_password_on_the_terminal(certificates: Certificates) -> None:
    """As OpenSSL would: cron's job would wait for ever for somebody who is not there."""
    files = f"ssl_certfile={certificates['client.crt']}&ssl_keyfile={certificates['locked.key']}"
    code = (
        "import os; os.open(os.ttyname(0), os.O_RDWR)\n"  # now it has a terminal of its own
        "from oncecron.stores.redis import address, tls\n"
        f"tls.context(address.parse('rediss://h?{files}').tls, 'Redis')\n"
    )
    ours, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code],
            stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, start_new_session=True,
            timeout=20, check=False,
        )  # fmt: skip
        assert b"check ssl_certfile, ssl_keyfile and ssl_keyfile_password" in done.stderr
        assert select.select([ours], [], [], 0)[0] == []
    finally:
        os.close(ours)
        os.close(terminal)


def test_tls_and_none_confused(server: RedisServer, wires: Wires) -> None:
    """Each way round there is a word about the other."""
    url = server.url(via=server.tls_endpoint)
    assert "if it uses TLS, write rediss://" in wires.complaint(StoreUnavailable, url)
    url = server.tls_url(via=server)
    with at_most(0.5):
        assert "if the server has no TLS on this port, write redis://" in wires.complaint(
            StoreUnavailable, url, patience=0.5
        )


def test_faults_within_tls(server: RedisServer, new_proxy: NewProxy, wires: Wires) -> None:
    """The deadline holds in the handshake and after it; a lost answer is told, its command executed once."""
    proxy = new_proxy(server.tls_endpoint)
    url = server.tls_url(via=proxy)
    wire = wires(url)
    assert wire.ask("EVAL", COUNT, 1, "n", deadline=soon()) == 1
    proxy.drop_next_reply()
    with at_most(2), pytest.raises(StoreUnavailable):
        wire.ask("EVAL", COUNT, 1, "n", deadline=soon(2))
    proxy.wait_dropped()
    assert counted(server) == 2
    wire = wires(url)
    wire.ask("PING", deadline=soon())
    proxy.deaf()
    with at_most(0.5), pytest.raises(StoreUnavailable, match="no answer in time"):
        wire.ask("PING", deadline=soon(0.5))
    with at_most(0.5):
        assert "no TLS handshake in time" in wires.complaint(StoreUnavailable, url, patience=0.5)
    proxy.reset()
    wires.complaint(StoreUnavailable, url)
