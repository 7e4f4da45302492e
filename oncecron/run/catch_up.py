"""Find what a firing with `--catch-up` makes up. It is imported only where ticks before its own are not started."""

from __future__ import annotations

from oncecron.core import system
from oncecron.core.errors import UNREADABLE
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.making_up import AT_MOST, LOOKED_AT, firing_of_missed, looks_back_to, made_up
from oncecron.core.text import count
from oncecron.core.tick import Schedule
from oncecron.host import stderr
from oncecron.host.local_time import canonical, newest_before, offsets
from oncecron.run.spec import random_uuid
from oncecron.stores.claim_loop import unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.making_up import MadeUp, Row
    from oncecron.core.model import Behind, Firing
    from oncecron.run.spec import RunSpec
    from oncecron.stores.api import LeaseStore


def missed_ticks(store: LeaseStore, firing: Firing, behind: Behind, deadline: float) -> MadeUp:
    """Return the ticks that a firing makes up. Raises `StoreError`."""
    after = max(behind.mark, looks_back_to(firing.fired_at, firing.catch_up))
    # Not of the C library: another thread may read the environment.
    schedule = Schedule(firing.schedule or "", offsets(firing.zone))
    due = newest_before(schedule, firing.tick.instant or 0.0, after, LOOKED_AT)
    rows = store.look_back(firing, after, deadline=deadline)
    try:
        return made_up(firing, behind.mark, due, (_as_named_here(row, firing.zone) for row in rows))
    except UNREADABLE as error:
        raise unreadable(firing, error) from error


def _as_named_here(row: Row, zone: str | None) -> Row:
    """Return a row of what is known; if it is a plan in UTC, as this host calls that."""
    kind, name, detail, *span = row
    if kind == "plan" and zone and detail and canonical(detail) == canonical(zone):
        return (kind, name, zone, *span)
    return row


def missed_firings(
    store: LeaseStore, firing: Firing, behind: Behind, deadline: float
) -> tuple[list[Firing], int]:
    """Return the firings of those ticks, the oldest first, and how many older ones are left. Raises `StoreError`."""
    found = missed_ticks(store, firing, behind, deadline)
    firings = [firing_of_missed(firing, each, random_uuid()) for each in found.instants]
    return firings, found.left


def say(spec: RunSpec, firings: Sequence[Firing]) -> None:
    """Say what is made up to who wants to know."""
    if firings and (spec.verbose or system.calls.isatty(2)):
        span = " to ".join(dict.fromkeys(str(firings[each].tick.text) for each in (0, -1)))
        of = f"making up {count(len(firings), 'tick')}: {span} (--catch-up)"
        stderr.complain(f"key {spec.firing.key}: {of}")


def say_left(spec: RunSpec, oldest: Firing, left: int) -> None:
    """Say what is not made up, to everybody: the next firing says it no more."""
    key = spec.firing.key
    by_hand = spec.command_line(f"again {key} --tick TICK")
    stderr.complain(
        f"key {key}: {count_of(left)} before {oldest.tick.text} will not be made up: one firing makes up at "
        f"most {AT_MOST} (--catch-up); to run one by hand: {by_hand}"
    )


def count_of(left: int) -> str:
    """Return how many missed ticks are left, in words: not all that are older were looked at."""
    return count(left, "missed tick") + (" or more" if left + AT_MOST >= LOOKED_AT else "")
