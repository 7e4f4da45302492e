"""Findings in systemd units: ExecStart= of a service is read like the command of a crontab line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.core.shell_words import guard_in
from oncecron.crontab.lint.linted_entry import (
    Diagnostic,
    Invocation,
    invocation_of,
    with_inner_commands,
)
from oncecron.crontab.lint.sections import UsedKey, key_of
from oncecron.crontab.simple_commands import simple_commands, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_START = re.compile(r"\s*ExecStart\s*=\s*[@:+!|-]*(.*)", re.DOTALL)


def check_unit(name: str, text: str, jobs: Mapping[str, Mapping[str, str]]) -> Iterator[Diagnostic]:
    """Yield each guard of a unit whose tick is the minute: timers start late, on each host at another time."""
    for number, invocation in _invocations(text, jobs):
        if invocation and invocation.key is not None and not invocation.names_the_tick:
            yield Diagnostic(
                *(name, number, "systemd"),
                "a timer starts late (AccuracySec=, RandomizedDelaySec=, Persistent=): without --schedule, the "
                "minute of the start is the tick",
                "add --schedule with the timer's time as five crontab fields, and --tz",
            )


def keys_of_unit(text: str) -> Iterator[UsedKey]:
    """Yield the key of each guard of a unit."""
    for _, invocation in _invocations(text, {}):
        yield UsedKey(key_of(invocation) if invocation else None, has_user=False)


def _invocations(
    text: str, jobs: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[int, Invocation | None]]:
    """Yield each guard of a unit with its line; None where the line cannot be read as a command."""
    for number, setting in _settings(text):
        start = _START.fullmatch(setting)
        commands = simple_commands(start[1]) if start else ()
        if start and commands is None and guard_in(to_bytes(start[1])):
            yield number, None
        for simple in with_inner_commands(commands or ()):
            invocation = invocation_of(simple.words, None, jobs)
            if invocation:
                yield number, invocation


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
