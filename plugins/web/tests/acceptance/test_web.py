"""`oncecron web`: pages for a browser, by the installed console script, on real stores."""

import re
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from answers import answer, refused
from flooded import forge_keys
from log_of import SQLiteLog, Store
from servers import Database, PostgresServer
from servers.oncecron import CONSOLE_SCRIPT, Oncecron, installed

from oncecron.core.text import Clock

Hosts = Callable[..., Oncecron]
HOSTILE = "<script>alert(1)</script>&'\""


class Page(NamedTuple):
    """What was served."""

    status: int
    text: str
    tag: str | None


class Web:
    """A running `oncecron web`."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address
        self.port = int(address.rpartition(":")[2])

    def get(self, path: str = "/", **headers: str) -> Page:
        """Return a page."""
        request = Request(self.address + path, headers=headers)  # noqa: S310 - http, of this test
        try:
            with urlopen(request, timeout=30) as got:  # noqa: S310 - as above
                return Page(got.status, got.read().decode(), got.headers["ETag"])
        except HTTPError as error:
            return Page(error.code, error.read().decode(), error.headers["ETag"])

    def send(self, data: bytes) -> bytes:
        """Send bytes, and return what comes until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(data)
            got = []
            with suppress(ConnectionResetError):  # it has not read all that was sent
                got.extend(iter(lambda: connection.recv(65536), b""))
            return b"".join(got)

    def end(self, number: int = signal.SIGTERM) -> list[str]:
        """End it by a signal; return what it has said on standard error."""
        began = time.monotonic()
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=20)
        assert (self.process.returncode, out) == (0, ""), errors
        assert time.monotonic() - began < 10
        return errors.splitlines()


@contextmanager
def serving(host: Oncecron, *words: str, command: str = "web") -> Iterator[Web]:
    """Serve at a free port of loopback."""
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, command, "--listen", "0", *words],
        env=host.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        line = process.stdout.readline()
        found = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+)/(?:metrics)?\n", line)
        assert found, (line, process.poll(), process.communicate() if not line else "")
        yield Web(process, found[1])
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def host(store: Store, new_host: Hosts) -> Oncecron:
    """Fire two keys on two hosts; one of them fails and prints something."""
    first, second = new_host("web1"), new_host("web2")
    for tick, command in (
        ("2026-11-20T02:00Z", "true"),
        ("2026-11-21T02:00Z", f"echo {HOSTILE!r}; exit 3"),
    ):
        words = ("--tick", tick, "--capture", "1K", "--", "sh", "-c", command)
        first.run("bad/key", *words)
        second.run("bad/key", *words)
    second.run("fine", "--no-tick", "--", "true")
    return first


def shown(tick: str) -> str:
    """Return a tick as a page says its time."""
    return Clock(utc=False, now=time.time()).tick(tick)


