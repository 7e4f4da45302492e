"""Which ticks were missed, and not held back by people: what a firing with `--catch-up` makes up.

A store tells what it knows of the time since the high-water mark (`LeaseStore.look_back`), as rows of five columns:
kind, name, detail, since, until. A value may be as the store has it, as in `core.facts`:

    plan       the schedule by which the shard is expected to run, its zone, and since when
    pause      a key, or all keys (`*`): the earlier pauses of it, and the last one, which may have ended
    drain      a host, likewise
    host       a host that fires the shard
    paused     a tick for which such a skip is on record
    drained    likewise, and the host
    run        from when to when an execution ran

Where it cannot be known that a tick was missed rather than held back, it is not made up.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.tick import at
from oncecron.core.timing import NEVER, PAUSES_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.model import Firing

    Row = Sequence[Any]

AT_MOST = 100
"""So many ticks one firing makes up."""
LOOKED_AT = 1000
"""So many of the newest ticks are looked at."""

LENGTH_OF_PAST = 990
"""Of what a store keeps of earlier pauses: 45 times `SINCE-UNTIL `, each 10 digits, the newest last."""
_LENGTH_OF_ONE = 22

HELD_BACK = ("paused", "drained")
"""Why people did not want a tick to start: the key was paused, or all of its hosts were drained."""


def withheld(reasons: Mapping[str, Mapping[str, None]], hosts: Iterable[str]) -> str | None:
    """Return why a tick of these hosts was not started although it is not missed, by its skips; None: it is.

    One of `HELD_BACK`, or `overrun`: an earlier run was still running.
    """
    drained = reasons.get("drained", {})
    if "paused" in reasons:
        return "paused"
    if len(reasons) == 1 and drained and set(hosts) <= {*drained}:
        return "drained"
    return "overrun" if "held" in reasons else None


class MadeUp(NamedTuple):
    """The ticks that a firing makes up."""

    instants: Sequence[int]
    """The oldest first."""
    left: int
    """How many older ones it leaves."""


def looks_back_to(fired_at: float, age: float | None) -> float:
    """Return after which instant a firing makes ticks up. `age`: `Firing.catch_up`."""
    return fired_at - min(age or PAUSES_KEPT, PAUSES_KEPT)


def newest_of(missed: Sequence[int], age: float | None) -> Sequence[int]:
    """Return which of the ticks that were missed, rising, a firing makes up."""
    return missed[-AT_MOST if age else -1 :]


def made_up(firing: Firing, mark: float, due: Iterable[int], rows: Iterable[Row]) -> MadeUp:
    """Return which ticks a firing makes up of those that were due before its own, rising. Raises one of `UNREADABLE`.

    `mark`: the high-water mark.
    """
    known = _Known(firing, rows)
    after = max(mark, looks_back_to(firing.fired_at, firing.catch_up), known.since)
    missed = [each for each in due if each > after and known.is_missed(each)]
    found = newest_of(missed, firing.catch_up)
    return MadeUp(found, len(missed) - len(found) if firing.catch_up else 0)


def firing_of_missed(firing: Firing, instant: float, owner: str) -> Firing:
    """Return the firing of a tick that another one makes up: claimed as any scheduled tick of that instant."""
    tick = at(instant, "catch-up")
    return firing._replace(tick=tick, owner=owner, previous=None)


class _Known:
    """The rows, and what they say of a tick."""

    def __init__(self, firing: Firing, rows: Iterable[Row]) -> None:
        self.since = NEVER
        """Since when the shard is expected to run by the firing's schedule."""
        self._hosts: set[str] = set()
        self._skips: dict[tuple[str, str], dict[str, None]] = {}
        self._spans: list[tuple[float, float, str, str]] = []
        for kind, name, detail, since, until in rows:
            if kind == "plan" and (name, detail) == (firing.schedule, firing.zone):
                self.since = float(since)
            elif kind == "host":
                self._hosts.add(name)
            elif kind in HELD_BACK:
                self._skips.setdefault((name, kind), {})[detail or ""] = None
            elif kind == "run":
                self._spans.append((float(since), float(until), "held", ""))
            elif kind in ("pause", "drain"):
                reason = "paused" if kind == "pause" else "drained"
                end = NEVER if until is None else float(until)
                spans = (*_past(detail or ""), (float(since) // 1, end))  # as the past is kept
                self._spans += [(*span, reason, name) for span in spans]

    def is_missed(self, instant: int) -> bool:
        text, reasons = at(instant, "catch-up").text or "", dict[str, dict[str, None]]()
        for reason in HELD_BACK:
            if found := self._skips.get((text, reason)):
                reasons[reason] = dict(found)
        for since, until, reason, name in self._spans:
            if since <= instant < until:
                reasons.setdefault(reason, {})[name] = None
        return withheld(reasons, self._hosts) is None


def _past(text: str) -> Iterator[tuple[float, float]]:
    """Yield from when to when earlier pauses were; where not all are known, the time before them counts as one."""
    ends = [each.split("-") for each in text.split()]
    if len(text) > LENGTH_OF_PAST - _LENGTH_OF_ONE:
        yield -NEVER, float(ends[0][0])
    for since, until in ends:
        yield float(since), float(until)
