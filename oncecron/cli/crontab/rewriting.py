"""Shared by wrap and unwrap: read a crontab, rewrite it, report unchanged and wrong lines, and write the result.

`crontab -` installs any input, also an empty one. So once a crontab has been read, one is always written to standard
output: after an error, the original.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron.cli.crontab import files
from oncecron.config.options import Option
from oncecron.core.errors import OncecronError, UsageError
from oncecron.core.stderr import complain
from oncecron.core.text import visible
from oncecron.crontab.masking import masked_line
from oncecron.crontab.scanner import WRITE_HERE, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncecron.crontab.scanner import Crontab, Problem
    from oncecron.crontab.wrap import Rewritten

USER_FIELD = Option(
    "user-field",
    "flag",
    "Expect a user name before each command, as in /etc/crontab and /etc/cron.d.",
)
IN_PLACE = Option(
    "in-place",
    "flag",
    "Replace FILE in one step. Keep owner and mode, and save the old file as FILE~.",
)
DIFF = Option(
    "diff",
    "flag",
    "Show the changes as a unified diff instead of the new crontab.",
)
REWRITING_OPTIONS = (USER_FIELD, IN_PLACE, DIFF)
_SPOOLS = ("/var/spool/cron/crontabs", "/var/spool/cron")
_REFUSED = 1
_LONGEST_SHOWN = 60


def rewrite(
    given: Mapping[str, str],
    words: list[str],
    change: Callable[[Crontab, files.CrontabFile], Rewritten],
    *,
    done: str,
) -> int:
    """Carry out a rewriting command; return its exit status. `done`: what was done to a line, for the summary."""
    from oncecron.cli import output  # noqa: PLC0415 - not for --help

    _check(given, words)
    source = files.read_source(words)
    to_output = "in-place" not in given and "diff" not in given
    try:
        crontab = scan(source.data, system="user-field" in given)
        refuse_wrong_kind(crontab, source)
        rewritten = change(crontab, source)
    except OncecronError:
        if to_output:
            output.give(source.data)
        raise
    for problem in rewritten.unchanged:
        complain(f"{_place(source, problem)}: unchanged: {problem.reason}{_line(crontab, problem)}")
    for problem in rewritten.warnings + rewritten.errors:
        complain(f"{_place(source, problem)}: {problem.reason}{_line(crontab, problem)}")
    if rewritten.errors:
        complain(
            f"nothing is changed; correct the {_counted(len(rewritten.errors))} with errors above first"
        )
    if to_output:
        output.give(rewritten.data)
    elif not rewritten.errors:
        _put(given, source, rewritten, done)
    return _REFUSED if rewritten.errors else 0


def _check(given: Mapping[str, str], words: list[str]) -> None:
    if "in-place" not in given:
        return
    if not words or words[0] == files.STANDARD_INPUT:
        raise UsageError("--in-place: name the FILE to replace")
    if os.path.dirname(os.path.realpath(words[0])) in _SPOOLS:
        raise UsageError(
            "--in-place: cron does not notice a change in its own spool; as that user, run "
            "`crontab -l | oncecron crontab wrap | crontab -`"
        )


def refuse_wrong_kind(crontab: Crontab, source: files.CrontabFile) -> None:
    """Raise `UsageError` if the lines name a user and --user-field is missing."""
    if not crontab.system and (source.is_system or _seems_system(crontab)):
        raise UsageError(
            f"the lines of {visible(source.path)} name a user before the command; add --user-field"
        )


def _seems_system(crontab: Crontab) -> bool:
    """Return whether `root` is in the place of a command, and no line has a path or an option there."""
    starts = [entry.command.split(None, 2)[:2] for entry in crontab.entries()]
    bare = all(len(words) > 1 and b"/" not in words[0] and words[1][:1] != b"-" for words in starts)
    return bare and any(words[0] == b"root" for words in starts)


def _put(
    given: Mapping[str, str], source: files.CrontabFile, rewritten: Rewritten, done: str
) -> None:
    from oncecron.cli import output  # noqa: PLC0415 - not for --help

    if "diff" in given:
        output.give(files.difference(source, rewritten.data))
    if "in-place" not in given:
        return
    stream = output.standard_output()
    if not rewritten.changed:
        output.say(f"{visible(source.path)}: nothing to change", stream)
        return
    backup = files.replace_file(source, rewritten.data)
    summary = f"{_counted(rewritten.changed)} {done}"
    output.say(f"{visible(source.path)}: {summary}; backup: {visible(backup)}", stream)


def _counted(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"


def _place(source: files.CrontabFile, problem: Problem) -> str:
    path = "line " if source.path == files.STANDARD_INPUT else f"{visible(source.path)}:"
    return f"{path}{problem.number}"


def _line(crontab: Crontab, problem: Problem) -> str:
    """Return the line of a problem, to show after it; empty after a reason that ends with text to copy."""
    if not 0 < problem.number <= len(crontab.lines) or WRITE_HERE in problem.reason:
        return ""
    raw = crontab.lines[problem.number - 1].raw.decode(errors="backslashreplace")
    text = visible(masked_line(raw.strip(" \t\n")))
    return f": {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '...'}"
