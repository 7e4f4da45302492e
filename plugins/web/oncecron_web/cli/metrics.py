"""`oncecron metrics`: the keys at a glance for Prometheus, as text, in a file, or by HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from prometheus_client import make_wsgi_app

from oncecron import __version__
from oncecron.cli import output
from oncecron.cli.command import (
    STORE_OPTIONS,
    TableCommand,
    check_stores,
    spooled_records,
)
from oncecron.cli.whole_file import replace
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import (
    OncecronError,
    StoreUnavailable,
    UsageError,
)
from oncecron.core.text import Clock
from oncecron.host.stderr import complain
from oncecron.watch.findings import check, usual_limits
from oncecron.watch.situation import situation_of
from oncecron_web.cli.listening import listen_address, listening_socket, serve
from oncecron_web.metrics import Reading, registry_of, text_of
from oncecron_web.page_times import METRICS_WITHIN
from oncecron_web.shared_readings import Silence, known_error
from oncecron_web.source import Source

if TYPE_CHECKING:
    from oncecron.log.sources import Sources

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


def _metrics(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    textfile, address = _destination(settings)
    check_stores(settings)
    if address:
        return _serve(_Reader(settings), *address)

    reading = _Reader(settings).read()
    if textfile is None:
        output.write_text(text_of(reading).decode(), output.standard_output())
    else:
        replace(textfile, text_of(reading), _MODE)
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


class _Reader:
    """Asks the store in a thread, one question at a time, and stops waiting for it in time.

    A question that hangs is waited for by the next request too: no request starts a second one beside it.
    """

    def __init__(self, settings: Settings) -> None:
        self._source = Source(settings)
        self._lock = threading.Lock()
        self._question: Future[Reading] | None = None
        self._silence = Silence()

    def read(self) -> Reading:
        """Return a new reading; after `METRICS_WITHIN` one that says that there was no answer."""
        with self._lock:
            if self._question is None or self._question.done():
                self._question = Future()
                threading.Thread(target=self._ask, args=[self._question], daemon=True).start()
            question = self._question
        try:
            return question.result(METRICS_WITHIN)
        except TimeoutError:
            return _failed(
                StoreUnavailable(f"no answer from the store within {METRICS_WITHIN:g} s")
            )

    def read_aloud(self) -> Reading:
        """Return a new reading; say once that the store does not answer, and once that it does again."""
        reading = self.read()
        if reading.error is None:
            self._silence.end()
        else:
            self._silence.begin(reading.error)
        return reading

    def _ask(self, answer: Future[Reading]) -> None:
        reading = _failed(OncecronError())
        try:
            reading = self._source.read(self._look).contents
        except Exception as error:
            known = known_error(error)
            if known is None:
                raise  # a bug, whose traceback is on standard error
            reading = _failed(known)
        finally:
            answer.set_result(reading)

    def _look(self, sources: Sources, settings: Settings) -> Reading:
        store, log, limits = sources.store, sources.log, usual_limits()
        spooled = spooled_records(settings)
        situation = situation_of(sources, settings.file, limits, spooled=spooled, brief=False)
        schema, server = store.versions()
        return Reading(
            sources.now,
            spooled,
            situation.jobs,
            check(situation, limits, Clock(utc=True)).findings,
            bool(store.unreadable or log.unreadable),
            {"version": __version__, "schema": str(schema), "server": server},
        )


def _failed(error: OncecronError) -> Reading:
    return Reading(clock.wall(), error=str(error), status=error.exit_status)


def _serve(reader: _Reader, host: str, port: int) -> int:
    """Answer requests until SIGTERM or SIGINT. Raises `ConfigurationError` if the address cannot be used."""
    listening, shown = listening_socket(host, port)
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
