"""Findings on what runs without a guard: lines, commands of a line, and jobs that a guard breaks or cannot start.

See `per_host` for what a guard breaks.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from oncecron.config.file import COMMAND_KEY, job_section, table_section
from oncecron.core.shell_words import PREPARING_BUILTINS, is_bourne_shell
from oncecron_crontab.generators import CURE
from oncecron_crontab.lint.line import STANDARD_INPUT, excerpt
from oncecron_crontab.lint.schedules import check_fields
from oncecron_crontab.per_host import BACKGROUND, EACH_HOST, PINNED, judgements, objections
from oncecron_crontab.pipes import lost_statuses
from oncecron_crontab.simple_commands import simple_commands, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron_crontab.lint.line import Diagnostic, Invocation, LintedEntry
    from oncecron_crontab.per_host import Judgement
    from oncecron_crontab.simple_commands import SimpleCommand

# Commands that may run on every host: they change nothing beyond the line, or do nothing without input.
_PREPARING = frozenset(
    (
        *map(bytes.decode, PREPARING_BUILTINS),
        *("test", "[", "[[", ":", "true", "command", "type", "which", "sleep", "exec", "exit"),
        *("echo", "printf", "date", "for", "case"),
    )
)  # fmt: skip
_FILTERS = frozenset(
    ("logger", "systemd-cat", "ts", "cat", "grep", "egrep", "fgrep", "sed", "true", ":", "exit")
)
_TRUNCATING = frozenset((">", ">|", "&>"))
_RANDOM = re.compile(
    r"\bsleep\b.*(?:\$|`|rand)|(?:\$|`|rand).*\bsleep\b", re.IGNORECASE | re.DOTALL
)
_ASSIGNMENT = re.compile(r"\w+=")
_FOREGROUND = "start it in the foreground"
_REMOVE = "remove the test, so that any host can run it"
_WITHOUT = ", or remove `oncecron run` and use {}"


def check_unguarded(lines: list[LintedEntry], *, required: bool) -> Iterator[Diagnostic]:
    """Yield lines without oncecron: in a file in which other lines use it, or in any file if it is required."""
    if not required and not any(line.invocations for line in lines):
        return
    for line in lines:
        never = any(each.finding == "never" for each in check_fields(line))
        own = never or line.per_host == "oncecron" or (line.per_host is not None and not required)
        if line.command.strip() and not (line.invocations or line.off or own):
            yield _pinned_line(line) or line.diagnostic(
                "unguarded", f"{excerpt(line.command)} runs on every host", _cure(line)
            )


def _cure(line: LintedEntry) -> str:
    if line.generator:
        return f"{line.generator} writes the line: {CURE}"
    return (
        f"{_repair_before(line)}put `oncecron run` in front{_by_wrap(line, ' (with {})')}; if every host must run it, "
        "write `# oncecron: off` above it"
    )


def _by_wrap(line: LintedEntry, words: str) -> str:
    command = f":; {line.command}".encode("utf-8", "surrogateescape")  # not to be read as oncecron
    own = (
        line.entry.is_reboot
        or line.off
        or line.generator
        or any(objections(command, named=line.named))
    )
    if own or not is_bourne_shell(os.fsencode(line.environment.get("SHELL", "/bin/sh"))):
        return ""
    only = " --only PATTERN" if line.entry.user is not None else ""
    return words.format(f"`oncecron crontab wrap{only}`")


def check_rest_of_line(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the first command beside a guard: it runs on every host."""
    guarded = _guarded_positions(line)
    if not guarded:
        return
    harmless = guarded | _skipped_positions(line)
    for number, simple in enumerate(line.commands):
        if number in harmless or _is_harmless(simple, before=number < min(guarded)):
            continue
        guard = line.invocations[0]
        covered = excerpt(guard.work) if guard.work else "one command"
        yield line.diagnostic(
            "rest",
            f"{guard.job_command.shown} covers only {covered}: {excerpt(simple.text)} runs on every host",
            _cure_of_rest(line, number, guard),
        )
        return


