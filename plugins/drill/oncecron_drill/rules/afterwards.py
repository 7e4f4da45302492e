"""When all faults are over: every key runs again, and nothing is left behind."""

from collections.abc import Iterator

from oncecron_drill.history import Firing
from oncecron_drill.rules.joined import (
    WAKING,
    Joined,
    clock_step,
    grace_of,
    option,
    part_of,
    part_of_row,
    undone,
)
from oncecron_drill.rules.verdict import Violation

BOUND = 10.0
"""Seconds beyond the ttl after which a key must run again: a third of the least ttl in which an expired lease is
watched, the second by which a firing may ask late, and what a loaded machine takes to start two interpreters."""


def blocked(joined: Joined) -> Iterator[Violation]:
    """After the last fault each part of a key has a start within its period, a ttl, its longest job and BOUND.

    The time in which nobody got an answer does not count.
    """
    history = joined.history
    for key, its in history.head.get("keys", {}).items():
        within = its["period"] + its["seconds"] + history.head["ttl"] + BOUND
        asked = _asked(joined, key, history.quiet + its["period"])
        within += _set_back(joined, key, asked)
        within += _without_an_answer(joined, history.quiet + within)
        until = history.quiet + within
        if its.get("once") or history.end < until or not asked:
            continue
        begun = {
            part_of(start)[1]
            for start in joined.starts
            if start.key == key and history.quiet <= start.at <= until
        }
        for part in sorted(set(range(its.get("parts", 1))) - begun):
            name = key if its.get("parts", 1) == 1 else f"part {part} of {key}"
            yield Violation(
                "blocked",
                f"{name} was not started within {within:g} s after the last fault was undone "
                f"({joined.when(history.quiet)}), though it was fired {len(asked)} times for something new",
                key, asked[0].tick, [history.quiet, until], [], asked,
            )  # fmt: skip


def _without_an_answer(joined: Joined, until: float) -> float:
    history = joined.history
    return sum(
        min(undone(each), history.end) - each.at
        for each in history.faults
        if history.quiet < each.at <= min(until, history.end) and joined.is_shared(each)
    )


def _set_back(joined: Joined, key: str, asked: list[Firing]) -> float:
    """Return by how many seconds a last start may lie in the future, which counts as now for --min-gap.

    On SQLite it is told by the clock of its host, if that was ahead when the key was fired.
    """
    history = joined.history
    if history.head["store"] != "sqlite" or not any(option(each, "--min-gap") for each in asked):
        return 0.0
    ahead = (
        min(undone(fault), firing.ended or history.end) + clock_step(fault) - history.quiet
        for fault in history.faults
        for firing in history.firings
        if clock_step(fault) and (firing.key, firing.host) == (key, fault.target)
        and firing.at <= undone(fault) and (firing.ended or history.end) >= fault.at
    )  # fmt: skip
    return max([0.0, *ahead])


def incomplete(joined: Joined) -> Iterator[Violation]:
    """Of a tick that was fired when all was quiet every part is started, unless another tick's was in its way."""
    history = joined.history
    for key, its in history.head.get("keys", {}).items():
        firings = [firing for firing in history.firings if firing.key == key and firing.tick]
        ticks = {firing.tick for firing in firings if firing.at > history.quiet}
        ticks -= {firing.tick for firing in firings if firing.at <= history.quiet}
        for tick in sorted(ticks if its.get("parts", 1) > 1 else (), key=str):
            for part in sorted(set(range(its["parts"])) - _parts_told(joined, key, tick)):
                fired = [firing for firing in firings if firing.tick == tick]
                yield Violation(
                    "part",
                    f"part {part} of tick {tick} of {key} was not started, though all was quiet and nothing in its way",
                    key, tick, [fired[0].at], [], fired,
                )  # fmt: skip


def _parts_told(joined: Joined, key: str, tick: str | None) -> set[int]:
    """Return the parts of a tick that have an execution, or whose refusal says that another one ran."""
    log = joined.history.log
    rows = [row for row in log.executions if row["outcome"] != "not-started"]
    rows += [row for row in log.skips if row["reason"] not in ("done", "no-store")]
    return {part_of_row(row)[1] for row in rows if (row["key"], row["tick"]) == (key, tick)}


def _asked(joined: Joined, key: str, until: float) -> list[Firing]:
    quiet = joined.history.quiet
    begun = {
        (start.key, start.tick)
        for start in joined.starts
        if start.at < quiet and start.tick is not None
    }
    return [
        firing
        for firing in joined.history.firings
        if firing.key == key and quiet <= firing.at <= until and (key, firing.tick) not in begun
    ]


def left(joined: Joined) -> Iterator[Violation]:
    """Nothing is left: no lease, lock, session, file or process."""
    history = joined.history
    for sentence in history.log.left:
        yield Violation("left", sentence, moments=[history.end])
    for start in joined.starts:
        if not start.lives:
            continue
        firing = joined.firing_of(start)
        hole = firing is not None and any(
            end >= history.end - WAKING
            for _, end in joined.jointly_out(firing.id, grace_of(firing))
        )
        why = ": wrapper and guard could not act" if hole else ""
        yield Violation(
            "left", f"{joined.start_text(start)} of {start.key} lived when the run was over{why}",
            start.key, start.tick, [start.at, history.end], [start], [firing] if firing else [], hole,
        )  # fmt: skip
