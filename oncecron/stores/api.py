"""The contract of a store: one protocol for a firing, one for commands that people run.

Every method is one atomic step by the store's clock. A refusal is a value, a broken store raises a `StoreError`, and a
lease that is lost for good is an answer. After the claim every call takes the lease. An error is `StoreUnavailable`
when a retry may help, and `StoreRefusesError` when it does not: `RecordRefusedError` where other values may be taken.

What a claim is answered is decided in `core.decision`, once for every store; `core.attempt` says what follows a start.
Refusals, errors and notes have the same text in every store (tests/contract/test_same_answers.py compares them).

A connection that listens to a shard (`listen`) is notified when the shard is granted, when it ends, and when its holder
gets a request. Nothing depends on a notification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from oncecron.core.log_rows import UNCHANGED
from oncecron.core.progress import no_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncecron.core.diagnosis import Diagnosis
    from oncecron.core.facts import Facts
    from oncecron.core.log_rows import LeastRetention, Released, Roles, Unblocked
    from oncecron.core.model import (
        AskAgain,
        Behind,
        Ending,
        Firing,
        Lease,
        LostRun,
        Refusal,
        Request,
        Retention,
        Unconfirmed,
    )
    from oncecron.core.progress import Progress
    from oncecron.stores.address import Address

    Row = Sequence[Any]


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
    steadiness: Any
    """What makes the calls steady (`oncecron.stores.steady`); None: they are not."""
    on_lost: Callable[[Firing, LostRun], None] | None
    """Called with each run that a claim has declared lost, if nobody takes it over."""

    def claim(
        self,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain | Behind | Unconfirmed:
        """Claim (key, tick). A refusal is recorded as a skip, if possible (`Refusal.recorded`), unless it is `own`.

        The lease has the place that the attempt before it left, unless that succeeded (`Grant.follows`).

        `watched`: the heartbeat from the last answer `stale`, or from a `held` at least a third of the ttl ago.
        `alone`: continue without the session lock, after two seconds of `contended`. `awaited`: the execution that the
        firing waits for; it has been refused `held` before, and another `held` is not recorded again.

        An `Unconfirmed` lease must be claimed again, or given back with `finish`. A claim without an answer
        (`StoreError.unanswered`) may have been granted. Raises `ConfigurationError` when the clocks of host and store
        are more than `MAX_CLOCK_SKEW` apart, when a named instant is that far ahead, or when another host has another
        number of shards.
        """

    def peek(self, firing: Firing, *, deadline: float) -> Facts | None:
        """Return what a claim would look at (`core.facts`), with nothing left out; None if nothing is installed.

        It writes nothing, and installs nothing.
        """

    def renew(self, lease: Lease, *, deadline: float, place: bytes | None = None) -> Lease | None:
        """Renew the lease; return it with its new end of trust, or None if it is lost for good.

        A `place` is recorded in the same step, and the answer has it; None: it has not changed, empty: there is none.

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

    def listen(self, firing: Firing, *, deadline: float, awaited: int | None = None) -> bool:
        """Make `watch_fd` readable when something happens to the shard, as long as the connection lasts.

        Return False if the store cannot do that. The next call reads what has arrived. It may be readable at once, if
        the `awaited` execution has ended.
        """

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        """Record the end and release the lease; return False if the lease had been lost before.

        If this ends an execution, a few rows go too that are older than the retention and than `least_retention`.
        After `keep` this means that no retry follows. Lease lost or not, no attempt that has not started yet may start.
        """

    def skip(self, firing: Firing, refusal: Refusal, *, deadline: float) -> None:
        """Record a skip that no claim was answered."""

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

    def look_back(self, firing: Firing, since: float, *, deadline: float) -> Sequence[Row]:
        """Return what is known of the shard since an instant, as rows of `core.making_up`, and perhaps of before.

        The last executions, up to a hundred, are enough: with a lease each, they have not run beside each other.
        """

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """End the dead session that still holds the lock of an expired lease, if allowed."""

    def watch_fd(self) -> int | None:
        """Return a descriptor that becomes readable when the store closes the session, if there is one."""

    def readdress(self, address: Address) -> None:
        """Take another address of the same store for later connections."""

    def close(self) -> None:
        """Close the connection, which frees the session lock. Never raises, never waits."""