def _cure_of_rest(line: LintedEntry, number: int, guard: Invocation) -> str:
    if guard.subcommand != "each":
        return f"put the whole command into `oncecron run --shell '...'`{_by_wrap(line, _WITHOUT)}"
    if [each.joined_by for each in line.commands[number + 1 : number + 2]] == ["|"]:
        return "to let one host list the items, put that command into --items '...'"
    return "move that command to a line of its own, with `oncecron run`"


def check_pipes(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the pipes whose run succeeds although a program in them fails."""
    for invocation in line.invocations:
        options, key = invocation.options, invocation.key
        option, shell = "add --pipefail", line.environment.get("SHELL", "")
        if invocation.is_shell and key:
            option = f"set `pipefail = true` in {job_section(key)} of the configuration file"
            shell = line.environment.get("ONCECRON_SHELL", "")
        is_string = invocation.is_shell or not {"shell", COMMAND_KEY}.isdisjoint(options)
        for lost in lost_statuses(invocation.command or options.get(COMMAND_KEY, "")):
            if not (is_string and options.get("pipefail") == "true"):
                found = lost._replace(inside=lost.inside or not is_string)
                yield line.diagnostic("pipe", found.why, found.cure(shell, option))


def check_redirections(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield the files that hosts empty although they skip."""
    guarded, passed = _guarded_positions(line), _skipped_positions(line)
    for number, simple in enumerate(line.commands):
        if not guarded or number < min(guarded) or (simple.words and number not in guarded):
            continue
        if number in passed:
            continue
        target = next(
            (file for operator, file in simple.redirections if operator in _TRUNCATING), None
        )
        if target and not target.startswith("/dev/"):
            runs = line.invocations[0].subcommand == "run"
            inside = ", or put the redirection into `oncecron run --shell '...'`"
            yield line.diagnostic(
                "truncate",
                f"hosts that skip also empty {excerpt(target)}: the shell opens it before oncecron starts",
                f"use >>{inside}{_by_wrap(line, _WITHOUT)}" if runs else "use >>",
            )


def _guarded_positions(line: LintedEntry) -> set[int]:
    numbers = {invocation.position for invocation in line.invocations}
    return set() if None in numbers else {number for number in numbers if number is not None}


def _skipped_positions(line: LintedEntry) -> set[int]:
    """Return the numbers of the commands behind a guard and `||`, which hosts that skip do not run: a skip succeeds.

    With `|| { ...; }` and `|| (...)`, those in the brackets.
    """
    if any(invocation.options.get("skip-exit", "0") != "0" for invocation in line.invocations):
        return set()
    guarded, found = _guarded_positions(line), set()
    opened: int | None = None  # brackets behind the `||`
    behind_guard = False
    for number, simple in enumerate(line.commands):
        closed = sum(each in (")", "}") for each in simple.keywords)
        if opened is not None:
            opened = max(opened - closed, 0)
            is_end = bool(closed) and not simple.words  # the redirections of the brackets
            opened = opened if opened or is_end or simple.joined_by == "|" else None
        elif simple.joined_by == "||" and behind_guard:
            opened = 0
        if opened is not None:
            opened += sum(each in ("(", "{") for each in simple.keywords)
            found.add(number)
        behind_guard = number in guarded if simple.words else behind_guard
    return found


def _is_harmless(simple: SimpleCommand, *, before: bool) -> bool:
    program = _program(simple)
    if not program:
        return True
    if before:
        return program in _PREPARING or bool(_RANDOM.search(simple.text))
    return program in _FILTERS or (program == "tee" and "-a" in simple.words)


def _program(simple: SimpleCommand) -> str:
    word = next((word for word in simple.words if not _ASSIGNMENT.match(word)), "")
    return word.rpartition("/")[2]


def check_options(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield each guard that rejects its own options."""
    for invocation in line.invocations:
        command = invocation.job_command
        if invocation.usage_error:
            yield line.diagnostic(
                "options",
                f"{command.shown} fails at every firing: {invocation.usage_error}",
                f"use `{command.example}`; for the options: `oncecron {command.name} --help`",
            )


def check_items(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield each `oncecron each` that gets no items: its list is empty at every tick, which is no error."""
    fed = any(
        simple.joined_by == "|" or any(sign.startswith("<") for sign, _ in simple.redirections)
        for simple in line.commands
    )
    for invocation in line.invocations:
        source = invocation.options.get("items", STANDARD_INPUT)
        if (
            invocation.subcommand == "each"
            and invocation.key is not None
            and source == STANDARD_INPUT
            and "again" not in invocation.options
            and line.behind is None
            and not fed
        ):
            section = table_section(invocation.key, "each")
            yield line.diagnostic(
                "items",
                "the list is always empty: --items is missing, and cron gives the line no standard input",
                f"add --items LIST, or `items` to {section} of the configuration file",
            )


def check_delays(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield random delays before a guard whose tick is the minute."""
    for invocation in line.invocations:
        ahead = line.commands[: invocation.position] if invocation.position is not None else ()
        if (
            invocation.key is not None
            and not invocation.names_the_tick
            and any(_RANDOM.search(simple.text) for simple in ahead)
        ):
            yield line.diagnostic(
                "random-sleep",
                "after a random sleep, hosts start in different minutes: without --schedule, each minute is a tick",
                f"add --schedule '{line.entry.schedule}' to {invocation.job_command.shown}",
            )


def check_sudo(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield an oncecron that cannot end its job."""
    if line.invocations and line.user != "root" and any(map(_is_sudo, _unprivileged(line))):
        yield line.diagnostic(
            "sudo",
            f"{f'as {line.user}' if line.user else 'unless it is root'}, oncecron cannot end a command that sudo "
            "starts as another user",
            "put the line into root's crontab, or name that user in /etc/cron.d",
        )


def _unprivileged(line: LintedEntry) -> Iterator[SimpleCommand]:
    """Yield the commands of a line, with or without oncecron, except an oncecron that sudo itself starts."""
    guarded = {invocation.position: invocation for invocation in line.invocations}
    for number, simple in enumerate(line.commands):
        if number not in guarded:
            yield simple
        elif not _is_sudo(simple):
            yield from simple_commands(guarded[number].work) or ()
    if None in guarded:
        yield from simple_commands(guarded[None].work) or ()


def _is_sudo(simple: SimpleCommand) -> bool:
    return _program(simple) == "sudo"


# What a guard breaks


def check_guarded(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield why the guard of a line does not work, or keeps other hosts from work that is theirs."""
    for invocation in line.invocations:
        command = invocation.work or (line.command if invocation.position is None else "")
        for found in judgements(to_bytes(f":; {command}")):  # not to be read as oncecron
            if found.kind == PINNED:
                yield line.diagnostic(
                    PINNED, f"the test of {found.what} in {excerpt(command)} {found.why}", _REMOVE
                )
            elif found.kind == BACKGROUND:
                yield line.diagnostic(
                    BACKGROUND, f"{found.what} in {excerpt(command)} {found.why}", _FOREGROUND
                )
            elif not line.named:
                yield line.diagnostic(
                    EACH_HOST,
                    f"only one host runs {excerpt(command)}, but {found.why}",
                    f"remove {invocation.job_command.shown}; if one host is enough, write `# oncecron: key=NAME` "
                    "above it",
                )


def _pinned_line(line: LintedEntry) -> Diagnostic | None:
    found = next((each for each in _judged(line) if each.kind == PINNED), None)
    if found is None:
        return None
    return line.diagnostic(
        PINNED,
        f"the test of {found.what} binds {excerpt(line.command)} to one host: while that host is down, none runs it",
        "remove the test, and put `oncecron run` in front; if only that host can run it, write `# oncecron: off` above "
        "it",
    )


def _repair_before(line: LintedEntry) -> str:
    in_background = any(each.kind == BACKGROUND for each in _judged(line))
    return f"{_FOREGROUND}, and " if in_background else ""


def _judged(line: LintedEntry) -> Iterator[Judgement]:
    return judgements(to_bytes(line.command))
