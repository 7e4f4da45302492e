"""Findings on keys, in one file and between the files of several hosts: which commands exclude each other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.core.time_zone import canonical
from oncecron.crontab.lint.linted_entry import shown
from oncecron.crontab.lint.schedules import meaning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.crontab.lint.linted_entry import Diagnostic, Invocation, LintedEntry

_ADDED = re.compile(r"\.[0-9a-f]{8}$")
_NUMBER = re.compile(r"(?<=\.[0-9a-f]{8})-\d+$")
_DERIVED = re.compile(r"-[0-9a-f]{8}$")


def check_keys(lines: Sequence[LintedEntry]) -> Iterator[Diagnostic]:
    """Yield keys that two commands share, and commands that have two keys."""
    by_key: dict[str, tuple[LintedEntry, Invocation]] = {}
    by_command: dict[object, tuple[LintedEntry, Invocation]] = {}
    for line in lines:
        for invocation in line.invocations:
            if invocation.key is None or not invocation.command:
                continue
            other, first = by_key.setdefault(invocation.key, (line, invocation))
            if first.work != invocation.work:
                yield line.diagnostic(
                    "shared-key",
                    f"key {invocation.key} is also the key of {shown(first.work)} in {_place(line, other)}: "
                    "only one of the two runs at a tick",
                    "give each command its own key",
                )
            elif _number(first) != _number(invocation):
                yield line.diagnostic(
                    "shards",
                    f"key {invocation.key} has {_number(invocation)} here and {_number(first)} in "
                    f"{_place(line, other)}: at each tick, firings with the other number exit 78",
                    "use the same number on every host",
                )
            for same in (invocation.whole, (invocation.whole, _occasion(line))):
                other, first = by_command.setdefault(same, (line, invocation))
                if not _is_alike(line, invocation, other, first):
                    yield line.diagnostic(
                        "split-key",
                        f"{shown(invocation.work)} has key {invocation.key} here and {first.key} in "
                        f"{_place(line, other)}: both can run at the same tick",
                        "give both lines the same key",
                    )
                    break


def _number(invocation: Invocation) -> str:
    """Return the option with the number of shards, which all firings of a tick must share."""
    name = "slots" if invocation.subcommand == "each" else "shards"
    return f"--{name} {invocation.options.get(name, '1')}"


def check_users(lines: Sequence[LintedEntry]) -> Iterator[Diagnostic]:
    """Yield keys that are derived from the equal commands of two users; `lines` are those of one host."""
    by_key: dict[str, LintedEntry] = {}
    for line in lines:
        for key in filter(None, (invocation.key for invocation in line.invocations)):
            if line.user is None or not _DERIVED.search(_plain(key)):
                continue
            other = by_key.setdefault(key, line)
            if other.user != line.user:
                yield line.diagnostic(
                    "shared-key",
                    f"key {key} is also the key of the user {other.user} in {_place(line, other)}: only one of the two "
                    "users runs the command at a tick",
                    f"write `ONCECRON_KEY_PREFIX={line.user}.` above this line, and wrap it again",
                )


def _place(line: LintedEntry, other: LintedEntry) -> str:
    number = f"line {other.entry.number}"
    return number if other.source is line.source else f"{other.source.name}, {number}"


def _is_alike(
    line: LintedEntry, invocation: Invocation, other: LintedEntry, first: Invocation
) -> bool:
    """Return whether two keys of a command are equal, apart from what wrap adds to make keys of lines differ."""
    if invocation.key == first.key:
        return True
    one, two = (_NUMBER.sub("", each.key or "") for each in (invocation, first))
    if not _DERIVED.search(_plain(one)):
        return False
    return one == two or (_occasion(line) != _occasion(other) and _plain(one) == _plain(two))


def _plain(key: str) -> str:
    """Return a key without what wrap adds to make keys of lines differ."""
    return _ADDED.sub("", _NUMBER.sub("", key))


def _occasion(line: LintedEntry) -> tuple[object, ...]:
    """Return how lines with the same command differ: time, user, input."""
    return meaning(line.entry), line.entry.user, line.behind or b""


def check_hosts(files: Sequence[Sequence[LintedEntry]]) -> Iterator[Diagnostic]:
    """Yield differences between the files of several hosts: missing lines, lines without oncecron, schedules."""
    of_all = [_by_command(lines) for lines in files]
    for command in dict.fromkeys(command for found in of_all for command in found):
        having = [found[command] for found in of_all if command in found]
        lacking = [
            lines[0].source.name
            for lines, found in zip(files, of_all, strict=True)
            if lines and command not in found
        ]
        if lacking:
            yield _missing(having[0][0], shown(command), " and ".join(lacking))
        for lines in having[1:]:
            yield from _compare(command, having[0], lines)


def _missing(line: LintedEntry, what: str, where: str) -> Diagnostic:
    return line.diagnostic(
        "missing",
        f"{what} is not in {where}",
        "add the line on every host; if only this host runs it, write `# oncecron: off` above it",
    )


def _by_command(lines: Sequence[LintedEntry]) -> dict[str, list[LintedEntry]]:
    found: dict[str, list[LintedEntry]] = {}
    for line in lines:
        if not line.off and line.per_host is None and line.without_guard:
            found.setdefault(line.without_guard, []).append(line)
    return found


def _compare(
    command: str, first: list[LintedEntry], lines: list[LintedEntry]
) -> Iterator[Diagnostic]:
    there = first[0]
    for line in lines:
        if bool(line.invocations) != bool(there.invocations):
            bare, guarded = (there, line) if line.invocations else (line, there)
            yield bare.diagnostic(
                "unguarded",
                f"{shown(command)} uses oncecron in {_place(bare, guarded)}, but not here: it also runs here",
                "use oncecron with the same key on every host, with `oncecron crontab wrap`",
            )
    more, fewer = _without(lines, first), _without(first, lines)
    for line in more if fewer else ():
        yield line.diagnostic(
            "schedule",
            f"{shown(command)} runs at {_when_shown(line)} here and at {_when_shown(fewer[0])} in "
            f"{_place(line, fewer[0])}: the hosts fire different ticks",
            "use the same schedule and time zone on every host",
        )
    for line in () if more and fewer else more or fewer:
        other = there if more else lines[0]
        yield _missing(line, f"{shown(command)} at {_when_shown(line)}", other.source.name)


def _without(lines: Sequence[LintedEntry], others: Sequence[LintedEntry]) -> list[LintedEntry]:
    """Return the lines whose schedule is not the schedule of any other line."""
    known = set(map(_when, others))
    return [line for line in lines if _when(line) not in known]


def _when(line: LintedEntry) -> tuple[object, ...]:
    zones = tuple(canonical(invocation.options.get("tz", "")) for invocation in line.invocations)
    return meaning(line.entry), zones


def _when_shown(line: LintedEntry) -> str:
    zone = next(
        (invocation.options["tz"] for invocation in line.invocations if "tz" in invocation.options),
        None,
    )
    return f"{line.entry.schedule}" + (f" {zone}" if zone else "")
