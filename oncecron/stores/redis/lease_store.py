"""The store of a firing on Redis: each call, and each step of a claim, is one Lua script and one round trip."""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.claim import stopped
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Holder, Refusal, Unconfirmed
from oncecron.core.timing import CALL_TIMEOUT, HEARTBEATS_PER_TTL, MAX_CLOCK_SKEW, SKIP_TIMEOUT
from oncecron.stores import claiming
from oncecron.stores.redis import look, scripts
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.resp import ReplyError

# ruff: noqa: PLC0415 - most firings lose, and need neither the holder's modules nor the messages of failures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oncecron.core.claim import Attempt, Grant, PlainSkip, State
    from oncecron.core.model import AskAgain, Ending, Firing, Lease, Retention
    from oncecron.stores.address import Address
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import Reply

    Values = dict[str, str | int | float | None]


class RedisSession:
    """The steps of one namespace, each call one script and one round trip."""

    lease_clock = clock.BOOTTIME
    survives_fork = True
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

    def _connected(self, deadline: float) -> RedisClient:
        if self._client is None:
            self._client = RedisClient(
                self._target,
                clock=self.lease_clock,
                deadline=deadline,
                server_timeout=self._server_timeout,
                name=self._name,
            )
        return self._client

    def _unreplicated(self, what: str, deadline: float) -> StoreError | None:
        """Return an error if fewer replicas have the last write than the address requires (`?wait=N`)."""
        wanted = self._target.wait
        if not wanted:
            return None
        left = min(self._server_timeout, deadline - clock.lease_time(self.lease_clock))
        try:
            acknowledged = self._ask(deadline, "WAIT", wanted, max(1, int(left * 900)))
        except ReplyError as error:
            return self._refused(error)
        except StoreError as error:
            return error
        if isinstance(acknowledged, int) and acknowledged >= wanted:
            return None
        why = f"only {acknowledged!r} of {wanted} replicas (?wait=) have acknowledged {what}"
        return StoreUnavailable(f"Redis {self._target.shown}: {why}")

    def _in_time(
        self, step: str, shard: str, values: Values, deadline: float, also: str | None = None
    ) -> tuple[Reply, float]:
        """Run a step that the server ignores after its deadline; return the reply and when the step was sent.

        It sends what the server's clock should show: the server's last known time plus the time since then.
        """
        for _ in range(2):
            self._connected(deadline)
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
        """Run a step on a shard, or on two."""
        return self._run(
            step, shard, self._names.keys(*filter(None, (shard, also))), values, deadline
        )

    def _run(
        self, step: str, shard: str, keys: Sequence[str], values: Values, deadline: float
    ) -> Reply:
        """Run a step with these keys."""
        told = {**values, "part": shard, "max_skew": MAX_CLOCK_SKEW}
        words = (len(keys), *keys, *scripts.arguments(told))
        try:
            return scripts.run(lambda *command: self._ask(deadline, *command), step, words)
        except ReplyError as error:
            raise self._refused(error) from error

    def _ask(self, deadline: float, *words: str | float) -> Reply:
        client = self._connected(deadline)
        try:
            return client.ask(*words, deadline=deadline)
        except StoreUnavailable as error:
            error.unanswered = True
            self.close()  # its reply may still come, so this connection is never used again
            raise

    def _refused(self, error: ReplyError) -> StoreError:
        from oncecron.stores.redis.explain import of_step

        self.close()
        return of_step(error, self._target)


