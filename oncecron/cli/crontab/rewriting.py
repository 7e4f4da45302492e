"""What wrap and unwrap share: read a crontab, rewrite it, report what is unchanged or wrong, and write the result.

Whoever pipes the result into `crontab -` installs whatever comes, also nothing. So as soon as a crontab has been read,
one goes to standard output: if anything goes wrong, the original.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron.cli.crontab import files
from oncecron.config.options import Option
from oncecron.core.errors import OncecronError, UsageError
from oncecron.core.stderr import complain
from oncecron.core.text import visible
from oncecron.crontab.scanner import WRITE_HERE, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncecron.crontab.scanner import Crontab, Problem
    from oncecron.crontab.wrap import Rewritten

USER_FIELD = Option(
    "user-field",
    "flag",
    "Lines name a user before the command, as in /etc/crontab and /etc/cron.d.",
)
IN_PLACE = Option(
    "in-place",
    "flag",
    "Replace FILE, in one step; owner and mode are kept, and the old file as FILE~.",
)
DIFF = Option(
    "diff",
    "flag",
    "Show what changes, as a unified diff, instead of the new crontab; with --in-place before it is written.",
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
    """Carry out a rewriting command; return its exit status. `done`: what has happened to a line."""
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
            f"nothing is changed: {len(rewritten.errors)} of the lines above must be cured first"
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
        raise UsageError("--in-place: name the FILE that is to be replaced")
    if os.path.dirname(os.path.realpath(words[0])) in _SPOOLS:
        raise UsageError(
            "--in-place: this is cron's own spool; crontab -l | oncecron crontab wrap | crontab - (as that user) "
            "tells cron of the change"
        )


def refuse_wrong_kind(crontab: Crontab, source: files.CrontabFile) -> None:
    """Raise `UsageError` if the lines begin with a user and nobody said so."""
    if not crontab.system and (source.is_system or _seems_system(crontab)):
        raise UsageError("its lines name a user before the command: add --user-field")


def _seems_system(crontab: Crontab) -> bool:
    """Return whether root stands where a command should, and no other line has a path or an option there."""
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
    lines = "1 line" if rewritten.changed == 1 else f"{rewritten.changed} lines"
    output.say(f"{visible(source.path)}: {lines} {done}; as it was: {visible(backup)}", stream)


def _place(source: files.CrontabFile, problem: Problem) -> str:
    path = "line " if source.path == files.STANDARD_INPUT else f"{visible(source.path)}:"
    return f"{path}{problem.number}"


def _line(crontab: Crontab, problem: Problem) -> str:
    """Return the line that a problem is about, to be shown behind it; not behind one that is to be copied."""
    if not 0 < problem.number <= len(crontab.lines) or WRITE_HERE in problem.reason:
        return ""
    text = visible(
        crontab.lines[problem.number - 1].raw.decode(errors="backslashreplace").strip(" \t\n")
    )
    return f": {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '...'}"
