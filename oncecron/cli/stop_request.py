"""Ask the holders of a key to end their commands, and wait for the result: for `stop` and `release`.

    asked          the request is written to the lease; the holder gets it at once, or with its next renewal
    acknowledged   the holder has renewed its lease and got the request
    silent         the holder has missed two renewals: it is stopped, or cut off. It cannot be reached, but its guard or
                   wrapper ends the command before the lease ends, so this is waited for
    ended          the lease was released, and the log has the end of the command
    gone           the lease has expired and no end is on record
    alive          the lease still lives when the timeout is over
    locked         there is no lease, only a PostgreSQL session that holds the lock: there is no holder to ask

Wall times are the store's. Before the holder gets the request it may start the next attempt, and another host may take
over a lost one. Such a further execution of the same tick is asked too.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Literal, NamedTuple

from oncecron.cli.sentences import local_time
from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable
from oncecron.core.retry import jittered
from oncecron.core.stderr import complain
from oncecron.core.text import part_of, visible
from oncecron.core.timing import ASSUMED_TTL, HEARTBEATS_PER_TTL, REQUEST_POLL
from oncecron.core.units import format_duration
from oncecron.log.job_summary import is_living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from oncecron.core.log_rows import Execution, LeaseView
    from oncecron.core.model import Request
    from oncecron.stores.reader import Reader

DEAD_BY_THEN = "its command is dead unless both oncecron processes were stopped or killed"
"""What is true after the end of a lease: only these two processes end the command."""

_FOLLOWED = ("lost", "failed", "timed-out")
"""Outcomes that another attempt at the tick may follow."""


class Fate(NamedTuple):
    """The result for one execution, in the order of its published fields."""

    key: str
    shard: int
    tick: str | None
    execution_id: int | None
    attempt: int | None
    host: str | None
    pid: int | None
    user: str | None
    acknowledged_at: float | None
    """When the holder got the request."""
    answer: Literal["ended", "gone", "alive", "locked"]
    outcome: str | None
    exit_code: int | None
    signal: int | None
    lease_ends_at: float | None
    """As it was last read."""
    shards: int


class _Watched:
    def __init__(self, lease: LeaseView) -> None:
        self.lease = lease
        self.since = _now()
        self.over_since: float | None = None
        self.reported: set[str] = set()

    def is_silent(self) -> bool:
        """Return whether the holder has missed two heartbeats."""
        lease = self.lease
        if lease.asked_at is None or lease.heartbeat_at is None:
            return lease.state == "stale"
        return lease.asked_at - lease.heartbeat_at > 2 * ttl(lease) / HEARTBEATS_PER_TTL

    def say_once(self, event: str, text: str) -> None:
        """Say on standard error what has happened, unless it was said."""
        if event not in self.reported:
            self.reported.add(event)
            complain(text)


class Asking:
    """The executions of one key that are asked to end, with one line per event on standard error."""

    def __init__(
        self,
        store: Reader,
        request: Request,
        *,
        timeout: Callable[[LeaseView, bool], float],
        linger: float,
    ) -> None:
        """`timeout`: seconds to wait for a holder, or a silent one; `linger`: for a takeover after a loss."""
        self._store = store
        self._request = request
        self._timeout = timeout
        self._linger = linger
        self._watched: list[_Watched] = []
        self._fates: list[Fate] = []
        self._away: StoreUnavailable | None = None

    def fates(self, leases: Sequence[LeaseView]) -> list[Fate]:
        """Write the request to active leases, and wait until all have ended or timed out.

        Raises `StoreError` if the store is unreachable at the timeout, `KeyboardInterrupt`.
        """
        try:
            for lease in leases:
                self._watch(lease)
            while self._watched:
                select.select((), (), (), jittered(REQUEST_POLL))  # not time.sleep: libfaketime
                self._look_at_all()
                self._give_up()
        except KeyboardInterrupt:
            if leases:
                complain(
                    "no longer waiting; the request stays, and each holder obeys it at its next heartbeat"
                )
            raise
        return self._fates

    def _look_at_all(self) -> None:
        try:
            leases = [  # a store may have no clock of its own
                lease._replace(asked_at=lease.asked_at or clock.wall())
                for lease in self._store.leases()
            ]
            for watched in list(self._watched):
                self._look(watched, leases)
            self._away = None
        except StoreUnavailable as error:
            if self._away is None:
                complain(f"{error}; retrying")
            self._away = error

    def _watch(self, lease: LeaseView) -> None:
        watched = _Watched(lease)
        self._watched.append(watched)
        self._send(watched)
        complain(f"asked {holder(lease)} to {self._request.kind} {shard_name(lease)}")

    def _send(self, watched: _Watched) -> None:
        """Write the request to the lease. Where the lease has ended, the next look finds out why."""
        lease = watched.lease
        assert lease.execution_id is not None  # noqa: S101 - only executions are asked
        self._store.request(lease.key, lease.shard, lease.execution_id, self._request)

    def _look(self, watched: _Watched, leases: Iterable[LeaseView]) -> None:
        before = watched.lease
        found = next((each for each in leases if _same_shard(each, before)), None)
        if found and found.execution_id == before.execution_id and is_living(found, clock.wall()):
            watched.lease, watched.over_since = found, None
            self._report(watched, before)
            if found.requested_by is None:  # another attempt, or a store that forgot the request
                self._send(watched)
            return
        self._over(watched, found)

    def _report(self, watched: _Watched, before: LeaseView) -> None:
        lease = watched.lease
        host = visible(lease.host or "-")
        if before.request_acknowledged_at is not None:
            watched.say_once("acknowledged", f"acknowledged by {host}")
        elif watched.is_silent():
            left = format_duration(max(0.0, round((lease.expires_at or 0) - (lease.asked_at or 0))))
            watched.say_once(
                "silent",
                f"{host} has not renewed its lease since {local_time(lease.heartbeat_at)}; the lease ends in {left}, "
                f"and by then {DEAD_BY_THEN}",
            )

    def _over(self, watched: _Watched, found: LeaseView | None) -> None:
        lease = watched.lease
        execution = (
            None if lease.execution_id is None else self._store.execution(lease.execution_id)
        )
        fate = fate_of(lease, execution)
        successor = found if found and _resumes(fate, found) else None
        if fate.answer == "gone" and successor is None:
            watched.over_since = watched.over_since or _now()
            if _now() - watched.over_since < self._linger:
                return
        self._end(watched, fate)
        if successor:
            complain(f"{holder(successor)} has started attempt {successor.attempt}")
            self._watch(successor)

    def _end(self, watched: _Watched, fate: Fate) -> None:
        self._watched.remove(watched)
        self._fates.append(fate)
        if fate.answer != "alive":
            complain(f"{shard_name(fate)} on {visible(fate.host or '-')} ended: {fate.outcome}")

    def _give_up(self) -> None:
        for watched in list(self._watched):
            if _now() - watched.since < self._timeout(watched.lease, watched.is_silent()):
                continue
            if self._away:
                raise self._away
            if watched.over_since is None:
                alive = fate_of(watched.lease, None)._replace(answer="alive", outcome="running")
                self._end(watched, alive)


def fate_of(lease: LeaseView, execution: Execution | None) -> Fate:
    """Return the result for an execution whose lease is over, from its record; also for a lock without a lease."""
    locked = lease.execution_id is None
    reported = execution is not None and execution.outcome != "running"
    reported = reported and (execution.outcome != "lost" or execution.duration is not None)  # type: ignore[union-attr]
    return Fate(
        key=lease.key,
        shard=lease.shard,
        tick=lease.tick,
        execution_id=lease.execution_id,
        attempt=lease.attempt,
        host=lease.host,
        pid=lease.pid,
        user=lease.user,
        acknowledged_at=lease.request_acknowledged_at,
        answer="ended" if reported else "locked" if locked else "gone",
        outcome=execution.outcome if reported and execution else None if locked else "lost",
        exit_code=execution.exit_code if execution else None,
        signal=execution.signal if execution else None,
        lease_ends_at=lease.expires_at,
        shards=lease.shards,
    )


def holder(of: LeaseView | Fate) -> str:
    """Return the host and the process that hold a lease, or held it."""
    return f"{visible(of.host or '-')} (pid {of.pid})"


def shard_name(of: LeaseView | Fate) -> str:
    """Return the name of a key, or of its shard, for a sentence."""
    return of.key if of.shards == 1 else f"{of.key} shard {part_of(of.shard, of.shards)}"


def shard_arguments(of: LeaseView | Fate) -> str:
    """Return the arguments of a command that name a key, or its shard alone."""
    return of.key if of.shards == 1 else f"{of.key} --shard {of.shard}"


def ttl(lease: LeaseView) -> float:
    """Return the --ttl of a lease, in seconds."""
    if lease.expires_at is None or lease.heartbeat_at is None:
        return ASSUMED_TTL
    return lease.expires_at - lease.heartbeat_at


def _same_shard(one: LeaseView, other: LeaseView) -> bool:
    return (one.key, one.shard) == (other.key, other.shard) and one.execution_id is not None


def _resumes(fate: Fate, lease: LeaseView) -> bool:
    if lease.tick != fate.tick or lease.execution_id == fate.execution_id:
        return False
    same_holder = (lease.host, lease.pid) == (fate.host, fate.pid)
    # In a container that was started again the pid is the same.
    retried = same_holder and (lease.attempt or 0) > (fate.attempt or 0)
    follows = lease.tick is not None or fate.outcome == "lost" or retried
    return follows and fate.outcome in _FOLLOWED and is_living(lease, clock.wall())


def _now() -> float:
    return clock.lease_time(clock.MONOTONIC)
