"""The page of a key: what is wrong with it, its hosts by time, what happened at one tick, its runs and its skips."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.log_rows import Execution, KeyHost, Skip
    from oncecron.log.grid import Grid, Run
    from oncecron.log.job_summary import JobSummary
    from oncecron_web.contents import Problem, Running


class Captured(NamedTuple):
    """The end of what a run has printed."""

    execution: Execution
    text: str
    bytes_cut: int
    """How many bytes came before it and were not kept."""


class Tick(NamedTuple):
    """The tick that is explained."""

    name: str | None
    """None: a firing that belongs to no tick."""
    verdict: str
    """Its outcome, as `oncecron why` says it."""
    account: Sequence[str]
    """What happened, the outcome first."""
    note: str | None = None
    """About the choice of this tick, where it is not obvious."""
    others: Sequence[tuple[str | None, str]] = ()
    """Each other tick that matters: its name, and a sentence about it."""
    outputs: Sequence[Captured] = ()


class KeyPage(NamedTuple):
    """All that the page of a key shows."""

    now: float
    """When the store was read."""
    namespace: str
    version: str
    made_on: str
    summary: JobSummary
    states: Sequence[tuple[str | None, int]]
    """All that is wrong with it, the worst first, each with a number of ticks or 0; else its one state."""
    problems: Sequence[Problem]
    running: Sequence[Running]
    bars: Sequence[Run]
    """The newest runs, the oldest first."""
    grid: Grid
    """Its hosts by time."""
    tick: Tick | None
    """None: there is none on record."""
    runs: Sequence[Execution]
    """The newest first."""
    skips: Sequence[Skip]
    hosts: Sequence[KeyHost]
    limit: int
    """At most so many runs, and so many skips, were read."""
    unreadable: int = 0
    """How many rows of the store were left out, because they cannot be read."""
