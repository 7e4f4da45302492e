"""`oncecron locks`: the current leases, and what pauses new firings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli.command import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_inspector,
)
from oncecron.config.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncecron.core.log_rows import Pause

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option("pauses", "flag", "Show paused keys and drained hosts instead of leases."),
    *OUTPUT_OPTIONS,
    *STORE_OPTIONS,
)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.config.settings import Settings
    from oncecron.core import clock
    from oncecron.core.stderr import complain
    from oncecron.each.reports import item_lists, with_items

    settings = Settings(OPTIONS, given)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=settings["utc"])
    with store_inspector(settings) as store:
        if settings["pauses"]:
            output.Writer(tables.PAUSES, style, stream).write(store.pauses())
            return incomplete(store)
        leases = store.leases()
        lists = item_lists(store) if leases else ()
        pauses = store.pauses() if stream.isatty() else ()
    now = clock.wall()  # SQLite has no clock of its own
    output.Writer(tables.LEASES, style, stream).write(
        view._replace(asked_at=view.asked_at or now) for view in with_items(leases, lists)
    )
    if pauses:
        complain(f"{counted(pauses)}; to list them: {settings.command('locks --pauses')}")
    return incomplete(store)


def counted(pauses: Iterable[Pause]) -> str:
    """Return the counts as text: `1 pause, 2 drained hosts`."""
    hosts = [pause.host is not None for pause in pauses]
    found = ((hosts.count(False), "pause"), (hosts.count(True), "drained host"))
    return ", ".join(f"{many} {what}{'s' * (many != 1)}" for many, what in found if many)


COMMAND = TableCommand(
    "locks",
    OPTIONS,
    _show,
    short="Show what is running now, and where.",
    about="Show the current leases: holder, start, age of the last heartbeat, time left and fencing token. "
    "held: the holder renews the lease; stale: the lease has expired, or the holder has missed two heartbeats; "
    "orphaned: PostgreSQL has released the holder's session lock, but the lease has not expired.",
    examples=("oncecron locks", "oncecron locks --pauses"),
)
