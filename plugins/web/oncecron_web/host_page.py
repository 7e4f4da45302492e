"""The page of a host: whether it is up, which keys it fires and on which it is silent, and what it has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.log_rows import Execution, KeyHost
    from oncecron_web.contents import Host, Problem


class HostPage(NamedTuple):
    """All that the page of a host shows."""

    now: float
    """When the store was read."""
    namespace: str
    version: str
    made_on: str
    host: Host
    problems: Sequence[Problem]
    keys: Sequence[KeyHost]
    """What it fires, by name."""
    runs: Sequence[Execution]
    """The newest first."""
    limit: int
    """At most so many runs were read."""
    unreadable: int = 0
    """How many rows of the store were left out, because they cannot be read."""
