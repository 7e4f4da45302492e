"""The WSGI application of `oncecron web`: an address in, a page out. It reads by the functions that it is given.

    /                     the overview
    /key?name=KEY         a key, and with &tick=TICK or &run=ID what happened then
    /host?name=HOST       a host
    /refresh.js           the one script; each page can be read without it

Every address stands on the same level and every link is relative, so the pages work below any path of a proxy, and a
key may have slashes and dots. Only GET and HEAD are answered. What is drawn of a reading is kept until the next one.

An address names nothing, a key or a host, and may choose what of it is read. There is no end to such choices, so they
have a lane of their own: who tries them all delays nobody who looks at the pages without.
"""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from collections import OrderedDict
from hashlib import sha256
from http import HTTPStatus
from importlib import resources
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from oncecron.core.errors import NotFoundError, UsageError
from oncecron.host.stderr import show_trace
from oncecron_web.addresses import Link, NoSuchPageError, address
from oncecron_web.live_pages import draw_notice
from oncecron_web.shared_readings import AwayError, BrokenError, BusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from wsgiref.types import StartResponse, WSGIEnvironment

    from oncecron.core.text import Clock
    from oncecron_web.shared_readings import Found, SharedReadings

    Query = Mapping[str, str]

_MOST_DRAWN = 32 << 20
"""Bytes of pages in memory; that of a key with long notes has eight million, but most have less than one."""
_NAME = "name"
"""The field of an address that names a key or a host."""
_MOST_FIELDS = 20
_RETRY_AFTER = "5"
_TEXT = "text/plain; charset=utf-8"
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; style-src{styles}; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


class View(NamedTuple):
    """The pages of one path."""

    chooses: Sequence[str]
    """The fields of the address that choose what is read."""
    filters: Sequence[str]
    """Those that choose what of it is shown."""
    read: Callable[[Query], Found]
    draw: Callable[[Any, Query, Clock], str]


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    headers: Mapping[str, str]


def _answer(
    status: HTTPStatus, body: bytes, kind: str = "text/html; charset=utf-8", **more: str
) -> _Answer:
    """Return an answer with its headers; `more`: further ones, with _ for -."""
    hashes = (b64encode(sha256(each).digest()).decode() for each in _STYLE.findall(body))
    styles = "".join(f" 'sha256-{each}'" for each in hashes) or " 'none'"
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(body)),
        "Content-Security-Policy": _POLICY.format(styles=styles),
        **_SAFE,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return _Answer(status, body, headers)


