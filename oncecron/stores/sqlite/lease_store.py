"""The store of a firing on SQLite: each method is one transaction.

Commits of grants, ends and deliveries wait for the disk. Heartbeats and skips do not: after a power cut they are not
needed, because a lease of another boot has ended. The claim itself is in `claim`.
"""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.facts import lease_values, skip_values
from oncecron.core.host import boot_id
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import stored_request, trust_after
from oncecron.stores.claiming import Claimer
from oncecron.stores.sqlite import attempts, claim
from oncecron.stores.sqlite.connection import Handle, file_of
from oncecron.stores.sqlite.retention import expire

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.claim import Attempt, Grant, PlainSkip, State
    from oncecron.core.facts import Facts
    from oncecron.core.model import AskAgain, Ending, Firing, Lease, Refusal, Retention
    from oncecron.stores.address import Address


class SQLiteLeaseStore(Claimer):
    """The firing half of the store in a SQLite file; see `oncecron.stores.api.LeaseStore`.

    `path` is absolute and is the file of the default namespace; other namespaces have a file beside it.
    """

    lease_clock = clock.MONOTONIC
    survives_fork = False  # SQLite keeps its file locks of a process in memory
    holds_connection = True

    def __init__(self, path: str, *, namespace: str) -> None:
        path = file_of(path, namespace)
        self._handle = Handle(path, create=True, statements=("firing", "retention"))
        self._boot = boot_id()

    def look(
        self,
        firing: Firing,
        *,
        awaited: int | None,
        closely: bool,  # noqa: ARG002 - every look is
        deadline: float,
    ) -> Facts:
        with self._handle.until(deadline) as store, store.reading():
            return claim.look(store, firing, claim.moment(self._boot), awaited)

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        *,
        alone: bool,  # noqa: ARG002 - there is no session lock
        deadline: float,
    ) -> Lease | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = claim.moment(self._boot)
            return claim.grant(store, firing, now, state, grant)

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = claim.moment(self._boot)
            claim.expire(store, firing, now, state, note)

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:  # noqa: ARG002 - its own condition
        with self._handle.until(deadline) as store, store.writing(durable=True):
            claim.cut(store, firing, claim.moment(self._boot))

    def regain(self, firing: Firing, own: Attempt, *, deadline: float) -> Lease | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            return claim.regain(store, firing, claim.moment(self._boot), own)

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        """Renew the lease; see `LeaseStore.renew`.

        If the file was replaced, the lease is lost and is not put back: processes that use the old file and processes
        that use the new one do not see each other's leases.
        """
        with self._handle.until(deadline) as store, store.writing(durable=False):
            now = claim.moment(self._boot)
            values = lease_values(lease) | now
            if not store.execute("renew_lease", **values).rowcount:
                return None
            request = store.one("find_request", **values)
            if request:
                store.execute("hear_request", **values)
        return lease._replace(
            trusted_until=trust_after(now["lease_now"], lease.ttl),
            request=request and stored_request(*request),
        )

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            return attempts.keep(store, lease, ending, claim.moment(self._boot))

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            return attempts.retry(store, lease, claim.moment(self._boot))

    def listen(self, firing: Firing, *, deadline: float) -> bool:  # noqa: ARG002 - the contract's
        """Return False: SQLite cannot notify, so waiting firings poll."""
        return False

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = clock.wall()
            in_time, ends = attempts.finish(store, lease, ending, now)
            if ends:
                expire(store, (lease.key, lease.shard), retention, now)
        return in_time

    def skip(
        self, firing: Firing, refusal: Refusal, *, deadline: float, plain: PlainSkip | None = None
    ) -> None:
        now = clock.wall()
        values = {**skip_values(firing, refusal), "at": now}
        with self._handle.until(deadline) as store, store.writing(durable=False):
            store.execute("register_key", **values)
            if plain is not None:
                store.execute("add_plain_skip", **values, window=plain.window, word=plain.word)
            else:
                store.execute("count_skip", **values)
            claim.see(store, firing, now, won=False)

    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        with self._handle.until(deadline) as store, store.writing(durable=True):
            now = clock.wall()
            ends = attempts.deliver(store, record, now)
            if retention and ends:
                expire(store, (record["key"], record["shard"]), retention, now)

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """Do nothing: SQLite has no sessions."""

    def watch_fd(self) -> int | None:
        """Return None: SQLite has no server."""
        return None

    def readdress(self, address: Address) -> None:
        """Do nothing: a file has no login, and another file is another store."""

    def close(self) -> None:
        """Close the file."""
        self._handle.close()
