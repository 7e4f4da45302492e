"""Never two trees of a key at a time, and tokens that rise: promise 2, and the fence.

Of two trees that overlap the one with the lower token should have been dead: it is a documented hole where both
who could have killed it could not act when the overlap began, and it died as soon as they could.
"""

from collections.abc import Iterator

from oncecron_drill.history import Start
from oncecron_drill.rules.joined import MOMENT, Joined, alive_until, grace_of, undone
from oncecron_drill.rules.verdict import Violation


def overlaps(joined: Joined) -> Iterator[Violation]:
    """No two trees of one key and shard alive at once: by the kernel's locks, and by what each wrote and when."""
    for starts in joined.parts.values():
        files = {start.file: start for start in starts}
        proved = {
            frozenset((earlier.file, start.file)): min(alive_until(earlier), alive_until(start))
            for earlier, start in _crossing(starts)
        }
        for start in starts:
            for at, file in start.overlaps:
                pair = frozenset((start.file, file))
                proved[pair] = max(at, proved.get(pair, at))
                if file not in files:
                    yield _with_a_stranger(joined, start, at, file)
        for pair, until in proved.items():
            if len(both := [files[file] for file in pair if file in files]) > 1:
                yield _overlap(joined, both, until)


def _crossing(starts: list[Start]) -> Iterator[tuple[Start, Start]]:
    alive: list[Start] = []
    for start in starts:  # by time
        alive = [earlier for earlier in alive if alive_until(earlier) > start.at]
        yield from ((earlier, start) for earlier in alive)
        alive.append(start)


def _overlap(joined: Joined, both: list[Start], proved: float) -> Violation:
    stale, newer = sorted(both, key=lambda start: (start.token or 0, start.at))
    since = max(stale.at, newer.at)
    excuse = _excuse(joined, stale, since, max(proved, alive_until(stale)))
    hole, why = excuse is not None, excuse or _unexcused(joined, stale, since)
    firings = [firing for start in (stale, newer) if (firing := joined.firing_of(start))]
    return Violation(
        "overlap",
        f"two trees of {stale.key} lived at once, from {joined.when(since)} to {joined.when(proved)} at least: "
        f"{joined.start_text(stale)} and {joined.start_text(newer)}; {why}",
        stale.key, newer.tick, [since, proved], [stale, newer], firings, hole,
    )  # fmt: skip


def _excuse(joined: Joined, stale: Start, since: float, until: float) -> str | None:
    if is_excused(joined, stale, since, until):
        return "wrapper and guard of the first could not act"
    if joined.is_of_another and _had_ended(joined, stale, since):
        return "the first had ended, and what it had left running lived on"
    return None


def _had_ended(joined: Joined, start: Start, by: float) -> bool:
    """Return whether of a start only what it had left running lived: its own process was silent, and not stopped."""
    if start.own_sign is None or not start.own_sign <= by < start.last_sign:
        return False
    stops = joined.hits_of(start, "job", "stopped")
    return not any(fault.at <= by <= undone(fault) + MOMENT for fault in stops)


def _unexcused(joined: Joined, stale: Start, since: float) -> str:
    """Return what was done last to the holder, where its wrapper is another one: oncecron has to bear all of it."""
    firing = joined.firing_of(stale)
    if not joined.is_of_another or firing is None:
        return "nothing documented explains it"
    felt = [
        fault
        for fault in joined.felt(stale.host, stale.at, since)
        if joined.is_shared(fault) or not fault.hit or firing.id in {hit[0] for hit in fault.hit}
    ]
    last = max(felt, key=lambda fault: fault.at, default=None)
    return (
        f"before that: {last.kind} ({joined.when(last.at)})"
        if last
        else "nothing had been done to the first"
    )


def _with_a_stranger(joined: Joined, start: Start, at: float, file: str) -> Violation:
    return Violation(
        "overlap",
        f"{joined.start_text(start)} of {start.key} found {file} locked: something lived that had not written a line",
        start.key, start.tick, [at], [start],
    )  # fmt: skip


def is_excused(joined: Joined, stale: Start, since: float, until: float) -> bool:
    """Return whether nobody could have ended a start by then: see `Joined.could_not_act`."""
    firing = joined.firing_of(stale)
    return firing is not None and joined.could_not_act(firing.id, since, until, grace_of(firing))


def tokens(joined: Joined) -> Iterator[Violation]:
    """Tokens rise strictly from start to start of a key and shard."""
    for starts in joined.parts.values():
        highest: Start | None = None
        for start in starts:  # by time
            if start.token is None:
                continue
            if highest and highest.token and start.token <= highest.token:
                hole = start.token < highest.token and is_excused(
                    joined, start, start.at, alive_until(start)
                )
                yield Violation(
                    "token",
                    f"{joined.start_text(start)} of {start.key} has token {start.token}, but "
                    f"{joined.start_text(highest)} before it had {highest.token}",
                    start.key, start.tick, [highest.at, start.at], [start, highest], hole=hole,
                )  # fmt: skip
            else:
                highest = start


def fence(joined: Joined) -> Iterator[Violation]:
    """No write is accepted with a lower token than one before it."""
    highest: dict[str, int] = {}
    for number, (key, token) in enumerate(joined.history.log.register):
        if token < highest.get(key, token):
            writers = [start for start in joined.starts if (start.key, start.token) == (key, token)]
            yield Violation(
                "fence",
                f"write {number + 1} to the register of {key} was accepted with token {token} after one with "
                f"{highest[key]}: a stale job wrote",
                key, next((start.tick for start in writers), None),
                [start.last_sign for start in writers], writers,
            )  # fmt: skip
        highest[key] = max(token, highest.get(key, token))


def stale_writes(joined: Joined) -> int:
    """Return how many writes of a stale child were refused: by then a later lease of its key had its own start."""
    return sum(
        1
        for starts in joined.parts.values()
        for stale in starts
        for at, accepted in stale.fenced
        if not accepted
        and any(
            newer.at < at and (newer.token or 0) > (stale.token or 0)
            for newer in starts
            if newer is not stale
        )
    )
