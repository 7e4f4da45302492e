"""`oncecron jobs`: one line a key."""

from __future__ import annotations

from oncecron.cli.command import (
    OUTPUT_OPTIONS,
    STORE_OPTIONS,
    TableCommand,
    output_format,
    store_and_log,
)

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (*OUTPUT_OPTIONS, *STORE_OPTIONS)


def _show(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.config.settings import Settings
    from oncecron.core import clock
    from oncecron.core.stderr import complain
    from oncecron.reports.jobs import jobs

    settings = Settings(OPTIONS, given)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=settings["utc"])
    with store_and_log(settings) as (store, log):
        shown = output.Writer(tables.JOBS, style, stream).write(jobs(store, log, clock.wall()))
    if not shown and stream.isatty():
        complain("no host has fired yet")
    return 0


COMMAND = TableCommand(
    "jobs",
    OPTIONS,
    _show,
    short="Show every key at a glance.",
    about="Show one line a key: how it ended last and when it last succeeded, where it runs and since when, how many "
    "in a row succeeded or did not, how long it usually takes, when it is due next (where it was last claimed with "
    "--schedule), and who has paused it.",
)
