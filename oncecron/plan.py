"""What one firing is to do, decided before anything is started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from oncecron.model import Firing, Lease, Retention
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

    def job_environment(self, lease: Lease | None) -> dict[str, str]:
        """Return the environment of the job: what is there, and what oncecron tells it."""
        told = {
            "ONCECRON_KEY": self.firing.key,
            "ONCECRON_TICK": self.firing.tick.text,
            "ONCECRON_EXECUTION_ID": str(lease.execution_id) if lease else None,
            "ONCECRON_FENCING_TOKEN": str(lease.token) if lease else None,
            "ONCECRON_ATTEMPT": str(lease.attempt if lease else 1),
            "ONCECRON_SHARD": str(self.firing.shard),
            "ONCECRON_SHARDS": "1",
        }
        merged: dict[str, str | None] = {**os.environ, **told}  # an outer run's token is not ours
        return {name: value for name, value in merged.items() if value is not None}
