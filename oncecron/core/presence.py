"""Which hosts fire a key: what a store keeps of the last firings of each, as one text that this module alone makes.

A line for each thing, NAME VALUE; what is not known has none:

    version             of oncecron
    clock_ahead         seconds by which the host's clock was ahead of the store's
    ticks, ticks_at     the last three ticks that it fired, the newest first, and when it first fired each; none by hand
    schedule, zone, utc_offset, catch_up, command  of its last firing that was not by hand; of the command its beginning
    hour, wins, skips   an hour since the epoch; its starts and skips in each of 24 hours up to that, the newest last
    machine, twice      which one fired last (`host.names`); the last two ticks that two fired under the host's name

A store looks at the text as one fact, and writes the next one in its place if it is still there: two firings of one
host at once do not lose each other's. The store itself adds when that was, and the host's name.
"""

from __future__ import annotations

from oncecron import __version__
from oncecron.core.errors import UNREADABLE
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.units import HOUR

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.decision import State
    from oncecron.core.model import Firing

_LONGEST = 1000
"""Characters of a value. So a text is shorter than what a store takes from anybody, which are 14,000."""


class Seen(NamedTuple):
    """What a store has of a host, and what is to be in its place after a firing."""

    before: str | None
    after: str


def seen(state: State, firing: Firing, *, won: bool) -> Seen:
    """Return what is known of a firing's host when it has won its tick, or has skipped it.

    What a store has, but cannot be read, is replaced.
    """
    try:
        after = _after(fields_of(state.presence or ""), state, firing, won=won)
    except UNREADABLE:
        after = _after({}, state, firing, won=won)
    lines = ((name, str(value)) for name, value in after.items() if value not in (None, ""))
    return Seen(
        state.presence,
        "\n".join(f"{name} {value[:_LONGEST]}".replace("\n", " ") for name, value in lines),
    )


def fields_of(text: str) -> dict[str, str]:
    """Return the values of a text by their names. Raises one of `UNREADABLE`."""
    return dict([line.split(" ", 1) for line in text.split("\n")]) if text else {}


def _after(before: dict[str, str], state: State, firing: Firing, *, won: bool) -> dict[str, Any]:
    tick, machine, hour = firing.tick.text, firing.machine, int(state.now // HOUR)
    ticks, times, twice = (before.get(name, "").split() for name in ("ticks", "ticks_at", "twice"))
    crontab = {
        "schedule": firing.schedule,
        "zone": firing.zone,
        "utc_offset": firing.utc_offset,
        "catch_up": firing.catch_up,
        "command": firing.shown_command,
    }
    if firing.again:  # by hand: it fires no tick, and says nothing about the crontab
        crontab = {name: before.get(name) for name in crontab}
    elif firing.tick.rule == "catch-up":  # it was fired then, and not now
        pass
    elif tick is not None and tick not in ticks:
        ticks, times = [tick, *ticks][:3], [f"{state.now:.6f}", *times][:3]
    elif tick and tick not in twice and machine not in (None, before.get("machine", machine)):
        twice = [tick, *twice][:2]
    passed = hour - int(before.get("hour", hour))
    return {
        "version": __version__,
        "clock_ahead": f"{state.host_ahead:.6f}",
        "ticks": " ".join(ticks),
        "ticks_at": " ".join(times),
        **crontab,
        "hour": hour,
        "wins": _counted(before.get("wins", ""), passed, int(won)),
        "skips": _counted(before.get("skips", ""), passed, int(not won)),
        "machine": machine,
        "twice": " ".join(twice),
    }


def _counted(counts: str, hours: int, more: int) -> str:
    """Return the counts of 24 hours, `hours` later and with `more` in the newest."""
    hourly = [*map(int, counts.split() or ["0"]), *([0] * min(hours, 24))][-24:]
    return " ".join(map(str, [*hourly[:-1], hourly[-1] + more]))
