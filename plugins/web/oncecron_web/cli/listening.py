"""How a command serves: the address of `--listen`, the one line where it cannot be used, and the server.

What others send to the server is bounded, in bytes and in time: headers and bodies have a largest size, a connection
has one request, and there are so many connections. One more takes the place of the one that has kept the server waiting
for the longest time, so whoever opens thousands and sends nothing, or half a request, or a letter a second, or does not
read the answer, keeps nobody else out.
"""

# ruff: noqa: PLC0415 - waitress is not for --help

from __future__ import annotations

import gc
import ipaddress
import logging
import signal
import socket
import threading
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.core.errors import ConfigurationError, UsageError
from oncecron.host.stderr import complain
from oncecron_web.page_times import SLOW_CLIENT

if TYPE_CHECKING:
    from typing import Any
    from wsgiref.types import WSGIApplication

LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535
_WAITING = 128  # connections that nobody has accepted yet
_THREADS = 64  # more than may wait for a reading of `web`
_CONNECTIONS = 200
_LONGEST_HEADERS = 16_384  # bytes; nginx and browsers send less than 8 KiB
_LONGEST_BODY = 1024  # nobody has to send any
_IN_MEMORY = 262_144  # bytes of an answer that is not read; the rest is in a file


def listen_address(text: str, port: int) -> tuple[str, int]:
    """Return the host and the port of `[HOST:]PORT`. Raises `UsageError`; `port`: one for its example."""
    host, _, digits = text.rpartition(":")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_HIGHEST_PORT))
    if not is_number or int(digits) > _HIGHEST_PORT:
        raise UsageError(f"--listen: {text!r} has no port; use {port}, or {LOOPBACK}:{port}")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(digits)


def listening_socket(host: str, port: int) -> tuple[socket.socket, str]:
    """Return a socket that listens, and HOST:PORT as a URL has it. Raises `ConfigurationError`."""
    shown = f"[{host}]" if ":" in host else host
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_WAITING)
        except BaseException:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that is empty or too long
        why = error.strerror if isinstance(error, OSError) else "no such host"
        raise ConfigurationError(f"--listen: cannot listen at {shown}:{port}: {why}") from error
    return listening, f"{shown}:{listening.getsockname()[1]}"


def is_loopback(listening: socket.socket) -> bool:
    """Return whether this machine alone can connect to a socket."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def serve(application: WSGIApplication, listening: socket.socket, address: str) -> int:
    """Answer requests until SIGTERM or SIGINT. `address`: for people."""
    stream = output.standard_output()
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before the threads, which inherit it
    gc.freeze()  # what is loaded by now stays, and need not be looked at again
    server = _server(application, listening)
    threading.Thread(target=server.run, daemon=True).start()
    output.say(f"serving {address}", stream)
    signal.sigwait(ends)
    return 0  # its threads are daemons: nobody waits for a slow reader


def _server(application: WSGIApplication, listening: socket.socket) -> Any:
    from waitress import create_server
    from waitress.channel import HTTPChannel
    from waitress.task import WSGITask

    class Task(WSGITask):  # type: ignore[misc]  # it has no types
        """Answers a request, and no other one that was sent behind it: what they need would wait in a thread."""

        def execute(self) -> None:
            """Answer as if the client had asked to close."""
            self.request.headers["CONNECTION"] = "close"
            super().execute()

    class Channel(HTTPChannel):  # type: ignore[misc]
        """A connection."""

        task_class = Task

    logger = logging.getLogger("waitress")
    logger.addHandler(_Complaints())
    logger.propagate = False
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # requests may wait
    server = create_server(
        application,
        sockets=[listening],
        threads=_THREADS,
        connection_limit=2 * _CONNECTIONS,  # beyond which none is accepted
        cleanup_interval=0,  # at each step of its loop
        max_request_header_size=_LONGEST_HEADERS,
        max_request_body_size=_LONGEST_BODY,
        outbuf_overflow=_IN_MEMORY,
        asyncore_use_poll=True,
        ident="oncecron",
        log_socket_errors=False,
    )
    server.channel_class = Channel
    server.maintenance = lambda now: _close_the_slowest([*server.active_channels.values()], now)
    return server


def _close_the_slowest(channels: list[Any], now: float) -> None:
    """Close connections whose client does nothing, and of too many those that have been waited for the longest time."""
    open_ones = [each for each in channels if not each.will_close]
    waited_for = [each for each in open_ones if not each.requests]  # the others are answered
    surplus = len(open_ones) - _CONNECTIONS
    for place, each in enumerate(sorted(waited_for, key=lambda each: each.creation_time)):
        if place < surplus or each.last_activity < now - SLOW_CLIENT:
            each.will_close = True


class _Complaints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        error = record.exc_info[1] if record.exc_info else None
        complain(record.getMessage() + (f": {error!r}" if error else ""))