class Views(Protocol):
    """What a store brings for people: plain rows of named views, and the changes that people make.

    `oncecron.stores.reader.Reader` is the base of every such class: it gives the rows their meaning. Changes are atomic
    steps by the store's clock, as those of a firing.
    """

    has_roles: bool
    """Whether `initialise` can grant rights to roles."""

    def rows(self, view: str, **bounds: Any) -> Iterator[Row]:
        """Yield the rows of a view: sequences of its columns, in this order.

        Times are float seconds since the epoch, by the store's clock; durations are float seconds; None is NULL. The
        Reader converts and checks each row and applies every filter again, so a store may narrow or not; what it must
        apply exactly is named here. Rows come lazily where there may be many: `executions`, `timeline`, `runs`,
        `skips`, `reasons`, those of plugins. The Reader may stop early, and may call other methods between two rows.
        A bound that is None means any. A store that has to unpack a row before it knows the columns does it with
        `Reader.readable`.

        - `executions` (the fields of `HistoryQuery`): the fields of `Execution`, with `owner` as its
          `owner_digest`, and then those of `Traced`: instant of the tick, fired_at, lost_at. Exactly: `key`,
          `exhausted`, `after_id`. Highest id first; with `after_id` lowest first. `limit` is a hint for the size of
          a page: the rows behind it may be asked for, because some may be unreadable.
        - `execution` (execution_id), `newest` (limit, keys: a list), `timeline` (since, keys): the same
          columns. Exactly: `keys`.
          `newest`: of each key at most `limit`, the highest ids, in no order of keys; `command` and `note` may be
          empty. `timeline`: by key, shard, started_at, execution_id.
        - `runs` (since, keys): those of `timeline` in no order, packed: `PackedRuns` of executions with attempt 1 of
          keys with one shard, with an outcome of `PACKED_OUTCOMES` and without a name as tick. All others, which are
          read first, have the columns of `timeline`; `command` and `note` may be empty. Exactly: `keys`.
        - `output` (execution_id): the fields of `Output`.
        - `skips` (the fields of `HistoryQuery`, and minute: of the tick, since the epoch): the fields of `Skip`,
          then fired_at; highest `at` first. Plain skips that a store keeps packed come among them as `PackedSkips`,
          by the time of their newest. Exactly: `key`. A store that stops at `limit` rows has applied every filter,
          and packs none.
        - `reasons` (ticks and minutes: text and minute of the first wanted tick by key; wanted: None, or the minutes
          of a few ticks by key, rising): the fields of `SkipReason`, or `PackedSkips`. Exactly: the keys.
        - `holders` (ids: a list, at most `HOLDERS_AT_ONCE`): execution_id, host, pid, outcome. Only a store that
          packs skips is asked.
        - `keys`: key, shard, schedule, zone, shards, starting_deadline, since (of the schedule), high_water,
          last_start, forgotten_at, forgotten_by.
        - `key_hosts`: key, shard, host, seen_at, and the text of `core.presence`. There may be tens of thousands.
        - `leases`: the fields of `LeaseView` up to `asked_at`: every lease, and every session lock without one.
        - `pauses`: the fields of `Pause`. Exactly: those that have not ended.
        - `least_retention`: one row with the fields of `Retention`, None for what nobody has set.
        - `namespaces`: the name. They are on this server, or in files beside this one; perhaps repeated, and
          without this one. It is for completion, so it may stop early on a large server.
        - `PLUGIN/VIEW`: what a plugin has in the store, as the plugin says it: a query of the plugin's folder beside
          those of the store, or else a function of its own (`oncecron.stores.reader.brought`).

        Without `key`, `skips` and `executions` are of all keys.
        """

    def stop_starts(
        self,
        key: str | None,
        host: str | None,
        author: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Any, Row | None]:
        """Pause a key, or drain a host; return the row of `pauses`, and that which it replaced. Without author: end it.

        Every claim that is decided after this has returned is refused. Running jobs are not touched, and a repeated
        claim for one keeps its lease. `seconds`: how long; None: until it is ended.
        """

    def forget(self, key: str, author: str) -> bool:
        """Expect no further runs of a key until it is claimed again; return False if no host has fired it."""

    def forget_host(self, host: str) -> bool:
        """Expect no further firings of a host until it fires again; return False if it has fired no key."""

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

    def unblock(self, key: str, shard: int | None) -> Sequence[Unblocked]:
        """Let what a wrong clock has left on a key, or on one shard, count no further than now; return what that was.

        That is a high-water mark or a last start which is more than `MAX_CLOCK_SKEW` ahead of the store's clock. No
        claim can write it while that clock is right. The fencing token stays: tokens only rise.
        """

    def change(self, name: str, by: Literal["run", "operate", "own"], **values: Any) -> Any:
        """Change in one step what a plugin has in the store (`PLUGIN/STEP`); return what that answers.

        `by`: who may do it, where a store has roles: those that fire, operators, the owner in a prune. For a message.
        """

    def pruned(
        self, retention: Retention, names_kept: int, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        """Remove expired records, some in a step; yield how many executions and how many skips each step removes.

        `names_kept`: the newest names of each key, which stay however old. `dry_run`: remove nothing, and yield how
        many it would remove.
        """

    def initialise(
        self, roles: Roles, least: LeastRetention = UNCHANGED, *, progress: Progress = no_progress
    ) -> str:
        """Create or upgrade the schema, set the given parts of the least retention, and grant rights.

        Return a sentence about what was done. `progress` is called when the store has been reached.
        """

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        """Return the SQL that `initialise` would run on an empty store."""

    def versions(self) -> tuple[int, str]:
        """Return the version of the schema for which this program is made, and the server's name and version."""

    def examine(self) -> Iterator[Diagnosis]:
        """Yield what the server says about itself and this connection. Raises `StoreError` if it cannot be used."""

    def close(self) -> None:
        """Close the connection."""
