"""What a person probably meant by a name that does not exist: of a key, host, option, command, outcome, setting.

For error messages alone: `difflib` has no place on the good path of a firing. Upper case, `-`, `_` and `.` make no
difference. At most three names are offered, and none that is clearly less similar than the best one.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from heapq import nlargest

from oncecron.core.errors import NotFoundError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.stderr import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LEAST = 62
"""How similar a name must be, in percent: twice the letters that both have, of the letters of both."""
_AS_GOOD = 4
"""Names whose similarity differs by less are offered together."""
_MOST = 3
_PART = 3
"""If nothing is similar, a name is offered that has what was typed in it, if that is as long."""
_COMPARED = 100
"""So many names are compared letter by letter, those with the most pairs of letters in common: of 20,000 keys it takes
`difflib` 20 seconds."""
_FOLDED = str.maketrans("_.", "--")


def similar(name: str, known: Iterable[str], least: int = _LEAST) -> list[str]:
    """Return the known names that are similar to an unknown one, the most similar first."""
    typed = _fold(name)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(typed)
    others = {each: _fold(each) for each in sorted({*known} - {name})}
    found = []
    pairs = {typed[at : at + 2] for at in range(len(typed))}
    common = {each: sum(pair in folded for pair in pairs) for each, folded in others.items()}
    for each in nlargest(_COMPARED, others, common.__getitem__):
        matcher.set_seq1(others[each])
        likeness = 100 * matcher.ratio()
        if likeness >= least:
            found.append((-likeness, each))
    found.sort()
    near = [each for likeness, each in found if likeness < found[0][0] + _AS_GOOD]
    if near or len(typed) < _PART:
        return near[:_MOST]
    return sorted((each for each in others if typed in others[each]), key=len)[:_MOST]


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    shown: Callable[[str], str] = visible,
    least: int = _LEAST,
) -> str:
    """Return `did you mean X?`, or `otherwise` if no known name is similar. `shown`: how a name is written."""
    names = [shown(each) for each in similar(name, known, least)]
    if not names:
        return otherwise
    before = f"{', '.join(names[:-1])} or " if names[1:] else ""
    return f"did you mean {before}{names[-1]}?"


def suggestion(
    name: str, known: Iterable[str], otherwise: str = "", *, shown: Callable[[str], str] = visible
) -> str:
    """Return the same to end a sentence: `; did you mean X?`."""
    question = did_you_mean(name, known, otherwise, shown=shown)
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
    return f"unknown {what} {name!r}{suggestion(name, names, every, shown=shown)}"


def not_one_of(word: object, known: Iterable[str]) -> str:
    """Return the sentence for a word that is none of a few."""
    words = [*known]
    return f"{word!r} is not one of {', '.join(words)}{suggestion(str(word), words)}"


def unknown_key(key: str, known: Iterable[str]) -> NotFoundError:
    """Return the error for a key that no host has fired."""
    hint = suggestion(key, known, "`oncecron jobs` lists all keys")
    return NotFoundError(f"no host has fired key {key}{hint}")


def unknown_host(host: str, known: Iterable[str]) -> NotFoundError:
    """Return the error for a host that has fired no key."""
    hint = suggestion(host, known, "`oncecron hosts` lists all hosts")
    return NotFoundError(f"host {visible(host)} has fired no key{hint}")


def _fold(name: str) -> str:
    return name.lower().translate(_FOLDED)
