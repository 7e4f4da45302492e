"""The closing summary of a run, for people."""

from collections import Counter
from typing import Any

from oncecron_drill.history import History
from oncecron_drill.rules.verdict import Verdict


def summary(verdict: Verdict, history: History) -> str:
    """Return what a run has shown: counts, holes, and the first violation."""
    head = history.head
    kinds: dict[str, Any] = {
        "exit statuses": (firing.status for firing in history.firings),
        "people's commands": (f"{each.words[0]} {each.status}" for each in history.operations),
        "faults": (fault.kind for fault in history.faults),
        "items": (event.event for event in history.items),
        "documented holes": (hole.rule for hole in verdict.holes),
        "violations": (violation.rule for violation in verdict.violations),
    }
    counts = {"firings": len(history.firings), "starts": len(history.starts), **verdict.counts}
    counts |= {name: dict(Counter(found).most_common()) for name, found in kinds.items()}
    first = [f"The first: {each.sentence}" for each in verdict.violations[:1]]
    return "\n".join(
        [
            f"seed {head.get('seed')}, store {head.get('store')}, {head.get('minutes')} minutes",
            *(f"  {name:<26} {value}" for name, value in counts.items()),
            *(first or ["No violation outside the documented holes."]),
        ]
    )
