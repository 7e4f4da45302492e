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
    """Return for each class outside the promise how many of its faults hit, and of these after how many jobs met."""
    classes: Mapping[str, str] = history.head["kinds"]
    tried: Counter[str] = Counter()
    met: Counter[str] = Counter()
    for fault in history.faults:
        name = classes.get(fault.kind)
        if name in OUTSIDE and has_hit(history.firings, fault):
            tried[name] += 1
            met[name] += any(_comes_of(hole, fault) for hole in holes)
    return {name: Outside(tried[name], met[name]) for name in OUTSIDE if name in classes.values()}


def _comes_of(hole: Violation, fault: Fault) -> bool:
    """Return whether what is excused is of a firing that a fault has hit, and came while that lasted."""
    ours = {firing.id for firing in hole.firings}
    lasted = fault.at <= max(hole.moments) and min(hole.moments) <= undone(fault) + WAKING
    return lasted and any(firing in ours for firing, _, _ in fault.hit)
