"""Says whether a history keeps what is promised: violations, documented holes, counts.

The rules stand in `rules/`, each a function of the joined history; a new one is added to RULES.

    exclusion    one tree a key and part, tokens that rise and fence
    attempts     one start a tick and part, further ones for a reason
    made_up      ticks in their order, and none left where --catch-up makes them up
    records      each start in the log as it was, and nothing else
    statuses     each firing ends, with the status of its jobs
    firings      no firing without a trace; silence
    missed       no tick without a start, or a reason
    items        once per item, as the commands of `each` wrote
    people       what is paused does not start, what was stopped is dead
    logged       what `oncecron audit` finds in the log
    afterwards   nothing blocked and nothing left when the faults are over
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oncecron_drill.history import History
from oncecron_drill.rules.afterwards import blocked, incomplete, left
from oncecron_drill.rules.attempts import doubles, standbys
from oncecron_drill.rules.exclusion import fence, overlaps, stale_writes, tokens
from oncecron_drill.rules.firings import noise, own_leases, unexplained, untrue
from oncecron_drill.rules.healthy_ticks import missed
from oncecron_drill.rules.joined import Joined
from oncecron_drill.rules.logged import audited
from oncecron_drill.rules.made_up import not_made_up, order
from oncecron_drill.rules.once_per_item import items
from oncecron_drill.rules.people import commands, hindered, stopped
from oncecron_drill.rules.records import recorded, running, started
from oncecron_drill.rules.statuses import exits, leftovers, orphans, timeouts
from oncecron_drill.rules.verdict import Verdict, Violation

__all__ = ["OF_JOBS", "RULES", "Verdict", "Violation", "check"]

Rule = Callable[[Joined], Iterator[Violation]]

RULES: tuple[Rule, ...] = (
    overlaps, doubles, standbys, order, not_made_up, tokens, fence,
    recorded, running, started,
    exits, timeouts, orphans, leftovers, own_leases, unexplained, untrue, noise, missed,
    items,
    hindered, stopped, commands,
    audited,
    blocked, incomplete, left,
)  # fmt: skip

OF_JOBS: Mapping[str, Rule] = {
    "overlap": overlaps, "double": doubles, "orphan": orphans, "left": left, "blocked": blocked,
}  # fmt: skip
"""Those that read only what jobs wrote, and so hold for another wrapper too, by their names."""


def check(history: History) -> Verdict:
    """Return what is wrong with a run, in the order of time."""
    joined = Joined(history)
    found = [violation for rule in _rules(history) for violation in rule(joined)]
    found.sort(key=lambda violation: min(violation.moments, default=history.end))
    return Verdict(
        [violation for violation in found if not violation.hole],
        [violation for violation in found if violation.hole],
        _counts(joined),
    )


def _rules(history: History) -> Sequence[Rule]:
    promised = history.head.get("promised")
    return RULES if promised is None else [OF_JOBS[name] for name in promised]


def _counts(joined: Joined) -> dict[str, Any]:
    history = joined.history
    skips: Counter[str] = Counter()
    for row in history.log.skips:
        skips[row["reason"]] += row["count"]
    of_starts = [row for start in history.starts for row in joined.rows_of(start)[:1]]
    return {
        "executions": dict(Counter(row["outcome"] for row in history.log.executions).most_common()),
        "skips": dict(skips.most_common()),
        "takeovers": sum(row["cause"] == "takeover" for row in of_starts),
        "stale writes refused": stale_writes(joined),
        "skips lost with the store": joined.counts["skips lost with the store"],
    }
