"""What the crontab commands bring: for `doctor` whether cron runs and its lines find oncecron, for `why` `again`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from oncecron.cli.doctor import CRON_PATH
from oncecron.core.diagnosis import Diagnosis
from oncecron.core.text import listed, visible
from oncecron.plugins import Plugin
from oncecron.stores.address import shell_quoted
from oncecron_crontab.cli.installed import crontabs_of_host
from oncecron_crontab.crons import CRONS
from oncecron_crontab.installed_cron import installed_cron
from oncecron_crontab.lint import check_variables
from oncecron_crontab.lint.line import linted_entries
from oncecron_crontab.simple_commands import program_name, program_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncecron.config.settings import Settings
    from oncecron_crontab.crons import Cron
    from oncecron_crontab.lint import LintedCrontab
    from oncecron_crontab.lint.line import LintedEntry

_DAEMONS = ("cron", "crond", "supercronic", "fcron", "busybox")


def _host(_settings: Settings) -> Iterator[Diagnosis]:
    cron = installed_cron()
    yield from of_cron(cron)
    crontabs, cron = list(crontabs_of_host(cron)), cron or CRONS["debian"]
    yield of_path(crontabs, cron)
    yield from of_variables(crontabs, cron)


def of_cron(cron: Cron | None, proc: str = "/proc") -> Iterator[Diagnosis]:
    """Judge the cron daemon of this host."""
    running = sorted({name for name in _processes(proc) if name in _DAEMONS})
    if running:
        yield Diagnosis("ok", "cron", f"{', '.join(running)} is running")
    else:
        which = f"{cron.title} is installed, but" if cron else "a cron daemon"
        text = f"{which} does not run: nothing fires the crontabs of this host"
        yield Diagnosis("warn", "cron", text, "start it, for example `systemctl enable --now cron`")


def of_path(crontabs: Iterable[LintedCrontab], cron: Cron) -> Diagnosis:
    """Judge whether the lines of crontabs find the oncecron that they name."""
    found: set[str] = set()
    missing: list[str] = []
    for source in crontabs:
        for line in linted_entries(source, {}, cron):
            path = line.environment.get("PATH", CRON_PATH)
            for program in _programs(line):
                if _is_there(program, path):
                    found.add(program)
                else:
                    where = "" if "/" in program else f" in its PATH ({path})"
                    missing.append(
                        f"{source.name} line {line.entry.number} finds no {program}{where}"
                    )
    if missing:
        here = os.path.abspath(sys.argv[0])
        return Diagnosis(
            "warn",
            "path",
            visible(listed(missing)),
            f"write {here} there, as `oncecron crontab wrap` does",
        )
    if found:
        return Diagnosis("ok", "path", f"the crontabs find {visible(listed(sorted(found)))}")
    return Diagnosis(
        "ok", "path", "no line of the crontabs that this user may read starts oncecron"
    )


def of_variables(crontabs: Iterable[LintedCrontab], cron: Cron) -> Iterator[Diagnosis]:
    """Name the variables of crontabs that seem to be meant for oncecron."""
    for source in crontabs:
        for each in check_variables(source, linted_entries(source, {}, cron)):
            text = visible(f"{source.name} line {each.line}: {each.message}")
            yield Diagnosis("warn", "environment", text, each.cure)


def _programs(line: LintedEntry) -> Iterable[str]:
    """Return what a line starts of oncecron, as it is written: its guards, and other commands such as `notify`."""
    started = (program_of(simple, _is_ours) for simple in line.commands)
    others = (program.path for program in started if _is_ours(program.path))
    return dict.fromkeys((*(guard.program for guard in line.invocations), *others))


def _is_ours(word: str) -> bool:
    return program_name(word) == "oncecron"


def _is_there(program: str, path: str) -> bool:
    """Return whether a line finds a program, or may find it: where a shell must expand it, or nobody may look."""
    if "/" not in program:
        return shutil.which(program, path=path) is not None
    if not program.startswith("/"):
        return True
    try:
        os.stat(program)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return os.access(program, os.X_OK)


def _processes(proc: str) -> Iterator[str]:
    for entry in os.listdir(proc) if os.path.isdir(proc) else ():
        if entry.isdigit():
            try:
                with open(f"{proc}/{entry}/comm", encoding="utf-8", errors="replace") as file:
                    yield file.read().strip()
            except OSError:  # it has ended
                continue


def _again(key: str, tick: str | None) -> Iterator[str]:
    yield f"again {key}" + (f" --tick {shell_quoted(tick)}" if tick else "")


PLUGIN = Plugin(host=_host, again=_again)
