"""`oncecron-shell`: the shell of a whole crontab. Cron calls it with `-c COMMAND` for each line below `SHELL=`.

    ONCECRON=off in front, or in the crontab     the shell runs the line on every host
    run-parts, anacron, oncecron itself          the same: they belong to each host
    the line has `oncecron run` or `each`        the same: it is already protected
    any other line                               `oncecron run --key auto`, the key of `crontab wrap`, and with
                                                 `--only-if` for a test of the host at its beginning

Options come from [job.KEY] and from ONCECRON_* variables in the crontab. Cron does not pass comments on, so they have
no effect. The shell is $ONCECRON_SHELL, else /bin/sh. The command gets it as SHELL: a program that starts commands with
$SHELL would come here again. Without $ONCECRON_SHELL a command that needs no shell is started without one. It gets PWD,
as from a shell.
"""

from __future__ import annotations

import os
import sys

from oncecron.config.options import AUTO_KEY, BOURNE_SHELL, OWN_SHELL
from oncecron.config.run_parser import ParsedRun
from oncecron.core.errors import EX_NOT_FOUND, CommandError, UsageError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.shell_words import simple_words
from oncecron_crontab.guards import guard_in, is_off, per_host_program

if TYPE_CHECKING:
    from collections.abc import Callable

_USAGE = f"""\
Run each line of a crontab once per tick, on one host.

Set it as the shell at the top of a crontab. Cron then calls `{OWN_SHELL} -c COMMAND` for each line below:

    SHELL={{path}}
    ONCECRON_STORE=postgresql://cron@db/cron
    0 2 * * *    ./bill.sh
    */5 * * * *  ONCECRON=off df -h /

Each line runs as `oncecron run`, with a key derived from its command, as in `oncecron crontab wrap`. Options come from
[job.KEY] in the configuration file and from ONCECRON_* variables. ONCECRON_SHELL=/bin/bash lets bash run the commands;
the default is /bin/sh. A line with ONCECRON=off in front runs on every host;
so do run-parts and anacron. Put ONCECRON=off in front of @reboot lines.
"""


def run_line(arguments: list[str], run: Callable[[ParsedRun], int]) -> int:
    """Run a line as cron's shell; return the exit status. Raises `OncecronError` before anything runs.

    `run` carries out a firing.
    """
    if arguments in (["--help"], ["-h"]):
        from oncecron.cli import output  # noqa: PLC0415 - not where a line is run

        path = os.path.abspath(sys.argv[0])  # of the installed script
        output.say(_USAGE.format(path=path), output.standard_output())
        return 0
    if len(arguments) != 2 or arguments[0] != "-c":  # noqa: PLR2004 - the option and its value
        raise UsageError(
            f"{OWN_SHELL} is for SHELL= in a crontab; cron calls it with -c COMMAND; see `{OWN_SHELL} --help`"
        )
    command = arguments[1]
    bare = os.fsencode(command)
    os.environ["SHELL"] = shell = _shell()
    if _runs_everywhere(bare):
        return _become_shell(shell, command)
    given = {"key": AUTO_KEY}
    words = simple_words(bare)
    if words is None:
        from oncecron_crontab.leading_test import leading_test  # noqa: PLC0415 - only where a shell is needed

        test = leading_test(bare)
        if test:
            given["only-if"] = test.decode()
    # Another shell may read files that set the command's environment: bash $BASH_ENV, zsh .zshenv.
    if words and shell == BOURNE_SHELL:
        _set_pwd()
        return run(ParsedRun(given, [os.fsdecode(word) for word in words]))
    return run(ParsedRun({**given, "shell": os.fsdecode(bare)}, []))


def _runs_everywhere(command: bytes) -> bool:
    off = os.environ.get("ONCECRON") == "off" or is_off(command) or not command.strip()
    return off or guard_in(command) is not None or per_host_program(command) is not None


def _shell() -> str:
    """Return the shell that runs the commands. Raises `UsageError`."""
    shell = os.environ.get("ONCECRON_SHELL") or BOURNE_SHELL
    if not os.path.isabs(shell) or os.path.basename(shell) == OWN_SHELL:
        raise UsageError(
            f"$ONCECRON_SHELL: {shell!r} is not the path of a shell; write ONCECRON_SHELL=/bin/bash"
        )
    return shell


def _set_pwd() -> None:
    """Set $PWD as sh does (POSIX, XCU 2.5.3): a path that still leads here stays."""
    named = os.environ.get("PWD", "")
    if os.path.isabs(named) and os.path.exists(named) and os.path.samefile(named, "."):
        return
    try:
        os.environ["PWD"] = os.getcwd()
    except OSError:  # the directory was removed; sh does not set it either
        return


def _become_shell(shell: str, command: str) -> int:
    try:
        os.execv(shell, [shell, "-c", command])  # noqa: S606 - it is the shell
    except OSError as error:
        raise CommandError(f"{shell}: {error.strerror}", EX_NOT_FOUND) from error
