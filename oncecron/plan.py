"""What one firing is to do, decided before anything is started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from oncecron.attempts import Retrying
    from oncecron.model import Firing, Lease, Retention
    from oncecron.spool import Spool
    from oncecron.stores.address import Address


class Log(NamedTuple):
    """Where the log is kept beside the store."""

    address: Address
    spool: Spool
    """Its own: what the store has got the log may lack."""


class Plan(NamedTuple):
    """All that wrapper and guard need to know; durations in seconds."""

    firing: Firing
    command: tuple[str, ...]
    address: Address
    namespace: str
    spool: Spool
    log: Log | None
    retention: Retention
    grace: float
    """From TERM to KILL, where the lease does not cut it short."""
    timeout: float | None
    wait: float
    """How long a firing that is refused `held` asks again."""
    retrying: Retrying
    skip_exit: int
    on_store_error: Literal["fail", "skip", "run"]
    connect_timeout: float
    verbose: int
    terminal: bool
    """Standard input is a terminal: the job stays in its foreground process group."""
    capture: int = 0
    """How many bytes of what the job writes are recorded; 0: it writes where it would without us."""

    def firing_of(self, lease: Lease) -> Firing:
        """Return the firing as it is told of the part that a lease is for."""
        return self.firing._replace(shard=lease.shard)

    def job_environment(self, lease: Lease | None) -> dict[str, str]:
        """Return the environment of the job: what is there, and what oncecron tells it."""
        told = {
            "ONCECRON_KEY": self.firing.key,
            "ONCECRON_TICK": self.firing.tick.text,
            "ONCECRON_EXECUTION_ID": str(lease.execution_id) if lease else None,
            "ONCECRON_FENCING_TOKEN": str(lease.token) if lease else None,
            "ONCECRON_ATTEMPT": str(lease.attempt if lease else 1),
            "ONCECRON_SHARD": str(lease.shard if lease else 0),
            "ONCECRON_SHARDS": str(self.firing.shards),
        }
        # An outer run's token is not ours, nor is the interpreter's locale the job's.
        merged: dict[str, str | None] = {**os.environ, **told, "LC_CTYPE": _given_lc_ctype()}
        return {name: value for name, value in merged.items() if value is not None}


def _given_lc_ctype() -> str | None:
    """Return LC_CTYPE as it was given to this process: in the C locale, cron's, Python replaces it (PEP 538)."""
    value = os.environ.get("LC_CTYPE")
    if value not in ("C.UTF-8", "C.utf8", "UTF-8"):
        return value
    try:
        with open("/proc/self/environ", "rb") as environment:
            given = environment.read().split(b"\0")
    except OSError:
        return value
    entries = (entry for entry in given if entry.startswith(b"LC_CTYPE="))
    return next((os.fsdecode(entry[9:]) for entry in entries), None)
