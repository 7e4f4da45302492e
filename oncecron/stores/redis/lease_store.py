"""The store of a firing on Redis: each call, and each step of a claim, is one Lua script and one round trip."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.decision import stop_refusal
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.facts import (
    ending_values,
    first_lease,
    lease_values,
    lost_run,
    next_lease,
    skip_values,
    start_values,
    stop_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal, Unconfirmed, place_text, stored_request, trust_after
from oncecron.core.timing import CALL_TIMEOUT, HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW, SKIP_TIMEOUT
from oncecron.stores import steadied
from oncecron.stores.claim_loop import ClaimLoop
from oncecron.stores.redis import scripts
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.resp import ReplyError

# ruff: noqa: PLC0415 - most firings need no message of a failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oncecron.core.decision import Attempt, Grant, PlainSkip, State
    from oncecron.core.facts import Facts, Values
    from oncecron.core.making_up import Row
    from oncecron.core.model import Ending, Firing, Lease, LostRun, Retention
    from oncecron.core.presence import Seen
    from oncecron.stores import Steadiness
    from oncecron.stores.address import Address
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import Reply


class RedisSession:
    """The steps of one namespace, each call one script and one round trip."""

    lease_clock = clock.BOOTTIME
    survives_fork = True
    steadiness: Steadiness | None = None
    holds_connection = True

    def __init__(self, target: Target, *, namespace: str, ttl: float) -> None:
        self._target = target
        self._namespace = namespace
        self._names = scripts.Names(namespace)
        self._server_timeout = min(CALL_TIMEOUT, ttl / HEARTBEATS_PER_TTL)
        self._client: RedisClient | None = None
        self._name = "oncecron"
        self._ahead: float | None = None
        """How far the server's clock is ahead of the lease clock, as last known."""

    def readdress(self, address: Address) -> None:
        """Take another address for later connections."""
        from oncecron.stores.redis.address import parse

        self._target = parse(address.target, address.options)

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client:
            client.close()

    def _connection(self, deadline: float) -> RedisClient:
        if self._client is None:
            self._client = RedisClient(
                self._target,
                clock=self.lease_clock,
                deadline=deadline,
                server_timeout=self._server_timeout,
                name=self._name,
            )
        return self._client

    def _missing_replicas(self, what: str, deadline: float) -> StoreError | None:
        wanted = self._target.wait
        if not wanted:
            return None
        left = min(self._server_timeout, deadline - clock.lease_time(self.lease_clock))
        try:
            self._ask(deadline, *self._names.mark())
            acknowledged = self._ask(deadline, "WAIT", wanted, max(1, int(left * 900)))
        except ReplyError as error:
            return self._error_of(error)
        except StoreError as error:
            return error
        if isinstance(acknowledged, int) and acknowledged >= wanted:
            return None
        why = f"only {acknowledged!r} of {wanted} replicas (?wait=) have acknowledged {what}"
        return StoreUnavailable(f"Redis {self._target.shown}: {why}")

    def _timely_step(
        self, step: str, shard: str, values: Values, deadline: float, also: str | None = None
    ) -> tuple[Reply, float]:
        """Run a step that the server ignores after its deadline; return the reply and when the step was sent.

        It sends what the server's clock should show: the server's last known time plus the time since then.
        """
        for _ in range(2):
            self._connection(deadline)
            sent = clock.lease_time(self.lease_clock)
            known = None if self._ahead is None else sent + self._ahead
            told = {**values, "sent_at": known, "waits": deadline - sent}
            answer = self._step(step, shard, told, deadline, also)
            if not (isinstance(answer, bytes) and answer.startswith(b"late ")):
                return answer, sent
            self._ahead = float(answer.partition(b" ")[2]) - sent
        raise StoreUnavailable(
            f"Redis {self._target.shown}: the server's clock keeps jumping; check its time service"
        )

    def _step(
        self, step: str, shard: str, values: Values, deadline: float, also: str | None = None
    ) -> Reply:
        return self._run(
            step, shard, self._names.keys(*filter(None, (shard, also))), values, deadline
        )

    def _run(
        self, step: str, shard: str, keys: Sequence[str], values: Values, deadline: float
    ) -> Reply:
        told = {**values, "part": shard, "max_skew": MAX_CLOCK_SKEW}
        words = (len(keys), *keys, *scripts.arguments(told))
        try:
            return scripts.run(lambda *command: self._ask(deadline, *command), step, words)
        except ReplyError as error:
            raise self._error_of(error) from error

    def _ask(self, deadline: float, *words: str | float) -> Reply:
        client = self._connection(deadline)
        try:
            return client.ask(*words, deadline=deadline)
        except StoreUnavailable as error:
            error.unanswered = True
            self.close()  # its reply may still come, so this connection is never used again
            raise

    def _error_of(self, error: ReplyError) -> StoreError:
        from oncecron.stores.redis.explain import of_step

        self.close()
        return of_step(error, self._target, self._names.namespace)


