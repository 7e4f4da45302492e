"""The command line: a lazy group of commands. A usage error is one line and exit status 64.

A command's module is imported on first use, and none imports a driver before it opens the store: `--help`,
`--version` and completion stay fast.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import click

from oncecron import __version__
from oncecron.cli.command import LazyGroup, UsageErrorWithCure, answer
from oncecron.core.errors import EX_USAGE
from oncecron.core.stderr import complain
from oncecron.core.suggestion import suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

SECTIONS = {
    "Run a job": {
        "run": "Run a command once per tick, on one host.",
        "each": "Run a command once per item of a list, on several hosts.",
    },
    "See what happened": {
        "history": "Show the job-execution log.",
        "why": "Explain what happened at one tick.",
        "jobs": "Show the state of every key.",
        "timeline": "Show what became of every tick, by time.",
        "hosts": "Show which hosts fire which keys.",
        "locks": "Show what is running now, and where.",
        "items": "Show the items of `each`; queue some again, or mark them done.",
        "next": "Show the next ticks of a schedule.",
        "report": "Write a page for a browser: every key, and what is wrong.",
        "audit": "Check for overlapping, duplicate and missed runs.",
        "check": "Check for a monitoring system whether all is well.",
        "notify": "Send what goes wrong, and what recovers, to mail, chat or a program.",
        "metrics": "Show every key for Prometheus.",
        "web": "Serve the page of `report` live, for a browser.",
    },
    "Intervene": {
        "stop": "Stop a running job, on any host.",
        "release": "Release a key that a dead host still holds.",
        "pause": "Start no new runs of a key, on any host.",
        "resume": "End a pause.",
        "drain": "Start no new jobs on a host.",
        "undrain": "Start jobs on a drained host again.",
        "forget": "Expect no further runs of a retired key, or of a retired host.",
    },
    "Set up": {
        "doctor": "Find what is wrong with this host and its store.",
        "drill": "Put the store to the proof, and print a certificate.",
        "config": "Check and show the configuration.",
        "crontab": "Add, remove or check oncecron in a crontab.",
        "init": "Create or upgrade the store's schema.",
        "prune": "Remove old records now.",
        "flush": "Deliver spooled records to the store.",
        "completion": "Print a completion script for a shell.",
    },
}
"""The commands by the headings of the help, each with its sentence."""
MODULES = {
    **dict.fromkeys(("pause", "resume", "drain", "undrain", "forget"), "oncecron.cli.switches"),
    "release": "oncecron.cli.stop",
    "each": "oncecron_each.cli.each",
    "items": "oncecron_each.cli.items",
    "crontab": "oncecron_crontab.cli",
    "notify": "oncecron_notify.cli",
    **{name: f"oncecron_web.cli.{name}" for name in ("report", "web", "metrics")},
    "drill": "oncecron_drill.cli",
}
"""Where the commands are that have no module of their own in `oncecron.cli`."""
_SHOWN = "`oncecron jobs` (every key), `oncecron locks` (what runs now) or `oncecron history`"
_MEANT = {
    **{name: f"`oncecron crontab {name}`" for name in ("wrap", "unwrap", "lint")},
    **dict.fromkeys(("status", "list", "ls", "ps", "show"), _SHOWN),
    **dict.fromkeys(("log", "logs"), "`oncecron history`"),
    "kill": "`oncecron stop`",
    "unlock": "`oncecron release`",
    "unpause": "`oncecron resume`",
    "exec": "`oncecron run`",
    "version": "`oncecron --version`",
}
_BARE = """\
usage: oncecron COMMAND [OPTION]...

  oncecron run --key NAME -- JOB        run JOB once per tick, on one host
  oncecron crontab wrap --diff FILE     add oncecron to the lines of a crontab
  oncecron history                      show the job-execution log
  oncecron why KEY                      explain what happened at the last tick

All commands: oncecron --help
"""

COMPLETION_VARIABLE = "_ONCECRON_COMPLETE"
"""The environment variable that the scripts of `oncecron completion` set."""


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        answer(ctx, f"oncecron {__version__}")


ONCECRON = LazyGroup(
    "oncecron",
    SECTIONS,
    "oncecron.cli",
    modules=MODULES,
    about="Run a crontab entry once cluster-wide. Put `oncecron run --key KEY --` in front of the same line "
    "on every host. At each scheduled time, one host runs the command and the others skip it. For the options of a "
    "command, see `oncecron COMMAND --help`.",
    meant=_MEANT,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
)
ONCECRON.otherwise = "to run a job, use `oncecron run --key NAME -- JOB`; see `oncecron --help`"


def invoke(arguments: Sequence[str]) -> int:
    """Carry out a command line; return the exit status. Raises `OncecronError`."""
    gc.set_threshold(100_000)  # above what the imports allocate: a collection of that costs 20 ms
    gc.enable()  # a long history would keep reference cycles
    if not arguments and COMPLETION_VARIABLE in os.environ:  # a typed command is never a TAB
        from oncecron.cli.completion import complete  # noqa: PLC0415 - only at a TAB

        return complete(ONCECRON)
    if not arguments:
        click.echo(_BARE, err=True, nl=False)
        return EX_USAGE
    try:
        with ONCECRON.make_context("oncecron", list(arguments)) as context:
            status = ONCECRON.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        complain(_sentence(error))
        return EX_USAGE
    except BrokenPipeError:
        _discard_output()
        return 0
    return status if isinstance(status, int) else 0


def _sentence(error: click.ClickException) -> str:
    text = error.format_message().strip().rstrip(".")
    if isinstance(error, UsageErrorWithCure) or not isinstance(error, click.UsageError):
        return text
    path = error.ctx.command_path if error.ctx else "oncecron"
    see = f"see `{path} --help`"
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-")
        meant = suggestion(name, _options(error.ctx), see, shown="--{}".format)
        return f"no such option {error.option_name}{meant}"
    return f"{text[:1].lower()}{text[1:]}; {see}"


def _options(ctx: click.Context | None) -> list[str]:
    """Return the long names of a command's options, without dashes."""
    parameters = ctx.command.get_params(ctx) if ctx else ()
    return [name[2:] for each in parameters for name in each.opts if name.startswith("--")]


def _discard_output() -> None:
    """Discard the buffered output: the reader has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