def test_pages(store: Store, host: Oncecron) -> None:
    """The overview, a key with what happened, a host; what was printed is text."""
    with serving(host) as web:
        overview = web.get().text
        assert 'href="key?name=bad/key"' in overview
        assert 'href="host?name=web2"' in overview
        key = web.get("/key?name=bad%2Fkey").text
        for words in (
            f"Tick {shown('2026-11-21T02:00Z')} of key bad/key failed on web1.",
            "web2 skipped: web1",
        ):
            assert words in key
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in key
        assert "<script>alert" not in key
        assert 'href="key?name=bad/key&amp;tick=2026-11-20T02:00Z"' in key
        older = web.get("/key?name=bad/key&tick=2026-11-20T02:00Z").text
        words = f"Tick {shown('2026-11-20T02:00Z')} of key bad/key succeeded on web1."
        assert words in older
        [run] = answer(host, "history", "fine")
        assert (
            f'href="key?name=fine&amp;run={run["execution_id"]}"' in web.get("/key?name=fine").text
        )
        assert "succeeded on web2" in web.get(f"/key?name=fine&run={run['execution_id']}").text
        of_host = web.get("/host?name=web2").text
        assert 'href="key?name=fine"' in of_host
        assert "2026-11-21T02:00Z" not in of_host
        assert web.end() == []


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/key?name=bad/kye", 404, ("No host has fired key bad/kye.", 'href="key?name=bad/key"')),
        ("/key", 404, ("The address names no key.",)),
        ("/host?name=web3", 404, ("No key was fired by host web3.", 'href="host?name=web2"')),
        ("/key/bad/key", 404, ('href="key?name=bad/key"',)),
        ("/key?name=bad/key&tick=2020-01-01T00:00Z", 200, ("is older than all records of the key",)),
        ("/key?name=bad/key&tick=+x+y", 400, ("is neither a tick on record nor a time",)),
        ("/key?name=bad/key&run=999999", 404, ("no run 999999 of key bad/key",)),
        ("/key?name=bad/key&run=x", 404, ("no run x of key bad/key",)),
        ("/key?name=bad/key&outcome=faild", 400, ("did you mean failed?",)),
        ("/key?name=bad/key&limit=0", 400, ("is not a number from 1 to 1000",)),
        ("/key?name=bad/key&since=7d", 200, ("2026",)),
        ("/?since=yesterdy", 400, ("is not a time; write",)),
        *((f"/{page}since={far}", 400, ("; write ",)) for page in ("?", "key?name=bad/key&", "host?name=web1&")
          for far in ("999999d", "9999999999999d", "1900-01-01")),
        ("/key?name=bad/key&tick=9999999999999d", 400, ("is neither a tick on record nor a time",)),
        ("/key?name=bad/key&limit=" + "9" * 5000, 400, ("is not a number from 1 to 1000",)),
        ("/?since=2999-01-01", 400, ("is not in the past",)),
        ("/?q=BAD", 200, ('href="key?name=bad/key"',)),
        ("/?outcome=failed&host=web1", 200, ('href="key?name=bad/key"',)),
    ],
)  # fmt: skip
def test_addresses(any_web: Web, address: str, status: int, words: tuple[str, ...]) -> None:
    """What an address says wrong is said in a sentence, and what was meant is a link."""
    page = any_web.get(address)
    assert page.status == status
    for each in words:
        assert each in page.text.replace("&#39;", "'")


def test_utc(host: Oncecron) -> None:
    """With --utc, a time in an address is in UTC as those of the page: in an hour there is no past."""
    soon = time.strftime("%FT%T", time.gmtime(time.time() + 3600))
    host.environment["TZ"] = "Pacific/Kiritimati"  # 14 hours ahead of UTC
    for words, status in (((), 200), (("--utc",), 400)):
        with serving(host, *words) as web:
            for page in ("?", "key?name=fine&", "host?name=web1&"):
                assert web.get(f"/{page}since={soon}").status == status, page


@pytest.fixture(scope="module")
def any_web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """Serve the pages of the cheapest store to many tests."""
    path = tmp_path_factory.mktemp("web")
    (path / "store").mkdir(mode=0o700)
    store = SQLiteLog(path / "store" / "oncecron.db")
    for name in ("web1", "web2"):
        host = Oncecron(store.url, path, name)
        host.run("bad/key", "--tick", "2026-11-20T02:00Z", "--", "false")
    host.run("fine", "--no-tick", "--", "true")
    with serving(host) as web:
        yield web


def test_filters_choose(any_web: Web) -> None:
    """What they leave out is not there."""
    assert "name=fine" in any_web.get().text
    for filters in ("q=bad", "outcome=failed", "host=web1"):
        assert "key?name=fine" not in any_web.get(f"/?{filters}").text
    key = any_web.get("/key?name=bad/key&outcome=succeeded").text
    assert "No matching run is on record." in key
    assert '<h2 id="skips">' not in key
    assert "No matching run is on record." in any_web.get("/key?name=bad/key&outcome=done").text


