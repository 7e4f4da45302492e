"""The command line: a lazy group of commands; what click refuses becomes one line and exit status 64.

A command's module is imported when the command is asked for, and none of them imports a driver before it
opens the store: `--help`, `--version` and completion stay fast.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import click

from oncecron import __version__
from oncecron.cli.command import LazyGroup, answer
from oncecron.core.errors import EX_USAGE
from oncecron.core.stderr import complain

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    *("run", "history", "locks", "jobs", "next", "why", "audit"),
    *("stop", "release", "pause", "resume", "drain", "undrain"),
    *("crontab", "init", "prune", "flush", "completion"),
)

COMPLETION_VARIABLE = "_ONCECRON_COMPLETE"
"""The environment variable by which the scripts of `oncecron completion` ask."""


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        answer(ctx, f"oncecron {__version__}")


ONCECRON = LazyGroup(
    "oncecron",
    COMMANDS,
    "oncecron.cli",
    about="Run a crontab entry once cluster-wide: put `oncecron run --key KEY --` in front of the same line "
    "on every host, and each tick is started by one of them. oncecron COMMAND --help tells more.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
)
ONCECRON.otherwise = "to run a command: oncecron run"


def invoke(arguments: Sequence[str]) -> int:
    """Carry out a command line; return the exit status. Raises `OncecronError`."""
    gc.set_threshold(100_000)  # more than the imports make: to look through that costs 20 ms
    gc.enable()  # a long history would keep what refers to itself
    if (
        not arguments and COMPLETION_VARIABLE in os.environ
    ):  # a command that is typed is never taken for a TAB
        from oncecron.cli.completion import complete  # noqa: PLC0415 - only at a TAB

        return complete(ONCECRON)
    try:
        with ONCECRON.make_context("oncecron", list(arguments)) as context:
            status = ONCECRON.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        complain(f"{_sentence(error)}; see {_path(error.ctx)} --help")
        return EX_USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return EX_USAGE
    except BrokenPipeError:
        _discard_output()
        return 0
    return status if isinstance(status, int) else 0


def _sentence(error: click.UsageError) -> str:
    text = error.format_message().strip().rstrip(".")
    return text[:1].lower() + text[1:]


def _path(context: click.Context | None) -> str:
    return context.command_path if context else "oncecron"


def _discard_output() -> None:
    """Let what is still buffered go nowhere: the reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
