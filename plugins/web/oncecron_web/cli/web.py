"""`oncecron web`: the page of `report` live, a page a key and a page a host, by HTTP. It only reads.

It has no login: it listens on loopback, and a proxy with a login in front of it is for all others.
"""

# ruff: noqa: PLC0415 - jinja2 and what is asked are not for --help

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncecron.cli.command import STORE_OPTIONS, UTC, TableCommand, check_stores
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.text import Clock
from oncecron.host.stderr import complain
from oncecron_web.cli.listening import is_loopback, listen_address, listening_socket, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from wsgiref.types import WSGIApplication

    from oncecron_web.shared_readings import Found

    Query = Mapping[str, str]
    Ask = Callable[..., object]

_PORT = 8642
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
    from oncecron_web.application import Application, View
    from oncecron_web.live_pages import draw_host, draw_key, draw_overview
    from oncecron_web.shared_readings import SharedReadings
    from oncecron_web.source import Source
    from oncecron_web.store_questions import host_page, key_page, live_overview

    settings = Settings(OPTIONS, given)
    check_stores(settings)
    source, choices = Source(settings), ("name", "since", "outcome", "host", "limit")

    def reading(ask: Ask) -> Callable[[Query], Found]:
        return lambda query: source.read(partial(ask, query=query))

    views = {
        "/": View(("since",), ("q", "outcome", "host"), reading(live_overview()), draw_overview),
        "/key": View((*choices, "tick", "run"), (), reading(key_page), draw_key),
        "/host": View(choices, (), reading(host_page), draw_host),
    }
    return Application(views, SharedReadings(), Clock(settings["utc"]), is_local=is_local)


def _web(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    address = listen_address(settings["listen"], _PORT)
    check_stores(settings)
    listening, shown = listening_socket(*address)
    is_local = is_loopback(listening)
    if not is_local:
        complain(
            f"--listen: this page has no login, and whoever reaches {shown} reads the jobs and their output; listen on "
            f"127.0.0.1:{_PORT} behind nginx with a login, as `man oncecron-web` shows"
        )
    return serve(application(is_local=is_local, **given), listening, f"http://{shown}/")


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
