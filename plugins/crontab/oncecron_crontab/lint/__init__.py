"""Find lines of crontabs that run twice, nowhere or at another time under oncecron: text in, findings out.

A finding names the line, the fault and the cure. What is wrong with the shell of a command is for linters of shells.

Lines are read as the cron of the hosts reads them (`scanner`), and commands as a shell reads them
(`simple_commands`). Nothing is run and no store is read. Files with the same name, or
all files with `compared`, belong to different hosts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron.config.options import wrong_variables
from oncecron.core.shell_words import is_bourne_shell
from oncecron_crontab.crons import CRONS
from oncecron_crontab.directives import DIFFERENT, read_directives
from oncecron_crontab.lint import keys, schedules, unguarded
from oncecron_crontab.lint.line import FINDINGS, Diagnostic, LintedCrontab, excerpt, linted_entries
from oncecron_crontab.percent_sign import CUT, CUT_CURE, is_cut
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import OWN_REASONS, Variable
from oncecron_crontab.simple_commands import simple_commands, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.lint.line import LintedEntry

_NEWLINE = "no newline"
_CURES = {
    "bad username": "name a user of this system; if this is a user's own crontab, leave out --user-field",
    "command too long": "move the command to a script, or to `command` in [job.KEY] of the configuration file",
    "bad command": "remove the star: a line has five time fields, then the command",
}
_CURE = "correct the line, or comment it out with #"
_CURE_OF_COMMENT = "correct the comment, or remove it"


def lint(
    sources: Sequence[LintedCrontab],
    jobs: Mapping[str, Mapping[str, str]] | None = None,
    *,
    required: bool = False,
    compared: bool = False,
    cron: Cron = CRONS["debian"],
    configuration: tuple[str, str] | None = None,
) -> list[Diagnostic]:
    """Return the findings, in the order of files and lines: crontabs, then the configuration.

    `jobs` are the [job.KEY] sections of the configuration.
    `configuration` is the name and the text of the file with `jobs`, if it is for these crontabs alone: then
    a section that none of them uses is a finding. `required`: every line must use oncecron. `compared`: the
    files belong to different hosts, whatever their names.
    `cron` is the cron of the hosts, as which the crontabs were read: it decides what they mean.
    """
    lines = [linted_entries(source, jobs or {}, cron) for source in sources]
    found: list[Diagnostic] = []
    for source, of_file in zip(sources, lines, strict=True):
        found += _problems(source)
        found += schedules.check_cron_zone(source, cron)
        found += _duplicates(of_file)
        found += check_variables(source, of_file)
        found += unguarded.check_unguarded(of_file, required=required)
        for line in of_file:
            found += _check_line(line)
    for group in _groups(sources, lines, compared=compared):
        found += keys.check_keys([line for of_file in group for line in of_file])
        found += keys.check_hosts(group)
        found += keys.check_stores(group)
    for lines_of_host in _by_host(sources, lines, compared=compared):
        found += keys.check_users(lines_of_host)
    order = {source.name: number for number, source in enumerate(sources)}
    found = sorted(
        dict.fromkeys(found),
        key=lambda each: (order[each.file], each.line, FINDINGS.index(each.finding)),
    )
    if configuration:
        used = [key for of_file in lines for key in keys.used_keys(of_file)]
        found += keys.check_sections(*configuration, jobs or {}, used)
    return found


def _check_line(line: LintedEntry) -> Iterator[Diagnostic]:
    yield from schedules.check_fields(line)
    yield from schedules.check_count(line)
    yield from _check_command(line)
    yield from unguarded.check_sudo(line)
    if line.invocations:
        yield from unguarded.check_rest_of_line(line)
        yield from unguarded.check_redirections(line)
        yield from unguarded.check_pipes(line)
        yield from unguarded.check_options(line)
        yield from unguarded.check_items(line)
        yield from unguarded.check_delays(line)
        yield from unguarded.check_guarded(line)
        yield from keys.check_values(line)
        yield from schedules.check_zone_of_cron(line)
    for invocation in line.invocations:
        yield from schedules.check_schedule(line, invocation)
        yield from schedules.check_frequency(line, invocation)


def _problems(source: LintedCrontab) -> Iterator[Diagnostic]:
    """Yield why cron rejects the file, and the `# oncecron:` comments that wrap cannot apply."""

    def found(kind: str, number: int, reason: str, cure: str = "") -> Diagnostic:
        message, _, own = reason.partition("; ")
        return Diagnostic(source.name, number, kind, message, own or cure)

    crontab = source.crontab
    if source.not_read:
        yield found("not-read", 1, source.not_read)
    for number, reason in crontab.doubts():
        yield found("invalid", number, reason)
    yield from [found("return", *each) for each in crontab.returns()]
    for number, reason in crontab.problems():
        if reason.startswith(_NEWLINE):
            why = f"the last line has no newline: {crontab.cron.title} rejects the file or ignores the line"
            yield found("newline", number, why, "add a newline at the end of the file")
        elif reason in OWN_REASONS:
            yield found("invalid", number, reason)
        else:
            does = crontab.cron.bad_line.replace("the file", "the whole file")
            why = f"{reason}: {crontab.cron.title} {does}"
            yield found("invalid", number, why, _CURES.get(reason, _CURE))
    directives, problems = read_directives(crontab)
    for entry in crontab.entries():
        prefix, wanted = read_prefix(entry.command), directives.get(entry.number)
        if prefix and wanted and wanted.differ_from(prefix.options):
            yield found("directive", entry.number, DIFFERENT)
    for number, reason in problems:
        yield found("directive", number, reason, _CURE_OF_COMMENT)


def _check_command(line: LintedEntry) -> Iterator[Diagnostic]:
    shell = line.environment.get("SHELL", "/bin/sh")
    if not is_bourne_shell(os.fsencode(shell)):
        return
    if is_cut(line.entry.command, line.cron.percent):
        yield line.diagnostic("percent", CUT, CUT_CURE)
    elif simple_commands(line.command) is None:
        yield line.diagnostic(
            "quote",
            f"a quote or a bracket in {excerpt(line.command)} is not closed",
            "close it; for one quote as a letter, write \\' or use double quotes around it",
        )


def _duplicates(lines: Sequence[LintedEntry]) -> Iterator[Diagnostic]:
    known: dict[object, LintedEntry] = {}
    for line in lines:
        occasion = (schedules.meaning(line.entry), line.entry.user, line.without_guard, line.behind)
        other = known.setdefault((occasion, tuple(sorted(line.environment.items()))), line)
        if other is not line and line.command.strip():
            yield line.diagnostic(
                "duplicate",
                f"{excerpt(line.without_guard)} is also in line {other.entry.number}, at the same time: "
                "cron starts both",
                "remove one of the two lines",
            )


def check_variables(source: LintedCrontab, lines: Sequence[LintedEntry]) -> Iterator[Diagnostic]:
    """Yield the variables that seem to be meant for oncecron, above the lines or in them."""
    places = [
        (line.number, to_text(line.name))
        for line in source.crontab.lines
        if isinstance(line, Variable)
    ]
    for line in lines:
        words = (word for command in line.commands for word in command.words)
        places += [(line.entry.number, word.partition("=")[0]) for word in words if "=" in word]
    for number, name in places:
        for wrong, cure in wrong_variables([name]):
            yield Diagnostic(source.name, number, "variable", wrong, cure)


def _groups(
    sources: Sequence[LintedCrontab], lines: Sequence[list[LintedEntry]], *, compared: bool
) -> list[list[list[LintedEntry]]]:
    groups: dict[str, list[list[LintedEntry]]] = {}
    for source, of_file in zip(sources, lines, strict=True):
        name = "" if compared else os.path.basename(source.name)
        groups.setdefault(name, []).append(of_file)
    return list(groups.values())


def _by_host(
    sources: Sequence[LintedCrontab], lines: Sequence[list[LintedEntry]], *, compared: bool
) -> list[list[LintedEntry]]:
    hosts: dict[str, list[LintedEntry]] = {}
    for source, of_file in zip(sources, lines, strict=True):
        place = source.name if compared else os.path.dirname(source.name)
        hosts.setdefault(place, []).extend(of_file)
    return list(hosts.values())


__all__ = ["FINDINGS", "Diagnostic", "LintedCrontab", "check_variables", "lint"]
