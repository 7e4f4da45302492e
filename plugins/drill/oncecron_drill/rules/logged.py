"""What `oncecron audit` finds in the log when all is over, by the rules of `oncecron.log.protocol`.

What was missed, has no end or is in doubt is judged by other rules, which know the faults. A finding is a documented
hole where the store may have forgotten meanwhile, where nobody could have ended the earlier one of the two, and on
SQLite, which goes by the clocks of the hosts, where one of them was set.
"""

import math
from collections.abc import Iterator

from oncecron.log.protocol import RULES
from oncecron_drill.history import Firing, Start
from oncecron_drill.rules.joined import (
    RECORDING,
    Joined,
    Row,
    alive_until,
    clock_step,
    grace_of,
    part_of_row,
    undone,
)
from oncecron_drill.rules.verdict import Violation

_BY_TIME = ("overlap", "lease", "late-end", "in-pause")


def audited(joined: Joined) -> Iterator[Violation]:
    """Nothing is found in the log that a store must not allow."""
    by_id = {row["execution_id"]: row for row in joined.history.log.executions}
    for finding in joined.history.log.findings:
        ids = finding["execution_id"], finding["other_execution_id"]
        rows = [by_id[number] for number in ids if number in by_id]
        given_up = any(row["outcome"] == "unclaimed" for row in rows)  # judged by `running`
        if finding["finding"] in RULES and rows and not given_up:
            starts = [start for row in rows for start in _starts_of(joined, row)]
            yield Violation(
                "audit", f"`oncecron audit` finds {finding['finding']}: {finding['reason']}",
                finding["key"], finding["tick"], [start.at for start in starts], starts,
                hole=_is_excused(joined, finding["finding"], rows, starts),
            )  # fmt: skip


def _starts_of(joined: Joined, row: Row) -> list[Start]:
    starts = joined.parts.get(part_of_row(row), [])
    return [start for start in starts if row in joined.rows_of(start)]


def _is_excused(joined: Joined, rule: str, rows: list[Row], starts: list[Start]) -> bool:
    unheard = [firing for row, firing in joined.startless if firing and row in rows]
    times = [(start.at, alive_until(start)) for start in starts]
    times += [(firing.at, firing.ended or joined.history.end) for firing in unheard]
    if not times:
        return False  # told by `started`: nobody fired it
    since, until = min(at for at, _ in times), max(until for _, until in times)
    if joined.forgets(since, until):
        return True
    return rule in _BY_TIME and (
        _clock_was_set(joined, rows[0]["key"], since, until)
        or any(_was_left_alone(joined, joined.firing_of(start), start.at) for start in starts)
        or any(_was_left_alone(joined, firing, firing.at) for firing in unheard)
    )


def _was_left_alone(joined: Joined, firing: Firing | None, since: float) -> bool:
    """Return whether neither wrapper nor guard could act while a job lived, or its end was to be recorded."""
    if firing is None:
        return False
    later = [other.at for other in joined.starts_of(firing) if other.at > since]
    until = min(later, default=(firing.ended or joined.history.end) + RECORDING)
    times = joined.jointly_out(firing.id, grace_of(firing))
    return any(end >= since and begin <= until for begin, end in times)


def _clock_was_set(joined: Joined, key: str, since: float, until: float) -> bool:
    """Return whether a clock that a store goes by was set at about the time of some starts, by that clock.

    On SQLite those are the clocks of the hosts that fired the key then: any of them may have taken a lease away.
    """
    by_hosts = joined.history.head["store"] == "sqlite"
    hosts = {
        firing.host
        for firing in joined.history.firings
        if by_hosts and firing.key == key
        and firing.at <= until and (firing.ended or math.inf) >= since - joined.history.head["ttl"]
    }  # fmt: skip
    return any(
        fault.at <= until + step and undone(fault) >= since - step
        for fault in joined.history.faults
        for step in [abs(clock_step(fault))]
        if step and (fault.target in hosts or joined.is_shared(fault))
    )
