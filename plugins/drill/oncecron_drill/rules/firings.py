"""No firing without a trace, and none says more than it should: promises 3 and 4.

A firing that started its job leaves with the job's own status, or 124, or 75 for a lost one. Of the others:

    0 (or --skip-exit)   was refused: a skip is counted for it. The store writes those without waiting for the disk, so
                         that one may be missing if the store had a fault meanwhile; such are counted
    69                   the store was away: `no-store`, from the spool; one line, once per host and key until reached
    75                   the lease, or the guard, was lost before the job was started: one line
    78                   the store, or a clock, is not as it must be: one line
    126, 127             `broken`, or an execution `not-started`: one line
    128 + n              told to end by a signal before there was an answer
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from oncecron_drill.history import Firing
from oncecron_drill.rules.joined import (
    MOMENT,
    RECORDING,
    Joined,
    Row,
    alive_until,
    option,
    part_of_row,
    undone,
)
from oncecron_drill.rules.statuses import ENDING, of_firing, statuses_of, words
from oncecron_drill.rules.verdict import Violation

SKIP_LOST = 1.0
"""Seconds after which a skip is on the store's disk: three times wal_writer_delay, with room."""

_ByTick = dict[tuple[Any, ...], list[Row]]
"""Refusals by host, key and tick."""
_NOT_REFUSED = ("no-store", "broken", "interrupted")
"""The skips that the store did not answer with."""
_SAID = "oncecron: "
_KEPT = ("the record is spooled", "a record is lost", "the end of the run could not be recorded")
_STANDS_BY = "still waiting (--failover)"
_STOPPED = "the command was stopped: "
_AWAY = ("the command was not started", "the command starts without a lease")
_TIMED_OUT = "--timeout ended the command"
_WAITS = "may have forgotten a lease; nothing starts for "


def unexplained(joined: Joined) -> Iterator[Violation]:
    """Every firing that ended by itself without a start has an execution, a skip, or a line that says why."""
    skipped, away = [], []
    for firing in joined.history.firings:
        if firing.status is None or firing.status < 0 or joined.starts_of(firing):
            continue
        rows = joined.rows_without_start.get(firing.id, [])
        if firing.status == 70 or any(firing.status in statuses_of(row) for row in rows):
            continue  # told by `exits`; recorded
        if firing.status == _skip_exit(firing):
            if option(firing, "--on-store-error") is None:
                skipped.append(firing)
        elif firing.status == 69:
            away.append(firing)
        elif what := _without_a_word(joined, firing, rows):
            yield of_firing(joined, firing, "unexplained", what)
    yield from _uncounted_skips(joined, skipped)
    yield from _uncounted_no_store(joined, away)


def _without_a_word(joined: Joined, firing: Firing, rows: list[Row]) -> str | None:
    status = firing.status or 0
    hit = joined.hits(firing)
    if status - 128 in ENDING and joined.hits(firing, state="signalled"):
        return None
    if status not in (75, 78, 126, 127):
        return f"left with {status} without a start, for no reason that is known"
    if _SAID not in firing.stderr:
        return f"left with {status} without a word"
    if status == 75 and not (hit or rows or _felt(joined, firing)):
        return f"left with 75, though no fault touched it: {words(firing)}"
    if status in (126, 127) and not _is_known_broken(joined, firing):
        return f"left with {status} without a skip `broken`: {words(firing)}"
    return None


def _felt(joined: Joined, firing: Firing) -> bool:
    until = firing.ended or joined.history.end
    return bool(joined.felt(firing.host, firing.at, until, firing.key))


def _is_known_broken(joined: Joined, firing: Firing) -> bool:
    return any(
        (row["host"], row["key"], row["reason"]) == (firing.host, firing.key, "broken")
        and firing.tick in (None, row["tick"])
        for row in joined.history.log.skips
    )


def untrue(joined: Joined) -> Iterator[Violation]:
    """Nobody is told that something is done of which there is no execution."""
    log = joined.history.log
    known = {(part_of_row(row), row["tick"]) for row in log.executions}
    for row in log.skips:
        if row["reason"] == "done" and (part_of_row(row), row["tick"] or None) not in known:
            key, part = part_of_row(row)
            yield Violation(
                "untrue",
                f"{row['host']} (pid {row['pid']}) was told that tick {row['tick']} of {key} part {part} is done, but "
                "it has no execution",
                key, row["tick"], hole=joined.forgets(*_between(joined, row)),
            )  # fmt: skip


