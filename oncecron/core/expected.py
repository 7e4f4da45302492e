"""What should have run: the schedules that the keys are expected to follow, and when a tick without a start is missed.

A claim with --schedule writes what is expected of its shard (`Expectation`); a firing with --tick, --no-tick or --again
leaves it as it is, and `oncecron forget` removes it. Ticks from then on are expected. A tick is missed if it was due
more than the grace ago (`MISSED_AFTER`, or a longer --starting-deadline) and nobody has started it, unless the key was
paused, or every host that fires it was drained.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.timing import MISSED_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import Expectation, JobKey, Pause

Reasons = dict[str, dict[str, None]]
"""The hosts that skipped a tick, by reason, in the order in which they were read."""


def expected_shards(keys: Iterable[JobKey]) -> Iterator[tuple[JobKey, Expectation]]:
    """Yield the shards that are expected to run: without those beyond the newest number of shards of their key."""
    newest: dict[str, Expectation] = {}
    scheduled = [(known, known.expected) for known in keys if known.expected is not None]
    for known, expected in scheduled:
        before = newest.get(known.key)
        if before is None or before.since < expected.since:
            newest[known.key] = expected
    for known, expected in scheduled:
        if known.shard < newest[known.key].shards:
            yield known, expected


def grace_of(expected: Expectation) -> float:
    """Return how long after its time a tick may still start, in seconds."""
    return max(MISSED_AFTER, expected.starting_deadline or 0.0)


def paused_since(key: str, pauses: Sequence[Pause]) -> float | None:
    """Return since when a key is paused, by itself or with all keys."""
    return min((pause.since for pause in pauses if pause.key in (key, ALL_KEYS)), default=None)


def was_held_back(reasons: Mapping[str, Mapping[str, None]], hosts: Iterable[str]) -> bool:
    """Return whether people did not want a tick to start: the key was paused, or all of its hosts were drained."""
    drained = reasons.get("drained", {})
    return "paused" in reasons or (len(reasons) == 1 and bool(drained) and set(hosts) <= {*drained})
