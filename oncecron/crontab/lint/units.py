"""Findings in systemd units: a service's ExecStart= is to lint what the command of a line is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.crontab.lint.lines import Finding, guard_of, unfolded
from oncecron.crontab.lint.shell import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_START = re.compile(r"\s*ExecStart\s*=\s*[@:+!|-]*(.*)", re.DOTALL)


def check_unit(name: str, text: str, jobs: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Yield guards in a unit that take the minute for the tick: timers start late, on each host at another time."""
    for number, setting in _settings(text):
        start = _START.fullmatch(setting)
        for part in unfolded(parts(start[1]) or ()) if start else ():
            guard = guard_of(part.words, None, jobs)
            if guard and guard.key is not None and not guard.names_the_tick:
                yield Finding(
                    *(name, number, "systemd"),
                    "a timer starts late (AccuracySec=, RandomizedDelaySec=, Persistent=), and without --schedule "
                    "the minute of the start is the tick",
                    "add --schedule with the timer's time as five crontab fields, and --tz",
                )


def _settings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines, continued ones joined, with the numbers of their first."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.lstrip().startswith(("#", ";")):
            continue
        joined = line
        while joined.endswith("\\"):
            joined = f"{joined[:-1]} {next(lines, (0, ''))[1]}"
        yield number, joined
