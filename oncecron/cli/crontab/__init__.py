"""`oncecron crontab`: commands on crontabs, which need no store."""

from __future__ import annotations

import os
import stat
from typing import Any

import click

from oncecron.cli.command import LazyGroup
from oncecron.core.errors import UsageError


class CrontabGroup(LazyGroup):
    """Whoever pipes what wrap and unwrap write into `crontab -` gets the crontab that came in if he has mistyped."""

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out a command. Raises what it raises, with the input let through first."""
        try:
            return super().invoke(ctx)
        except (click.UsageError, UsageError):
            if ctx.invoked_subcommand != "lint":
                _let_through()
            raise


def _let_through() -> None:
    """Write standard input to standard output, if both are pipes."""
    try:
        pipes = all(stat.S_ISFIFO(os.fstat(number).st_mode) for number in (0, 1))
    except OSError:  # one of them is closed
        return
    if not pipes:
        return
    from oncecron.cli import output  # noqa: PLC0415 - not for --help
    from oncecron.cli.crontab import files  # noqa: PLC0415 - not for --help

    output.give(files.read_source([files.STANDARD_INPUT]).data)


COMMAND = CrontabGroup(
    "crontab",
    ("wrap", "unwrap", "lint"),
    __name__,
    short="Guard the lines of a crontab, take the guards off, find what is unsafe.",
    about="Make a crontab safe to be the same on every host. These commands ask no store and install nothing: they "
    "read a file or standard input, and write standard output unless they are told --in-place.",
)
