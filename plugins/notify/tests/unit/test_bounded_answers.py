"""What others answer to pings, webhooks and mails, and what a program prints: bounded in bytes and in time."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import eventually
from servers.scripted import Scripted

from oncecron.watch import http_request
from oncecron_notify import smtp
from oncecron_notify.mail_server import MailServer

NewScripted = Callable[..., Scripted]
LARGEST = smtp._LARGEST
BETWEEN = 8 << 20
"""More than the buffers of both sides hold."""
PATIENCE = 30.0
"""Far more than an answer needs that is too large."""


class Flood:
    """Says one thing after another, each but the first when asked, and the last one without end."""

    def __init__(self, *said: bytes) -> None:
        self._said = said
        self.sent = 0

    def __call__(self, connection: socket.socket, _: int) -> None:
        """Serve a connection."""
        first, *more = self._said
        connection.sendall(first)
        for each in more:
            connection.recv(1 << 16)
            connection.sendall(each)
        while True:
            self.sent += connection.send(self._said[-1] * (1 + 65536 // len(self._said[-1])))


def test_the_headers_of_http_without_end(new_scripted: NewScripted) -> None:
    """No more of them is taken than http.client takes: 100, and each of 64 kB."""
    flood = Flood(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 60_000 + b"\r\n")
    url = new_scripted(flood).url.replace("redis", "http")
    with pytest.raises(http_request.RequestError, match="HTTPException"):
        http_request.send(http_request.Request("GET", url), PATIENCE)
    assert flood.sent < 100 * 65536 + BETWEEN


def test_an_answer_of_http_that_never_begins(new_scripted: NewScripted) -> None:
    """It costs the timeout, and nobody reads on."""
    flood = Flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    url = new_scripted(flood).url.replace("redis", "http")
    with pytest.raises(http_request.RequestError, match=r"no answer within 0\.5 s"):
        http_request.send(http_request.Request("GET", url), 0.5)
    eventually(lambda: not any("(asking)" in each.name for each in threading.enumerate()))


def test_a_body_without_end_is_not_read(new_scripted: NewScripted) -> None:
    """The status has said it all."""
    url = new_scripted(Flood(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"x")).url.replace("redis", "http")
    assert http_request.send(http_request.Request("GET", url), PATIENCE)["A"] == "b"


def refusal_of(server: Scripted, timeout: float = PATIENCE) -> str:
    """Send a mail; return why it was not acknowledged."""
    mail_server = MailServer(server.host, server.port, "none", "cron@example.com")
    with pytest.raises(smtp.SmtpError) as caught:
        smtp.send(mail_server, ["ops@example.com"], lambda _: b"Subject: a\n\n", timeout)
    return str(caught.value)


GREETING, EHLO, OK = b"220 here\r\n", b"250-here\r\n250 8BITMIME\r\n", b"250 OK\r\n"
LINE = b"250-" + b"x" * 500 + b"\r\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((b"220-a\r\n",), "the connection: the server's answer is larger than 1 MB"),
        ((b"x",), "the connection was refused: 500 Line too long."),
        ((GREETING, LINE), "EHLO: the server's answer is larger than 1 MB"),
        ((GREETING, EHLO, LINE), "MAIL FROM: the server's answer is larger than 1 MB"),
        ((GREETING, EHLO, OK, LINE), "RCPT TO ops@example.com: the server's answer is larger"),
        ((GREETING, EHLO, OK, OK, LINE), "DATA: the server's answer is larger than 1 MB"),
        ((GREETING, EHLO, OK, OK, b"354 go\r\n", LINE), "DATA: the server's answer is larger"),
    ],
)
def test_a_reply_of_a_mail_server_without_end(
    new_scripted: NewScripted, said: tuple[bytes, ...], told: str
) -> None:
    """At each step, before TLS too: in many lines, or in one."""
    flood = Flood(*said)
    assert told in refusal_of(new_scripted(flood))
    assert flood.sent < LARGEST + BETWEEN


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        (
            b"",
            b"",
            'the connection within 2 s; a server that speaks TLS at once needs tls = "tls"',
        ),
        (b"", b"2", "the connection within 2 s"),
        (GREETING, b"2", "EHLO within 2 s"),
    ],
    ids=["silent", "slow", "slow-later"],
)
def test_a_reply_that_is_never_whole(
    new_scripted: NewScripted, first: bytes, then: bytes, told: str
) -> None:
    """It costs the timeout, and what waits for it ends by itself."""

    def dribble(connection: socket.socket, _: int) -> None:
        connection.sendall(first)
        while then or connection.recv(1 << 16):
            connection.sendall(then)
            time.sleep(0.05)

    before = threading.active_count()
    server = new_scripted(dribble)
    assert f"no answer to {told}" in refusal_of(server, 2)
    server.close()
    eventually(lambda: threading.active_count() <= before)


RUN = """
import resource, sys
from oncecron_notify import channels
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    channels._run(["/bin/sh", "-c", sys.argv[1]], b"message\\n", float(sys.argv[2]), {}, "the command")
except channels.ChannelError as error:
    print(error)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB
"""


def run(command: str, timeout: float = PATIENCE) -> str:
    """Send a message by a command, from a process that adopts what it leaves; return what is complained of."""
    words = [sys.executable, "-P", "-c", RUN, command, str(timeout)]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def test_a_program_that_prints_without_end(tmp_path: Path) -> None:
    """It is killed at its timeout, and no memory or disk is filled."""
    size = tmp_path / "size"
    said = run(f"timeout 0.5 yes >&2; stat -Lc %s /proc/self/fd/2 >{size}; exec yes >&2", 4.0)
    assert said == "the command has not ended within 4 s and was killed"
    assert int(size.read_text()) < 1 << 20


def test_what_a_program_prints_is_shown_from_its_beginning() -> None:
    """Also where it prints more than a pipe holds, and ends with it."""
    said = run("seq 100000 >&2; exit 3")
    assert said.startswith("the command failed with exit status 3: 1 2 3 4 ")
    assert len(said) < 300


def test_a_program_reads_its_message_and_prints_where_it_likes() -> None:
    """Scripts write to /dev/stderr, which opens it anew."""
    said = run("read line; printf %s $line >/dev/stderr; echo ', and more' >>/dev/stderr; exit 2")
    assert said == "the command failed with exit status 2: message, and more"
    assert run("cat >/dev/null") == run("exec 2>&-") == ""


def test_what_a_program_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """It may be what delivers the message."""
    go, alive = tmp_path / "go", tmp_path / "alive"
    waiting = f"until [ -e {go} ]; do sleep 0.05; done"
    said = run(f"({waiting}; echo here >{alive}) >/dev/null & echo no >&2; exit 3")
    assert said == "the command failed with exit status 3: no"
    go.touch()
    eventually(alive.exists)
