"""What the states of runs, keys, leases and items mean to a person who looks: the same in tables, timelines and pages.

A kind has one colour and one mark wherever it is shown.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    StateKind = Literal["well", "bad", "warning", "running", "paused", "nothing"]
    """`bad`: somebody has to look. `warning`: it may become bad, or somebody wanted it. `nothing`: it is as usual."""

_WORDS: Mapping[StateKind, tuple[str, ...]] = {
    "well": ("succeeded", "ok", "done"),
    "bad": (
        *(
            *("failed", "timed-out", "lost", "no-end", "missed", "incomplete", "silent"),
            "dead",
        ),  # runs, keys, items
        *("fail", "critical", "orphaned"),  # doctor, check, leases
        *("overlap", "twice", "no-run", "token"),  # audit
        *("gap", "lease", "late-end", "in-pause", "record"),
    ),
    "warning": (
        *("stopped", "not-started", "unclaimed", "overdue", "overrun", "slow"),
        *("warn", "warning", "unknown", "stale", "in-doubt"),
    ),
    "running": ("running", "held", "taken"),
    "paused": ("paused", "drained"),
    "nothing": ("queued",),
}
_OF_STATE = {word: kind for kind, words in _WORDS.items() for word in words}
_OF_REASON: Mapping[str, StateKind] = {
    **dict.fromkeys(("late", "exhausted", "broken", "no-store", "interrupted"), "warning"),
    **dict.fromkeys(("paused", "drained"), "paused"),
}


def kind_of(state: str | None) -> StateKind:
    """Return the kind of a state or an outcome; an unknown one is `nothing`."""
    return _OF_STATE.get((state or "").lower(), "nothing")


def kind_of_skip(reason: str) -> StateKind:
    """Return the kind of a skip: `nothing` for one that every tick has, because another host ran it."""
    return _OF_REASON.get(reason, "nothing")