def _between(joined: Joined, row: Row) -> tuple[float, float]:
    """Return when what a skip `done` tells of was recorded: since its tick was first fired, until that firing's end."""
    of_key = [firing for firing in joined.history.firings if firing.key == row["key"]]
    since = [firing.at for firing in of_key if firing.tick in (None, row["tick"])]
    until = [
        firing.ended or joined.history.end
        for firing in of_key
        if (firing.host, firing.pid) == (row["host"], row["pid"])
    ]
    return min(since, default=joined.begin), max(until, default=joined.history.end)


def own_leases(joined: Joined) -> Iterator[Violation]:
    """No firing is refused because of its own lease."""
    held = (row for row in joined.history.log.skips if row["reason"] == "held")
    refused = {(row["host"], row["pid"], row["key"]): row for row in held}
    for firing in joined.history.firings:
        row = refused.get((firing.host, firing.pid, firing.key))
        if row and (row["holder_host"], row["holder_pid"]) == (firing.host, firing.pid):
            what = "was refused as held, by itself"
            yield of_firing(joined, firing, "own-lease", what)


# What is counted for them


def _uncounted_skips(joined: Joined, firings: list[Firing]) -> Iterator[Violation]:
    """Yield the firings that were refused beyond the skips that are counted, unless store or disk were ill."""
    rows = [row for row in joined.history.log.skips if row["reason"] not in _NOT_REFUSED]
    ill = {
        firing.id
        for firing in firings
        if _store_was_ill(joined, firing) or "a record is lost" in firing.stderr
    }
    by_tick: _ByTick = defaultdict(list)
    for row in rows:
        by_tick[row["host"], row["key"], row["tick"]].append(row)
    missing = [*_beyond(rows, firings, forgiven=ill), *_parts_beyond(by_tick, firings)]
    missing += _waits_beyond(joined, by_tick, firings)
    for firing in {firing.id: firing for firing in missing}.values():
        if firing.id in ill:
            joined.counts["skips lost with the store"] += 1
        else:
            what = f"left with {firing.status} and silence, but no skip is counted for it"
            yield of_firing(joined, firing, "unexplained", what)


def _parts_beyond(by_tick: _ByTick, firings: list[Firing]) -> Iterator[Firing]:
    """Yield the firings with parts that are not counted as refused for each of them; a pause refuses all at once."""
    for firing in firings:
        parts = int(option(firing, "--shards") or 1)
        its = by_tick.get((firing.host, firing.key, firing.tick), [])
        if any(row["reason"] in ("paused", "drained") for row in its):
            continue
        if parts > 1 and {row["shard"] for row in its} != set(range(parts)):
            yield firing


def _waits_beyond(joined: Joined, by_tick: _ByTick, firings: list[Firing]) -> Iterator[Firing]:
    """Yield the firings that waited for the end of their own tick, and are not counted as refused after it."""
    for firing in firings:
        if option(firing, "--failover") is None or firing.tick is None:
            continue
        others = [
            start
            for start in joined.starts
            if start.key == firing.key and start.tick != firing.tick
            and joined.claimed_after(start) <= (firing.ended or 0.0)
            and alive_until(start) + 2 * joined.history.head["ttl"] >= firing.at
        ]  # fmt: skip
        silent = [
            holder
            for row, holder in joined.startless
            if row["key"] == firing.key
            and holder and holder.at <= (firing.ended or 0.0)
            and (holder.ended or math.inf) + 2 * joined.history.head["ttl"] >= firing.at
        ]  # fmt: skip
        its = by_tick.get((firing.host, firing.key, firing.tick), [])
        final = [row for row in its if row["reason"] != "held"]
        if not (others or silent or final or any(_is_another_tick(joined, row) for row in its)):
            yield firing  # else another tick may have been in its way


def _is_another_tick(joined: Joined, held: Row) -> bool:
    holder = held["holder_host"], held["holder_pid"], held["key"]
    return any(
        (firing.host, firing.pid, firing.key) == holder and firing.tick != held["tick"]
        for firing in joined.history.firings
    )


def _store_was_ill(joined: Joined, firing: Firing) -> bool:
    until = (firing.ended or firing.at) + SKIP_LOST
    return any(map(joined.is_shared, joined.felt(firing.host, firing.at, until)))


def _uncounted_no_store(joined: Joined, firings: list[Firing]) -> Iterator[Violation]:
    for firing in firings:
        if _SAID not in firing.stderr and not _was_told_before(joined, firing):
            yield of_firing(
                joined, firing, "unexplained", "left with 69 without a word, though it was news"
            )
    rows = [row for row in joined.history.log.skips if row["reason"] == "no-store"]
    lost = {firing.id for firing in firings if "a record is lost" in firing.stderr}
    lost |= {firing.id for firing in firings if joined.forgets(firing.at, joined.history.end)}
    for firing in _beyond(rows, firings, forgiven=lost):
        if firing.id not in lost:
            what = "left with 69, but no skip `no-store` is counted for it"
            yield of_firing(joined, firing, "unexplained", what)


