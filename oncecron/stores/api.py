"""What a store must do: one protocol for a firing, one for people.

Every method is one atomic step by the store's clock. A refusal is a value, a broken store raises a
`StoreError`, and a lease that is lost for good is an answer; never mixed. After the claim every
call takes the lease. Errors: `StoreUnavailable` when asking again may help, `StoreRefusesError` when not.

The claim is one algorithm, kept by every store, in this order:

0. A known owner: an execution of this owner, key and part that still has its lease gets the same lease again,
   renewed (its answer was lost). If it has ended since, the answer is `done`. An owner is never refused because of
   its own lease: one that comes to light only later, by a claim that was slow, is `AskAgain("contended")`.
1. The key is registered. `paused` and `drained` are refused. A host clock more than `MAX_CLOCK_SKEW` off the
   store's is a `ConfigurationError` where the tick is an instant named by that clock. So is an instant that somebody
   named (`--tick`) more than that ahead of the store's clock, since it would burn all ticks up to it; any other name
   has no bound. So is a number of parts (`shards`) that differs from the one with which any part of this tick was
   granted: looked at again when granting, in a place that the claims of all parts of a key share.
2. Looking, first without and then under the lock of the key (steps 3 and 4 come between):
   - a lease that ends more than its ttl ahead is cut to now + ttl (the store's clock was set back);
   - somebody has a living lease: `held` for a firing of the same tick. For any other tick, a holder whose last
     heartbeat is older than two intervals, or whose session lock is free, may be dead: `AskAgain("orphaned")`
     until that lease has ended or was renewed; else `held`;
   - the tick has an execution: `done`, unless all that it has say `not-started`. An instant below the high-water
     mark, or at it without an execution or where retention may have forgotten a start, is `passed`. `again`
     skips both. With `failover` a tick goes on whose last attempt that started is `lost`, or `failed` or `timed-out`
     and was to be followed by another (`keep`): unless its instant is below the high-water mark (`passed`), or
     that attempt's number is above `retries` (`exhausted`);
   - without a tick, a firing with `failover` that has `awaited` an execution without one is refused `done` when
     that, or the newest such start since, whoever made it, has ended as anything but `lost` or `not-started`, or
     `stopped` without a request: it was to end. One that was to be followed by another (`keep`) has not ended.
3. The store's session lock, if it has one, never waiting. Taken while a lease has expired: `AskAgain("stale")`,
   and if the heartbeat has not moved since (`watched`) go on without it. Taken without any lease:
   `AskAgain("contended")`, or go on without it if told to (`alone`).
   A store that may have lost what it told before it was restarted or promoted: `AskAgain("recovering")`,
   until every lease that it may have granted has ended.
4. The lock of the key's row; `AskAgain("fenced")` if a job's own transaction holds it.
5. An expired lease is taken away: compare-and-set to `lost` (`expired`), the fencing token rises. Only then `done`
   or `passed` for a firing of that tick.
6. `recent`: the minute rule refuses when the last start was less than `min_gap` ago and itself came later than 60 s -
   `min_gap` into its own minute (by its own host's clock); without a tick, when it was less than `min_gap` ago. A last
   start in the future counts as now. Nobody looks at it who goes on after an attempt that was lost, or not followed;
   without a tick only if that was the last start. `late`: more than `starting_deadline` after an instant.
7. Granted: token = max(last + 1, store clock in microseconds), an execution `running` with the next
   attempt of its tick, the lease, the high-water mark, and the key's schedule and zone. Its cause is `manual` with
   `again`, else `takeover` if it goes on after an attempt that was lost, or not followed, else `schedule`; the lease
   tells it.

Whoever listens to a part of a key (`listen`) is stirred when it is granted, when it ends and when its holder is asked
for something; nobody depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.core.log_rows import (
        Execution,
        HistoryQuery,
        JobKey,
        LeaseView,
        Pause,
        Released,
        Roles,
        Skip,
        Traced,
        TracedSkip,
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


class LeaseStore(Protocol):
    """What a firing needs. Used by one thread at a time; connects by itself at the first call.

    `deadline` is in seconds of the store's lease clock: the call raises `StoreUnavailable` when the
    store has not answered by then. After an error the next call connects afresh.
    """

    lease_clock: int
    """The clock on which trust in a lease is judged (a `time.CLOCK_*` constant)."""

    def claim(
        self,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain | Unconfirmed:
        """Ask for (key, tick). A refusal has been recorded as a skip, if it could be.

        `watched` is the heartbeat that the last answer `stale`, or a `held` at least a third of the ttl ago, told;
        `alone` goes on without the session lock after two seconds of `contended`. `awaited` is the execution for whose
        end the firing waits: it was told `held` before, and another `held` is not recorded again. `Unconfirmed` must
        be asked for again, or given back by `finish`. A claim that was not answered (`StoreError.unanswered`) may
        have been granted. Raises `ConfigurationError` when the clocks of host and store are more than `MAX_CLOCK_SKEW`
        apart, a named instant is that far ahead, or other hosts divide the key otherwise.
        """

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        """Extend the lease; return it as it is trusted now, or None if it is lost for good.

        On a new connection this is a re-adoption: it never grants anew what somebody else has got. An
        execution that the store has lost is put back with its old token if nobody has claimed since. Tells what
        somebody asks of the holder, and notes when it was told.
        """

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        """Record the end of an attempt that is to be followed by another, and keep the lease, renewed.

        False if the lease is lost; then nothing is recorded. Told twice, it has the same answer.
        """

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        """Begin the next attempt of a tick under the lease that was kept; `paused` and `drained` refuse it.

        A new execution (`retry`) with a higher fencing token, and a start as any other for `recent`; asked twice, the
        same. None if the lease is lost for good. What was asked of the holder was asked of the attempt before. A
        refusal leaves the lease, for `finish`; it is recorded as a skip.
        """

    def listen(self, firing: Firing, *, deadline: float) -> bool:
        """Have `watch_fd` become readable when something happens to the part of the key.

        As long as the connection lasts; False where that cannot be had. What has become readable, the next call
        reads.
        """

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        """Record the end and release the lease; False if the lease had been lost before.

        Then the end is recorded all the same, with a note, and nobody else's lease is touched. Why the lease was lost
        stays, unless the ending says it; where nobody has said it yet, it is `revoked`. After `keep` it means that no
        further attempt follows: what was recorded stays, with the ending's note added, and an attempt that `retry`
        began without being heard did not start; the lease lost or not, nobody goes on who has not yet. An end after a
        request to the holder is known as such: who waits without a tick does not go on after a stop that somebody
        asked for.
        """

    def skip(self, firing: Firing, refusal: Refusal, *, deadline: float) -> None:
        """Record a refusal that the store did not decide itself (`broken`, a wait that ran out)."""

    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        """Take a record told late, or told to the log beside another store, by whom the lease is kept.

        Idempotent by (owner, attempt), never fails on a conflict. What has an end keeps it; `running` and `lost`
        become what happened, and the owner's own lease goes; after `keep` it is as `finish`. An execution that this
        store never saw is put in, with its token and cause; whoever was `running` with a lower token and has no lease
        here becomes `lost` (`superseded`), and so does a start that comes after a higher one. A `not-started` without
        a token says nothing. With a retention the end of an execution removes a few expired rows, as `finish` does.

        A refusal is counted once by (owner, reason), whatever its host's clock showed, as long as it is among the last
        eight that were delivered to its row. That is enough: those of a spool come in order and one at a time, and one
        told twice, since nobody heard that it had arrived, is the first to be told again.
        """

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """End the dead session that still holds the lock of an expired lease, where allowed."""

    def watch_fd(self) -> int | None:
        """Return a descriptor that becomes readable when the store closes the session, if there is one."""

    def close(self) -> None:
        """Give the connection back; it frees the session lock. Never raises, never waits."""


class Inspector(Protocol):
    """What people ask. May be slower and import more."""

    has_roles: bool
    """Whether `initialise` can give rights to roles."""

    def history(self, query: HistoryQuery) -> Iterator[Execution]:
        """Yield executions, the newest first."""

    def skips(self, query: HistoryQuery) -> Iterator[Skip]:
        """Yield recorded refusals, the newest first."""

    def execution(self, execution_id: int) -> Execution | None:
        """Return one execution."""

    def output(self, execution_id: int) -> Output | None:
        """Return what an execution wrote, where it was captured."""

    def traced(self, query: HistoryQuery) -> Iterator[Traced]:
        """Yield the executions of `history` with what else is known of them."""

    def traced_skips(self, query: HistoryQuery) -> Iterator[TracedSkip]:
        """Yield the refusals of `skips` with what else is known of them."""

    def timeline(self, since: float | None) -> Iterator[Traced]:
        """Yield all executions that began since, part by part of the keys, each part in the order of starts.

        Other questions may be asked meanwhile.
        """

    def job_keys(self) -> Sequence[JobKey]:
        """Return every part of every key as it was last claimed, by name."""

    def namespaces(self) -> Iterable[str]:
        """Return the namespaces of this server, or of files beside this one, in no order; one may come twice.

        This store's own need not be there. Completion asks, so it may give up on a server that holds too much.
        """

    def leases(self) -> Sequence[LeaseView]:
        """Return every lease and every session lock of this namespace."""

    def pauses(self) -> Sequence[Pause]:
        """Return what refuses firings now: pauses that have not ended, and drained hosts."""

    def pause(
        self, key: str, *, author: str, reason: str | None, seconds: float | None
    ) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a key, or of `ALL_KEYS`, for so long; return the pause and what it replaced.

        Every claim that is decided after this has returned is refused. What runs is not touched, and a claim that is
        sent again for it keeps its lease.
        """

    def resume(self, key: str) -> Pause | None:
        """End the pause of the key, or that of `ALL_KEYS`, which is another; return it, or None if there was none."""

    def drain(self, host: str, *, author: str) -> tuple[Pause, Pause | None]:
        """Refuse new firings of a host, as `pause` does those of a key."""

    def undrain(self, host: str) -> Pause | None:
        """Let the host claim again; return what it was drained by, or None if it was not."""

    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        """Ask the holder for something, in place of what it was asked before; False if it has no lease any more.

        One that has expired, and that nobody took away, is still there. The execution tells it from then on, whatever
        becomes of it.
        """

    def release(
        self, key: str, shard: int, execution_id: int | None, *, author: str, force: bool
    ) -> Released:
        """Free a part of a key whose lease has ended, or has gone; see `Released`.

        The execution is declared lost (`released`) by `author`, if it is still running. `execution_id` None: a session
        lock without a lease, or nothing; any lease is `other` then. A lease that ends too far ahead is cut, as by a
        claim. `force` ends the session that still holds the lock, or a job's transaction the fence. Raises
        `StoreRefusesError` where that is not allowed.
        """

    def prune(self, retention: Retention, *, names_kept: int = 1000) -> tuple[int, int]:
        """Remove what is older than the retention; return how many executions and skips went."""

    def initialise(self, roles: Roles) -> str:
        """Create or upgrade the schema and grant rights; return a sentence of what was done."""

    def schema_sql(self, roles: Roles) -> str:
        """Return the SQL that `initialise` would run on an empty store."""

    def close(self) -> None:
        """Close the connection."""
