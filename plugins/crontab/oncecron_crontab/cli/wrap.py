"""`oncecron crontab wrap`: add `oncecron run` to the lines of a crontab."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron.cli.command import TableCommand
from oncecron.config.options import Option
from oncecron.core.errors import ConfigurationError, UsageError
from oncecron.host import local_time
from oncecron.host.names import user_name
from oncecron.host.stderr import complain
from oncecron_crontab.cli.installed import CRON, chosen_cron
from oncecron_crontab.cli.rewriting import CRONTABS, REWRITING_OPTIONS, USER, rewrite
from oncecron_crontab.wrap import WrapSettings, wrap

if TYPE_CHECKING:
    from oncecron_crontab.cli.files import CrontabFile
    from oncecron_crontab.scanner import Crontab
    from oncecron_crontab.wrap import Rewritten

ONLY = Option(
    "only", "text",
    "Change only lines whose command contains this text, or matches it as a whole if it has * or ?. Repeatable.",
    "PATTERN", repeatable=True,
)  # fmt: skip
TZ = Option(
    "tz", "text", "Write this time zone after each schedule, unless cron reads another one from the crontab. "
    "Default: the zone of this host.", "ZONE",
)  # fmt: skip
STRICT = Option(
    "strict", "flag",
    "Change nothing and exit with status 1 if a line would stay unchanged that no comment or option leaves out.",
)  # fmt: skip
_OWNER = USER._replace(
    help="Say whose crontab this is, because some keys have the name of the user. With --install: change it. "
    "Repeatable. Default: you."
)
OPTIONS = (
    *(ONLY, TZ, CRON, STRICT),
    *(_OWNER if option is USER else option for option in REWRITING_OPTIONS),
)
_PROGRAM = "oncecron"


def _wrap(given: dict[str, str], words: list[str]) -> int:
    cron = chosen_cron(given)

    @functools.cache  # for all crontabs: the host's zone is doubted once
    def settings() -> WrapSettings:
        zone = _given_zone(given["tz"]) if "tz" in given else host_zone_of_cron()
        only = tuple(filter(None, given.get("only", "").split(",")))
        if "only" in given and not only:
            raise UsageError("--only is empty (an unset variable?); leave it out for all lines")
        return WrapSettings(
            *(program_path(), zone, only, cron), zone_given="tz" in given, strict="strict" in given
        )

    def wrapped(crontab: Crontab, source: CrontabFile) -> Rewritten:
        return wrap(crontab, settings()._replace(user=source.owner or user_name()))

    return rewrite(given, words, wrapped, cron=cron, command="wrap", done="now run by oncecron")


def program_path() -> str:
    """Return the absolute path of oncecron for cron. Raises `ConfigurationError`."""
    beside = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    candidates = [shutil.which(sys.argv[0]), shutil.which(_PROGRAM), beside]
    for path in candidates:
        if path and os.path.basename(path) == _PROGRAM and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise ConfigurationError(
        "the program oncecron is not installed here, and cron needs its path; install the package"
    )


def _given_zone(zone: str) -> str:
    try:
        local_time.scheduled_tick("@daily", zone, 0)
    except ValueError as error:
        raise UsageError(f"--tz: {error}") from error
    return zone


def host_zone_of_cron() -> str:
    """Return the time zone of this host's cron, as far as it can be known. Raises `ConfigurationError`."""
    try:
        zone = local_time.host_zone()
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    try:
        of_files = local_time.host_zone({})
    except ValueError:
        of_files = zone
    if local_time.canonical(zone) != local_time.canonical(of_files):
        complain(
            f"using the time zone {zone} from $TZ, but the zone of this host is {of_files}; use --tz to choose"
        )
    return zone


COMMAND = TableCommand(
    "wrap", OPTIONS, _wrap,
    about="Put `oncecron run` with a key, the schedule and the time zone in front of each command of a crontab. "
    "--install changes your crontab; without it, the new crontab is written to standard output. `oncecron crontab "
    "unwrap` undoes it. Lines that every host must run stay unchanged and are reported: @reboot, run-parts, "
    "logrotate, apt and the like, and lines below `# oncecron: off`. So do lines that a guard would break: those "
    "that test the name of the host, and jobs in the background. With --user-field, only lines that --only or a "
    "comment selects are changed. A comment such as `# oncecron: key=NAME timeout=1h` above a line sets its key and "
    "options. If one line cannot be changed, nothing is changed, and the exit status is 1.",
    examples=(
        "oncecron crontab wrap --install --check",
        "oncecron crontab wrap --install",
        "oncecron crontab wrap --user-field --only backup --in-place /etc/cron.d/app",
    ),
    words=CRONTABS,
)  # fmt: skip
