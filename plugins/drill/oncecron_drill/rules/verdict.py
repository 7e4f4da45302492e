"""What a check finds: violations, documented holes, and counts."""

import dataclasses
from typing import Any

from oncecron_drill.history import Firing, Start


@dataclasses.dataclass
class Violation:
    """One broken promise, or one documented hole, with what a timeline needs to draw it."""

    rule: str
    sentence: str
    key: str | None = None
    tick: str | None = None
    moments: list[float] = dataclasses.field(default_factory=list)
    """When it happened, on the clock of the history."""
    starts: list[Start] = dataclasses.field(default_factory=list)
    """Those concerned; of an overlap both, the one that should be dead first."""
    firings: list[Firing] = dataclasses.field(default_factory=list)
    hole: bool = False
    """Documented: counted, and no failure."""


@dataclasses.dataclass
class Verdict:
    """All that a check says."""

    violations: list[Violation]
    holes: list[Violation]
    counts: dict[str, Any]
    """Numbers by name; a dictionary of numbers where there are kinds."""
