"""Findings in systemd units: ExecStart= of a service is read like the command of a crontab line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.crontab.lint.linted_entry import Diagnostic, invocation_of, with_inner_commands
from oncecron.crontab.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_START = re.compile(r"\s*ExecStart\s*=\s*[@:+!|-]*(.*)", re.DOTALL)


def check_unit(name: str, text: str, jobs: Mapping[str, Mapping[str, str]]) -> Iterator[Diagnostic]:
    """Yield each `oncecron run` of a unit whose tick is the minute: timers start late, on each host at another time."""
    for number, setting in _settings(text):
        start = _START.fullmatch(setting)
        for simple in with_inner_commands(simple_commands(start[1]) or ()) if start else ():
            invocation = invocation_of(simple.words, None, jobs)
            if invocation and invocation.key is not None and not invocation.names_the_tick:
                yield Diagnostic(
                    *(name, number, "systemd"),
                    "a timer starts late (AccuracySec=, RandomizedDelaySec=, Persistent=): without --schedule, the "
                    "minute of the start is the tick",
                    "add --schedule with the timer's time as five crontab fields, and --tz",
                )


def _settings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; a continued line is joined and has the number of its first line."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.lstrip().startswith(("#", ";")):
            continue
        joined = line
        while joined.endswith("\\"):
            joined = f"{joined[:-1]} {next(lines, (0, ''))[1]}"
        yield number, joined
