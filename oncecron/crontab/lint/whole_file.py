"""Findings on a whole crontab: line ends of Windows, lines that are there twice, files that cron does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.crontab.lint.linted_entry import Diagnostic, shown
from oncecron.crontab.lint.schedules import meaning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.crontab.lint.linted_entry import LintedCrontab, LintedEntry

_CRLF = b"\r\n"


def check_file(source: LintedCrontab) -> Iterator[Diagnostic]:
    """Yield why cron does not read the file, and line ends that it takes for letters."""
    if source.not_read:
        message, _, cure = source.not_read.partition("; ")
        yield Diagnostic(source.name, 1, "not-read", message, cure)
    ended = [line.number for line in source.crontab.lines if line.raw.endswith(_CRLF)]
    if ended and b"\r" not in source.crontab.cron.trimmed:
        yield Diagnostic(
            *(source.name, ended[0], "crlf"),
            f"lines end with CR LF ({len(ended)} of {len(source.crontab.lines)}): for cron and the shell, the CR is a "
            "letter of the command or value",
            "remove the CR of all lines, such as with `dos2unix`",
        )


def check_duplicates(lines: Sequence[LintedEntry]) -> Iterator[Diagnostic]:
    """Yield lines that are in a file twice: cron starts both."""
    known: dict[object, LintedEntry] = {}
    for line in lines:
        occasion = (meaning(line.entry), line.entry.user, line.without_guard, line.behind)
        other = known.setdefault((occasion, tuple(sorted(line.environment.items()))), line)
        if other is not line and line.command.strip():
            yield line.diagnostic(
                "duplicate",
                f"{shown(line.without_guard)} is also in line {other.entry.number}, at the same time: cron starts both",
                "remove one of the two lines",
            )
