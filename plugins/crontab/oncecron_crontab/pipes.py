"""Pipes that succeed although a program in them fails: a shell takes the status of the last one, without `pipefail`.

Not meant are pipes whose status counts for nothing (`a | b; c`, `a | b || true`), conditions, and programs on the left
that only pass a text on.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from oncecron_crontab.simple_commands import (
    SimpleCommand,
    lines_within,
    program_name,
    program_of,
    simple_commands,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GREPS = frozenset(("grep", "egrep", "fgrep", "zgrep", "rg", "ag"))
_PASSING_ON = _GREPS.union(
    ("echo", "printf", "cat", "yes", "true", ":", "read", "head", "tail", "sed", "awk", "gawk"),
    ("mawk", "cut", "tr", "sort", "uniq", "wc", "date", "ps", "ls", "df", "du", "who", "uptime"),
)
"""On the left of a pipe their status tells nothing of the job: they pass a text on, or show a state."""
_STOPPING = frozenset(("head", "true", ":"))
"""Who reads no further: with `pipefail`, the program before may end by SIGPIPE."""
_CONDITIONS = frozenset(("if", "elif", "while", "until", "!"))
_BRANCHES = frozenset(("else", "elif"))
_CARED_FOR = re.compile(r"\bpipefail\b|pipestatus\b|\bmispipe\b", re.IGNORECASE)
_HAVE_PIPEFAIL = frozenset(("bash", "zsh", "ksh", "ksh93", "mksh"))


class LostStatus(NamedTuple):
    """A program of a pipe whose failure nobody learns of."""

    program: str
    last: str
    """Whose status counts instead."""
    inside: bool
    """Whether it stands in a string for another shell."""
    grep: bool
    """Whether a grep gets its output: one that finds nothing fails too."""

    @property
    def why(self) -> str:
        """What happens."""
        return (
            f"{self.program} can fail and the run succeeds: the status of a pipe is that of its last program, "
            f"{self.last or 'a shell'}"
        )

    def cure(self, shell: str, option: str) -> str:
        """Return what to do; `shell`: that of the line, `option`: where to set --pipefail."""
        own = "write `set -o pipefail;` in front of the command"
        if self.inside:
            own = "write `set -o pipefail;` at the beginning of its string, for a shell that has it, such as bash"
        elif program_name(shell) not in _HAVE_PIPEFAIL:
            own = f"{option}; or set SHELL=/bin/bash above the line, and {own}"
        return f"{own}; with it, a grep that finds nothing fails too" if self.grep else own


def lost_statuses(command: str) -> Iterator[LostStatus]:
    """Yield the first such program of each pipe."""
    if _CARED_FOR.search(command):
        return
    for depth, line in enumerate(lines_within(command)):
        pipes = _pipes(simple_commands(line) or ())
        for pipe, behind in zip_longest(pipes, pipes[1:]):
            if lost := _lost(pipe, behind):
                yield lost._replace(inside=depth > 0)


def _pipes(simples: Sequence[SimpleCommand]) -> list[list[SimpleCommand]]:
    pipes: list[list[SimpleCommand]] = []
    for simple in simples:
        if not pipes or simple.joined_by != "|":
            pipes.append([])
        pipes[-1].append(simple)
    return pipes


def _lost(pipe: Sequence[SimpleCommand], behind: list[SimpleCommand] | None) -> LostStatus | None:
    if len(pipe) == 1 or _CONDITIONS.intersection(pipe[0].keywords) or not _counts(behind):
        return None
    names = [_name(simple) for simple in pipe]
    if names[-1] in _STOPPING or _is_quiet(pipe[-1]):
        return None
    for at, name in enumerate(names[:-1]):
        if name and name not in _PASSING_ON:
            return LostStatus(name, names[-1], False, not _GREPS.isdisjoint(names[at + 1 :]))
    return None


def _counts(behind: list[SimpleCommand] | None) -> bool:
    """Return whether the status of a pipe is that of the line, or decides on what is behind it."""
    if behind is None:
        return True
    first = behind[0]
    if first.joined_by == "||":
        return _name(first) not in ("true", ":", "exit")
    return first.joined_by == "&&" or not _BRANCHES.isdisjoint(first.keywords)


def _is_quiet(simple: SimpleCommand) -> bool:
    """Return whether it is a question, such as `grep -q`."""
    options = (word for word in simple.words if word.startswith("-"))
    return _name(simple) in _GREPS and any("q" in option for option in options)


def _name(simple: SimpleCommand) -> str:
    return program_of(simple, lambda word: program_name(word) in _PASSING_ON).name
