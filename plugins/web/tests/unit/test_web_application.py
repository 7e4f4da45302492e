"""What `oncecron web` answers to any request, and how often it reads: the application alone, with invented readings."""

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from servers import eventually

from oncecron.core.errors import NotFoundError, StoreUnavailable, UsageError
from oncecron.core.text import Clock
from oncecron_web import application, shared_readings
from oncecron_web.addresses import Link, NoSuchPageError
from oncecron_web.application import Application, View
from oncecron_web.shared_readings import (
    MOST_BYTES,
    MOST_KEPT,
    MOST_WAITING,
    Found,
    SharedReadings,
    size_of,
)

HOSTILE = """<script>alert(1)</script>'"&<img src=x onerror=alert(1)>\u202e\x1b[2J"""


class Answer(NamedTuple):
    """What an application has answered."""

    status: int
    headers: Mapping[str, str]
    body: str


class Pages:
    """An application whose readings are invented."""

    def __init__(self, *, is_local: bool = True) -> None:
        self.reads: list[Mapping[str, str]] = []
        self.now = 0.0
        self.find: Callable[[Mapping[str, str]], object] = dict
        self.readings = SharedReadings(self._now)
        views = {
            "/": View(("since",), ("q",), self._read, self._draw),
            "/key": View(("name", "tick"), (), self._read, self._draw),
        }
        self.application = Application(views, self.readings, Clock(utc=True), is_local=is_local)

    def _now(self) -> float:
        self.now += 1e-6  # no two looks at a clock are the same
        return self.now

    def _read(self, query: Mapping[str, str]) -> Found:
        self.reads.append(query)
        return Found(self.find(query), 7)

    def _draw(self, contents: Any, query: Mapping[str, str], _clock: Clock) -> str:
        return f"<style>p {{}}</style><main>{contents} {dict(query)}</main>"

    def __call__(
        self, path: str = "/", query: str = "", method: str = "GET", **more: str
    ) -> Answer:
        """Answer a request; `more`: headers, as WSGI names them."""
        started: list[Any] = []
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": "localhost:8642", **more,
        }  # fmt: skip
        body = b"".join(self.application(environ, lambda *given: started.extend(given)))
        status, headers = started
        assert len(dict(headers)) == len(headers)
        return Answer(int(status.split()[0]), dict(headers), body.decode())


@pytest.fixture
def pages() -> Pages:
    """Give an application that reads nothing."""
    return Pages()


def broken(error: Exception) -> Callable[[Mapping[str, str]], object]:
    """Return what finds nothing but an error."""

    def find(_query: Mapping[str, str]) -> object:
        raise error

    return find


