"""Findings on what hosts must share: the key, the name of the tick, the store, the lines, the sections of keys."""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.options import AUTO_KEY, is_key
from oncecron.core.suggestion import did_you_mean
from oncecron.host.local_time import canonical
from oncecron.stores.address import masked
from oncecron_crontab.lint.line import Diagnostic, excerpt, is_literal
from oncecron_crontab.lint.schedules import meaning
from oncecron_crontab.per_host import host_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron_crontab.lint.line import Invocation, LintedEntry

_EXPANDED = re.compile(r"[$`~*?\[]|\{(?!\})")  # {} is an item of `oncecron each`
_OF_A_FIRING = re.compile(
    r"\$\$|\$\{?(?:RANDOM|PPID|BASHPID|SECONDS)\b|(?:\$\(|`)\s*(?:uuidgen|mktemp|shuf)\b"
)
_DATE = re.compile(r"(?:\$\(|`)\s*(?:/usr)?(?:/bin/)?date\b([^)`]*)")
_SECONDS = re.compile(r"%[sSNTcXr]|-I(?:s|n)|=(?:s|n)|-R\b")
_ONE_HOST = ("local", "sqlite:")
_VARIABLE = "ONCECRON_STORE"
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
                    f"key {invocation.key} is also the key of {excerpt(first.work)} in {_place(line, other)}: "
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
            for same in (invocation.work, (invocation.work, _occasion(line))):
                other, first = by_command.setdefault(same, (line, invocation))
                if not _is_alike(line, invocation, other, first):
                    yield line.diagnostic(
                        "split-key",
                        f"{excerpt(invocation.work)} has key {invocation.key} here and {first.key} in "
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
    if invocation.key == first.key:
        return True
    one, two = (_NUMBER.sub("", each.key or "") for each in (invocation, first))
    if not _DERIVED.search(_plain(one)):
        return False
    return one == two or (_occasion(line) != _occasion(other) and _plain(one) == _plain(two))


def _plain(key: str) -> str:
    return _ADDED.sub("", _NUMBER.sub("", key))


def _occasion(line: LintedEntry) -> tuple[object, ...]:
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
            yield _missing(having[0][0], excerpt(command), " and ".join(lacking))
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
                f"{excerpt(command)} uses oncecron in {_place(bare, guarded)}, but not here: it also runs here",
                "use oncecron with the same key on every host, with `oncecron crontab wrap`",
            )
    more, fewer = _only_in(lines, first), _only_in(first, lines)
    for line in more if fewer else ():
        yield line.diagnostic(
            "schedule",
            f"{excerpt(command)} runs at {_time_text(line)} here and at {_time_text(fewer[0])} in "
            f"{_place(line, fewer[0])}: the hosts fire different ticks",
            "use the same schedule and time zone on every host",
        )
    for line in () if more and fewer else more or fewer:
        other = there if more else lines[0]
        yield _missing(line, f"{excerpt(command)} at {_time_text(line)}", other.source.name)


def _only_in(lines: Sequence[LintedEntry], others: Sequence[LintedEntry]) -> list[LintedEntry]:
    known = set(map(_time_of, others))
    return [line for line in lines if _time_of(line) not in known]


def _time_of(line: LintedEntry) -> tuple[object, ...]:
    zones = tuple(canonical(invocation.options.get("tz", "")) for invocation in line.invocations)
    return meaning(line.entry), zones


def _time_text(line: LintedEntry) -> str:
    zone = next(
        (invocation.options["tz"] for invocation in line.invocations if "tz" in invocation.options),
        None,
    )
    return f"{line.entry.schedule}" + (f" {zone}" if zone else "")


# Values


def check_values(line: LintedEntry) -> Iterator[Diagnostic]:
    """Yield keys and ticks that differ between hosts or firings, and ticks that never change."""
    for invocation in line.invocations:
        key, tick = invocation.key or "", invocation.options.get("tick", "")
        what = host_in(key) or _varying(key)
        if what is None and _DATE.search(key):
            what = "the date"
        if what:
            yield line.diagnostic(
                "key",
                f"{what} is a part of the key, so firings have different keys and do not exclude each other",
                "use the same key on every host at every time; for the date, use --schedule or --tick",
            )
        if not line.entry.is_reboot:
            adds = invocation.subcommand == "each" and "again" in invocation.options
            yield from _check_tick(line, tick, may_stay=adds)


