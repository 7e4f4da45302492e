"""The store of a firing on PostgreSQL: each method is one statement and one round trip."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError, StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    AskAgain,
    BlockingLease,
    Firing,
    Holder,
    Lease,
    Refusal,
    Request,
    trust_after,
    why_not_yet,
    why_other_shards,
)
from oncecron.core.timing import CALL_TIMEOUT, HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW
from oncecron.stores.postgres import schema
from oncecron.stores.postgres.client import PostgresClient, StatementError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oncecron.core.model import Cause, Ending, Retention
    from oncecron.stores.postgres.client import Value
    from oncecron.stores.postgres.libpq import Row

# When the client's backend started, queried as the client: a function of the schema's owner may not see it.
_BACKEND_START = (
    "(select s.backend_start from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) s)"
)


class PostgresLeaseStore:
    """The firing half of the store on PostgreSQL; see `oncecron.stores.api.LeaseStore`."""

    lease_clock = clock.BOOTTIME

    def __init__(self, url: str, *, namespace: str, ttl: float) -> None:
        self._url = url
        self._schema = schema.quoted(namespace)
        self._namespace = namespace
        self._server_timeout = min(CALL_TIMEOUT, ttl / HEARTBEATS_PER_TTL)
        self._client: PostgresClient | None = None
        self._locked = False
        self._firing: Firing | None = None
        self._awaited: int | None = None
        self._dead: tuple[int, str | None] | None = None
        """The session of a dead holder whose key was taken over: it may still hold the lock."""

    def claim(
        self,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain:
        """Claim (key, tick); see `LeaseStore.claim`."""
        self._firing = firing
        client = self._connected(deadline)
        sent = clock.lease_time(self.lease_clock)
        values = (
            *_described(firing),
            MAX_CLOCK_SKEW,
            client.backend_pid,
            _BACKEND_START,
            watched,
            alone,
            awaited,
        )
        row = self._call_installed("claim_v1", values, deadline)
        return self._answer(firing, row, sent)

    def _call_installed(self, function: str, values: Sequence[Value], deadline: float) -> Row:
        """Call a function; install the schema first if there is none."""
        try:
            return self._call(function, values, deadline)
        except StatementError as error:
            if error.sqlstate not in schema.MISSING:
                raise self._refused(error) from error
        try:
            schema.install(self._connected(deadline), self._namespace, deadline=deadline)
            return self._call(function, values, deadline)
        except StatementError as error:
            raise self._refused(error) from error

    def _answer(self, firing: Firing, row: Row, sent: float) -> Lease | Refusal | AskAgain:
        answer = _Answer(row)
        self._awaited = None
        if answer.text(0) == "lease":
            self._locked = answer.text(6) == "t"
            self._dead = (answer.integer(15), answer.text(16)) if answer.text(15) else None
            return Lease(
                key=firing.key,
                shard=firing.shard,
                tick=firing.tick.text,
                owner=firing.owner,
                attempt=answer.integer(3),
                execution_id=answer.integer(2),
                token=answer.integer(4),
                ttl=firing.ttl,
                started_at=answer.number(5),
                trusted_until=trust_after(sent, firing.ttl),
                cause=answer.cause(),
            )
        if answer.text(0) == "parts":
            raise ConfigurationError(why_other_shards(firing, int(answer.text(11) or 1)))
        if answer.text(0) == "clocks":
            if firing.tick.rule == "name":
                raise ConfigurationError(why_not_yet(firing.tick, answer.number(12)))
            raise ConfigurationError(
                f"tick {firing.tick.text}: this host's clock and the store's clock are "
                f"{abs(answer.number(12)):.0f} s apart; compare `date -u` on this host with `select now()` on the "
                "server, and correct the clock that is wrong"
            )
        self._awaited = answer.integer(2) or None
        if answer.text(0) == "again":
            return answer.again()
        return answer.refusal()

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        """Renew the lease, or adopt it on a new connection; see `LeaseStore.renew`."""
        if self._dead and not self._locked:
            self._terminate(*self._dead, deadline)
        client = self._connected(deadline)
        sent = clock.lease_time(self.lease_clock)
        values = (lease.execution_id, lease.owner, self._locked, client.backend_pid, _BACKEND_START)
        row = self._step("renew_v1", values, deadline)
        locked = row[0]
        if locked is None:
            execution_id = self._put_back(client, lease, deadline)
            if execution_id is None:
                return None
            lease = lease._replace(execution_id=execution_id)
        self._locked = locked == b"t"
        return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=_request(row[1:]))

    def _put_back(self, client: PostgresClient, lease: Lease, deadline: float) -> int | None:
        """Put back an execution that the store has lost; None if the store knows it, or granted another claim."""
        firing = self._firing
        if firing is None:
            return None
        values = (
            *(lease.key, lease.shard, lease.tick, firing.tick.instant, lease.attempt, lease.owner),
            *firing.holder,
            *(firing.command, firing.fired_at, lease.started_at, firing.shards, firing.retries),
            *(lease.cause, lease.token, lease.ttl, client.backend_pid, _BACKEND_START),
        )
        execution_id = self._step("adopt_v1", values, deadline)[0]
        return None if execution_id is None else int(execution_id)

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        """Record the end of an attempt and keep the lease; see `LeaseStore.keep`."""
        values = (lease.execution_id, lease.owner, *_ending_values(ending))
        return self._step("keep_v1", values, deadline)[0] == b"t"

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        """Begin the next attempt under the lease that was kept; see `LeaseStore.retry`."""
        client = self._connected(deadline)
        sent = clock.lease_time(self.lease_clock)
        values = (lease.execution_id, lease.owner, self._locked, client.backend_pid, _BACKEND_START)
        answer = _Answer(self._step("retry_v1", values, deadline))
        if answer.text(0) is None:
            return None
        if answer.text(0) == "refused":
            return answer.refusal()
        if answer.text(0) == "again":
            raise StoreUnavailable(
                f"key {lease.key}: PostgreSQL backend {answer.integer(15) or '-'} still holds the fence: "
                "a transaction of the last attempt has not ended"
            )
        self._locked = answer.text(6) == "t"
        return lease._replace(
            attempt=answer.integer(3),
            execution_id=answer.integer(2),
            token=answer.integer(4),
            started_at=answer.number(5),
            trusted_until=trust_after(sent, lease.ttl),
            request=None,
            cause=answer.cause(),
        )

    def listen(self, firing: Firing, *, deadline: float) -> bool:
        """Make the socket readable when something happens to the shard; see `LeaseStore.listen`."""
        self._firing = firing
        client = self._connected(deadline)
        values = (firing.key, firing.shard, firing.owner, self._awaited, client.backend_pid)
        [happened] = self._step("listen_v1", values, deadline)
        client.notified_before |= happened == b"t"
        return happened is not None

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        """Record the end and release the lease; see `LeaseStore.finish`."""
        kind, author, *_ = ending.request or (None, None)
        told = (*_ending_values(ending), ending.lost_reason, kind, author)
        values = (lease.execution_id, lease.owner, *told, *retention)
        return self._step("finish_v1", values, deadline)[0] == b"t"

    def skip(self, firing: Firing, refusal: Refusal, *, deadline: float) -> None:
        """Record a skip that the store did not decide; see `LeaseStore.skip`."""
        host, pid, _ = refusal.holder or (None, None, None)
        values = (
            *(firing.key, firing.shard, firing.tick.text, firing.holder.host, refusal.reason),
            *(firing.holder.pid, firing.fired_at, host, pid, refusal.detail, None, 1, None),
        )
        self._call_installed("skip_v1", values, deadline)

    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        """Take a spooled record, or a record for a log store; see `LeaseStore.deliver`."""
        import json  # noqa: PLC0415 - only where there is such a record

        values = (json.dumps(record), *(retention or (None, None)))
        self._call_installed("deliver_v1", values, deadline)

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """Terminate the dead session; see `LeaseStore.evict`."""
        self._terminate(stale.backend_pid, stale.backend_start, deadline)

    def _terminate(self, pid: int | None, start: str | None, deadline: float) -> None:
        """End a session as this role: pid and start time must match."""
        self._dead = None
        statement = (
            b"select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a"
            b" where a.pid = $1 and a.backend_start = $2"
        )
        try:
            self._ask(statement, (pid, start), deadline)
        except StatementError:  # another role's session: the lease row alone decides
            return

    def watch_fd(self) -> int | None:
        """Return the session's socket: readable when the server has closed it."""
        return self._client.fileno() if self._client else None

    def close(self) -> None:
        """Close the session, which frees its lock."""
        client, self._client, self._locked = self._client, None, False
        if client:
            client.close()

    def _connected(self, deadline: float) -> PostgresClient:
        if self._client is None:
            firing = self._firing
            name = (
                "oncecron"
                if firing is None
                else "oncecron {}/{} {}".format(*firing.holder[:2], firing.key)
            )
            self._client = PostgresClient(
                self._url,
                clock=self.lease_clock,
                deadline=deadline,
                server_timeout=self._server_timeout,
                name=name,
            )
        return self._client

    def _ask(self, statement: bytes, values: Sequence[Value], deadline: float) -> list[Row]:
        client = self._connected(deadline)
        try:
            return client.ask(statement, values, deadline=deadline)
        except StoreUnavailable as error:
            error.unanswered = True
            self.close()  # its answer may still come, so this session is never used again
            raise

    def _call(self, function: str, values: Sequence[Value], deadline: float) -> Row:
        arguments = []
        sent: list[Value] = []
        for value in values:
            if value is _BACKEND_START:
                arguments.append(_BACKEND_START)
            else:
                sent.append(value)
                arguments.append(f"${len(sent)}")
        statement = f"select * from {self._schema}.{function}({','.join(arguments)})"
        return self._ask(statement.encode(), sent, deadline)[0]

    def _step(self, function: str, values: Sequence[Value], deadline: float) -> Row:
        try:
            return self._call(function, values, deadline)
        except StatementError as error:
            raise self._refused(error) from error

    def _refused(self, error: StatementError) -> StoreError:
        """Return the oncecron error of a failed statement, and close the session."""
        client, self._client = self._client, None
        try:
            return schema.explain(error, self._namespace, client, self._url)
        finally:
            if client:
                client.close()
            self._locked = False


