"""What the overview shows: records of plain values, which `cli` fills of the store and of the plugins.

Times are float seconds since the epoch by the store's clock; durations are float seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from oncecron.log.grid import Grid, Run
    from oncecron.log.job_summary import JobSummary


class Problem(NamedTuple):
    """What is wrong: a finding, and what happened."""

    kind: str
    """As `oncecron check` calls it: `missed`, `failed`, ..."""
    state: str
    """`critical` or `warning`."""
    key: str | None
    """None: it is about a host, or about no single key."""
    host: str | None
    text: str
    """A sentence without its subject, if it has a key."""
    since: float | None
    cure: str
    """What to do; empty: the text says it."""
    account: Sequence[str] = ()
    """What happened at the tick behind it, as `oncecron why` tells it."""
    output: str | None = None
    """The end of what its command printed, where that was captured."""


class Job(NamedTuple):
    """A row of the table of keys."""

    summary: JobSummary
    states: Sequence[tuple[str | None, int]]
    """All that is wrong with it and what it does, the worst first, each with a number of ticks or 0."""
    runs: Sequence[Run]
    """The newest ones, oldest first; `missed`: a tick that nobody started."""


class Running(NamedTuple):
    """A job that runs now."""

    key: str
    shard: str | None
    """Of several shards: SHARD/SHARDS."""
    host: str | None
    pid: int | None
    since: float | None
    usual: float | None
    """How long the key usually takes."""
    progress: str | None = None
    """How far its work is, such as `12/40`, where a plugin divides it."""


class Host(NamedTuple):
    """A host that fires keys."""

    name: str
    seen_at: float
    version: str
    """Of oncecron."""
    clock_ahead: float
    """Seconds by which its clock was ahead of the store's."""
    keys: int
    wins: int
    """How often it started a command in the last 24 hours."""
    skips: int
    drained_by: str | None
    silent_on: Sequence[str]
    """The keys that it should fire and does not."""
    machines: int
    """2: two machines or more have its name."""


class Day(NamedTuple):
    """What became of all ticks of a day."""

    date: date
    counts: Sequence[tuple[str, int]]
    """How many ticks had each outcome of `log.grid`, the worst first."""


class Overview(NamedTuple):
    """All that the overview shows."""

    now: float
    """When the store was read."""
    since: float
    """Where the timeline begins."""
    namespace: str
    version: str
    """Of oncecron, here."""
    made_on: str
    """This host."""
    keys: int
    """How many keys were looked at."""
    problems: Sequence[Problem]
    """The worst first."""
    jobs: Sequence[Job]
    """What is wrong first, then what runs, then by name."""
    running: Sequence[Running]
    hosts: Sequence[Host]
    timeline: Grid
    """Every key by time, in the order of `jobs`."""
    hosts_of: Sequence[Grid]
    """The hosts by time of some keys: of those with which something is wrong."""
    days: Sequence[Day]
    """The last ones, the oldest first."""
    more_problems: int = 0
    """How many others there are."""
    unreadable: int = 0
    """How many rows of the store were left out, because they cannot be read."""
