"""A real HTTP server on loopback that records what it is asked, and answers as the test says."""

import http.server
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from servers.waiting import eventually


class Received(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


class Answer(NamedTuple):
    """What the server answers."""

    status: int = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


Behave = Callable[[Received], Answer | None]
"""What to answer; None: close the connection without an answer. It may wait."""


class Recorder:
    """A server that is up until `close`; with a certificate, `https`."""

    def __init__(
        self, behave: Behave = lambda _: Answer(), certificate: Path | None = None
    ) -> None:
        self.received: list[Received] = []
        self.behave = behave
        self._arrived = threading.Lock()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _record(self) -> None:
                recorder._take(self)

            do_GET = do_POST = do_HEAD = do_PUT = _record  # noqa: N815 - the names of its base class

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the server, without a slash at its end."""
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop the server; what waits in `behave` is left behind."""
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int, deadline: float = 30) -> list[Received]:
        """Wait until so many requests have come, and return them."""

        def enough() -> bool:
            assert len(self.received) >= count, self.received
            return True

        eventually(enough, deadline)
        return list(self.received)

    def _take(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        size = int(handler.headers.get("Content-Length", 0))
        request = Received(
            handler.command,
            parts.path,
            {name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(size),
        )  # fmt: skip
        with self._arrived:
            self.received.append(request)
        answer = self.behave(request)
        if answer is None:
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        for name, value in answer.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
