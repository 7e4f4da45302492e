"""The contract of a store: one protocol for a firing, one for commands that people run.

Every method is one atomic step by the store's clock. A refusal is a value, a broken store raises a `StoreError`, and a
lease that is lost for good is an answer. After the claim every call takes the lease. An error is `StoreUnavailable`
when a retry may help, and `StoreRefusesError` when it does not: `RecordRefusedError` where other values may be taken.

What a claim is answered is decided in `core.claim`, once for every store, and `core.attempt` says what follows a start.
Refusals, errors and notes have the same text in every store (tests/contract/test_same_answers.py compares them).

A connection that listens to a shard (`listen`) is notified when the shard is granted, when it ends, and when its holder
gets a request. Nothing depends on a notification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from oncecron.core.log_rows import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.core.claim import PlainSkip
    from oncecron.core.log_rows import (
        Diagnosis,
        Execution,
        HistoryQuery,
        HostTicks,
        ItemQuery,
        ItemRow,
        JobKey,
        KeyHost,
        LeaseView,
        LeastRetention,
        ListView,
        Notice,
        Pause,
        Released,
        Roles,
        Skip,
        SkipReason,
        Traced,
        TracedSkip,
        Unblocked,
    )
    from oncecron.core.model import (
        AskAgain,
        Ending,
        Firing,
        Lease,
        Output,
        Refusal,
        Request,
        Retention,
        Unconfirmed,
    )
    from oncecron.core.readable import Unreadable
    from oncecron.core.tick import Tick
    from oncecron.each.values import MendedState
    from oncecron.stores.address import Address


class LeaseStore(Protocol):
    """The store of a firing. One thread uses it at a time; it connects at the first call.

    `deadline` is in seconds of the store's lease clock: the call raises `StoreUnavailable` when the store has not
    answered by then. After an error the next call connects again.
    """

    lease_clock: int
    """The clock on which trust in a lease is judged (a `time.CLOCK_*` constant)."""
    survives_fork: bool
    """Whether a forked process may open the store while the connection of its parent is open."""
    holds_connection: bool
    """Whether a job that runs is to hold the connection between its heartbeats, as the last claim was answered."""

    def claim(
        self,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain | Unconfirmed:
        """Claim (key, tick). A refusal is recorded as a skip, if possible (`Refusal.recorded`).

        `watched`: the heartbeat from the last answer `stale`, or from a `held` at least a third of the ttl ago.
        `alone`: continue without the session lock, after two seconds of `contended`. `awaited`: the execution that the
        firing waits for; it has been refused `held` before, and another `held` is not recorded again.

        An `Unconfirmed` lease must be claimed again, or given back with `finish`. A claim without an answer
        (`StoreError.unanswered`) may have been granted. Raises `ConfigurationError` when the clocks of host and store
        are more than `MAX_CLOCK_SKEW` apart, when a named instant is that far ahead, or when another host has another
        number of shards.
        """

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        """Renew the lease; return it with its new end of trust, or None if it is lost for good.

        On a new connection this is a re-adoption, and it never takes a lease from another owner. An execution that the
        store has lost is put back with its old token, if no other claim was granted since. The lease has the request to
        the holder, if there is one, and the store notes when it was delivered.
        """

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        """Record the end of an attempt that a retry is to follow; keep the lease and renew it.

        Return False if the lease is lost; then nothing is recorded. A repeated call has the same answer.
        """

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        """Begin the next attempt of a tick under the lease that was kept; it is refused if `paused` or `drained`.

        A repeated call returns the same attempt. Return None if the lease is lost for good. A refusal is recorded as a
        skip and leaves the lease, for `finish`.
        """

    def listen(self, firing: Firing, *, deadline: float) -> bool:
        """Make `watch_fd` readable when something happens to the shard, as long as the connection lasts.

        Return False if the store cannot do that. The next call reads what has arrived.
        """

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        """Record the end and release the lease; return False if the lease had been lost before.

        If this ends an execution, a few rows go too that are older than the retention and than `least_retention`.
        After `keep` this means that no retry follows. Lease lost or not, no attempt that has not started yet may start.
        """

    def skip(
        self,
        firing: Firing,
        refusal: Refusal,
        *,
        deadline: float,
        plain: PlainSkip | None = None,
    ) -> None:
        """Record a skip; `plain`: the same in less space, which only a claim knows."""

    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        """Take a spooled record, or a record for a log store, where another store has the leases.

        Raises `RecordRefusedError` for a record that the store will never take; the caller sets it aside.

        This is idempotent by (owner, attempt) and never fails on a conflict. With a retention, the end of an execution
        removes a few expired rows, as in `finish`.

        A skip is counted once by (owner, reason), whatever its host's clock showed, as long as it is among the last
        eight that were delivered to its row. That is enough: a spool delivers in order and one at a time, and a record
        whose acknowledgement was lost is the first to be delivered again.
        """

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """End the dead session that still holds the lock of an expired lease, if allowed."""

    def watch_fd(self) -> int | None:
        """Return a descriptor that becomes readable when the store closes the session, if there is one."""

    def readdress(self, address: Address) -> None:
        """Take another address of the same store for later connections."""

    def close(self) -> None:
        """Close the connection, which frees the session lock. Never raises, never waits."""


class Inspector(Protocol):
    """The store of the commands for people. It may be slower and import more."""

    has_roles: bool
    """Whether `initialise` can grant rights to roles."""
    unreadable: Unreadable
    """The rows that all queries pass over: they are named on standard error."""

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, the newest first."""

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""

    def output(self, execution_id: int) -> Output | None:
        """Return the captured output of an execution."""

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with their unpublished details."""

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the skips of `skips` with their unpublished details."""

    def newest(self, limit: int, keys: Collection[str] | None = None) -> Iterator[Execution]:
        """Yield the newest executions of every key, or of some: of each key at most `limit`, the newest first.

        One question for all keys. All of them may be in memory at once, so they come `without_texts`.
        """

    def reasons(self, since: Mapping[str, Tick]) -> Iterator[SkipReason]:
        """Yield why ticks of some keys were skipped, in no order. `since`: the first tick of each, an instant.

        One question for all keys. There may be answers for named ticks.
        """

    def timeline(self, since: float | None) -> Iterator[Traced]:
        """Yield all executions since a time, shard by shard, each shard in the order of starts.

        Other methods may be called meanwhile.
        """

    def job_keys(self) -> Sequence[JobKey]:
        """Return every shard of every key as it was last claimed, by name."""

    def key_hosts(self) -> Sequence[KeyHost]:
        """Return the hosts that fire each shard of each key, by key, shard and host.

        A host that has not fired a key for `HOST_FORGOTTEN_AFTER` is removed by retention.
        """

    def host_ticks(self) -> Sequence[HostTicks]:
        """Return the rows of `key_hosts` with fewer fields, by key and host. There may be tens of thousands."""

    def forget(self, key: str) -> bool:
        """Expect no further runs of a key until it is claimed again; return False if no host has fired it."""

    def forget_host(self, host: str) -> bool:
        """Expect no further firings of a host until it fires again; return False if it has fired no key."""

    def namespaces(self) -> Iterable[str]:
        """Return the namespaces on this server, or in files beside this one, in no order, perhaps repeated.

        This store's own namespace may be missing. It is for completion, so it may stop early on a large server.
        """

    def leases(self) -> Sequence[LeaseView]:
        """Return every lease and every session lock of this namespace."""

    def pauses(self) -> Sequence[Pause]:
        """Return the pauses that have not ended, and the drained hosts."""

    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key, or of `ALL_KEYS`; return the pause and the one that it replaced.

        Every claim that is decided after this has returned is refused. Running jobs are not touched, and a repeated
        claim for one keeps its lease.
        """

    def resume(self, key: str) -> Pause | None:
        """End the pause of a key, or the separate pause of `ALL_KEYS`; return it, or None if there was none."""

    def drain(self, host: str, *, author: str) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host, as `pause` does for a key."""

    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; return the drain, or None if there was none."""

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        """Send a request to the holder, in place of an earlier one; return False if the execution has no lease.

        An expired lease that no claim has removed still counts. The execution keeps the request on record.
        """

    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        """Free a shard of a key whose lease has expired or is missing; see `Released`.

        The execution is declared lost (`released`) by `author`, if it is still running. `execution_id` None means a
        session lock without a lease, or nothing; any lease is `other` then. A lease that ends too far ahead is cut, as
        by a claim. `force` ends the session that still holds the lock, or the job's transaction that holds the fence.
        Raises `StoreRefusesError` where that is not allowed.
        """

    def notices(self, channels: Collection[str]) -> Sequence[Notice]:
        """Return what these channels of `oncecron notify` were notified of, by name."""

    def put_notice(self, notice: Notice) -> bool:
        """Write the document of a channel, if its version is still that of the notice; return False if it is not.

        The version rises by one. Version 0: the channel has none yet. Raises `RecordRefusedError`, also where other
        channels have used up `MOST_CHANNELS`.
        """

    def other_notices(self, channels: Collection[str], *, remove: bool = False) -> int:
        """Return how many other channels there are, which anybody who may write to the store can make up.

        With `remove` they are forgotten.
        """

    def least_retention(self) -> Retention:
        """Return the least retention: where a caller's is shorter, this one counts."""

    def unblock(self, key: str, shard: int | None) -> Sequence[Unblocked]:
        """Let what a wrong clock has left on a key, or on one shard, count no further than now; return what that was.

        That is a high-water mark or a last start which is more than `MAX_CLOCK_SKEW` ahead of the store's clock. No
        claim can write it while that clock is right. The fencing token stays: tokens only rise.
        """

    def prune(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Remove expired records; return how many executions and how many skips were removed."""

    def item_lists(self, key: str | None = None) -> Sequence[ListView]:
        """Return the lists of items of a key, or of all keys, with their counts; the newest first."""

    def items(self, query: ItemQuery) -> Iterator[ItemRow]:
        """Yield the items of one list, in the order of the list."""

    def mend_items(self, query: ItemQuery, state: MendedState, *, author: str) -> int:
        """Put the `lost`, `dead` and `failed` items of a query into a state; return how many.

        `queued`: they are drawn at once. `done`: they are not drawn again. The author is recorded as their reason.
        """

    def initialise(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Create or upgrade the schema, set the given parts of the least retention, and grant rights.

        Return a sentence about what was done.
        """

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Return the SQL that `initialise` would run on an empty store."""

    def examine(self) -> Iterator[Diagnosis]:
        """Yield what the server says about itself and this connection. Raises `StoreError` if it cannot be used."""

    def close(self) -> None:
        """Close the connection."""
