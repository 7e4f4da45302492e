"""Findings on keys, in one file and between the files of several hosts: who is kept apart from whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron.crontab.lint.lines import shown
from oncecron.crontab.lint.schedules import meaning
from oncecron.crontab.naming import PREFIX_VARIABLE, derived_key
from oncecron.crontab.prefix import read_prefix
from oncecron.crontab.reading import shell_command, split_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.crontab.lint.lines import Finding, Guard, Line

_ADDED = re.compile(r"\.[0-9a-f]{8}$")
_NUMBER = re.compile(r"(?<=\.[0-9a-f]{8})-\d+$")
_DERIVED = re.compile(r"-[0-9a-f]{8}$")


def check_keys(lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield keys of two commands, and commands with two keys, on the lines of one file."""
    by_key: dict[str, tuple[Line, Guard]] = {}
    by_command: dict[object, tuple[Line, Guard]] = {}
    for line in lines:
        for guard in line.guards:
            if guard.key is None or not guard.command:
                continue
            other, first = by_key.setdefault(guard.key, (line, guard))
            if first.command != guard.command:
                yield line.finding(
                    "shared-key",
                    f"key {guard.key} is also that of {shown(first.command)} in {_place(line, other)}: at a tick of "
                    "both only one of them runs",
                    "give each command a key of its own",
                )
            for same in (guard.command, (guard.command, _occasion(line))):
                other, first = by_command.setdefault(same, (line, guard))
                if not _is_alike(line, guard, other, first):
                    yield line.finding(
                        "split-key",
                        f"{shown(guard.command)} has key {guard.key} here and {first.key} in {_place(line, other)}: "
                        "they do not keep each other out",
                        "give both the same key",
                    )
                    break


def _place(line: Line, other: Line) -> str:
    number = f"line {other.entry.number}"
    return number if other.source is line.source else f"{other.source.name}, {number}"


def _is_alike(line: Line, guard: Guard, other: Line, first: Guard) -> bool:
    """Return whether two keys of a command are the same, but for what wrap adds to tell lines apart."""
    if guard.key == first.key or _are_spelled_apart(line, other):
        return True
    one, two = (_NUMBER.sub("", each.key or "") for each in (guard, first))
    if not _DERIVED.search(_plain(one)):
        return False
    return one == two or (_occasion(line) != _occasion(other) and _plain(one) == _plain(two))


def _plain(key: str) -> str:
    """Return a key without what wrap adds to tell lines apart."""
    return _ADDED.sub("", _NUMBER.sub("", key))


def _occasion(line: Line) -> tuple[object, ...]:
    """Return what tells lines with the same command apart: time, user, input."""
    return meaning(line.entry), line.entry.user, split_command(line.entry.command)[1] or b""


def _are_spelled_apart(line: Line, other: Line) -> bool:
    """Return whether wrap gave each line of a file a key of its own, since quotes or blanks differ."""
    return line.source is other.source and _has_own_key(line) and _has_own_key(other)


def _has_own_key(line: Line) -> bool:
    """Return whether the key is derived from the command as it stands on the line."""
    prefix = read_prefix(line.entry.command)
    if prefix is None:
        return False
    key = derived_key(shell_command(prefix.command), line.environment.get(PREFIX_VARIABLE, ""))
    return _plain(prefix.options["key"]) == key


def check_hosts(files: Sequence[Sequence[Line]]) -> Iterator[Finding]:
    """Yield what differs between the files of several hosts: jobs that some lack, guards, schedules."""
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


def _missing(line: Line, what: str, where: str) -> Finding:
    return line.finding(
        "missing",
        f"{what} is not in {where}",
        "put the line on every host, or `# oncecron: off` above it if it is this host's own",
    )


def _by_command(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        if not line.off and line.each_host is None and line.bare:
            found.setdefault(line.bare, []).append(line)
    return found


def _compare(command: str, first: list[Line], lines: list[Line]) -> Iterator[Finding]:
    there = first[0]
    for line in lines:
        if bool(line.guards) != bool(there.guards):
            bare, guarded = (there, line) if line.guards else (line, there)
            yield bare.finding(
                "unguarded",
                f"{shown(command)} is guarded in {_place(bare, guarded)}, and runs here all the same",
                "guard it on every host by the same key (oncecron crontab wrap does it)",
            )
    more, fewer = _without(lines, first), _without(first, lines)
    for line in more if fewer else ():
        yield line.finding(
            "schedule",
            f"{shown(command)} runs at {_when_shown(line)} here and at {_when_shown(fewer[0])} in "
            f"{_place(line, fewer[0])}: firings of one tick do not meet",
            "write the same schedule and zone on every host",
        )
    for line in () if more and fewer else more or fewer:
        other = there if more else lines[0]
        yield _missing(line, f"{shown(command)} at {_when_shown(line)}", other.source.name)


def _without(lines: Sequence[Line], others: Sequence[Line]) -> list[Line]:
    """Return the lines whose schedule none of the others has."""
    known = set(map(_when, others))
    return [line for line in lines if _when(line) not in known]


def _when(line: Line) -> tuple[object, ...]:
    zones = tuple(guard.options.get("tz") for guard in line.guards)
    return meaning(line.entry), zones


def _when_shown(line: Line) -> str:
    zone = next((guard.options["tz"] for guard in line.guards if "tz" in guard.options), None)
    return f"{line.entry.schedule}" + (f" {zone}" if zone else "")