def _check_tick(line: LintedEntry, tick: str, *, may_stay: bool) -> Iterator[Diagnostic]:
    """`may_stay`: each firing adds the items that are new to the list of the same tick."""
    what = host_in(tick) or _varying(tick) or _seconds(tick)
    if what:
        yield line.diagnostic(
            "tick",
            f"{what} is a part of --tick, so each host starts another tick: all of them run the command",
            f"use --schedule '{line.entry.schedule}'",
        )
    elif not may_stay and tick and is_literal(tick) and not any(map(str.isdigit, tick)):
        yield line.diagnostic(
            "tick",
            f"--tick {tick} never changes: after the first run, every firing is skipped",
            f"use --schedule '{line.entry.schedule}', or a name with the date in it",
        )


def _varying(text: str) -> str | None:
    found = _OF_A_FIRING.search(text)
    return f"`{found[0].lstrip('`')}`" if found else None


def _seconds(text: str) -> str | None:
    found = next((date for date in _DATE.finditer(text) if _has_seconds(date[1])), None)
    return "a time with seconds" if found else None


def _has_seconds(arguments: str) -> bool:
    return ("+" not in arguments and not arguments.strip()) or bool(_SECONDS.search(arguments))


def check_stores(files: Sequence[Sequence[LintedEntry]]) -> Iterator[Diagnostic]:
    """Yield lines of several hosts whose stores the hosts do not share."""
    guarded = [[(line, each) for line in lines for each in line.invocations] for lines in files]
    if sum(map(bool, guarded)) <= 1:
        return
    first: dict[str, tuple[LintedEntry, str]] = {}
    for line, invocation in [pair for of_file in guarded for pair in of_file]:
        store = invocation.options.get("store") or line.environment.get(_VARIABLE, "")
        if store.startswith(_ONE_HOST):
            yield line.diagnostic(
                "store",
                f"the store {store.partition(':')[0]} is of one host: each host runs the command",
                "use a store that all hosts share: PostgreSQL or Redis",
            )
        elif store and is_literal(store) and invocation.key:
            there, other = first.setdefault(invocation.key, (line, store))
            if other != store and there.source is not line.source:
                yield line.diagnostic(
                    "store",
                    f"key {invocation.key} has the store {masked(store)} here and {masked(other)} in "
                    f"{there.source.name}: each host runs the command",
                    "use the same store on every host",
                )


# Sections of the configuration


class UsedKey(NamedTuple):
    """The key of a line that runs oncecron."""

    key: str | None
    """None where it cannot be read."""
    has_user: bool
    """Whether the user of the line is known, which a derived key may start with."""


def used_keys(lines: Iterable[LintedEntry]) -> Iterator[UsedKey]:
    """Yield the keys of the lines of crontabs; variables of the crontab have the values that it gives them."""
    for line in lines:
        for invocation in line.invocations:
            key = _used_key(invocation)
            if key is not None:
                key = Template(key).safe_substitute(line.environment)
            yield UsedKey(key, has_user=line.user is not None)


def _used_key(invocation: Invocation) -> str | None:
    derived = invocation.options.get("key") == AUTO_KEY and "shell" not in invocation.options
    return None if derived and _EXPANDED.search(invocation.command) else invocation.key


def check_sections(
    name: str, text: str, sections: Iterable[str], used: Sequence[UsedKey]
) -> Iterator[Diagnostic]:
    """Yield the sections of a configuration file that no key uses; none if any of the keys is not known.

    `name` and `text` are those of the file, `sections` the keys of its sections.
    """
    if not all(each.key and is_key(each.key) for each in used):
        return
    keys = sorted({each.key for each in used if each.key})
    lines = _lines_of_headings(text)
    for section in sections:
        if section in keys or any(_is_of_a_user(section, each) for each in used):
            continue
        meant = did_you_mean(section, keys)
        correct = f"{meant} Correct" if meant else "correct"
        yield Diagnostic(
            *(name, lines.get(section, 1), "section"),
            f"no line of the linted files has the key {section}, so the section has no effect",
            f"{correct} the key, or remove the section; if another crontab has this key, name that file too",
        )


def _is_of_a_user(section: str, used: UsedKey) -> bool:
    key = used.key or ""
    return not used.has_user and bool(_DERIVED.search(key)) and section.endswith(f".{key}")


def _lines_of_headings(text: str) -> Mapping[str, int]:
    """Return the numbers of the lines with headings of sections, by key; TOML has other ways to write a section."""
    import tomllib  # noqa: PLC0415 - only with a configuration file

    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("["):
            continue
        try:
            table = tomllib.loads(line).get("job")
        except ValueError:  # a line of an array
            continue
        for key in table if isinstance(table, dict) else ():
            found.setdefault(key, number)
    return found
