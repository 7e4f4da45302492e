"""`oncecron hosts`: one line per host."""

from __future__ import annotations

from oncecron.cli.command import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_inspector,
)

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (*OUTPUT_OPTIONS, *STORE_OPTIONS)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.config.settings import Settings
    from oncecron.core import clock
    from oncecron.core.stderr import complain
    from oncecron.log.hosts import hosts

    settings = Settings(OPTIONS, given)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=settings["utc"])
    with store_inspector(settings) as store:
        found = hosts(store.key_hosts(), store.pauses(), clock.wall())
        shown = output.Writer(tables.HOSTS, style, stream).write(found)
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
