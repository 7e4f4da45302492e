"""How much a drill says that has found nothing: the share of such faults that it rules out, by class of fault.

Where n faults hit and none broke a promise, fewer than 1 - 0.05^(1/n) of such faults break one, at 95 %: with a larger
share p the chance of seeing none, (1 - p)^n, is below 0.05. It is about 3/n: the rule of three. It takes the faults for
independent draws, and says nothing of a moment that no fault of a drill makes.
Source: J. A. Hanley and A. Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right? Interpreting Zero
Numerators", JAMA 249 (1983), pages 1743 to 1745.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from oncecron_drill.certificate import ClassCount, FaultCount, Outside
from oncecron_drill.faults import OUTSIDE
from oncecron_drill.history import Fault, Firing, History
from oncecron_drill.pulse import SLOW
from oncecron_drill.rules.joined import WAKING, undone
from oncecron_drill.rules.verdict import Violation

FEWEST = 60
"""Faults that must hit for CLEAN: they rule out that one in twenty breaks a promise."""
TOGETHER = "several faults of one job together"
"""What excuses, though each of them is within the promise."""
_MEETINGS = ("overlap", "beside")
"""Rules of which two jobs, or two commands of one item, lived at once."""
OF_THE_STORE = "the store itself"
"""The class of what befell it by others than the drill."""


def below(hit: int) -> float | None:
    """Return the share of faults that is ruled out after so many hit and broke nothing; None: there was none."""
    return round(1 - 0.05 ** (1 / hit), 5) if hit else None


def by_kind(history: History) -> dict[str, FaultCount]:
    """Return how often each kind was begun and reached something; what the machine's load did is none."""
    began: Counter[str] = Counter()
    hit: Counter[str] = Counter()
    for fault in history.faults:
        if fault.kind != SLOW:
            began[fault.kind] += 1
            hit[fault.kind] += has_hit(history.firings, fault)
    return {kind: FaultCount(number, hit[kind]) for kind, number in began.most_common()}


def has_hit(firings: Sequence[Firing], fault: Fault) -> bool:
    """Return whether a fault reached something that ran."""
    if fault.hit:
        return True
    return any(
        (fault.target in (firing.host, "store"))
        and firing.at <= undone(fault)
        and (firing.ended is None or firing.ended >= fault.at)
        for firing in firings
    )


def promised(history: History, kinds: Mapping[str, FaultCount]) -> dict[str, ClassCount]:
    """Return the count of each class that is within the promise, also of those that could be tried and were not."""
    classes: Mapping[str, str] = history.head["kinds"]
    counts = {name: [0, 0] for name in classes.values() if name not in OUTSIDE}
    for kind, count in kinds.items():
        name = classes.get(kind, OF_THE_STORE)
        if name not in OUTSIDE:
            both = counts.setdefault(name, [0, 0])
            both[0] += count.began
            both[1] += count.hit
    return {name: ClassCount(began, hit, below(hit)) for name, (began, hit) in counts.items()}


def outside(history: History, holes: Sequence[Violation]) -> dict[str, Outside]:
    """Return for each class outside the promise how many of its faults hit, and after how many of these jobs met.

    What is excused and comes of none of them comes of several faults together, as of a wrapper and then its guard.
    """
    classes: Mapping[str, str] = history.head["kinds"]
    met = [(hole, _firings(history, hole)) for hole in holes if hole.rule in _MEETINGS]
    found = {name: [0, 0] for name in OUTSIDE if name in classes.values()}
    explained: set[int] = set()
    for fault in history.faults:
        name = classes.get(fault.kind, "")
        if name in found and has_hit(history.firings, fault):
            its = {number for number, each in enumerate(met) if _comes_of(*each, fault)}
            found[name][0] += 1
            found[name][1] += bool(its)
            explained |= its
    counts = {name: Outside(tried, overlapped) for name, (tried, overlapped) in found.items()}
    others = len(met) - len(explained)
    return counts | ({TOGETHER: Outside(None, others)} if others else {})


def _firings(history: History, hole: Violation) -> set[int]:
    of_items = (
        event for event in history.items if (event.key, event.tick) == (hole.key, hole.tick)
    )
    return {firing.id for firing in hole.firings} or {event.firing for event in of_items}


def _comes_of(hole: Violation, firings: set[int], fault: Fault) -> bool:
    """Return whether a fault has hit what is excused, and lasted when that came: what is killed does not wake."""
    return any(
        fault.at <= max(hole.moments)
        and (state == "killed" or min(hole.moments) <= undone(fault) + WAKING)
        for firing, _, state in fault.hit
        if firing in firings
    )
