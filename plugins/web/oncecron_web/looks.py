"""How a state looks, whatever it is a state of: the kind of its meaning, and a hollow shape for what never started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.log.state_kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOKS = ("bad", "missed", "warning", "running", "well", "paused", "nothing")
"""The classes of the stylesheet, the worst first. Each has a colour and a shape."""
WRONG = ("bad", "missed", "warning")
_SHOWN: Mapping[str, str] = {
    **dict.fromkeys(("incomplete", "expired", "in-doubt", "channel"), "bad"),
    **dict.fromkeys(("missed", "silent"), "missed"),
    **dict.fromkeys(
        ("left", "spooled", "configuration", "silent-host", "clock", "future", "zone", "same-name"),
        "warning",
    ),
}
"""What no state is but a finding, and what looks otherwise than its kind."""


def look(state: str | None) -> str:
    """Return how a state, an outcome or the mark of a grid looks: one of `LOOKS`."""
    return _SHOWN.get(state or "") or kind_of(state)


def word(state: str | None) -> str:
    """Return the word that stands beside the shape."""
    return (state or "not run yet").replace("-", " ")
