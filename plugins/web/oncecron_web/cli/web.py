"""`oncecron web`: the page of `report` live, a page a key and a page a host, by HTTP. It only reads.

It has no login: it listens on loopback, and a proxy with a login in front of it is for all others.
"""

# ruff: noqa: PLC0415 - jinja2 and the plugins are not for --help

from __future__ import annotations

import contextlib
import math
from itertools import tee
from typing import TYPE_CHECKING

from oncecron.cli.command import STORE_OPTIONS, UTC, TableCommand, check_stores
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.errors import NotFoundError, OncecronError, UsageError
from oncecron.core.text import Clock
from oncecron.host.stderr import complain
from oncecron.stores import open_reader
from oncecron_web.cli.listening import (
    is_loopback,
    listen_address,
    listening_socket,
    serve,
    shown_address,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any
    from wsgiref.types import WSGIApplication

    from oncecron.log.sources import Sources
    from oncecron.stores.address import Address
    from oncecron.stores.api import Row
    from oncecron.stores.reader import Reader
    from oncecron_web.shared_readings import Found

    Query = Mapping[str, str]
    Ask = Callable[[Sources, Settings, Query], object]

_PORT = 8642
_FEW = 100
"""Rows at most of an answer that is kept until the end of a reading."""
_OF_ALL_KEYS = ("keys", "key_hosts", "host_ticks", "leases", "pauses", "each/item_lists")
OPTIONS = (
    Option(
        "listen", "text",
        "Serve the pages at http://HOST:PORT/ until a signal ends the command. Without HOST, on 127.0.0.1.",
        "[HOST:]PORT", "Output", f"127.0.0.1:{_PORT}",
    ),
    UTC,
    *STORE_OPTIONS,
)  # fmt: skip


def application(*, is_local: bool = True, **given: str) -> WSGIApplication:
    """Return the pages for another WSGI server, such as gunicorn; `given`: options, as `store="postgresql://..."`.

    `is_local`: the server listens on loopback or on a Unix socket, so that each request names localhost.
    Raises `ConfigurationError`, `UsageError`.
    """
    return _application(Settings(OPTIONS, given), is_local=is_local)


def _application(settings: Settings, *, is_local: bool) -> WSGIApplication:
    from oncecron_web.application import Application, View
    from oncecron_web.live_pages import draw_host, draw_key, draw_overview
    from oncecron_web.shared_readings import SharedReadings
    from oncecron_web.store_questions import host_page, key_page, live_overview

    check_stores(settings)
    source = _Source(settings)
    choices = ("name", "since", "outcome", "host", "limit")
    views = {
        "/": View(
            ("since",), ("q", "outcome", "host"), source.reader_of(live_overview()), draw_overview
        ),
        "/key": View((*choices, "tick", "run"), (), source.reader_of(key_page), draw_key),
        "/host": View(choices, (), source.reader_of(host_page), draw_host),
    }
    return Application(views, SharedReadings(), Clock(settings["utc"]), is_local=is_local)


class _Source:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named: set[str] = (
            set()
        )  # rows that cannot be read, of which standard error has a line

    def reader_of(self, ask: Ask) -> Callable[[Query], Found]:
        """Return the function that reads what a page shows."""
        return lambda query: self._read(ask, query)

    def _read(self, ask: Ask, query: Query) -> Found:
        from oncecron.log.sources import sources_of
        from oncecron_web.shared_readings import Found

        count = _Count()
        try:
            with self._stores(count) as (store, log):
                sources = sources_of(self._settings, store, log)
                found = ask(sources, self._settings, query)
        except (NotFoundError, UsageError):
            raise
        except OncecronError:  # of a store whose password was rotated, perhaps
            with contextlib.suppress(OncecronError):
                self._settings = self._settings.reread()
            raise
        return Found(found, count.queries)

    @contextlib.contextmanager
    def _stores(self, count: _Count) -> Iterator[tuple[Reader, Reader]]:
        with contextlib.ExitStack() as stack:

            def opened(address: Address) -> Reader:
                reader = open_reader(address, self._settings["namespace"])
                reader.named = self._named
                stack.callback(reader.close)
                stack.callback(count.add(reader))
                return reader

            store, beside = opened(self._settings.address()), self._settings.log()
            yield store, opened(beside) if beside else store


class _Count:
    def __init__(self) -> None:
        self.queries = 0

    def add(self, reader: Reader) -> Callable[[], None]:
        """Count the questions to a reader; to connect is one. Return what forgets the answers, which may be long."""
        self.queries += 1
        rows = reader.rows
        known: dict[str, Iterator[Row]] = {}

        def counted(view: str, **bounds: Any) -> Iterator[Row]:
            name = f"{view} {bounds}"
            if name not in known:
                self.queries += 1
                found = rows(view, **bounds)
                if view not in _OF_ALL_KEYS and (bounds.get("limit") or math.inf) > _FEW:
                    return found
                known[name] = found
            # as far as it is read: behind the limit may be a million rows
            known[name], again = tee(known[name])
            return again

        def forget() -> None:
            known.clear()
            del reader.rows  # the two name each other, and a collection of such cycles is rare

        reader.rows = counted  # type: ignore[method-assign]
        return forget


def _web(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    host, port = listen_address(settings["listen"], _PORT)
    check_stores(settings)
    listening = listening_socket(host, port)
    shown = shown_address(host, listening.getsockname()[1])
    is_local = is_loopback(listening)
    if not is_local:
        complain(
            f"--listen: this page has no login, and whoever reaches {shown} reads the jobs and their output; listen on "
            f"127.0.0.1:{_PORT} behind nginx with a login, as `man oncecron-web` shows"
        )
    return serve(_application(settings, is_local=is_local), listening, f"http://{shown}/")


COMMAND = TableCommand(
    "web", OPTIONS, _web,
    about="Serve the page of `oncecron report` live, with a page for each key and each host. It only reads, and on "
    "PostgreSQL needs a role of `oncecron init --read-role`. There is no login: it listens on this machine alone, and "
    "for other readers nginx with a login stands in front of it.",
    examples=(
        "oncecron web",
        "oncecron web --listen 9000",
        "oncecron web --store postgresql://reader@db.example.com/oncecron",
    ),
)  # fmt: skip