def test_strange_requests(any_web: Web) -> None:
    """Each has an answer, and the next one too."""
    for data, status in (
        (b"GET /key?name=%ff%2e%2e HTTP/1.0\r\n\r\n", b" 404 "),
        (b"GET /" + b"x" * 15_000 + b" HTTP/1.0\r\n\r\n", b" 404 "),
        (b"GET / HTTP/1.0\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b" 431 "),
        (b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", b" 405 "),
        (b"POST / HTTP/1.0\r\nContent-Length: 5000000\r\n\r\n", b" 413 "),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b" 403 "),
        (b"HEAD / HTTP/1.0\r\n\r\n", b" 200 "),
        (b"nonsense\r\n\r\n", b" 400 "),
    ):  # fmt: skip
        got = any_web.send(data)
        assert status in got.partition(b"\r\n")[0], (data[:60], got[:200])
        if data.startswith(b"HEAD"):
            assert got.endswith(b"\r\n\r\n")
    assert any_web.get().status == 200


HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
REQUESTS = (b"G", HALF, HALF + b"\r\n")
"""The beginning of one, half of one, and a whole one, whose answer nobody reads."""


@pytest.mark.turns(1)
@pytest.mark.parametrize("command", ["web", "metrics"])
def test_who_sends_half_a_request_keeps_nobody_out(public_path: Path, command: str) -> None:
    """Twice as many as the server has room for: those that have been waited for the longest make room."""
    (public_path / "store").mkdir(mode=0o700)
    host = Oncecron(f"sqlite://{public_path}/store/x.db", public_path)
    host.run("k", "--tick", "1", "--", "true")
    with serving(host, command=command) as web:
        assert web.get().status == 200
        slow = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(450)]
        try:
            for number, each in enumerate(slow):
                with suppress(ConnectionError):  # it has made room
                    each.sendall(REQUESTS[number % len(REQUESTS)])
            began = time.monotonic()
            assert web.get().status == 200
            assert time.monotonic() - began < 20  # the silent ones are closed after thirty seconds
            threads = re.search(
                r"Threads:\s+(\d+)", Path(f"/proc/{web.process.pid}/status").read_text()
            )
            assert threads
            assert int(threads[1]) < 100
        finally:
            for each in slow:
                each.close()
        assert web.end() == []


def test_requests_behind_another_one_wait_in_no_thread(any_web: Web) -> None:
    """A connection has one: the answers to four hundred that nobody reads would stop a thread for ever."""
    got = any_web.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    assert got.count(b"HTTP/1.1 200 ") == 1
    assert b"\r\nConnection: close\r\n" in got
    assert any_web.get().status == 200