def _described(firing: Firing) -> tuple[Value, ...]:
    tick = firing.tick
    return (
        *(firing.key, firing.shard, tick.text, tick.instant, tick.rule, firing.owner),
        *firing.holder,
        *(firing.command, firing.fired_at, clock.wall(), firing.ttl, firing.min_gap),
        *(firing.starting_deadline, firing.again, firing.schedule, firing.zone),
        *(firing.shards, firing.failover, firing.retries),
    )


def _ending_values(ending: Ending) -> tuple[Value, ...]:
    return (*ending[:5], *(ending.output or (None, None)))


def _request(columns: Row) -> Request | None:
    kind, author, signal, grace = columns
    if kind is None:
        return None
    return Request(
        "release" if kind == b"release" else "stop",
        (author or b"").decode("utf-8", "replace"),
        int(signal or 0),
        None if grace is None else float(grace),
    )


class _Answer:
    """The columns of type `answer`, in their order."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def text(self, column: int) -> str | None:
        value = self._row[column]
        return None if value is None else value.decode("utf-8", "replace")

    def integer(self, column: int) -> int:
        return int(self._row[column] or 0)

    def number(self, column: int) -> float:
        return float(self._row[column] or 0)

    def cause(self) -> Cause:
        return self.text(18)  # type: ignore[return-value]

    def refusal(self) -> Refusal:
        host = self.text(7)
        holder = Holder(host, self.integer(8), self.text(9) or "") if host else None
        since = None if self._row[10] is None else self.number(10)
        blocked_by = (
            BlockingLease(
                self.integer(2), self.number(12), self.text(14) or "", self.text(17) == "t"
            )
            if self._row[2]
            else None
        )
        return Refusal(self.text(1) or "held", holder, since, self.text(11), blocked_by)  # type: ignore[arg-type]

    def again(self) -> AskAgain:
        backend = self.integer(15) or None
        held = self.refusal()._replace(
            reason="held", detail=f"by PostgreSQL backend {backend}" if backend else None
        )
        return AskAgain(
            self.text(1) or "contended",  # type: ignore[arg-type]
            after=self.number(13),
            ends_in=self.number(12),
            refusal=held,
            watched=self.text(14),
            backend_pid=backend,
            backend_start=self.text(16),
        )
