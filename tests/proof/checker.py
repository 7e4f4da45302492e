"""Says whether a history keeps what is promised: violations, documented holes, counts.

The rules stand in `rules/`, each a function of the joined history; a new one is added to RULES.

    exclusion    one tree a key, one start a tick, tokens that rise and fence
    records      each start in the log as it was, and nothing else
    firings      no firing without a trace; statuses; silence
    afterwards   nothing blocked and nothing left when the faults are over
"""

from collections import Counter
from collections.abc import Callable, Iterator

from history import History
from rules.afterwards import blocked, left
from rules.exclusion import doubles, fence, overlaps, stale_writes, tokens
from rules.firings import exits, noise, own_leases, timeouts, unexplained
from rules.joined import Joined
from rules.records import recorded, running, started
from rules.verdict import Verdict, Violation

__all__ = ["RULES", "Verdict", "Violation", "check"]

Rule = Callable[[Joined], Iterator[Violation]]

RULES: tuple[Rule, ...] = (
    overlaps, doubles, tokens, fence,
    recorded, running, started,
    exits, timeouts, own_leases, unexplained, noise,
    blocked, left,
)  # fmt: skip


def check(history: History) -> Verdict:
    """Return what is wrong with a run, in the order of time."""
    joined = Joined(history)
    found = [violation for rule in RULES for violation in rule(joined)]
    found.sort(key=lambda violation: min(violation.moments, default=history.end))
    return Verdict(
        [violation for violation in found if not violation.hole],
        [violation for violation in found if violation.hole],
        _counts(joined),
    )


def _counts(joined: Joined) -> dict[str, int | dict[str, int]]:
    history = joined.history
    skips: Counter[str] = Counter()
    for row in history.log.skips:
        skips[row["reason"]] += row["count"]
    return {
        "firings": len(history.firings),
        "exit statuses": _kinds(str(firing.status) for firing in history.firings),
        "ticks": len(
            {(start.key, start.tick) for start in history.starts if start.tick is not None}
        ),
        "starts": len(history.starts),
        "executions": _kinds(row["outcome"] for row in history.log.executions),
        "skips": dict(skips.most_common()),
        "faults": _kinds(fault.kind for fault in history.faults),
        "fenced writes accepted": len(history.log.register),
        "stale writes refused": stale_writes(joined),
        "skips lost with the store": joined.counts["skips lost with the store"],
    }


def _kinds(words: Iterator[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
