"""`oncecron hosts`: one line per host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_reader,
)
from oncecron.cli.output import Column, Kind
from oncecron.core.text import ABSENT
from oncecron.log.hosts import HostSummary

if TYPE_CHECKING:
    from oncecron.core.text import Clock

# ruff: noqa: PLC0415 - --help imports as little as it can


def _clock_ahead(host: HostSummary, _clock: Clock) -> str:
    return f"{host.clock_ahead:+.1f}s".replace("-0.0", "+0.0")


def _drained(host: HostSummary, _clock: Clock) -> str:
    return ABSENT if host.drained_by is None else f"by {host.drained_by}"


HOSTS = Kind(
    HostSummary._fields,
    ("seen_at",),
    (
        output.field("host"),
        output.time("seen_at", "SEEN"),
        output.field("version"),
        Column("CLOCK", _clock_ahead, right=True),
        *map(output.number, ("keys", "wins", "skips")),
        Column("DRAINED", _drained),
        output.field("silent_on", "SILENT ON"),
        output.number("machines"),
    ),
)
OPTIONS = (*OUTPUT_OPTIONS, *STORE_OPTIONS)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.config.settings import Settings
    from oncecron.core import clock
    from oncecron.core.stderr import complain
    from oncecron.log.hosts import hosts

    settings = Settings(OPTIONS, given)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=settings["utc"])
    with store_reader(settings) as store:
        found = hosts(store.key_hosts(), store.pauses(), clock.wall())
        shown = output.Writer(HOSTS, style, stream).write(found)
    if not shown and stream.isatty():
        complain("no host has fired a key yet")
    return incomplete(store)


COMMAND = TableCommand(
    "hosts",
    OPTIONS,
    _show,
    short="Show which hosts fire which keys.",
    about="Show one line per host: when its last firing reached the store, its version of oncecron, how far its clock "
    "is ahead of the store's, how many keys it fires, how many ticks it ran and skipped in the last 24 hours, and on "
    "which keys it is silent. A host is silent on a key when other hosts fired the last three ticks and it did not.",
    examples=("oncecron hosts", "oncecron hosts --json"),
)
