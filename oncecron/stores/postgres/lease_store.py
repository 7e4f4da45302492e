"""The store of a firing on PostgreSQL: each step is one statement and one round trip."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.decision import stop_refusal
from oncecron.core.errors import StoreUnavailable
from oncecron.core.facts import (
    ending_values,
    first_lease,
    lost_run,
    next_lease,
    skip_values,
    start_values,
    stop_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    AskAgain,
    Refusal,
    place_text,
    recordable_values,
    stored_request,
    trust_after,
)
from oncecron.core.tick import at
from oncecron.stores import steadied
from oncecron.stores.claim_loop import ClaimLoop
from oncecron.stores.postgres import look, schema
from oncecron.stores.postgres.client import StatementError
from oncecron.stores.postgres.session import BACKEND_START, FULL, KEY_ID, PostgresSession

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.decision import Attempt, Grant, PlainSkip, State
    from oncecron.core.facts import Facts
    from oncecron.core.making_up import Row
    from oncecron.core.model import Ending, Firing, Lease, LostRun, Retention
    from oncecron.core.presence import Seen
    from oncecron.stores.address import Hold
    from oncecron.stores.postgres.client import Value
    from oncecron.stores.postgres.session import Values

    Backend = tuple[int | None, int | None]

_LOCK_NOT_AVAILABLE = "55P03"
_READ_COMMITTED = "read committed"
_UNIQUE_VIOLATION = "23505"
_UNLOCK = b"select pg_catalog.pg_advisory_unlock_all() where pg_catalog.pg_backend_pid() = $1"


class PostgresLeaseStore(PostgresSession, ClaimLoop):
    """The firing half of the store on PostgreSQL; see `oncecron.stores.api.LeaseStore`."""

    def __init__(self, url: str, *, namespace: str, ttl: float, hold: Hold = "auto") -> None:
        super().__init__(url, namespace=namespace, ttl=ttl)
        self._hold = hold
        self.holds_connection = hold != "no"
        self._firing: Firing | None = None
        self._key_id: int | None = None
        self._granting: set[tuple[str, int]] = set()
        """The owners and shards that may have been granted something."""
        self._expired: tuple[int, Backend] | None = None
        """The key whose lease this store took away, and the session of its holder."""
        self._dead: Backend | None = None
        """That session, if it may still hold the lock of the key that was granted."""

    # The claim, and its steps (`ClaimSteps`)

    def look(self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float) -> Facts:
        self._serve(firing)
        self.holds_connection = self._hold != "no"
        if firing.tick.text is not None or not firing.failover:
            awaited = None
        is_name = firing.tick.text is not None and firing.tick.instant is None
        closely = closely or (firing.owner, firing.shard) in self._granting
        at = "log" if closely else "tick" if is_name else None
        row, host_now = self._looked(firing, awaited, deadline, at=at)
        if "key_id" not in row:
            place: Values = {"key": firing.key, "shard": firing.shard}
            key_id = self._value("register_v1", place, deadline)
            row, at = look.new_row(row, key_id or ""), None
        if (at == "tick" and "is_own" in row) or (
            at is None and not look.suffices(row, firing, awaited)
        ):
            at = "log"
            row, host_now = self._looked(firing, awaited, deadline, at=at)
        self._key_id = int(row["key_id"])
        return look.facts_of(row, firing, host_now, closely=at is not None)

    def peek(self, firing: Firing, *, deadline: float) -> Facts | None:
        self._serve(firing)
        if self._ask(schema.EXISTS, (self._schema,), deadline)[0][0] != b"t":
            return None
        row, host_now = self._looked(firing, None, deadline, at=None)
        is_known = "key_id" in row
        if is_known:
            row, host_now = self._looked(firing, None, deadline, at="log")
        else:
            row = look.new_row(row, "0")  # as if it had just been registered
        return look.facts_of(row, firing, host_now, closely=is_known)

    def _looked(
        self, firing: Firing, awaited: int | None, deadline: float, *, at: str | None
    ) -> tuple[dict[str, str], float]:
        """Return the key's row, with what the log tells, or what it tells `at` the tick alone; and the host's clock."""
        sent: list[Value] = []
        owner: Values = {"owner": firing.owner, "client_backend": self._backend(deadline)}
        values: Values = {"key": firing.key, "shard": firing.shard, "host": firing.holder.host}
        door = self._door("look_v1", deadline)
        sources = self._function(door, {**values, **owner, "ttl": firing.ttl}, sent) + " k"
        of_tick: Values = {"key_id": KEY_ID, "tick": firing.tick.text, "shards": firing.shards}
        if at == "log":
            door, values = self._door("look_at_log_v1", deadline), {**of_tick, **owner}
            sources += f",{self._function(door, {**values, 'awaited': awaited}, sent)} l"
        elif at == "tick":
            del owner["owner"]
            door, values = self._door("look_at_tick_v1", deadline), {**of_tick, **owner}
            sources += f",{self._function(door, values, sent)} l"
        for _ in range(2):
            host_now = clock.wall()
            row = self._call_installed(sources, sent, deadline)
            if row["isolation"] == _READ_COMMITTED:
                break  # else it may be by now: the first look sets up the session
        self._check_server(row)
        return row, host_now

    def _check_server(self, row: dict[str, str]) -> None:
        """Raise `StoreRefusesError` where a claim would not be safe, or the schema does not serve this program."""
        version, oldest = row.get("schema_version"), row.get("schema_oldest")
        if (version, oldest) != schema.AS_MADE:
            self._check_version(int(version or 0), None if oldest is None else int(oldest))
        if "in_recovery" in row:  # it grants session locks that its primary has already granted
            if self._client is not None and self._client.began_on_primary:
                why = "a pooler has sent the claim to a hot standby, although the session began on a primary"
                raise self._error_of(StatementError("OC004", why))
            raise self._error_of(StatementError("OC003", "the server is a hot standby"))
        if row["isolation"] != _READ_COMMITTED:
            why = "a claim needs the isolation level read committed"
            raise self._error_of(StatementError("OC002", why))

    def _check_version(self, version: int, oldest: int | None) -> None:
        from oncecron.stores.schema_version import Recorded  # noqa: PLC0415 - only where it may not fit

        client = self._client
        wrong = schema.misfit(
            Recorded(version, oldest),
            self._namespace,
            self._url,
            lambda: schema.rights(client, self._namespace)[:2],
        )
        if wrong:
            self.close()
            raise wrong

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        presence: Seen,
        *,
        alone: bool,
        deadline: float,
    ) -> Lease | AskAgain | None:
        backend = self._backend(deadline)
        owned = (firing.owner, firing.shard)
        self._granting.add(owned)
        sent = clock.lease_time(self.lease_clock)
        start = start_values(firing)
        del start["key"], start["shard"]  # the version has the key's id
        values = {
            **dict(zip(("key_id", "version", "divisions"), state.version, strict=True)),
            **start,
            "attempt": grant.attempt,
            "cause": grant.cause,
            "lateness": firing.fired_at % 60,  # into its minute
            "ttl": firing.ttl,
            "starting_deadline": firing.starting_deadline,
            "client_backend": backend,
            "backend_start": BACKEND_START,
            "alone": alone,
            "full": FULL if self._hold == "auto" else None,
            "schedule": firing.expected_schedule,
            "zone": firing.zone,
            **presence._asdict(),
        }
        if grant.follows is not None:
            values["follows"] = grant.follows
        granted = self._compare_and_set(self._door("grant_v1", deadline), values, deadline)
        if granted is None or isinstance(granted, AskAgain) or "execution_id" not in granted:
            self._granting.discard(owned)
            return granted if isinstance(granted, AskAgain) else None
        self._locked = granted.get("locked") == "t"
        self.holds_connection &= granted.get("is_full") != "t"
        is_own_session = granted["own_backend"] == "t"
        expired = self._expired if is_own_session and not self._locked else None
        self._dead = expired[1] if expired and expired[0] == self._key_id else None
        return first_lease(
            firing, {**granted, "attempt": grant.attempt, "cause": grant.cause}, sent
        )

    def expire(
        self, firing: Firing, state: State, note: str, *, deadline: float
    ) -> AskAgain | LostRun | None:
        del firing
        key_id, version, _ = state.version
        values = {"key_id": key_id, "version": version, "note": note}
        lost = self._compare_and_set("expire_v1", values, deadline)
        if isinstance(lost, AskAgain):
            return lost
        if lost is None or "is_lost" not in lost:
            return None
        lease = state.lease
        if lease is not None and lease.has_session:
            self._expired = (key_id, (lease.backend_pid, lease.backend_start))
        return lost_run(lost) if "execution_id" in lost else None

    def _compare_and_set(
        self, function: str, values: Values, deadline: float
    ) -> dict[str, str] | AskAgain | None:
        """Return the answer of a write, or None if the log shows that something has changed."""
        try:
            return self._try(function, values, deadline)
        except StatementError as error:
            if error.sqlstate == _LOCK_NOT_AVAILABLE:
                return self._fence_in_the_way(deadline)
            if error.sqlstate != _UNIQUE_VIOLATION:
                raise self._error_of(error) from error
        # A session lock survives the abort of its transaction. A pooler's connection is not ours to free.
        pid = self._connection(deadline).backend_pid
        self._ask(_UNLOCK, (pid,), deadline)
        return None

    def _fence_in_the_way(self, deadline: float) -> AskAgain:
        backend = self._fence_holder(deadline)
        detail = None if backend is None else f"by PostgreSQL backend {backend}"
        held = Refusal("held", detail=detail)
        return AskAgain("fenced", 0.0, 0.0, held, backend_pid=backend)

    def _fence_holder(self, deadline: float) -> int | None:
        backend = self._value("fence_holder_v1", {"key_id": self._key_id}, deadline)
        return None if backend is None else int(backend)

    @steadied
    def look_back(self, firing: Firing, since: float, *, deadline: float) -> list[Row]:
        import json  # noqa: PLC0415 - for a firing that may have ticks to make up

        values: Values = {"key": firing.key, "shard": firing.shard, "since": since}
        values |= {"tick_since": at(since, "").text}
        found: list[Row] = json.loads(self._value("look_back_v1", values, deadline) or "")
        return found

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:  # noqa: ARG002
        self._call("cut_v1", {"key_id": state.version[0]}, deadline)

    def regain(self, firing: Firing, own: Attempt, *, deadline: float) -> Lease | None:
        sent = clock.lease_time(self.lease_clock)
        renewed = self._renewal(own.execution_id, firing.owner, deadline, listens=False)
        return first_lease(firing, own._asdict(), sent) if "locked" in renewed else None

    # With the lease

    @steadied
    def renew(self, lease: Lease, *, deadline: float, place: bytes | None = None) -> Lease | None:
        if self._dead and not self._locked:
            self._terminate(*self._dead, deadline)
        self._connection(deadline)
        sent = clock.lease_time(self.lease_clock)
        renewed = self._renewal(
            lease.execution_id, lease.owner, deadline, listens=True, place=place
        )
        if place is not None:
            lease = lease._replace(place=place)
        if "locked" not in renewed:
            execution_id = self._put_back(lease, deadline)
            if execution_id is None:
                return None
            lease = lease._replace(execution_id=execution_id)
        request = None
        if "request" in renewed:
            names = ("request", "requested_by", "request_signal", "request_grace")
            request = stored_request(*map(renewed.get, names))
        return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=request)

    def _renewal(
        self,
        execution_id: int,
        owner: str,
        deadline: float,
        *,
        listens: bool,
        place: bytes | None = None,
    ) -> dict[str, str]:
        values = {**self._held(execution_id, owner, deadline), "listens": listens}
        if place is not None:
            values["place"] = place_text(place)
        renewed = self._call("renew_v1", values, deadline)
        self._locked = renewed.get("locked") == "t"
        return renewed

    def _held(self, execution_id: int, owner: str, deadline: float) -> Values:
        """Return the arguments by which the holder of a lease keeps its session lock."""
        return {
            "execution_id": execution_id,
            "owner": owner,
            "locked": self._locked,
            "client_backend": self._backend(deadline),
            "backend_start": BACKEND_START,
        }

    def _put_back(self, lease: Lease, deadline: float) -> int | None:
        """Put back an execution that the store has lost; None if the store knows it, or granted another claim."""
        firing = self._firing
        if firing is None:
            return None
        values = {
            **start_values(firing),
            "attempt": lease.attempt,
            "started_at": lease.started_at,
            "fencing_token": lease.token,
            "ttl": lease.ttl,
            "cause": lease.cause,
            "client_backend": self._backend(deadline),
            "backend_start": BACKEND_START,
            "place": place_text(lease.place or None),
        }
        execution_id = self._value("adopt_v1", values, deadline)
        return None if execution_id is None else int(execution_id)

    @steadied
    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        values = {"execution_id": lease.execution_id, "owner": lease.owner, **ending_values(ending)}
        for name in ("lost_reason", "request", "requested_by"):  # they come with `finish`
            del values[name]
        if ending.place is None:
            del values["place"]
        return self._value("keep_v1", values, deadline) == "t"

    @steadied
    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        values = self._held(lease.execution_id, lease.owner, deadline)
        sent = clock.lease_time(self.lease_clock)
        try:
            answer = self._try("retry_v1", values, deadline)
        except StatementError as error:
            if error.sqlstate != _LOCK_NOT_AVAILABLE:
                raise self._error_of(error) from error
            raise StoreUnavailable(
                f"key {lease.key}: PostgreSQL backend {self._fence_holder(deadline) or '-'} still holds "
                "the fence: a transaction of the last attempt has not ended"
            ) from error
        stop = stop_of(answer)
        if stop is not None:
            refusal = stop_refusal(stop)
            if self._firing is not None:
                self._count_skip(self._firing._replace(shard=lease.shard), refusal, None, deadline)
            return refusal
        if "execution_id" not in answer:
            return None
        self._locked = answer.get("locked") == "t"
        return next_lease(lease, answer, sent)

    @steadied
    def listen(self, firing: Firing, *, deadline: float, awaited: int | None = None) -> bool:
        self._serve(firing)
        client = self._connection(deadline)
        values: Values = {
            "key": firing.key,
            "shard": firing.shard,
            "owner": firing.owner,
            "awaited": awaited,
            "client_backend": self._backend(deadline),
        }
        happened = self._value("listen_v1", values, deadline)
        client.notified_before |= happened == "t"
        return happened is not None

    @steadied
    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        values = {
            "execution_id": lease.execution_id,
            "owner": lease.owner,
            **ending_values(ending),
            "keep_executions": retention.executions,
            "keep_skips": retention.skips,
        }
        if ending.place is None:
            del values["place"]
        return self._value(self._door("finish_v1", deadline), values, deadline) == "t"

    @steadied
    def record_skip(
        self,
        firing: Firing,
        refusal: Refusal,
        presence: Seen | None,
        plain: PlainSkip | None,
        *,
        deadline: float,
    ) -> bool:
        if plain is None or presence is None:
            return self._count_skip(firing, refusal, presence, deadline)
        plain_from, number = plain.packed
        values: Values = {"key_id": self._key_id, "host": firing.holder.host, **presence._asdict()}
        values |= {"plain_from": plain_from, "plain": number}
        if presence.before is not None:
            return self._is_written(self._door("see_again_v1", deadline), values, deadline)
        del values["before"]
        return self._is_written(self._door("see_first_v1", deadline), values, deadline)

    def _count_skip(
        self, firing: Firing, refusal: Refusal, presence: Seen | None, deadline: float
    ) -> bool:
        values: Values = {**skip_values(firing, refusal), "fired_at": firing.fired_at}
        if presence is not None:
            values |= presence._asdict()
        return self._is_written(self._door("skip_v1", deadline), values, deadline)

    def _is_written(self, function: str, values: Values, deadline: float) -> bool:
        """Call a function; return False if the host's row is another one than was looked at."""
        try:
            return "t" in self._try(function, values, deadline).values()
        except StatementError as error:
            if error.sqlstate != _UNIQUE_VIOLATION:
                raise self._error_of(error) from error
            return False

    @steadied
    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        import json  # noqa: PLC0415 - only where there is such a record

        from oncecron.core.bounds import check  # noqa: PLC0415 - only where there is such a record

        check(record)  # JSON has no NaN and no infinity
        values = (
            json.dumps(recordable_values(record), allow_nan=False),
            *(retention or (None, None)),
        )
        self._call_installed(f"{self._schema}.deliver_v1($1,$2,$3)", values, deadline)

    @steadied
    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        self._terminate(stale.backend_pid, stale.backend_start, deadline)

    def _terminate(self, pid: int | None, start: int | None, deadline: float) -> None:
        """End a session as this role: pid and start time must match."""
        self._dead = None
        statement = (
            b"select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a"
            b" where a.pid = $1 and (extract(epoch from a.backend_start) * 1000000)::bigint = $2"
        )
        try:
            self._ask(statement, (pid, start), deadline)
        except StatementError:  # another role's session: the lease row alone decides
            return

    def _backend(self, deadline: float) -> int:
        """Return the backend as the client knows it, negative for a connection that is not held.

        To the server that is the connection of a transaction pooler: it takes no session lock and does not listen.
        But the session is the client's own, so that the server may watch whether the client still lives.
        """
        pid = self._connection(deadline).backend_pid
        return pid if self.holds_connection else -pid

    def _serve(self, firing: Firing) -> None:
        self._firing = firing
        name = "oncecron {}/{} {}".format(*firing.holder[:2], firing.key)
        # Other characters are no part of application_name, and PgBouncer refuses a newline.
        self._name = "".join(sign if " " <= sign <= "~" else "_" for sign in name)
