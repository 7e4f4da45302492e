"""`oncecron jobs`: one line per key."""

from __future__ import annotations

from oncecron.cli.command import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_and_log,
)

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (*OUTPUT_OPTIONS, *STORE_OPTIONS)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.cli.gather import every_job
    from oncecron.config.settings import Settings
    from oncecron.core import clock
    from oncecron.core.stderr import complain
    from oncecron.log.jobs import Sources

    settings = Settings(OPTIONS, given)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=settings["utc"])
    with store_and_log(settings) as (store, log):
        shown = output.Writer(tables.JOBS, style, stream).write(
            every_job(Sources(store, log, clock.wall()))
        )
    if not shown and stream.isatty():
        complain("no host has fired a key yet")
    return incomplete(store, log)


COMMAND = TableCommand(
    "jobs",
    OPTIONS,
    _show,
    short="Show the state of every key.",
    about="Show one line per key: the last outcome, the last success, the host where it runs now, how many runs in a "
    "row succeeded or failed, the usual duration, the next tick (if the key runs with --schedule), and who has paused "
    "it.",
    examples=("oncecron jobs", "oncecron jobs --json"),
)
