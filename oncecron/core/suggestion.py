"""What a person probably meant by a name that does not exist: of a key, host, option, command, outcome, setting.

For error messages alone: `difflib` has no place on the good path of a firing.
"""

from __future__ import annotations

from difflib import get_close_matches

from oncecron.core.errors import NotFoundError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


NEAR, NEARER = 0.62, 0.7
"""With the usual 0.6, three common letters of five would do. `NEARER` is for commands and their options: nobody who
types `setup` means `stop`, nor `resume` by `remove`."""


def similar(name: str, known: Iterable[str], least: float = NEAR) -> list[str]:
    """Return the known name that is most similar to an unknown one, if any is."""
    names = {each.lower(): each for each in known if each != name}
    return [names[each] for each in get_close_matches(name.lower(), names, 1, least)]


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    shown: Callable[[str], str] = visible,
    least: float = NEAR,
) -> str:
    """Return `did you mean X?`, or `otherwise` if no known name is similar. `shown`: how a name is written."""
    found = similar(name, known, least)
    return f"did you mean {shown(found[0])}?" if found else otherwise


def suggestion(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    shown: Callable[[str], str] = visible,
    least: float = NEAR,
) -> str:
    """Return the same to end a sentence: `; did you mean X?`."""
    question = did_you_mean(name, known, otherwise, shown=shown, least=least)
    return f"; {question}" if question else ""


def unknown(
    what: str,
    name: str,
    known: Iterable[str],
    *,
    otherwise: str | None = None,
    shown: Callable[[str], str] = visible,
) -> str:
    """Return the sentence for a name that none of the known things has; `otherwise`: instead of all their names."""
    names = [*known]
    every = f"known {what}s: {', '.join(names)}" if otherwise is None else otherwise
    least = NEARER if what == "command" else NEAR
    return f"unknown {what} {name!r}{suggestion(name, names, every, shown=shown, least=least)}"


def not_one_of(word: object, known: Iterable[str]) -> str:
    """Return the sentence for a word that is none of a few."""
    words = [*known]
    return f"{word!r} is not one of {', '.join(words)}{suggestion(str(word), words)}"


def unknown_key(key: str, known: Iterable[str], hosts: Iterable[str] = ()) -> NotFoundError:
    """Return the error for a key that no host has fired: it may be one of the hosts, or an ID."""
    if key in hosts:
        return NotFoundError(f"{key} is a host, and no key; to see it: `oncecron hosts {key}`")
    if key.isdecimal():
        cure = f"for the execution with this ID: `oncecron history --id {key}`"
        return NotFoundError(f"no host has fired key {key}; {cure}")
    names = [*known]
    longer = [each for each in names if each.startswith(f"{key}-")]  # as `crontab wrap` names it
    near, least = (longer, 0.0) if len(longer) == 1 else (names, NEAR)
    hint = suggestion(key, near, "`oncecron jobs` lists all keys", least=least)
    return NotFoundError(f"no host has fired key {key}{hint}")


def unknown_host(host: str, known: Iterable[str]) -> NotFoundError:
    """Return the error for a host that has fired no key."""
    hint = suggestion(host, known, "`oncecron hosts` lists all hosts")
    return NotFoundError(f"host {visible(host)} has fired no key{hint}")
