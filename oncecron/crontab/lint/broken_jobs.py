"""Findings on lines that a guard breaks (see `per_host`), and on those that are bound to one host by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.crontab.lint.linted_entry import shown
from oncecron.crontab.per_host import BACKGROUND, EACH_HOST, PINNED, judgements
from oncecron.crontab.simple_commands import to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.lint.linted_entry import Diagnostic, LintedEntry
    from oncecron.crontab.per_host import Judgement

_FOREGROUND = "start it in the foreground"
_REMOVE = "remove the test, so that any host can run it"


def check_guarded(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield why the guard of a line does not work, or keeps other hosts from work that is theirs."""
    for invocation in line.invocations:
        command = invocation.work or (line.command if invocation.position is None else "")
        for found in judgements(to_bytes(f":; {command}")):  # not to be read as oncecron
            if found.kind == PINNED:
                yield line.diagnostic(
                    PINNED, f"the test of {found.what} in {shown(command)} {found.why}", _REMOVE
                )
            elif found.kind == BACKGROUND:
                yield line.diagnostic(
                    BACKGROUND, f"{found.what} in {shown(command)} {found.why}", _FOREGROUND
                )
            elif not line.named:
                yield line.diagnostic(
                    EACH_HOST,
                    f"only one host runs {shown(command)}, but {found.why}",
                    f"remove {invocation.job_command.shown}; if one host is enough, write `# oncecron: key=NAME` "
                    "above it",
                )


def bound_to_a_host(line: LintedEntry) -> Diagnostic | None:
    """Return the finding on a line without oncecron that only one host carries out, None if every host does."""
    found = next((each for each in _judged(line) if each.kind == PINNED), None)
    if found is None:
        return None
    return line.diagnostic(
        PINNED,
        f"the test of {found.what} binds {shown(line.command)} to one host: while that host is down, none runs it",
        "remove the test, and put `oncecron run` in front; if only that host can run it, write `# oncecron: off` above "
        "it",
    )


def mended_first(line: LintedEntry) -> str:
    """Return what to do before a line can be guarded; empty if nothing."""
    in_background = any(each.kind == BACKGROUND for each in _judged(line))
    return f"{_FOREGROUND}, and " if in_background else ""


def _judged(line: LintedEntry) -> Iterator[Judgement]:
    return judgements(to_bytes(line.command))
