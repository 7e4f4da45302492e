"""`oncecron crontab`: commands for crontabs, which need no store."""

from __future__ import annotations

import os
import stat
from typing import Any

import click

from oncecron.cli import output
from oncecron.cli.group import LazyGroup, Listed
from oncecron.core.errors import UsageError
from oncecron_crontab.cli import files


class CrontabGroup(LazyGroup):
    """The group. After a usage error wrap and unwrap copy their input, so that `| crontab -` installs no empty file."""

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out a command. Copies the input before it raises a usage error."""
        try:
            return super().invoke(ctx)
        except (click.UsageError, UsageError):
            if ctx.invoked_subcommand != "lint":
                _let_through()
            raise


def _let_through() -> None:
    try:
        pipes = all(stat.S_ISFIFO(os.fstat(number).st_mode) for number in (0, 1))
    except OSError:  # one of them is closed
        return
    if not pipes:
        return
    output.give(files.read_source([files.STANDARD_INPUT]).data)


COMMAND = CrontabGroup(
    "crontab",
    {
        "Commands": {
            "wrap": Listed("Add `oncecron run` to the lines of a crontab."),
            "unwrap": Listed("Remove what wrap has added."),
            "lint": Listed("Find lines that run twice, nowhere or at another time."),
        }
    },
    __name__,
    about="Add, remove or check oncecron in a crontab. These commands need no store. They read a file or standard "
    "input, and write to standard output unless you add --install or --in-place.",
)
