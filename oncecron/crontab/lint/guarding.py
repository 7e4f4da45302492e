"""Findings on what oncecron guards: lines without it, parts of lines outside it, and what stands in its way."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from oncecron.crontab.lint.lines import shown
from oncecron.crontab.lint.losers import passed_over
from oncecron.crontab.lint.schedules import check_fields
from oncecron.crontab.lint.shell import parts
from oncecron.crontab.words import is_bourne_shell, per_host_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.crontab.lint.lines import Finding, Guard, Line
    from oncecron.crontab.lint.shell import Part

CRON_PATH = "/usr/bin:/bin"
"""What cron sets where the crontab does not."""
_INSTALLED = "/usr/local/bin"
# What may run on every host: it changes nothing beyond the line, or does nothing with no input.
_PREPARING = frozenset(
    (
        *(
            "cd",
            "chdir",
            "test",
            "[",
            "[[",
            ":",
            "true",
            ".",
            "source",
            "export",
            "umask",
            "ulimit",
        ),
        *("set", "command", "type", "which", "sleep", "exec", "exit"),
        *("echo", "printf", "date", "for", "case"),
    )
)
_FILTERS = frozenset(
    ("logger", "systemd-cat", "ts", "cat", "grep", "egrep", "fgrep", "sed", "true", ":", "exit")
)
_TRUNCATING = frozenset((">", ">|", "&>"))
_RANDOM = re.compile(
    r"\bsleep\b.*(?:\$|`|rand)|(?:\$|`|rand).*\bsleep\b", re.IGNORECASE | re.DOTALL
)
_ASSIGNMENT = re.compile(r"\w+=")
_WITHOUT = "; or take the guard off, then {}"


def check_unguarded(lines: list[Line], *, required: bool) -> Iterator[Finding]:
    """Yield lines without a guard: in a file that guards others, or all of them if it is required."""
    if not required and not any(line.guards for line in lines):
        return
    for line in lines:
        never = any(each.finding == "never" for each in check_fields(line))
        own = never or line.each_host == "oncecron" or (line.each_host is not None and not required)
        if line.command.strip() and not (line.guards or line.off or own):
            yield line.finding(
                "unguarded",
                f"{shown(line.command)} runs on every host",
                f"put oncecron run in front{_by_wrap(line, ' ({})')}, or `# oncecron: off` above it if that is meant",
            )


def _by_wrap(line: Line, words: str) -> str:
    """Return the words with how wrap guards a line that has no guard, or nothing if it would leave the line."""
    command = f": {line.command}".encode("utf-8", "surrogateescape")  # not to be taken for oncecron
    own = line.entry.is_reboot or line.off or per_host_program(command)
    if own or not is_bourne_shell(os.fsencode(line.environment.get("SHELL", "/bin/sh"))):
        return ""
    named = " --only" if line.entry.user is not None else ""
    return words.format(f"oncecron crontab wrap{named} does it")


def check_parts(line: Line) -> Iterator[Finding]:
    """Yield the first command beside a guard, which runs on every host."""
    guarded = _guarded_parts(line)
    if not guarded:
        return
    harmless = guarded | _passed_over(line)
    for number, part in enumerate(line.parts):
        if number in harmless or _is_harmless(part, before=number < min(guarded)):
            continue
        yield line.finding(
            "part",
            f"oncecron guards only {shown(line.guards[0].command or 'a part')}: {shown(part.text)} runs on every host",
            f"put all of it into oncecron run --shell '...'{_by_wrap(line, _WITHOUT)}",
        )
        return


def check_redirections(line: Line) -> Iterator[Finding]:
    """Yield the files that hosts empty though they lose."""
    guarded, passed = _guarded_parts(line), _passed_over(line)
    for number, part in enumerate(line.parts):
        if not guarded or number < min(guarded) or (part.words and number not in guarded):
            continue
        if number in passed:
            continue
        target = next((file for operator, file in part.redirects if operator in _TRUNCATING), None)
        if target and not target.startswith("/dev/"):
            yield line.finding(
                "truncate",
                f"hosts that lose empty {shown(target)} all the same: the shell opens it before oncecron runs",
                f"write >>, or put the redirection into oncecron run --shell '...'{_by_wrap(line, _WITHOUT)}",
            )


def _guarded_parts(line: Line) -> set[int]:
    """Return the numbers of the parts with a guard; none where all of the line is in it."""
    numbers = {guard.part for guard in line.guards}
    return set() if None in numbers else {number for number in numbers if number is not None}


def _passed_over(line: Line) -> set[int]:
    """Return the numbers of the parts that hosts that lose do not run."""
    if any(guard.options.get("skip-exit", "0") != "0" for guard in line.guards):
        return set()
    return passed_over(line.parts, _guarded_parts(line))


def _is_harmless(part: Part, *, before: bool) -> bool:
    program = _program(part)
    if not program:
        return True
    if before:
        return program in _PREPARING or bool(_RANDOM.search(part.text))
    return program in _FILTERS or (program == "tee" and "-a" in part.words)


def _program(part: Part) -> str:
    """Return the name of the program, behind assignments; empty where there is none."""
    word = next((word for word in part.words if not _ASSIGNMENT.match(word)), "")
    return word.rpartition("/")[2]


def check_options(line: Line) -> Iterator[Finding]:
    """Yield guards that `run` refuses."""
    for guard in line.guards:
        if guard.wrong:
            yield line.finding(
                "options",
                f"oncecron run cannot start anything here: {guard.wrong}",
                "write oncecron run --key NAME -- COMMAND; oncecron run --help names the options",
            )


def check_delays(line: Line) -> Iterator[Finding]:
    """Yield random delays before a guard that takes the minute for the tick."""
    for guard in line.guards:
        ahead = line.parts[: guard.part] if guard.part is not None else ()
        if (
            guard.key is not None
            and not guard.names_the_tick
            and any(_RANDOM.search(part.text) for part in ahead)
        ):
            yield line.finding(
                "random-sleep",
                "after a random sleep hosts come in different minutes, and without --schedule each minute is a tick",
                f"add --schedule '{line.entry.schedule}' to oncecron run",
            )


def check_programs(line: Line, is_program: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield a guard that cron does not find, or one that cannot end its job; `is_program` looks at a path."""
    for guard in line.guards:
        yield from _check_path(line, guard, is_program)
    if line.user != "root" and any(map(_is_sudo, _unprivileged(line))):
        yield line.finding(
            "sudo",
            f"what sudo starts is another user's, and oncecron cannot end it as {line.user or 'anybody but root'}",
            "put the line into root's crontab, or let the user whose job it is run it from /etc/cron.d",
        )


def _unprivileged(line: Line) -> Iterator[Part]:
    """Yield what a line starts, within guards and outside, but for guards that sudo itself starts."""
    guarded = {guard.part: guard for guard in line.guards}
    for number, part in enumerate(line.parts):
        if number not in guarded:
            yield part
        elif not _is_sudo(part):
            yield from parts(guarded[number].command) or ()
    if None in guarded:
        yield from parts(guarded[None].command) or ()


def _is_sudo(part: Part) -> bool:
    return _program(part) == "sudo"


def _check_path(line: Line, guard: Guard, is_program: Callable[[str], bool]) -> Iterator[Finding]:
    path = line.environment.get("PATH", CRON_PATH)
    directories = path.split(":")
    if "/" in guard.program or guard.part is None or _INSTALLED in directories:
        return
    if not any(is_program(f"{directory}/oncecron") for directory in directories):
        yield line.finding(
            "path",
            f"oncecron is not on the PATH of this line, {path}",
            f"write its path, such as {_INSTALLED}/oncecron",
        )