def test_large_texts_of_a_host_fill_no_memory(public_path: Path) -> None:
    """A role that fires may write commands and notes of 64 KiB, and a reader may ask for a hundred addresses."""
    (public_path / "store").mkdir(mode=0o700)
    file = public_path / "store" / "x.db"
    host = Oncecron(f"sqlite://{file}", public_path)
    host.run("k", "--tick", "1", "--", "true")
    runs, text, now = 400, "\U0001f600" * 16_000, time.time()
    columns = (
        "key, shard, named, attempt, owner_attempt, outcome, cause, exit_code, host, pid, user, command, started_at, "
        "finished_at, duration, owner, note"
    )
    with closing(sqlite3.connect(file)) as database, database:
        database.executemany(
            f"insert into job_execution ({columns}) values ('k', 0, 0, 1, 1, 'failed', 'schedule', 3, 'web1', 1, 'u', "
            "?, ?, ?, 1, ?, ?)",
            ((text, now - 60 - at, now - 59 - at, f"owner{at}", text) for at in range(runs)),
        )  # fmt: skip
    with serving(host) as web:
        for limit in range(20):
            assert web.get(f"/key?name=k&limit={runs - limit}").status == 200
        status = Path(f"/proc/{web.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak
        assert int(peak[1]) < 300_000, "one reading has 50 MB of texts"
        assert web.end() == []


@pytest.mark.turns(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_at_once(host: Oncecron, number: int) -> None:
    """Also while somebody reads slowly; a port in use is one line."""
    with serving(host) as web, socket.create_connection(("127.0.0.1", web.port)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        refused(host("web", "--listen", web.port), 78, f"cannot listen at 127.0.0.1:{web.port}")
        assert web.end(number) == []


@pytest.mark.parametrize(
    ("listen", "status", "words"),
    [
        ("127.0.0.1", 64, "has no port; use 8642, or 127.0.0.1:8642"),
        ("localhost:99999", 64, "has no port"),
        ("no.such.host.invalid:0", 78, "cannot listen at no.such.host.invalid:0"),
        ("192.0.2.1:0", 78, "cannot listen at 192.0.2.1:0"),
        ("..:0", 78, "cannot listen at ..:0"),
    ],
)  # fmt: skip
def test_an_address_to_listen_at(
    any_store: Store, new_host: Hosts, listen: str, status: int, words: str
) -> None:
    """What is wrong with it is one line."""
    refused(new_host()("web", "--listen", listen), status, words)


def test_listening_elsewhere_is_said(any_store: Store, new_host: Hosts) -> None:
    """One line names the cure; there, a request may name any host."""
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, "web", "--listen", "0.0.0.0:0"],
        env=new_host().environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        line = process.stdout.readline()
        found = re.fullmatch(r"serving http://0\.0\.0\.0:(\d+)/\n", line)
        assert found
        web = Web(process, f"http://127.0.0.1:{found[1]}")
        assert web.get("/robots.txt", Host="cron.example.com").status == 200
        [said] = web.end()
        assert "has no login" in said
        assert "nginx" in said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


# The store


@pytest.mark.parametrize("command", ["web", "metrics"])
def test_an_address_that_cannot_be_is_told_at_once(public_path: Path, command: str) -> None:
    """It does not mend while the server runs, so none is begun."""
    host = Oncecron("postgresql://u@127.0.0.1/d?nonsense=1", public_path)
    refused(host(command, "--listen", "0"), 78, 'invalid URI query parameter: "nonsense"')


@pytest.mark.own_log
def test_a_row_that_cannot_be_read_is_named_once(store: Store, host: Oncecron) -> None:
    """However often pages are read; each says that something is missing."""
    forge_keys(store, ["a b"])
    with serving(host) as web:
        for address in ("/", "/?since=2h", "/?since=3h"):
            assert "1 row of the store cannot be read" in web.get(address).text
        [said] = web.end()
        assert "cannot be read and is left out" in said


def test_a_role_that_reads_is_enough(granted: Database, public_path: Path) -> None:
    """All pages, with select on the views alone; without that, the page names what is missing."""
    Oncecron(granted.url("runner"), public_path, "web1").run("k", "--tick", "1", "--", "true")
    with serving(Oncecron(granted.url("reader"), public_path)) as web:
        for address in ("/", "/key?name=k", "/host?name=web1"):
            assert web.get(address).status == 200, web.get(address).text
        assert web.end() == []
    with serving(Oncecron(granted.url("jobber"), public_path)) as web:
        page = web.get()
        assert page.status == 503
        assert "--read-role" in page.text


PEOPLE, WATCHED, ASKED = 20, 6.0, 4
"""How many people have the same page open, for how many seconds, and how often each of them asks at least."""
ADDRESSES = ("/", "/key?name=bad/key", "/host?name=host-a")


def test_twenty_people_cost_a_few_queries(
    new_postgres: Callable[..., PostgresServer], public_path: Path
) -> None:
    """The server's log has the statements, while all of them ask for a page more often than a browser does."""
    server = new_postgres(log_statement="all")
    database = installed(server.create_database())
    Oncecron(database.url(), public_path).run("bad/key", "--tick", "1", "--", "false")

    def asked() -> int:
        return len(
            re.findall(r"(?i)(?:statement|execute [^:]*):\s+(?:select|with|declare)", server.log())
        )

    with serving(Oncecron(database.url(), public_path)) as web:
        for address in ADDRESSES:
            assert web.get(address).status == 200
            before = asked()
            seconds = watch(web.get, address)
            assert asked() - before <= 3 * seconds, address


def watch(get: Callable[[str], Page], address: str) -> float:
    """Let people ask for a page more often than a browser does; return for how many seconds they did."""
    began = time.monotonic()

    def one(_person: int) -> None:
        asked = 0
        while time.monotonic() < began + WATCHED or asked < ASKED:
            assert get(address).status == 200
            asked += 1
            time.sleep(0.5)  # a browser waits ten times as long

    with ThreadPoolExecutor(PEOPLE) as pool:
        list(pool.map(one, range(PEOPLE)))
    return time.monotonic() - began
