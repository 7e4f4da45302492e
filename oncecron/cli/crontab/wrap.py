"""`oncecron crontab wrap`: guard the lines of a crontab."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import FILES, TableCommand
from oncecron.cli.crontab.rewriting import REWRITING_OPTIONS, rewrite
from oncecron.config.options import Option
from oncecron.core.errors import ConfigurationError, UsageError
from oncecron.core.stderr import complain

if TYPE_CHECKING:
    from oncecron.cli.crontab.files import CrontabFile
    from oncecron.crontab.scanner import Crontab
    from oncecron.crontab.wrap import Rewritten

# ruff: noqa: PLC0415 - --help imports as little as it can

ONLY = Option(
    "only",
    "text",
    "Guard only lines whose command holds this text, or matches it whole where it has * or ?; may be given again.",
    "PATTERN",
    repeatable=True,
)
TZ = Option(
    "tz",
    "text",
    "The zone in which cron reads the schedules; the host's when not given.",
    "ZONE",
)
OPTIONS = (ONLY, TZ, *REWRITING_OPTIONS)
_PROGRAM = "oncecron"


def _wrap(given: dict[str, str], words: list[str]) -> int:
    def wrapped(crontab: Crontab, _source: CrontabFile) -> Rewritten:
        from oncecron.crontab.wrap import WrapSettings, wrap

        zone = _given_zone(given["tz"]) if "tz" in given else _host_zone(crontab)
        only = tuple(filter(None, given.get("only", "").split(",")))
        if "only" in given and not only:
            raise UsageError(
                "--only: the pattern is empty (an unset variable?); leave it out for all lines"
            )
        return wrap(crontab, WrapSettings(program_path(), zone, only))

    return rewrite(given, words, wrapped, done="guarded")


def program_path() -> str:
    """Return the absolute path by which cron is to call oncecron. Raises `ConfigurationError`."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    candidates = [shutil.which(sys.argv[0]), shutil.which(_PROGRAM), beside]
    for path in candidates:
        if path and os.path.basename(path) == _PROGRAM and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise ConfigurationError(
        "no program `oncecron` is installed here: cron needs its path; install the package"
    )


def _given_zone(zone: str) -> str:
    from oncecron.core import tick

    try:
        tick.scheduled_tick("@daily", zone, 0)
    except ValueError as error:
        raise UsageError(f"--tz: {error}") from error
    return zone


def _host_zone(crontab: Crontab) -> str:
    """Return the zone of this host's cron, as far as can be seen from here. Raises `ConfigurationError`."""
    from oncecron.core import time_zone

    try:
        zone = time_zone.host_zone()
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    try:
        of_files = time_zone.host_zone({})
    except ValueError:
        of_files = zone
    if zone != of_files:
        complain(
            f"the zone is {zone}, from $TZ, but this host's is {of_files}: --tz names the one that cron uses"
        )
    if any(variable.name == b"CRON_TZ" for variable in crontab.variables):
        complain(
            "CRON_TZ: Debian's cron does not heed it; where yours does, name that zone by --tz"
        )
    return zone


COMMAND = TableCommand(
    "wrap",
    OPTIONS,
    _wrap,
    short="Put `oncecron run` in front of the commands of a crontab.",
    about="Put `oncecron run` with a key, the line's schedule and the zone in front of the commands of a crontab, and "
    "write the new crontab to standard output. Nothing else is changed, and unwrap takes it off again. What belongs "
    "to each host stays as it is and is named: @reboot, run-parts, anacron, lines below `# oncecron: off`, and with "
    "--user-field all that neither --only nor a comment names. `# oncecron: key=NAME timeout=1h` above a line gives "
    "its key and options of run. If a line cannot be guarded, none is, and the exit status is 1.",
    epilog="Examples: crontab -l | oncecron crontab wrap --diff; crontab -l | oncecron crontab wrap | crontab -; "
    "oncecron crontab wrap --user-field --only backup --in-place /etc/cron.d/app",
    words=click.Argument(["words"], metavar="FILE|-", required=False, shell_complete=FILES),
)
