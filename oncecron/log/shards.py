"""A tick that is divided into shards: the outcome of each, and which were not started."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.log.jobs import NO_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncecron.core.log_rows import Traced

_WORDS = {
    "running": "running",
    NO_END: "without an end on record",
    "lost": "lost",
    "failed": "failed",
    "timed-out": "timed out",
    "stopped": "stopped",
    "unclaimed": "run without a lease",
    "succeeded": "succeeded",
}
"""The worst first, once nothing runs."""


class Division(NamedTuple):
    """The known shards of a tick."""

    shards: int
    outcomes: dict[int, str]
    """The outcome of the last attempt, by shard."""

    def missing(self) -> list[int]:
        """Return the shards that were not started."""
        return [shard for shard in range(self.shards) if shard not in self.outcomes]

    def verdict(self) -> str:
        """Return the worst outcome; `running` where any shard runs, `incomplete` where one was not started."""
        found = set(self.outcomes.values())
        if "running" in found:
            return "running"
        if self.missing():
            return "incomplete"
        return next(outcome for outcome in _WORDS if outcome in found)

    def described(self) -> str:
        """Return the shards by outcome, with their numbers: `3 succeeded (0-2), 1 not started (3)`."""
        shards: dict[str, list[int]] = {outcome: [] for outcome in _WORDS}
        for shard, outcome in sorted(self.outcomes.items()):
            shards[outcome].append(shard)
        described = [
            f"{len(found)} {_WORDS[outcome]} ({listed(found)})"
            for outcome, found in reversed(shards.items())
            if found
        ]
        if missing := self.missing():
            described.append(f"{len(missing)} not started ({listed(missing)})")
        return ", ".join(described)


def division(executions: Sequence[Traced]) -> Division | None:
    """Return how a tick is divided, None if it is not; `executions` are sorted by attempt."""
    started = [each.execution for each in executions if each.execution.outcome != "not-started"]
    shards = max((each.shards for each in started), default=1)
    if shards == 1:
        return None
    return Division(shards, {each.shard: each.outcome for each in started})


def listed(numbers: Iterable[int]) -> str:
    """Return rising numbers as text, with runs as ranges: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
