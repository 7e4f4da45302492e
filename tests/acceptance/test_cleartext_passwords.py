"""A password goes to no server that asks for it in clear over an unencrypted network, unless the address allows it."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Certificates, Database, PostgresServer
from servers.oncecron import Oncecron

DEADLINE = 30.0
PASSWORD = "Xq7Vd9-hunter2"
NO_ENCRYPTION = (80877103, 80877104)
"""The codes of SSLRequest and GSSENCRequest, which are refused with one byte."""
CLEARTEXT = b"R" + struct.pack("!ii", 8, 3)
REFUSED = b"SFATAL\0C28P01\0Mpassword authentication failed\0\0"
COMMANDS = (("run", "--key", "k", "--tick", "one", "--", "true"), ("history",), ("init",))


class Thief:
    """A server that speaks no TLS, asks everybody for the password in clear, and keeps what comes."""

    def __init__(self, listening: socket.socket) -> None:
        self.asked = 0
        self.heard = b""
        self._listening = listening
        self.serving = threading.Thread(target=self._serve, daemon=True)
        self.serving.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError, struct.error):
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        while struct.unpack("!ii", connection.recv(8, socket.MSG_PEEK))[1] in NO_ENCRYPTION:
            connection.recv(8)
            connection.sendall(b"N")
        connection.recv(10000)
        self.asked += 1
        connection.sendall(CLEARTEXT)
        while more := connection.recv(10000):
            self.heard += more
            connection.sendall(b"E" + struct.pack("!i", len(REFUSED) + 4) + REFUSED)


@contextlib.contextmanager
def on_tcp() -> Iterator[tuple[Thief, str]]:
    """Give one and the address of it; afterwards it has heard all that was sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thief = Thief(server)
        yield thief, f"u:{PASSWORD}@127.0.0.1:{server.getsockname()[1]}/d"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thief.serving.join(DEADLINE)
        assert not thief.serving.is_alive()


@pytest.mark.turns(1)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_no_password_in_clear(public_path: Path, words: tuple[str, ...]) -> None:
    """Exit 78 with what to do about it."""
    with on_tcp() as (thief, place):
        ended = Oncecron(f"postgresql://{place}", public_path)(*words)
    assert ended.status == 78, ended
    assert "server requested a cleartext password; use TLS" in ended.err
    assert ended.err.count("\n") == 1
    assert (thief.asked, thief.heard) == (1, b"")


def service(public_path: Path, place: str, more: str = "") -> dict[str, str]:
    """Return the environment of a service that is that server."""
    host, _, port = place.rpartition("@")[2].removesuffix("/d").partition(":")
    path = public_path / "services"
    path.write_text(
        f"[jobs]\nhost={host}\nport={port}\nuser=u\ndbname=d\npassword={PASSWORD}\n{more}"
    )
    return {"PGSERVICEFILE": str(path), "PGSERVICE": "jobs"}


@pytest.mark.parametrize("words", COMMANDS[:2], ids=lambda words: str(words[0]))
def test_who_allows_it_sends_it(public_path: Path, words: tuple[str, ...]) -> None:
    """By the URL, by the environment or by a service; this also shows that the server would get it."""
    with on_tcp() as (thief, place):
        allowed = "require_auth=password"
        for url, environment in (
            (f"postgresql://{place}?{allowed}", {}),
            (f"postgresql://{place}", {"PGREQUIREAUTH": "password"}),
            ("postgresql://", service(public_path, place, f"{allowed}\n")),
        ):
            thief.heard = b""
            ended = Oncecron(url, public_path, **environment)(*words)
            assert ended.status == 78
            assert PASSWORD.encode() in thief.heard


def test_a_server_that_wants_it_gets_it_over_tls(
    new_postgres: Callable[..., PostgresServer], certificates: Certificates, public_path: Path
) -> None:
    """`password` in pg_hba.conf, as with LDAP and PAM: only where the address requires TLS."""
    files = {
        "ssl_cert_file": certificates["server.crt"],
        "ssl_key_file": certificates["server.key"],
    }
    server = new_postgres(ssl="on", **files)
    database: Database = server.create_database()
    (server.data / "pg_hba.conf").write_text(
        "local all postgres trust\nhost all all 0.0.0.0/0 password\n"
    )
    server.configure(log_connections="on")
    verified = f"?sslmode=verify-full&sslrootcert={certificates['ca.crt']}"
    for parameters, status in (
        ("?sslmode=disable", 78),
        ("", 78),
        ("?sslmode=require", 0),
        (verified, 0),
    ):
        host = Oncecron(database.url("owner") + parameters, public_path)
        for words in (("run", "--key", "k", "--no-tick", "--", "true"), ("init",)):
            ended = host(*words)
            assert ended.status == status, (parameters, words, ended)
            assert ("cleartext" in ended.err) == (status == 78)
