"""`oncecron run` by way of click: for its help, for --dry-run, and to say what is wrong with a command line.

A well-formed line of a firing never comes here: `config.run_parser` reads it, by the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli.command import TableCommand
from oncecron.config.options import RUN_OPTIONS
from oncecron.config.run_parser import ParsedRun

if TYPE_CHECKING:
    from oncecron.run.seams import Observer
    from oncecron.run.spec import RunSpec


def _run(given: dict[str, str], words: list[str]) -> int:
    from oncecron.run.firing import run  # noqa: PLC0415 - not for --help

    if "dry-run" in given:
        from oncecron.cli.dry_run import dry_run  # noqa: PLC0415 - likewise

        return dry_run(ParsedRun(given, words))
    return run(ParsedRun(given, words), observe)


def observe(spec: RunSpec) -> Observer | None:
    """Return what pings the services of a firing."""
    from oncecron.watch.pinger import start  # noqa: PLC0415 - only a key with a [[ping]] pays

    return start(spec)


COMMAND = TableCommand(
    "run", RUN_OPTIONS, _run,
    about="Run a command once per tick, on one host, and never twice at the same time. A tick is a scheduled time; "
    "without --schedule, --tick and --no-tick it is the host's current minute. The command keeps its arguments, "
    "standard streams, signals and exit status. Write durations as 90s, 15m, 1h30m or 1d.",
    examples=(
        "oncecron run --key billing-nightly --schedule '0 2 * * *' -- ./bill.sh --all",
        "oncecron run --key report --shell './collect | mail -s report ops'",
    ),
    words="COMMAND [ARGUMENT]...",
    greedy=True,
)  # fmt: skip