class RedisLeaseStore(RedisSession, ClaimLoop):
    """The firing half of the store on Redis or Valkey; see `oncecron.stores.api.LeaseStore`."""

    def __init__(self, target: Target, *, namespace: str, ttl: float) -> None:
        super().__init__(target, namespace=namespace, ttl=ttl)
        self._firing: Firing | None = None
        self._due: str | None = None
        self._is_served = False
        self._kept: tuple[Lease, Ending] | None = None
        """The last end of an attempt that a retry follows, to restore it if the store has lost it."""
        self._channel: str | None = None
        self._can_listen = True

    def look(
        self,
        firing: Firing,
        *,
        awaited: int | None,
        closely: bool,  # noqa: ARG002 - one look tells all that this store knows
        deadline: float,
    ) -> Facts:
        if self._firing is not None:
            _get_ready()  # a firing that claims again may wait for long
        self._firing = firing
        if firing.tick.text is not None or not firing.failover:
            awaited = None
        self._connection(deadline)
        host_now, sent = clock.wall(), clock.lease_time(self.lease_clock)
        values = _claim_values(firing, awaited)
        shard, first = _shards(firing)
        facts = scripts.dictionary(self._step("look", shard, values, deadline, first))
        self._check_server(facts)
        self._ahead = float(facts["now"]) - sent
        return {**facts, "host_now": host_now, "version": (facts["version"], awaited)}

    def peek(self, firing: Firing, *, deadline: float) -> Facts | None:
        return self.look(firing, awaited=None, closely=True, deadline=deadline)

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        presence: Seen,
        *,
        alone: bool,  # noqa: ARG002 - there is no session lock
        deadline: float,
    ) -> Lease | Unconfirmed | None:
        version, awaited = state.version
        values = {
            **_claim_values(firing, awaited),
            **start_values(firing),
            "presence": presence.after,
            "schedule": firing.expected_schedule,
            "zone": firing.zone,
            "if_version": version,
            "attempt": grant.attempt,
            "cause": grant.cause,
            "evicting": scripts.EVICTING,
            "expected_within": firing.starting_deadline,
            "follows": grant.follows,
        }
        return self._claim_step("grant", firing, values, deadline)

    def regain(
        self, firing: Firing, own: Attempt, *, deadline: float
    ) -> Lease | Unconfirmed | None:
        values: Values = {"owner": firing.owner, "execution_id": own.execution_id}
        return self._claim_step("regain", firing, values, deadline)

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> LostRun | None:
        version, awaited = state.version
        values = {**_claim_values(firing, awaited), "if_version": version, "note": note}
        shard, first = _shards(firing)
        reply, _ = self._timely_step("expire", shard, values, deadline, first)
        lost = scripts.dictionary(reply)
        return lost_run(lost) if lost else None

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:  # noqa: ARG002
        self._step("cut", scripts.shard_of(firing.key, firing.shard), {}, deadline)

    def _claim_step(
        self, step: str, firing: Firing, values: Values, deadline: float
    ) -> Lease | Unconfirmed | None:
        shard, first = _shards(firing)
        reply, sent = self._timely_step(step, shard, values, deadline, first)
        answer = scripts.dictionary(reply)
        self._check_server(answer)
        if answer["answer"] == "changed":
            return None
        _get_ready()
        self._ahead = float(answer["now"]) - sent
        self._due = answer.get("due")
        lease = first_lease(firing, answer, sent)
        error = self._missing_replicas("the claim", deadline)
        return Unconfirmed(lease, error) if error else lease

    def _check_server(self, answer: dict[str, str]) -> None:
        if answer.get("answer") == "wrong":
            from oncecron.stores.redis.explain import wrong_server

            self.close()
            raise wrong_server(self._target, answer)
        self._check_version(answer.get("layout"), answer.get("oldest"))

    def _check_version(self, layout: str | None, oldest: str | None) -> None:
        """Raise `StoreRefusesError` where data, by the version on record, do not serve this program."""
        if (layout, oldest) not in scripts.FITTING:
            from oncecron.stores.redis.explain import misfit

            if wrong := misfit(self._target, self._namespace, str(layout), oldest):
                self.close()
                raise wrong
        self._is_served = True

    def _step_alone(self, step: str, shard: str, values: Values, deadline: float) -> None:
        """Run a step that no claim may have come before."""
        if not self._is_served:
            name = self._names.of_namespace("namespace")
            try:
                found = self._ask(deadline, "HMGET", name, "layout", "oldest")
            except ReplyError as error:
                raise self._error_of(error) from error
            self._check_version(*scripts.texts(found))
        self._step(step, shard, values, deadline)

    @steadied
    def renew(self, lease: Lease, *, deadline: float, place: bytes | None = None) -> Lease | None:
        shard = scripts.shard_of(lease.key, lease.shard)
        if place is not None:
            lease = lease._replace(place=place)
        values = self._lease_values(lease)
        if place is not None:
            values["place"] = place_text(place)
        answer, sent = self._timely_step("renew", shard, values, deadline)
        request = None
        if isinstance(answer, list):
            answer, *words = answer
            kind, author, signal, grace = map(_text, words)
            request = stored_request(kind, author, signal, grace or None)
        if answer != b"lost" and self._client and not self._client.is_at_master(deadline):
            self.close()  # the next renewal goes to the new master
        if answer == b"lost":
            return None
        if answer != b"renewed":  # it was put back, by this number
            lease = lease._replace(execution_id=int(answer))  # type: ignore[arg-type]
        return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=request)

    @steadied
    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        shard = scripts.shard_of(lease.key, lease.shard)
        values = {**self._lease_values(lease), **_ending_values(ending)}
        kept, _ = self._timely_step("keep", shard, values, deadline)
        self._kept = (lease, ending)
        if kept == 1 and (error := self._missing_replicas("the end", deadline)):
            raise error
        return kept == 1

    @steadied
    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        shard = scripts.shard_of(lease.key, lease.shard)
        values = self._lease_values(lease)
        if self._kept and self._kept[0].token == lease.token:
            values |= _ending_values(self._kept[1])
        reply, sent = self._timely_step("retry", shard, values, deadline)
        answer = scripts.dictionary(reply)
        stop = stop_of(answer)
        if stop is not None:
            refusal = stop_refusal(stop)
            self._record_refusal(lease, answer, refusal, deadline)
            return refusal
        if answer["answer"] == "lost":
            return None
        if error := self._missing_replicas("the next attempt", deadline):
            raise error
        return next_lease(lease, answer, sent)

    @steadied
    def listen(self, firing: Firing, *, deadline: float, awaited: int | None = None) -> bool:  # noqa: ARG002
        self._channel = self._names.of_shard("events", scripts.shard_of(firing.key, firing.shard))
        return self._can_listen and self._subscribe(self._channel, deadline)

    def _subscribe(self, channel: str, deadline: float) -> bool:
        client = self._connection(deadline)
        try:
            self._can_listen = client.listen(channel, deadline=deadline)
        except StoreError:
            self.close()
            raise
        if client.fileno() == -1:
            self.close()
        return self._can_listen

    @steadied
    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        shard = scripts.shard_of(lease.key, lease.shard)
        due = self._due if self._due != shard else None
        values = {
            **self._lease_values(lease),
            **_ending_values(ending),
            **scripts.retention_values(retention, self._target.keep),
            "due": due,
        }
        answer = self._step("finish", shard, values, deadline, also=due)
        if isinstance(answer, list):
            answer, expired = answer
            self._expire_items(expired, retention, deadline)
        in_time = answer == 1
        # If a failover forgets that a claim was given back, the tick only stays closed. A run must not be forgotten.
        if ending.outcome != "not-started" and (
            error := self._missing_replicas("the end", deadline)
        ):
            raise error
        return in_time

    def _expire_items(self, expired: Reply, retention: Retention, deadline: float) -> None:
        """Remove some items of a list if its tick is no longer in the log. An error must not lose the end."""
        name = expired.decode() if isinstance(expired, bytes) else ""
        kept = scripts.retention_values(retention, self._target.keep)
        keys, values = self._names.of_expiry(name), scripts.expiry_values(name, kept)
        try:
            self._run("each/expire", str(values["part"]), keys, values, deadline)
        except StoreError:
            return

    @steadied
    def look_back(self, firing: Firing, since: float, *, deadline: float) -> list[Row]:
        import json

        shard = scripts.shard_of(firing.key, firing.shard)
        values: Values = {"key": firing.key, "since": since}
        found: list[Row] = json.loads(_text(self._step("look_back", shard, values, deadline)))
        return found

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
        shard = scripts.shard_of(firing.key, firing.shard)
        values = skip_values(firing, refusal)
        if plain is not None:
            window = f"{plain.window} {firing.holder.host}"
            values = {"host": firing.holder.host, "window": window, "word": plain.word}
        if presence is not None:
            values |= {"presence_before": presence.before, "presence": presence.after}
        return self._step("skip", shard, values, deadline) == 1

    def _record_refusal(
        self, lease: Lease, asker: dict[str, str], refusal: Refusal, deadline: float
    ) -> None:
        """Count a skip if possible: it does not change the answer."""
        values: Values = {"tick": lease.tick, "host": asker["host"], "pid": asker["pid"]}
        values |= {"reason": refusal.reason, "detail": refusal.detail}
        patience = clock.lease_time(self.lease_clock) + SKIP_TIMEOUT
        shard = scripts.shard_of(lease.key, lease.shard)
        try:
            self._step_alone("skip", shard, values, min(deadline, patience))
        except StoreError:
            return

    @steadied
    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        from oncecron.core import bounds

        bounds.check(record)
        shard = scripts.shard_of(record["key"], record["shard"])
        kept = scripts.retention_values(retention, self._target.keep)
        self._step_alone("deliver", shard, {**record, **kept}, deadline)
        if error := self._missing_replicas("the record", deadline):
            raise error

    def watch_fd(self) -> int | None:
        """Return a descriptor that is readable after a push message, or when the server has hung up."""
        return self._client.watch_fd() if self._client else None

    def _lease_values(self, lease: Lease) -> Values:
        firing, values = self._firing, lease_values(lease)
        if lease.place:  # for an execution that the server has lost
            values["known_place"] = place_text(lease.place)
        if firing is None or (firing.key, firing.shard) != (lease.key, lease.shard):
            return values
        return start_values(firing) | values

    def _connection(self, deadline: float) -> RedisClient:
        if self._client is None and self._firing is not None:
            host, pid, _ = self._firing.holder
            self._name = f"oncecron:{host}/{pid}:{self._firing.key}"
        is_new = self._client is None
        client = super()._connection(deadline)
        if (
            is_new
            and self._channel
            and self._can_listen
            and not self._subscribe(self._channel, deadline)
        ):
            return self._connection(deadline)
        return client


def _get_ready() -> None:
    """Load what the rest of the run may need: an upgrade may replace the files while the job runs.

    Most firings that lose never call this.
    """
    from oncecron.stores.redis import explain  # noqa: F401

    scripts.read_all()


def _shards(firing: Firing) -> tuple[str, str | None]:
    """Return the shard, and the first one of its key if it is another: it knows how each tick was divided."""
    first = scripts.shard_of(firing.key, 0) if firing.shard else None
    return scripts.shard_of(firing.key, firing.shard), first


def _ending_values(ending: Ending) -> Values:
    return {name: value for name, value in ending_values(ending).items() if value is not None}


def _claim_values(firing: Firing, awaited: int | None) -> Values:
    return {
        "key": firing.key,
        "tick": firing.tick.text,
        "owner": firing.owner,
        "host": firing.holder.host,
        "shards": firing.shards,
        "ttl": firing.ttl,
        "awaited": awaited,
    }


def _text(word: Reply) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else ""
