"""Which commands have a guard already, or need none: for wrap, lint and `oncecron-shell`, which see only the words.

`oncecron-shell` imports this module for every line of its crontab, so it is small and imports little.
"""

from __future__ import annotations

from itertools import pairwise

from oncecron.config.options import JOB_COMMANDS
from oncecron.core.shell_words import fragments

_OPT_OUTS = (b"ONCECRON=off ", b"ONCECRON=off\t", b"ONCECRON=off;")
_JOB_COMMANDS = frozenset(name.encode() for name in JOB_COMMANDS)
_PER_HOST_PROGRAMS = (b"run-parts", b"anacron")


def is_off(command: bytes) -> bool:
    """Return whether a command begins with ONCECRON=off: every host runs it."""
    return command.lstrip().startswith(_OPT_OUTS)


def guard_in(command: bytes) -> str | None:
    """Return the first `oncecron run` or `oncecron each` anywhere in a command: somebody wrote it there by hand."""
    words = [word.rpartition(b"/")[2] for word in fragments(command)]
    guards = ((first, second) for first, second in pairwise(words) if is_guard(first, second))
    return next((f"{first.decode()} {second.decode()}" for first, second in guards), None)


def is_guard(program: bytes, following: bytes) -> bool:
    """Return whether these two words start a job once per tick; `program` may be a path."""
    return program.rpartition(b"/")[2] == b"oncecron" and following in _JOB_COMMANDS


def per_host_program(command: bytes) -> str | None:
    """Return the program because of which every host runs a command, None if there is none."""
    names = [word.rpartition(b"/")[2] for word in fragments(command)]
    if names[:1] == [b"oncecron"]:
        return "oncecron"  # such as `flush`, which delivers the spool of this host
    return next((name.decode() for name in _PER_HOST_PROGRAMS if name in names), None)
