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

from oncecron.cli.command import COMPLETION_VARIABLE, UsageErrorWithCure, answer
from oncecron.cli.group import LazyGroup, Listed
from oncecron.cli.meant import MEANT
from oncecron.core.errors import EX_USAGE
from oncecron.core.suggestion import NEARER, suggestion
from oncecron.host.stderr import complain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECTIONS = {
    "Run a job": {
        "run": Listed("Run a command once per tick, on one host."),
        "each": Listed("Run a command once per item of a list, on several hosts.", "oncecron_each.cli.each"),
    },
    "See what happened": {
        "history": Listed("Show the job-execution log."),
        "why": Listed("Explain what happened at one tick."),
        "jobs": Listed("Show the state of every key."),
        "timeline": Listed("Show what became of every tick, by time."),
        "hosts": Listed("Show which hosts fire which keys."),
        "locks": Listed("Show what is running now, and where."),
        "items": Listed("Show the items of `each`; queue some again, or mark them done.", "oncecron_each.cli.items"),
        "next": Listed("Show the next ticks of a schedule."),
        "report": Listed(
            "Write a page for a browser: every key, and what is wrong.", "oncecron_web.cli.report", "oncecron-web"
        ),
        "audit": Listed("Check for overlapping, duplicate and missed runs."),
        "check": Listed("Check for a monitoring system whether all is well."),
        "notify": Listed("Send what goes wrong, and what recovers, to mail, chat or a program.", "oncecron_notify.cli"),
        "metrics": Listed("Show every key for Prometheus.", "oncecron_web.cli.metrics", "oncecron-web"),
        "web": Listed("Serve the page of `report` live, for a browser.", "oncecron_web.cli.web", "oncecron-web"),
    },
    "Intervene": {
        "again": Listed("Run the crontab line of a key by hand, as cron would.", "oncecron_crontab.cli.again"),
        "stop": Listed("Stop a running job, on any host."),
        "release": Listed("Release a key that a dead host still holds.", "oncecron.cli.stop"),
        "pause": Listed("Start no new runs of a key, on any host.", "oncecron.cli.switches"),
        "resume": Listed("End a pause.", "oncecron.cli.switches"),
        "drain": Listed("Start no new jobs on a host.", "oncecron.cli.switches"),
        "undrain": Listed("Start jobs on a drained host again.", "oncecron.cli.switches"),
        "forget": Listed("Expect no further runs of a retired key, or of a retired host.", "oncecron.cli.switches"),
    },
    "Set up": {
        "doctor": Listed("Find what is wrong with this host and its store."),
        "drill": Listed("Put the store to the proof, and print a certificate.", "oncecron_drill.cli", "oncecron-drill"),
        "config": Listed("Check and show the configuration."),
        "crontab": Listed("Add, remove or check oncecron in a crontab.", "oncecron_crontab.cli"),
        "init": Listed("Create or upgrade the store's schema."),
        "prune": Listed("Remove old records now."),
        "flush": Listed("Deliver spooled records to the store."),
        "completion": Listed("Print a completion script for a shell."),
    },
}  # fmt: skip
"""The official commands by the headings of the help, each with its sentence, its module and its distribution.

No other package can replace one of them.
"""
_BARE = """\
usage: oncecron COMMAND [OPTION]...

  oncecron run --key NAME -- JOB        run JOB once per tick, on one host
  oncecron crontab wrap --diff FILE     add oncecron to the lines of a crontab
  oncecron history                      show the job-execution log
  oncecron why KEY                      explain what happened at the last tick

All commands: oncecron --help
"""


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from oncecron.host.installation import version  # noqa: PLC0415 - for this alone

        answer(ctx, f"oncecron {version()}")


def _others() -> Mapping[str, Listed]:
    from oncecron.plugins import of_others  # noqa: PLC0415 - none of our own commands needs it

    return {name: one for each in of_others() for name, one in each.plugin.commands.items()}


ONCECRON = LazyGroup(
    "oncecron",
    SECTIONS,
    "oncecron.cli",
    about="Run a crontab entry once cluster-wide. Put `oncecron run --key KEY --` in front of the same line "
    "on every host. At each scheduled time, one host runs the command and the others skip it. For the options of a "
    "command, see `oncecron COMMAND --help`.",
    others=_others,
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
    if error.ctx and isinstance(error.ctx.command, click.Group):
        see = f"the options of a command go after it; {see}"
    if isinstance(error, click.NoSuchOption):
        option = error.option_name
        meant = MEANT.get(f"{path} {option}") or _key_as_option(error.ctx, option)
        if meant:
            return f"no such option {option}; {meant}"
        name, known = option.lstrip("-"), _options(error.ctx)
        near = suggestion(name, known, see, shown="--{}".format, least=NEARER)
        return f"no such option {option}{near}"
    return f"{text[:1].lower()}{text[1:]}; {see}"


def _key_as_option(ctx: click.Context | None, option: str) -> str | None:
    """Return what to write for `--key K` where the key is an argument."""
    metavars = [each.metavar or "" for each in ctx.command.params] if ctx else []
    if ctx is None or option != "--key" or "KEY" not in metavars[-1]:
        return None
    return f"the key is an argument: `{ctx.command_path} KEY`"


def _options(ctx: click.Context | None) -> list[str]:
    parameters = ctx.command.get_params(ctx) if ctx else ()
    return [name[2:] for each in parameters for name in each.opts if name.startswith("--")]


def _discard_output() -> None:
    """Discard the buffered output: the reader has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
