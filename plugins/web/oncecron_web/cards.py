"""Cards: what is wrong, equal findings together, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.tick import instant_of
from oncecron.watch.findings import STATES, cure, is_of_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncecron.watch.findings import Finding


class Card(NamedTuple):
    """Findings of one kind and state, each about another key; or one."""

    findings: Sequence[Finding]
    """What has lasted for the longest time first."""

    @property
    def first(self) -> Finding:
        """Return the one that has lasted for the longest time."""
        return self.findings[0]

    @property
    def reason(self) -> str | None:
        """Return what all of them say; None: each says something else."""
        return _common(each.reason for each in self.findings)

    @property
    def cure(self) -> str | None:
        """Return what is to be done about all of them; None: about each something else."""
        return _common(map(cure, self.findings))


def _common(texts: Iterable[str]) -> str | None:
    found = {*texts}
    return found.pop() if len(found) == 1 else None


def cards(findings: Iterable[Finding]) -> list[Card]:
    """Return the cards of findings, by their weight and age.

    What is critical comes first, then what is about everything, then what is about the most keys, then the oldest.
    """
    equal: dict[tuple[object, ...], list[Finding]] = {}
    for place, each in enumerate(findings):
        alone = place if each.key is None else None
        equal.setdefault((each.finding, each.state, each.host, alone), []).append(each)
    found = [Card(sorted(each, key=_age)) for each in equal.values()]
    return sorted(found, key=_weight)


def _weight(card: Card) -> tuple[int, bool, int, tuple[float, str]]:
    first, keys = card.first, {key for each in card.findings for key in each.named()}
    return -STATES.index(first.state), not is_of_all(first), -len(keys), _age(first)


def _age(found: Finding) -> tuple[float, str]:
    since = began(found)
    return float("inf") if since is None else since, found.key or ""


def began(found: Finding) -> float | None:
    """Return since when something is wrong, as far as is known."""
    return found.since if found.since is not None else instant_of(found.tick)