class RedisLeaseStore(RedisSession):
    """The firing half of the store on Redis or Valkey; see `oncecron.stores.api.LeaseStore`."""

    def __init__(self, target: Target, *, namespace: str, ttl: float) -> None:
        super().__init__(target, namespace=namespace, ttl=ttl)
        self._firing: Firing | None = None
        self._due: str | None = None
        self._is_served = False
        self._kept: tuple[Lease, Ending] | None = None
        self._channel: str | None = None
        self._can_listen = True

    def claim(
        self,
        firing: Firing,
        *,
        deadline: float,
        watched: float | str | None = None,
        alone: bool = False,
        awaited: int | None = None,
    ) -> Lease | Refusal | AskAgain | Unconfirmed:
        """Claim (key, tick); see `LeaseStore.claim`."""
        if self._firing is not None:
            _get_ready()  # a firing that claims again may wait for long
        self._firing = firing
        answer = claiming.claim(
            self, firing, deadline=deadline, watched=watched, alone=alone, awaited=awaited
        )
        if not isinstance(answer, Refusal):
            _get_ready()
        return answer

    def look(
        self,
        firing: Firing,
        *,
        awaited: int | None,
        closely: bool,  # noqa: ARG002 - one look tells all that this store knows
        deadline: float,
    ) -> State:
        """Return what the server knows; see `ClaimSteps.look`."""
        if firing.tick.text is not None or not firing.failover:
            awaited = None
        self._connected(deadline)
        host_now, sent = clock.wall(), clock.lease_time(self.lease_clock)
        shard = scripts.shard_of(firing.key, firing.shard)
        values = look.asked(firing, awaited)
        facts = look.named(
            self._step("look", shard, values, deadline, also=look.first_shard(firing))
        )
        self._check_server(facts)
        self._ahead = float(facts["now"]) - sent
        return look.state_of(facts, firing, host_now=host_now, awaited=awaited)

    def grant(
        self,
        firing: Firing,
        state: State,
        grant: Grant,
        *,
        alone: bool,  # noqa: ARG002 - there is no session lock
        deadline: float,
    ) -> Lease | Unconfirmed | None:
        """Write the start if nothing has changed; see `ClaimSteps.grant`."""
        version, awaited = state.version
        values = {
            **look.asked(firing, awaited),
            **look.described(firing),
            "if_version": version,
            "attempt": grant.attempt,
            "cause": grant.cause,
            "expected_within": firing.starting_deadline,
            **look.seen(firing),
        }
        return self._granted("grant", firing, values, deadline)

    def regain(
        self, firing: Firing, own: Attempt, *, deadline: float
    ) -> Lease | Unconfirmed | None:
        """Renew the lease of this owner; see `ClaimSteps.regain`."""
        return self._granted(
            "regain", firing, {"owner": firing.owner, "execution_id": own.execution_id}, deadline
        )

    def expire(self, firing: Firing, state: State, note: str, *, deadline: float) -> None:
        """Take an expired lease away if nothing has changed; see `ClaimSteps.expire`."""
        version, awaited = state.version
        values = {**look.asked(firing, awaited), "if_version": version, "note": note}
        shard = scripts.shard_of(firing.key, firing.shard)
        self._in_time("expire", shard, values, deadline, also=look.first_shard(firing))

    def cut(self, firing: Firing, state: State, *, deadline: float) -> None:  # noqa: ARG002
        """Let a lease end a ttl from now; see `ClaimSteps.cut`."""
        self._step("cut", scripts.shard_of(firing.key, firing.shard), {}, deadline)

    def _granted(
        self, step: str, firing: Firing, values: Values, deadline: float
    ) -> Lease | Unconfirmed | None:
        shard = scripts.shard_of(firing.key, firing.shard)
        reply, sent = self._in_time(step, shard, values, deadline, also=look.first_shard(firing))
        answer = look.named(reply)
        self._check_server(answer)
        if answer["answer"] == "changed":
            return None
        from oncecron.stores.redis import holding

        self._ahead = float(answer["now"]) - sent
        self._due = answer.get("due")
        lease = holding.granted(firing, answer, sent)
        error = self._unreplicated("the claim", deadline)
        return Unconfirmed(lease, error) if error else lease

    def _check_server(self, answer: dict[str, str]) -> None:
        if answer.get("answer") == "wrong":
            from oncecron.stores.redis.explain import wrong_server

            self.close()
            raise wrong_server(self._target, answer)
        self._check_version(answer.get("layout"), answer.get("oldest"))

    def _check_version(self, layout: str | None, oldest: str | None) -> None:
        """Raise `StoreRefusesError` where data, by the version on record, do not serve this program."""
        if (layout, oldest) not in look.FITTING:
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
                raise self._refused(error) from error
            self._check_version(*look.texts(found))
        self._step(step, shard, values, deadline)

    def renew(self, lease: Lease, *, deadline: float) -> Lease | None:
        """Renew the lease, or put it back if the store has lost it; see `LeaseStore.renew`."""
        from oncecron.stores.redis import holding

        shard = scripts.shard_of(lease.key, lease.shard)
        values = {**self._ending_values(lease), **holding.of_lease(lease)}
        renewed = holding.renewed(lease, *self._in_time("renew", shard, values, deadline))
        if renewed and self._client is not None and not self._client.is_at_master(deadline):
            self.close()  # the next renewal goes to the new master
        return renewed

    def keep(self, lease: Lease, ending: Ending, *, deadline: float) -> bool:
        """Record the end of an attempt and keep the lease; see `LeaseStore.keep`."""
        from oncecron.stores.redis import holding

        shard = scripts.shard_of(lease.key, lease.shard)
        told = {
            **self._ending_values(lease),
            **holding.of_lease(lease),
            **holding.of_ending(ending),
        }
        kept, _ = self._in_time("keep", shard, told, deadline)
        self._kept = (lease, ending)
        if kept == 1 and (error := self._unreplicated("the end", deadline)):
            raise error
        return kept == 1

    def retry(self, lease: Lease, *, deadline: float) -> Lease | Refusal | None:
        """Begin the next attempt; see `LeaseStore.retry`. It also restores the last end if the store has lost it."""
        from oncecron.stores.redis import holding

        shard = scripts.shard_of(lease.key, lease.shard)
        told = {**self._ending_values(lease), **holding.of_lease(lease)}
        if self._kept and self._kept[0].token == lease.token:
            told |= holding.of_ending(self._kept[1])
        reply, sent = self._in_time("retry", shard, told, deadline)
        answer = look.named(reply)
        refusal = stopped(look.stop(answer, "pause_"), look.stop(answer, "drain_"))
        if refusal is not None:
            self._record_refusal(lease, answer, refusal, deadline)
            return refusal
        if answer["answer"] == "lost":
            return None
        if error := self._unreplicated("the next attempt", deadline):
            raise error
        return holding.of_next_attempt(lease, answer, sent)

    def listen(self, firing: Firing, *, deadline: float) -> bool:
        """Subscribe to the channel of the shard of the key; see `LeaseStore.listen`."""
        self._channel = self._names.of_shard("events", scripts.shard_of(firing.key, firing.shard))
        return self._can_listen and self._subscribed(self._channel, deadline)

    def _subscribed(self, channel: str, deadline: float) -> bool:
        client = self._connected(deadline)
        try:
            self._can_listen = client.listen(channel, deadline=deadline)
        except StoreError:
            self.close()
            raise
        if client.fileno() == -1:
            self.close()
        return self._can_listen

    def finish(
        self, lease: Lease, ending: Ending, retention: Retention, *, deadline: float
    ) -> bool:
        """Record the end and release the lease; see `LeaseStore.finish`."""
        from oncecron.stores.redis import holding

        shard = scripts.shard_of(lease.key, lease.shard)
        due = self._due if self._due != shard else None
        values = {
            **self._ending_values(lease),
            **holding.of_lease(lease),
            **holding.of_ending(ending),
            **holding.of_retention(retention, self._target.keep),
            "due": due,
        }
        answer = self._step("finish", shard, values, deadline, also=due)
        if isinstance(answer, list):
            answer, expired = answer
            self._expire_items(expired, retention, deadline)
        in_time = answer == 1
        # If a failover forgets that a claim was given back, the tick only stays closed. A run must not be forgotten.
        if ending.outcome != "not-started" and (error := self._unreplicated("the end", deadline)):
            raise error
        return in_time

    def _expire_items(self, expired: Reply, retention: Retention, deadline: float) -> None:
        """Remove some items of a list if its tick is no longer in the log. An error must not lose the end."""
        from oncecron.stores.redis import holding

        name = expired.decode() if isinstance(expired, bytes) else ""
        key, _, tick = name.partition("#")
        shard = scripts.shard_of(key, 0)
        values = {
            **holding.of_retention(retention, self._target.keep),
            "list": name,
            "tick": tick,
            "most": scripts.ITEMS_PER_STEP,
        }
        try:
            slots: Any = self._ask(deadline, "HGET", self._names.of_shard("list", name), "slots")
            keys = self._names.of_list(shard, name, int(slots or 1), of_slots="ticks")
            self._run("expire_items", shard, keys, values, deadline)
        except StoreError:
            return

    def skip(
        self,
        firing: Firing,
        refusal: Refusal,
        *,
        deadline: float,
        plain: PlainSkip | None = None,
    ) -> None:
        """Count a skip; see `LeaseStore.skip`."""
        shard = scripts.shard_of(firing.key, firing.shard)
        told = look.seen(firing)
        if plain is not None:
            place = {"tick": firing.tick.text, "host": firing.holder.host}
            kept = {"window": f"{plain.window} {firing.holder.host}", "word": plain.word}
            self._step_alone("skip", shard, {**told, **place, **kept}, deadline)
            return
        self._count_skip(shard, firing.tick.text, firing.holder, refusal, deadline, told)

    def _record_refusal(
        self, lease: Lease, asker: dict[str, str], refusal: Refusal, deadline: float
    ) -> None:
        """Count a skip if possible."""
        shard = scripts.shard_of(lease.key, lease.shard)
        holder = Holder(asker["host"], int(asker["pid"]), asker["user"])
        patience = clock.lease_time(self.lease_clock) + SKIP_TIMEOUT
        try:
            self._count_skip(shard, lease.tick, holder, refusal, min(deadline, patience))
        except StoreError:
            return  # a skip that cannot be recorded does not change the answer

    def _count_skip(
        self,
        shard: str,
        tick: str | None,
        asker: Holder,
        refusal: Refusal,
        deadline: float,
        told: Values | None = None,
    ) -> None:
        """Count a skip; `told`: what the firing tells about its host."""
        host, pid, _ = refusal.holder or (None, None, None)
        values: Values = {
            "tick": tick,
            "host": asker.host,
            "pid": asker.pid,
            "reason": refusal.reason,
            "detail": refusal.detail,
            "holder_host": host,
            "holder_pid": pid,
            **(told or {}),
        }
        self._step_alone("skip", shard, values, deadline)

    def deliver(
        self, record: dict[str, Any], *, deadline: float, retention: Retention | None = None
    ) -> None:
        """Take a spooled record, or a record for a log store; see `LeaseStore.deliver`."""
        from oncecron.core import bounds
        from oncecron.stores.redis import holding

        bounds.check(record)
        shard = scripts.shard_of(record["key"], record["shard"])
        kept = holding.of_retention(retention, self._target.keep)
        self._step_alone("deliver", shard, {**record, **kept}, deadline)
        if error := self._unreplicated("the record", deadline):
            raise error

    def evict(self, stale: AskAgain, *, deadline: float) -> None:
        """Do nothing: Redis has no session locks."""

    def watch_fd(self) -> int | None:
        """Return a descriptor that is readable after a push message, or when the server has hung up."""
        return self._client.watch_fd() if self._client else None

    def _ending_values(self, lease: Lease) -> Values:
        """Return the arguments to put back an execution that the store has lost."""
        firing = self._firing
        if firing is None or (firing.key, firing.shard) != (lease.key, lease.shard):
            return {}
        return look.described(firing)

    def _connected(self, deadline: float) -> RedisClient:
        if self._client is None and self._firing is not None:
            host, pid, _ = self._firing.holder
            self._name = f"oncecron:{host}/{pid}:{self._firing.key}"
        is_new = self._client is None
        client = super()._connected(deadline)
        if (
            is_new
            and self._channel
            and self._can_listen
            and not self._subscribed(self._channel, deadline)
        ):
            return self._connected(deadline)
        return client


def _get_ready() -> None:
    """Load what the rest of the run may need: an upgrade may replace the files while the job runs.

    Most firings that lose never call this.
    """
    from oncecron.stores.redis import explain, holding  # noqa: F401

    scripts.read_all()
