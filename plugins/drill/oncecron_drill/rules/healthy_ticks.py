"""A tick that was fired in health is started, unless its refusals say why not, and that was so."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from oncecron_drill.history import Firing, Start
from oncecron_drill.rules.joined import (
    HOLDS,
    MOMENT,
    Joined,
    Row,
    alive_until,
    option,
    part_of_row,
    taken_back,
    undone,
)
from oncecron_drill.rules.verdict import Violation

_ASKED_FOR = {"paused": ("pause", "key"), "drained": ("drain", "host")}
_AS_IT_SAYS = ("late", "recent", "passed", "unmet", "broken", "no-store", "interrupted")


class _Fired(NamedTuple):
    key: str
    tick: str
    healthy: list[Firing]
    """Those that were refused, and met no fault."""
    hit: list[Firing]
    """Those that met one: they may have taken the tick with them."""


def missed(joined: Joined) -> Iterator[Violation]:
    """Each part of a tick that a healthy firing fired has a start, or each of them a reason that holds."""
    begun = {((start.key, int(start.shard or 0)), start.tick) for start in joined.history.starts}
    begun |= {
        (part_of_row(row), row["tick"])
        for row, _ in joined.startless
        if row["outcome"] != "not-started"
    }
    refusals: dict[tuple[str, str, int, str], list[Row]] = defaultdict(list)
    for row in joined.history.log.skips:
        refusals[row["host"], row["key"], row["shard"], row["tick"]].append(row)
    for fired in _by_tick(joined):
        parts = int(option(fired.healthy[0], "--shards") or 1)
        for part in range(parts):
            if ((fired.key, part), fired.tick) in begun:
                continue
            for firing in fired.healthy:
                rows = refusals[firing.host, fired.key, part, fired.tick]
                if rows and not any(_explains(joined, fired, firing, row) for row in rows):
                    said = ", ".join(row["reason"] for row in rows)
                    yield Violation(
                        "missed",
                        f"part {part} of tick {fired.tick} of {fired.key} was not started: "
                        f"{joined.firing_text(firing)} was refused as {said}, and nothing explains it",
                        fired.key, fired.tick, [firing.at], [], [firing],
                    )  # fmt: skip


def _by_tick(joined: Joined) -> Iterator[_Fired]:
    by_tick: dict[tuple[str, str], list[Firing]] = defaultdict(list)
    for firing in joined.history.firings:
        if firing.tick is not None:
            by_tick[firing.key, firing.tick].append(firing)
    for (key, tick), firings in by_tick.items():
        hit = [firing for firing in firings if _was_hit(joined, firing)]
        refused = [
            firing for firing in firings if firing.status == int(option(firing, "--skip-exit") or 0)
        ]
        healthy = [
            firing for firing in refused if firing not in hit and not joined.starts_of(firing)
        ]
        if healthy:
            yield _Fired(key, tick, healthy, hit)


def _was_hit(joined: Joined, firing: Firing) -> bool:
    until = joined.history.end if firing.ended is None else firing.ended
    return bool(joined.hits(firing) or joined.felt(firing.host, firing.at, until, firing.key))


def _explains(joined: Joined, fired: _Fired, firing: Firing, row: Row) -> bool:
    reason, ended = row["reason"], (firing.ended or firing.at) + MOMENT
    if reason in _ASKED_FOR:
        word, whose = _ASKED_FOR[reason]
        subjects = (getattr(firing, whose), "--all")
        return any(
            operation.at <= ended and taken_back(joined, operation)[1] >= firing.at - MOMENT
            for operation in joined.history.operations
            if operation.words[0] == word and operation.subject in subjects
        )
    if reason in _AS_IT_SAYS or any(other.at <= ended for other in fired.hit):
        return True
    return reason == "held" and _was_busy(joined, fired, firing, row)


def _was_busy(joined: Joined, fired: _Fired, firing: Firing, row: Row) -> bool:
    key = joined.history.head.get("keys", {}).get(fired.key, {})
    seems_alive = key.get("ttl", joined.history.head["ttl"]) / 3 + MOMENT
    ended = (firing.ended or firing.at) + MOMENT
    return any(
        joined.claimed_after(start) <= ended
        and max(alive_until(start), _last_heard(joined, start)) + seems_alive >= firing.at
        for start in joined.parts.get(part_of_row(row), ())
    ) or any(
        holder and holder.at <= ended and _was_hit(joined, holder)
        and _asked_until(joined, holder) + 3 * seems_alive >= firing.at
        for held, holder in joined.startless
        if part_of_row(held) == part_of_row(row)
    )  # fmt: skip


def _last_heard(joined: Joined, start: Start) -> float:
    """Return when the last renewal of a silenced wrapper may have come: with its network, if it was still there."""
    holder = joined.firing_of(start)
    if holder is None or holder.ended is None:
        return -math.inf
    healed = _healed(joined, holder, start.at, holder.ended)
    return max((at for at in healed if at <= holder.ended), default=-math.inf)


def _asked_until(joined: Joined, holder: Firing) -> float:
    """Return when a claim of a firing may have come at last: a network that was cut carries it when it is whole."""
    ended = joined.history.end if holder.ended is None else holder.ended
    return max([ended, *(at for at in _healed(joined, holder, holder.at, ended) if at < math.inf)])


def _healed(joined: Joined, holder: Firing, since: float, until: float) -> Iterator[float]:
    """Yield when the network of a firing's host, or the store, that was ill within a time was well again."""
    felt = joined.felt(holder.host, since, until)
    return (undone(fault) for fault in felt if fault.group in HOLDS or joined.is_shared(fault))
