"""Findings on [job.KEY] sections of the configuration that no line uses, such as those of a misspelt key."""

from __future__ import annotations

import difflib
import re
import tomllib
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.options import AUTO_KEY, is_key
from oncecron.crontab.lint.linted_entry import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.crontab.lint.linted_entry import Invocation, LintedEntry

_EXPANDED = re.compile(r"[$`~*?\[]|\{(?!\})")  # {} is an item of `oncecron each`
_DERIVED = re.compile(r"-[0-9a-f]{8}$")


class UsedKey(NamedTuple):
    """The key of a line that runs oncecron."""

    key: str | None
    """None where it cannot be read."""
    has_user: bool
    """Whether the user of the line is known, which a derived key may start with."""


def keys_of(lines: Iterable[LintedEntry]) -> Iterator[UsedKey]:
    """Yield the keys of the lines of crontabs; variables of the crontab have the values that it gives them."""
    for line in lines:
        for invocation in line.invocations:
            key = key_of(invocation)
            if key is not None:
                key = Template(key).safe_substitute(line.environment)
            yield UsedKey(key, has_user=line.user is not None)


def key_of(invocation: Invocation) -> str | None:
    """Return the key, None where it is derived from words that the shell expands first."""
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
        near = difflib.get_close_matches(section, keys, 1)
        hint = f" (`{near[0]}` is similar)" if near else ""
        yield Diagnostic(
            *(name, lines.get(section, 1), "section"),
            f"no line of the linted files has the key {section}, so the section has no effect",
            f"correct the key{hint}, or remove the section; if another crontab or unit has this key, name that file "
            "too",
        )


def _is_of_a_user(section: str, used: UsedKey) -> bool:
    """Return whether a section may be that of a derived key, with the name of a user in front that is not known."""
    key = used.key or ""
    return not used.has_user and bool(_DERIVED.search(key)) and section.endswith(f".{key}")


def _lines_of_headings(text: str) -> Mapping[str, int]:
    """Return the numbers of the lines with headings of sections, by key; TOML has other ways to write a section."""
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
