"""`oncecron run` by way of click: for its help, and for telling what is wrong with a command line.

A well-formed line never comes here, see `options.parse_run`: both read the same.
"""

from __future__ import annotations

import click

from oncecron.cli.command import TableCommand
from oncecron.config.options import RUN_OPTIONS
from oncecron.config.run_parser import ParsedRun


def _run(given: dict[str, str], words: list[str]) -> int:
    from oncecron.run.firing import run  # noqa: PLC0415 - not for --help

    return run(ParsedRun(given, words))


COMMAND = TableCommand(
    "run",
    RUN_OPTIONS,
    _run,
    short="Run a command once per tick, on one host.",
    about="Run a command once per tick, on one host, never two at a time. Arguments, standard streams, signals "
    "and the exit status are the command's own. Without --schedule, --tick and --no-tick the host's minute is "
    "the tick. Durations read 90, 90s, 15m, 1h30m, 1d.",
    epilog="Example: oncecron run --key billing-nightly --schedule '0 2 * * *' -- ./bill.sh --all",
    words=click.Argument(["words"], metavar="COMMAND [ARGUMENT]...", nargs=-1),
    greedy=True,
)