@pytest.mark.parametrize(
    ("status", "request_of", "find"),
    [
        (200, {}, dict),
        (200, {"path": "/refresh.js"}, dict),
        (200, {"path": "/robots.txt"}, dict),
        (304, {"path": "/refresh.js", "HTTP_IF_NONE_MATCH": "*"}, dict),
        (400, {}, broken(UsageError("--since: no"))),
        (400, {"query": "&".join(f"a{number}=1" for number in range(21))}, dict),
        (403, {"HTTP_HOST": "evil.example"}, dict),
        (404, {"path": "/nix"}, dict),
        (404, {}, broken(NoSuchPageError("no", [Link("a", "b")]))),
        (405, {"method": "POST"}, dict),
        (500, {}, broken(AssertionError())),
        (503, {}, broken(StoreUnavailable("down"))),
        (503, {}, broken(MemoryError())),
    ],
)  # fmt: skip
def test_every_answer_is_safe(
    pages: Pages,
    status: int,
    request_of: dict[str, str],
    find: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing may frame it, guess what it is, run a script of another origin, or send where it was."""
    pages.find = find
    answer = pages(**request_of)
    assert answer.status == status
    headers = answer.headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "private, no-cache"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert ("'sha256-" in policy) == ("<style>" in answer.body)
    if status != 304:
        assert int(headers["Content-Length"]) == len(answer.body.encode())
        assert headers["Content-Type"].endswith("charset=utf-8")
    if status == 500:
        assert "AssertionError" in capfd.readouterr().err
        assert "Traceback" not in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get"])
def test_only_get_and_head(pages: Pages, method: str) -> None:
    """Anything else is refused before anything is read."""
    answer = pages(method=method)
    assert (answer.status, answer.headers["Allow"], pages.reads) == (405, "GET, HEAD", [])
    assert len(answer.body.splitlines()) == 1


def test_head_is_get_without_its_body(pages: Pages) -> None:
    """With the same headers."""
    got = pages()
    assert pages(method="HEAD") == Answer(200, got.headers, "")


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        *((host, True) for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8642", "127.9.9.9", "[::1]:80")),
        *((host, False) for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1")),
        *((host, False) for host in ("", "0.0.0.0", "[", "evil@example", "x" * 5000)),
    ],
)  # fmt: skip
def test_a_local_server_answers_for_itself_alone(host: str, is_answered: bool) -> None:
    """A name of an attacker that leads to 127.0.0.1 reads nothing in a browser of this machine."""
    pages = Pages()
    answer = pages(HTTP_HOST=host)
    assert answer.status == (200 if is_answered else 403)
    assert len(answer.body.splitlines()) == 1
    assert len(answer.body) < 1000
    assert bool(pages.reads) == is_answered
    assert Pages(is_local=False)(HTTP_HOST=host).status == 200


def test_without_a_host_header(pages: Pages) -> None:
    """No browser sends that, so no page of another server does."""
    pages.application({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: None)
    assert len(pages.reads) == 1


def test_nothing_is_sent_that_has_not_changed(pages: Pages) -> None:
    """Also through a proxy that compresses, which makes a weak tag of it."""
    tag = pages().headers["ETag"]
    for named in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        assert pages(HTTP_IF_NONE_MATCH=named)[::2] == (304, "")
    assert pages(HTTP_IF_NONE_MATCH='"x"').status == 200
    pages.find = lambda _: "other"
    pages.now += 11
    changed = pages(HTTP_IF_NONE_MATCH=tag)
    assert changed.status == 200
    assert changed.headers["ETag"] != tag


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("name=a%2Fb&tick=2026-11-20T02%3A00Z", {"name": "a/b", "tick": "2026-11-20T02:00Z"}),
        ("name=..&other=1", {"name": ".."}),
        ("name=a&name=+&name=b", {"name": "a,b"}),
        ("name=&tick=", {}),
        ("name=%ff%fe", {"name": "\ufffd\ufffd"}),
        ("name=caf\xc3\xa9", {"name": "caf\xe9"}),
        ("name=%00%0a", {"name": "\0"}),
        ("%", {}),
        ("name=" + "x" * 100_000, {"name": "x" * 100_000}),
    ],
)  # fmt: skip
def test_fields_of_an_address(pages: Pages, query: str, fields: dict[str, str]) -> None:
    """What is unknown or empty is left out; bytes that are no UTF-8 are no error."""
    assert pages("/key", query).status == 200
    assert pages.reads == [fields]


@pytest.mark.parametrize(
    "path",
    ["/key/a/b", "/x" * 50_000, "/\xff", "//", "/../etc/passwd", f"/key/{HOSTILE}", "/%00", "/Key"],
)
def test_a_path_that_is_none(pages: Pages, path: str) -> None:
    """It is said, and where to go; a key in the path is found in its own place."""
    answer = pages(path)
    assert answer.status == 404
    assert "<script>alert" not in answer.body
    assert len(answer.body) < 30_000
    if path == "/key/a/b":
        assert 'href="key?name=a/b"' in answer.body
    assert pages.reads == []


def test_hostile_names_are_text(pages: Pages) -> None:
    """In a sentence, in a link, and in an address."""
    pages.find = broken(
        NoSuchPageError(f"No {HOSTILE}", [Link(HOSTILE, f"key?name={quote(HOSTILE)}")])
    )
    body = pages("/key").body
    assert "<script>alert" not in body
    assert "<img" not in body
    assert "&lt;script&gt;" in body
    assert not {"\u202e", "\x1b"} & {*body}


# Readings


def in_turn(pages: Pages, path: str, queries: Iterator[str]) -> None:
    """Ask for pages, one after the other."""
    for query in queries:
        assert pages(path, query).status == 200


def test_one_reading_for_all(pages: Pages) -> None:
    """It is kept 1.5 s for each of its seven questions; what only filters needs no other one."""
    gate = threading.Event()
    pages.find = lambda _: gate.wait(60)
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(pages, "/", f"q={number}") for number in range(20)]
        gate.set()
        bodies = {answer.result().body for answer in answers}
    assert (len(bodies), len(pages.reads)) == (20, 1)
    for now, reads in ((10.4, 1), (10.6, 2), (21, 2), (21.2, 3)):
        pages.now = now
        assert pages().status == 200
        assert len(pages.reads) == reads
    in_turn(pages, "/key", (f"name={name}" for name in "aabb"))
    assert len(pages.reads) == 5


def test_memory_is_bounded(pages: Pages) -> None:
    """Whatever addresses are asked for, only the last ones are kept."""
    in_turn(pages, "/key", (f"name={number}" for number in range(MOST_KEPT + 1)))
    assert len(pages.reads) == MOST_KEPT + 1
    in_turn(pages, "/key", (f"name={number}" for number in range(1, MOST_KEPT + 1)))
    assert len(pages.reads) == MOST_KEPT + 1
    in_turn(pages, "/key", iter(["name=0"]))
    assert len(pages.reads) == MOST_KEPT + 2


def test_a_store_that_is_away(pages: Pages, capfd: pytest.CaptureFixture[str]) -> None:
    """Pages say since when; it is asked every two seconds. One line says that it is away, one that it is back."""
    pages.find = broken(StoreUnavailable("db: connection refused"))
    first = pages()
    for path, _ in itertools.product(("/", "/key"), range(5)):
        answer = pages(path)
        assert answer.status == 503
        assert answer.headers["Retry-After"]
        assert "db: connection refused" in answer.body
        assert answer.body == first.body
    assert len(pages.reads) == 2
    pages.now += 2.1
    pages.find = dict
    assert pages().status == 200
    assert capfd.readouterr().err.splitlines() == [
        "oncecron: db: connection refused",
        "oncecron: the store answers again",
    ]
    pages.find = broken(NoSuchPageError("no such key"))
    assert pages("/key", "name=x").status == 404
    assert capfd.readouterr().err == ""


def test_a_reading_that_takes_long(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody asks a second time, and other pages wait behind it. The store is not said to be away."""
    monkeypatch.setattr("oncecron_web.shared_readings.PAGE_WITHIN", 0.01)
    gate = threading.Event()
    pages.find = lambda _: gate.wait(30)
    statuses = {pages(path).status for path in ("/", "/", "/key")}
    eventually(lambda: pages.reads)
    assert (statuses, len(pages.reads)) == ({503}, 1)
    answers = [pages("/key", f"name={number}") for number in range(100)]
    assert {answer.status for answer in answers} == {503}
    for answer in answers:
        assert "<h1>" in answer.body
        assert "Not read yet" in answer.body
        assert "No answer" not in answer.body
        assert answer.headers["Retry-After"]
    gate.set()
    monkeypatch.setattr("oncecron_web.shared_readings.PAGE_WITHIN", 30)
    assert pages().status == 200
    assert len(pages.reads) < 20
    assert capfd.readouterr().err == ""


def test_who_would_wait_too_long_gets_the_page_of_before(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when too many wait already; the new one comes as soon as it is read."""
    gate = threading.Event()
    pages.find = lambda _: "old"
    assert "old" in pages().body
    pages.find = lambda _: gate.wait(30) and "new"
    pages.now += 1000
    monkeypatch.setattr("oncecron_web.shared_readings.PAGE_WITHIN", 0.01)
    assert pages()[::2] == (200, "<style>p {}</style><main>old {}</main>")
    monkeypatch.setattr("oncecron_web.shared_readings.PAGE_WITHIN", 30)
    monkeypatch.setattr("oncecron_web.shared_readings.MOST_WATCHING", 0)
    assert "old" in pages().body
    gate.set()
    monkeypatch.setattr("oncecron_web.shared_readings.MOST_WATCHING", 1)
    assert "new" in pages().body
    assert len(pages.reads) == 2


@pytest.mark.parametrize(("path", "query"), [("/", ""), ("/key", "name=a"), ("/key", "")])
def test_many_addresses_take_no_turn_of_others(pages: Pages, path: str, query: str) -> None:
    """Of a page without choices it is soon the turn, whatever else waits."""
    allowed = threading.Semaphore(0)
    pages.find = lambda _: allowed.acquire(timeout=30)
    with ThreadPoolExecutor(2 * MOST_WAITING) as pool:
        others = [pool.submit(pages, "/", f"since={number}") for number in range(MOST_WAITING)]
        others += [
            pool.submit(pages, "/key", f"name=a&tick={number}") for number in range(MOST_WAITING)
        ]
        eventually(lambda: pages.reads)
        with ThreadPoolExecutor(1) as second:
            wanted = second.submit(pages, path, query)
            eventually(lambda: (path, False) in pages.readings._lanes)
            for _ in range(4):
                allowed.release()
            assert wanted.result().status == 200
        allowed.release(2 * MOST_WAITING)
        assert {other.result().status for other in others} <= {200, 503}


def test_many_addresses_take_no_memory_of_others(pages: Pages) -> None:
    """A page without choices is kept, and is not read again."""
    assert pages().status == 200
    in_turn(pages, "/", (f"since={number}" for number in range(MOST_KEPT + 1)))
    before = len(pages.reads)
    assert pages().status == 200
    assert len(pages.reads) == before


def test_memory_is_bounded_in_bytes(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of large pages is little; one that is larger than that is kept alone."""
    most, large = 1 << 20, 1 << 16
    monkeypatch.setattr(shared_readings, "MOST_BYTES", most)
    monkeypatch.setattr(application, "_MOST_DRAWN", 2 * most)
    pages.find = lambda query: [query["name"], "x" * (most if "huge" in query.values() else large)]
    fitting = most // large - 1
    in_turn(pages, "/key", (f"name={number}" for number in range(fitting)))
    in_turn(pages, "/key", (f"name={number}" for number in range(fitting)))
    assert len(pages.reads) == fitting
    in_turn(pages, "/key", iter(["name=more", "name=others", "name=0"]))
    assert len(pages.reads) == fitting + 3
    in_turn(pages, "/key", iter(["name=huge", "name=huge", "name=0"]))
    assert len(pages.reads) == fitting + 5
    assert size_of(pages.application._drawn) < 2 * most + large


def test_what_was_drawn_is_forgotten(pages: Pages) -> None:
    """A template leaves cycles, and a collection is rare."""

    class Text(str):
        __slots__ = ("__weakref__",)

    gone: list[weakref.ref[Text]] = []

    def find(_query: Mapping[str, str]) -> object:
        text = Text("x" * MOST_BYTES)
        gone.append(weakref.ref(text))
        return [text]

    def draw(contents: Any, *_: object) -> str:
        cycle = [contents]
        cycle.append(cycle)
        return ""

    pages.find = find
    pages.application._views = {"/key": View(("name",), (), pages._read, draw)}
    gc.disable()
    try:
        in_turn(pages, "/key", (f"name={number}" for number in range(3)))
        eventually(lambda: [each() is None for each in gone[:2]] == [True, True])
    finally:
        gc.enable()


def test_a_size_counts_a_text_once() -> None:
    """As memory does."""
    text = "x" * 1000
    assert 1000 < size_of([text]) < 1200
    assert size_of([text, (text,), {"a": text}]) < 2000
    assert size_of([f"{text}{number}" for number in range(10)]) > 10_000
    assert size_of(Found({1: ["\U0001f600" * 1000]}, 7)) > 4000


@pytest.mark.parametrize(
    "error", [UsageError("no"), NotFoundError("no"), StoreUnavailable("no"), ValueError("no")]
)
def test_an_error_keeps_nothing_that_was_read(pages: Pages, error: Exception) -> None:
    """However many look: its frames would hold a whole store until another page takes its place."""

    class Rows(list[int]):
        pass

    left: list[weakref.ref[Rows]] = []

    def find(_query: Mapping[str, str]) -> object:
        rows = Rows()
        left.append(weakref.ref(rows))
        try:
            {}[len(rows)]
        except KeyError as cause:
            raise type(error)("no") from cause

    pages.find = find
    gc.disable()
    try:
        for _ in range(20):
            assert pages().status != 200
        assert len(left) == 1
        assert left[0]() is None
    finally:
        gc.enable()
