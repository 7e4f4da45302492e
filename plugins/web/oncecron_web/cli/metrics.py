"""`oncecron metrics`: the keys at a glance for Prometheus, as text, in a file, or by HTTP."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from hashlib import sha256
from typing import TYPE_CHECKING

from oncecron import __version__
from oncecron.cli import output
from oncecron.cli.command import (
    STORE_OPTIONS,
    TableCommand,
    check_stores,
    spooled_records,
    store_and_log,
)
from oncecron.cli.whole_file import replace, target
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import (
    OncecronError,
    StoreUnavailable,
    UsageError,
    reason_of,
    shortage_of,
)
from oncecron.core.text import Clock
from oncecron.host.stderr import complain
from oncecron.log.sources import sources_of
from oncecron.stores.address import masked
from oncecron.watch.findings import check, usual_limits
from oncecron.watch.situation import situation_of
from oncecron_web.cli.listening import listen_address, listening_socket, serve, shown_address
from oncecron_web.counters import Counts, count, counts_in, line_in, line_of
from oncecron_web.page_times import METRICS_WITHIN

if TYPE_CHECKING:
    from oncecron_web.metrics import Reading

OPTIONS = (
    Option(
        "textfile", "text",
        "Write the metrics to this file, for the textfile collector of node_exporter. Its name ends in .prom.",
        "FILE", "Output", completion="file",
    ),
    Option(
        "listen", "text",
        "Serve the metrics at http://HOST:PORT/metrics until a signal ends the command. Without HOST, on 127.0.0.1.",
        "[HOST:]PORT", "Output",
    ),
    *STORE_OPTIONS,
)  # fmt: skip
_PORT = 9188  # for an example
_MODE = 0o644  # node_exporter is another user
_LARGEST = 64 << 20  # of a text file; that of 10,000 keys has 15 MB


def _metrics(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    textfile, address = _destination(settings)
    check_stores(settings)
    if address:
        return _serve(_Reader(settings, Counts(_log_name(settings))), *address)

    from oncecron_web.metrics import text_of  # noqa: PLC0415 - not for --help

    if textfile is None:
        reading = _Reader(settings, None).read()
        output.write_text(text_of(reading).decode(), output.standard_output())
    else:
        line = _counted_line(textfile)
        reading = _Reader(settings, counts_in(line, _log_name(settings))).read()
        line = line if reading.counts is None else line_of(reading.counts)
        replace(textfile, text_of(reading) + line, _MODE)
    if reading.error is not None:
        complain(reading.error)
    return reading.status


def _destination(settings: Settings) -> tuple[str | None, tuple[str, int] | None]:
    """Return the file, or the address to listen at. Raises `UsageError`."""
    textfile: str | None = settings["textfile"]
    listen: str | None = settings["listen"]
    if textfile is not None and listen is not None:
        raise UsageError("--textfile and --listen exclude each other; run the command twice")
    if textfile is not None and not textfile.endswith(".prom"):
        raise UsageError(
            f"--textfile: {textfile!r} does not end in .prom; node_exporter reads no other files"
        )
    if listen is None:
        return textfile, None
    return None, listen_address(listen, _PORT)


def _log_name(settings: Settings) -> str:
    """Return a name of the log that is counted, without what may be a secret."""
    address = settings.log() or settings.address()
    place = f"{masked(address.target)} {settings['namespace']}"
    return sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _counted_line(path: str) -> bytes:
    """Return what the last text file has counted. Raises `OutputError` where none may be written."""
    try:
        with open(target(path), "rb") as file:
            return line_in(file.read(_LARGEST))
    except OSError:  # to write it says what is wrong
        return b""


class _Reader:
    """Asks the store in a thread, one question at a time, and stops waiting for it in time.

    A question that hangs is waited for by the next request too: no request starts a second one beside it.
    """

    def __init__(self, settings: Settings, counts: Counts | None) -> None:
        """Ask nothing yet. `counts`: None to count nothing."""
        self._settings = settings
        self._counts = counts
        self._named: set[str] = set()
        """Rows that cannot be read, of which standard error has a line."""
        self._lock = threading.Lock()
        self._question: Future[Reading] | None = None
        self._is_away = False

    def read(self) -> Reading:
        """Return a new reading; after `METRICS_WITHIN` one that says that there was no answer."""
        with self._lock:
            if self._question is None or self._question.done():
                self._question = _asking(self._settings, self._counts, self._named)
            question = self._question
        try:
            reading = question.result(METRICS_WITHIN)
        except TimeoutError:
            silence = f"no answer from the store within {METRICS_WITHIN:g} s"
            return _failed(StoreUnavailable(silence))
        self._counts = reading.counts or self._counts
        if reading.error:  # of a store whose password was rotated, perhaps
            with contextlib.suppress(OncecronError):
                self._settings = self._settings.reread()
        return reading

    def read_aloud(self) -> Reading:
        """Return a new reading; say once that the store does not answer, and once that it does again."""
        reading = self.read()
        with self._lock:
            before, self._is_away = self._is_away, reading.error is not None
        if reading.error is not None and not before:
            complain(reading.error)
        elif before and not self._is_away:
            complain("the store answers again")
        return reading


def _asking(settings: Settings, counts: Counts | None, named: set[str]) -> Future[Reading]:
    answer: Future[Reading] = Future()

    def ask() -> None:
        reading = _failed(OncecronError())
        try:
            reading = _reading(settings, counts, named)
        except OncecronError as error:
            reading = _failed(error)
        except (OSError, MemoryError) as error:
            reading = _failed(shortage_of(error) or OncecronError(reason_of(error)))
        finally:  # with a bug, the traceback is on standard error
            answer.set_result(reading)

    threading.Thread(target=ask, daemon=True).start()
    return answer


def _failed(error: OncecronError) -> Reading:
    from oncecron_web.metrics import Reading  # noqa: PLC0415 - not for --help

    return Reading(clock.wall(), error=str(error), status=error.exit_status)


def _reading(settings: Settings, counts: Counts | None, named: set[str]) -> Reading:
    from oncecron_web.metrics import Reading  # noqa: PLC0415 - not for --help

    spooled = spooled_records(settings)
    with store_and_log(settings) as (store, log):
        store.named.update(named)
        log.named.update(named)
        sources = sources_of(settings, store, log)
        situation = situation_of(
            sources, settings.file, limits := usual_limits(), spooled=spooled, brief=False
        )
        schema, server = store.versions()
        counts = counts and count(counts, log, sources.now)
        is_complete = not (store.unreadable or log.unreadable)
        named.update(store.named, log.named)
    versions = {"version": __version__, "schema": str(schema), "server": server}
    findings = check(situation, limits, Clock(utc=True)).findings
    return Reading(
        sources.now,
        spooled,
        situation.jobs,
        findings,
        not is_complete,
        versions=versions,
        counts=counts,
    )


def _serve(reader: _Reader, host: str, port: int) -> int:
    """Answer requests until SIGTERM or SIGINT. Raises `ConfigurationError` if the address cannot be used."""
    from prometheus_client import make_wsgi_app  # noqa: PLC0415 - not for --help

    from oncecron_web.metrics import registry_of  # noqa: PLC0415 - not for --help

    listening = listening_socket(host, port)
    shown = shown_address(host, listening.getsockname()[1])
    application = make_wsgi_app(registry_of(reader.read_aloud))
    return serve(application, listening, f"http://{shown}/metrics")


COMMAND = TableCommand(
    "metrics", OPTIONS, _metrics,
    about="Print metrics of every key and of this host in the text format of Prometheus, write them to a file, or "
    "serve them. Every host shows the same of a key, so rules take `max by (key)`. If the store is unreachable, the "
    "metrics say `oncecron_up 0`, and nothing about any key.",
    examples=(
        "oncecron metrics",
        "oncecron metrics --textfile /var/lib/prometheus/node-exporter/oncecron.prom",
        "oncecron metrics --listen 9188",
    ),
)  # fmt: skip
