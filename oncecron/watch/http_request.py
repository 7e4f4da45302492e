"""Send one HTTP request: TLS is verified, no proxy is used, and no redirect is followed.

A URL may be a secret, and a redirect or a variable such as `http_proxy` must not give it to another server.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from socket import SHUT_RDWR
from urllib.parse import SplitResult, unquote, urlsplit

from oncecron import __version__
from oncecron.core.errors import OncecronError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.watch.within import within

if TYPE_CHECKING:
    from email.message import Message

# Errors of the client, and yet not for good: a timeout, too early, too many requests.
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

    The time is that of everything together, from the look-up of the name to the last header. http.client takes at most
    100 headers of 64 kB.
    """
    place = urlsplit(request.url)
    try:
        connection = _connection(place, timeout)

        def give_up() -> None:
            with suppress(OSError, AttributeError):  # not connected yet
                connection.sock.shutdown(SHUT_RDWR)

        return within(timeout, lambda: _exchange(connection, place, request), give_up)
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is refused: {error.verify_message}"
        raise RequestError(why, again=False) from None
    except TimeoutError:
        raise RequestError(f"no answer within {timeout:g} s") from None
    except RemoteDisconnected:
        raise RequestError("the server closed the connection without an answer") from None
    except (OSError, HTTPException, ValueError, OverflowError) as error:
        why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise RequestError(why) from None


def _exchange(connection: HTTPConnection, place: SplitResult, request: Request) -> Message:
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
        answer = connection.getresponse()
        answer.close()  # unread: its body says nothing more
    if 200 <= answer.status < 300:  # noqa: PLR2004 - success (RFC 9110, 15.3)
        return answer.headers
    again = answer.status >= _SERVER_ERROR or answer.status in _TRY_AGAIN
    moved = ", a redirection, which is not followed" if 300 <= answer.status < 400 else ""  # noqa: PLR2004 - as above
    raise RequestError(f"HTTP status {answer.status}{moved}", again=again)


def _connection(place: SplitResult, timeout: float) -> HTTPConnection:
    if place.scheme != "https":
        return HTTPConnection(place.hostname or "", place.port, timeout=timeout)
    context = ssl.create_default_context()
    return HTTPSConnection(place.hostname or "", place.port, timeout=timeout, context=context)
