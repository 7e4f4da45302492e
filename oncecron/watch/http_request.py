"""Send one HTTP request: TLS is verified, no proxy is used, and no redirect is followed.

A URL may be a secret, and a redirect or a variable such as `http_proxy` must not give it to another server.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import closing
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    RemoteDisconnected,
)
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import SplitResult, unquote, urlsplit

from oncecron import __version__
from oncecron.core.errors import OncecronError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.watch.bounded_answer import BoundedAnswer, TooLargeError

if TYPE_CHECKING:
    from email.message import Message
    from io import BufferedReader
    from socket import socket

_TRY_AGAIN = (408, 425, 429)
_SERVER_ERROR = 500


class Request(NamedTuple):
    """What is sent."""

    method: str
    url: str
    body: bytes | None = None
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """More of them."""


class RequestError(OncecronError):
    """A request was not answered with success; the text does not name the URL."""

    def __init__(self, why: str, *, again: bool = True) -> None:
        """`again`: whether another try may succeed."""
        super().__init__(why)
        self.again = again


def send(request: Request, timeout: float) -> Message:
    """Send a request; return the headers of the answer. Raises `RequestError` after `timeout` seconds at the latest.

    The time is that of everything together, from the look-up of the name to the last header: a timeout of the socket
    would begin anew with each packet. What still hangs then is left behind in a thread.
    """
    answers: SimpleQueue[Message | RequestError] = SimpleQueue()
    Thread(target=lambda: answers.put(_answer(request, timeout)), daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except Empty:
        answer = RequestError(f"no answer within {timeout:g} s")
    if isinstance(answer, RequestError):
        # One of its own: this frame must not refer to what it raises, because the process of pings collects no cycles.
        raise RequestError(str(answer), again=answer.again)
    return answer


def _answer(request: Request, timeout: float) -> Message | RequestError:
    try:
        return _exchange(request, timeout)
    except RequestError as error:
        return error
    except ssl.SSLCertVerificationError as error:
        return RequestError(f"its certificate is refused: {error.verify_message}", again=False)
    except TimeoutError:
        return RequestError(f"no answer within {timeout:g} s")
    except RemoteDisconnected:
        return RequestError("the server closed the connection without an answer")
    except (OSError, HTTPException, ValueError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        return RequestError(why or type(error).__name__)


def _exchange(request: Request, timeout: float) -> Message:
    place = urlsplit(request.url)
    connection = _connection(place, timeout)
    headers = {
        "User-Agent": f"oncecron/{__version__}",
        "Connection": "close",
        **dict(request.headers),
    }
    if request.content_type:
        headers["Content-Type"] = request.content_type
    if place.username is not None:
        login = f"{unquote(place.username)}:{unquote(place.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    target = f"{place.path or '/'}{'?' if place.query else ''}{place.query}"
    with closing(connection):
        connection.request(request.method, target, request.body, headers)
        try:
            answer = connection.getresponse()
        except TooLargeError as error:
            raise RequestError(str(error), again=False) from error
        answer.close()  # unread: its body says nothing more
    if 200 <= answer.status < 300:  # noqa: PLR2004 - success (RFC 9110, 15.3)
        return answer.headers
    again = answer.status >= _SERVER_ERROR or answer.status in _TRY_AGAIN
    moved = ", a redirection, which is not followed" if 300 <= answer.status < 400 else ""  # noqa: PLR2004 - as above
    raise RequestError(f"HTTP status {answer.status}{moved}", again=again)


def _connection(place: SplitResult, timeout: float) -> HTTPConnection:
    host = place.hostname or ""
    connection = HTTPConnection(host, place.port, timeout=timeout)
    if place.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(host, place.port, timeout=timeout, context=context)
    answer = BoundedAnswer(timeout)

    def response(source: socket, method: str | None = None) -> HTTPResponse:
        return HTTPResponse(_Source(answer.stream(source)), method=method)  # type: ignore[arg-type]

    connection.response_class = response  # type: ignore[assignment]
    return connection


class _Source:
    """What an answer of http.client asks of a socket."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream

    def makefile(self, _mode: str) -> BufferedReader:
        """Return the stream."""
        return self._stream
