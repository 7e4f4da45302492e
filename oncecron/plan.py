"""What one firing is to do, decided before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from oncecron.model import Firing, Retention
    from oncecron.spool import Spool
    from oncecron.stores.address import Address


class Plan(NamedTuple):
    """All that wrapper and guard need to know; durations in seconds."""

    firing: Firing
    command: tuple[str, ...]
    address: Address
    namespace: str
    spool: Spool
    retention: Retention
    grace: float
    """From TERM to KILL, where the lease does not cut it short."""
    timeout: float | None
    wait: float
    """How long a firing that is refused `held` asks again."""
    skip_exit: int
    on_store_error: Literal["fail", "skip", "run"]
    connect_timeout: float
    verbose: int
    terminal: bool
    """Standard input is a terminal: the job stays in its foreground process group."""