class Application:
    """A WSGI application; any number of threads may call it."""

    def __init__(
        self,
        views: Mapping[str, View],
        readings: SharedReadings,
        clock: Clock,
        *,
        is_local: bool,
    ) -> None:
        """`clock`: how times are shown.

        `is_local`: only this machine can connect, so every request names it: all else is DNS rebinding.
        """
        self._views = views
        self._readings = readings
        self._clock = clock
        self._is_local = is_local
        self._files = {
            "/refresh.js": _file("refresh.js", "text/javascript; charset=utf-8"),
            "/robots.txt": _answer(HTTPStatus.OK, b"User-agent: *\nDisallow: /\n", _TEXT),
        }
        self._lock, self._drawing = threading.Lock(), threading.Lock()
        self._drawn: OrderedDict[tuple[str, Any], tuple[int, _Answer]] = OrderedDict()
        """By address, each with the number of its reading."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        answer = self._answer(environ)
        status, body, headers = answer.status, answer.body, {**answer.headers}
        if _has(environ.get("HTTP_IF_NONE_MATCH", ""), headers.get("ETag")):
            status, body = HTTPStatus.NOT_MODIFIED, b""
            del headers["Content-Type"], headers["Content-Length"]
        start_response(f"{status.value} {status.phrase}", [*headers.items()])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> _Answer:
        refusal = self._refusal(environ)
        if refusal is not None:
            return refusal
        path = _decoded(environ.get("PATH_INFO", "")) or "/"
        if path in self._files:
            return self._files[path]
        try:
            return self._page(path, _decoded(environ.get("QUERY_STRING", "")))
        except Exception as error:  # noqa: BLE001 - one page is broken, and not the server
            return self._instead_of_page(error)

    def _refusal(self, environ: WSGIEnvironment) -> _Answer | None:
        host = environ.get("HTTP_HOST")
        if self._is_local and host is not None and not _is_this_machine(host):
            return _line(
                HTTPStatus.FORBIDDEN,
                f"This server answers for localhost, not for {host[:200]!r}. A proxy in front of it sends the name of "
                "this server as Host: nginx does so without a `proxy_set_header Host` of its own.",
            )
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            text = "Use GET: there is nothing to change."
            return _line(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow="GET, HEAD")
        return None

    def _instead_of_page(self, error: Exception) -> _Answer:
        if isinstance(error, NotFoundError):
            near = getattr(error, "near", ())
            return self._notice(HTTPStatus.NOT_FOUND, "Not found", str(error), near)
        if isinstance(error, UsageError):
            text = str(error).removeprefix("--")
            return self._notice(HTTPStatus.BAD_REQUEST, "Not understood", text)
        if isinstance(error, AwayError):
            since = self._clock.seconds(error.since)
            return self._later(f"No answer from the store since {since}", str(error))
        if isinstance(error, BusyError):
            return self._later("Not read yet", str(error))
        if not isinstance(error, BrokenError):
            show_trace()
        text = "This is a bug of oncecron; the details are on standard error of the server."
        return self._notice(HTTPStatus.INTERNAL_SERVER_ERROR, "Broken", text)

    def _later(self, title: str, text: str) -> _Answer:
        return self._notice(HTTPStatus.SERVICE_UNAVAILABLE, title, text, Retry_After=_RETRY_AFTER)

    def _notice(
        self, status: HTTPStatus, title: str, text: str, near: Sequence[Link] = (), **more: str
    ) -> _Answer:
        body = draw_notice(self._clock, title=title, text=text, near=near)
        return _answer(status, body.encode("utf-8", "backslashreplace"), **more)

    def _page(self, path: str, query_string: str) -> _Answer:
        view = self._views.get(path)
        if view is None:
            raise NoSuchPageError(f"There is no page {path[:200]}.", _near_paths(path))
        fields = _fields(query_string)
        query = {name: fields[name] for name in (*view.chooses, *view.filters) if name in fields}
        chosen = tuple(query.get(name) for name in view.chooses)
        lane = path, any(name in query for name in view.chooses if name != _NAME)
        found = self._readings.get((path, chosen), lambda: view.read(query), lane)
        address = path, tuple(query.items())
        known = self._known(address, found.number)
        if known is None:
            with self._drawing:  # one draws, and the others wait for the same page
                known = self._known(address, found.number)
                if known is None:
                    known = self._draw(view, found.contents, query)
                    self._keep(address, found.number, known)
        return known

    def _known(self, address: Any, number: int) -> _Answer | None:
        with self._lock:
            of_reading, answer = self._drawn.get(address, (None, None))
            if of_reading != number:
                return None
            self._drawn.move_to_end(address)
            return answer

    def _keep(self, address: Any, number: int, answer: _Answer) -> None:
        with self._lock:
            self._drawn[address] = number, answer
            self._drawn.move_to_end(address)
            size = sum(len(each.body) for _, each in self._drawn.values())
            while size > _MOST_DRAWN and len(self._drawn) > 1:
                size -= len(self._drawn.popitem(last=False)[1][1].body)

    def _draw(self, view: View, contents: Any, query: Query) -> _Answer:
        body = view.draw(contents, query, self._clock).encode("utf-8", "backslashreplace")
        return _answer(HTTPStatus.OK, body, ETag=_tag(body))


def _tag(body: bytes) -> str:
    return f'"{sha256(body).hexdigest()[:32]}"'


def _file(name: str, kind: str) -> _Answer:
    body = resources.files("oncecron_web").joinpath("templates", name).read_bytes()
    return _answer(HTTPStatus.OK, body, kind, ETag=_tag(body))


def _fields(query_string: str) -> dict[str, str]:
    """Return the fields of an address; several of one name are joined by commas. Raises `UsageError`."""
    try:
        pairs = parse_qsl(query_string, max_num_fields=_MOST_FIELDS, errors="replace")
    except ValueError as error:
        raise UsageError("the address has too many fields") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if value.strip():
            found.setdefault(name, []).append(value.strip())
    return {name: ",".join(values) for name, values in found.items()}


def _decoded(text: str) -> str:
    """Return a text of the environment, which has bytes as letters, with what is not UTF-8 replaced."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def _is_this_machine(host: str) -> bool:
    """Return whether a Host header names the machine itself, with any port: a tunnel has its own."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _has(tags: str, tag: str | None) -> bool:
    """Return whether If-None-Match names a tag; a proxy that compresses has made a weak one of it."""
    named = {each.strip().removeprefix("W/") for each in tags.split(",")}
    return tag is not None and (tag in named or "*" in named)


def _near_paths(path: str) -> list[Link]:
    kind, _, name = path.strip("/").partition("/")
    if kind in ("key", "host") and name:
        return [Link(name, address(kind, name=name))]
    return []


def _line(status: HTTPStatus, text: str, **more: str) -> _Answer:
    return _answer(status, f"{text}\n".encode("utf-8", "backslashreplace"), _TEXT, **more)