def _beyond(rows: list[Row], firings: list[Firing], forgiven: set[int]) -> Iterator[Firing]:
    """Yield as many firings of each host and key, and of each tick where it is known, as counts are missing.

    Those that are forgiven come first. Counts of other ticks are good for firings whose tick only their host knew.
    """
    counts: dict[tuple[str, str], Counter[str | None]] = defaultdict(Counter)
    for row in rows:
        counts[row["host"], row["key"]][row["tick"]] += row["count"]
    needed: dict[tuple[str, str], dict[str | None, list[Firing]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for firing in sorted(firings, key=lambda firing: firing.id not in forgiven):
        needed[firing.host, firing.key][firing.tick].append(firing)
    for group, by_tick in needed.items():
        unnamed = by_tick.pop(None, [])
        for tick, of_it in by_tick.items():
            yield from of_it[: max(0, len(of_it) - counts[group][tick])]
            counts[group][tick] -= min(len(of_it), counts[group][tick])
        yield from unnamed[: max(0, len(unnamed) - counts[group].total())]


def _was_told_before(joined: Joined, firing: Firing) -> bool:
    """Return whether this host had said of this key that the store is away, and had not reached it since."""
    others = [
        other
        for other in joined.history.firings
        if (other.host, other.key) == (firing.host, firing.key) and other is not firing
    ]
    until = (firing.ended or firing.at) + MOMENT
    # Between its note that the store is away and its word, or its end, one was hit, or goes on, or waits still.
    told = [
        min(_last_word(joined, other, until), until)
        for other in others
        if _has_told(other, until)
        or (other.at <= until and (_STANDS_BY in other.stderr or _may_have_told(joined, other)))
    ]
    last = max(told, default=None)
    return last is not None and not any(
        other.at > last and _reached(joined, other) < firing.at for other in others
    )


def _has_told(other: Firing, until: float) -> bool:
    if other.ended is None or not _said_that_it_is_away(other):
        return False
    return other.ended <= until + (RECORDING if other.at <= until else 0.0)


def _last_word(joined: Joined, firing: Firing, until: float) -> float:
    """Return when a firing said its last: at its end, but a guard whose wrapper was killed when it woke."""
    moments = [firing.ended or until]
    if joined.hits(firing, "wrapper", "killed"):
        woken = (undone(fault) for fault in joined.hits(firing, "guard", "stopped"))
        moments += [at for at in woken if at < math.inf]
    return max(moments)


def _may_have_told(joined: Joined, firing: Firing) -> bool:
    if joined.starts_of(firing):
        return _said_that_it_is_away(firing)  # of a further attempt or part
    return bool(joined.hits(firing))


def _said_that_it_is_away(firing: Firing) -> bool:
    told = any(words in firing.stderr for words in _AWAY)
    return told or (firing.status == 69 and _SAID in firing.stderr)


def _reached(joined: Joined, firing: Firing) -> float:
    """Return when a firing had certainly got an answer of the store."""
    starts = joined.starts_of(firing)
    if starts:
        return starts[0].at
    answered = firing.status == _skip_exit(firing) and firing.ended is not None
    return firing.ended if answered and firing.ended is not None else math.inf


# Silence


def noise(joined: Joined) -> Iterator[Violation]:
    """Nothing is printed at a success or a refusal, but while the store is away that a record is kept, or who waits.

    And, once a day, that a server which has started lets nothing start yet.
    """
    for firing in joined.history.firings:
        if firing.status not in (0, _skip_exit(firing)) or _is_verbose(firing):
            continue
        lines = [line for line in firing.stderr.splitlines() if _WAITS not in line]
        if joined.starts_of(firing):  # the job's own are its own business
            lines = [line for line in lines if line.startswith(_SAID)]
            if joined.asked(
                firing.key, firing.at, firing.ended or math.inf
            ):  # and yet it ended with 0
                lines = [line for line in lines if _STOPPED not in line]
        if len(joined.starts_of(firing)) > 1:
            lines = [line for line in lines if _TIMED_OUT not in line]
        if _felt(joined, firing):
            lines = [
                line for line in lines if not any(word in line for word in (*_KEPT, _STANDS_BY))
            ]
        if lines:
            yield of_firing(
                joined, firing, "noise", f"left with {firing.status} and said: {lines[0]}"
            )


def _is_verbose(firing: Firing) -> bool:
    return any(
        option(firing, name) is not None for name in ("-v", "-vv", "--verbose", "--on-store-error")
    )


def _skip_exit(firing: Firing) -> int:
    return int(option(firing, "--skip-exit") or 0)
