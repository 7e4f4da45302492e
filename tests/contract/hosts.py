"""A host of the contract suite: its own connection, its own name, short calls."""

import time
import uuid
from typing import Any

from oncecron.core import clock
from oncecron.core.model import (
    AskAgain,
    BlockingLease,
    Ending,
    Firing,
    Holder,
    Lease,
    Output,
    Refusal,
    Retention,
)
from oncecron.core.tick import Tick, minute_tick
from oncecron.stores.api import LeaseStore

KEY = "nightly"
TTL = 60.0
INTERVAL = TTL / 6
COMMAND = "./bill.sh --all"
EVERYTHING = Retention(executions=1e9, skips=1e9)
_PATIENCE = 30.0  # twenty processes that all wait for one slow disk take their time
_FIRST_MINUTE = clock.wall() // 60 * 60 - 59 * 60


def minute(number: int) -> Tick:
    """Return one of sixty ticks, a minute apart, of which the last was the present minute at first."""
    return minute_tick(_FIRST_MINUTE + 60 * number)


class Host:
    """One machine that fires."""

    def __init__(self, store: LeaseStore, name: str) -> None:
        self.store = store
        self.holder = Holder(name, 1000 + len(name), "batch")

    def firing(self, tick: Tick, **parts: Any) -> Firing:
        """Return a firing with a new owner; `parts` are its fields."""
        firing = Firing(
            key=KEY,
            shard=0,
            tick=tick,
            owner=str(uuid.uuid4()),
            holder=self.holder,
            command=COMMAND,
            fired_at=(tick.instant or 0.0) + 1,
            ttl=TTL,
            min_gap=None,
            starting_deadline=None,
            again=False,
            schedule=None,
            zone=None,
        )
        return firing._replace(**parts)

    def ask(self, firing: Firing, *, awaited: int | None = None) -> Lease | Refusal | AskAgain:
        """Claim; a store that is half-way through somebody else's end is asked until it is through."""
        end = self.deadline()
        while True:
            answer = self.store.claim(firing, deadline=end, awaited=awaited)
            contended = isinstance(answer, AskAgain) and answer.why == "contended"
            if not contended or clock.lease_time(self.store.lease_clock) > end:
                return answer
            time.sleep(0.01)  # a session takes its time to end, and nothing tells when it has

    def fire(
        self, tick: Tick, *, awaited: int | None = None, **parts: Any
    ) -> Lease | Refusal | AskAgain:
        return self.ask(self.firing(tick, **parts), awaited=awaited)

    def win(self, tick: Tick, **parts: Any) -> Lease:
        answer = self.fire(tick, **parts)
        assert isinstance(answer, Lease), answer
        return answer

    def lose(self, tick: Tick, **parts: Any) -> Refusal:
        answer = self.fire(tick, **parts)
        assert isinstance(answer, Refusal), answer
        return answer

    def renew(self, lease: Lease, place: bytes | None = None) -> Lease | None:
        return self.store.renew(lease, deadline=self.deadline(), place=place)

    def finish(
        self,
        lease: Lease,
        outcome: str = "succeeded",
        *,
        note: str | None = None,
        output: Output | None = None,
        retention: Retention = EVERYTHING,
        place: bytes | None = None,
    ) -> bool:
        """End an execution, and the session as a firing does."""
        told = ending(outcome, note, output)._replace(place=place)
        in_time = self.store.finish(lease, told, retention, deadline=self.deadline())
        self.store.close()
        return in_time

    def keep(
        self,
        lease: Lease,
        outcome: str = "failed",
        *,
        note: str | None = None,
        output: Output | None = None,
        place: bytes | None = None,
    ) -> bool:
        """End an attempt that is to be followed by another."""
        told = ending(outcome, note, output)._replace(place=place)
        return self.store.keep(lease, told, deadline=self.deadline())

    def retry(self, lease: Lease) -> Lease | Refusal | None:
        return self.store.retry(lease, deadline=self.deadline())

    def retried(self, lease: Lease) -> Lease:
        """End an attempt, and get the next."""
        assert self.keep(lease)
        answer = self.retry(lease)
        assert isinstance(answer, Lease), answer
        return answer

    def run(self, tick: Tick, outcome: str = "succeeded", **parts: Any) -> Lease:
        lease = self.win(tick, **parts)
        assert self.finish(lease, outcome)
        return lease

    def deliver(self, *records: dict[str, Any]) -> None:
        for record in records:
            self.store.deliver(record, deadline=self.deadline())

    def deadline(self) -> float:
        return clock.lease_time(self.store.lease_clock) + _PATIENCE


def ending(outcome: str, note: str | None = None, output: Output | None = None) -> Ending:
    """Return how an execution ended, with the exit code of such an end."""
    codes: dict[str, int | None] = {"succeeded": 0, "failed": 3}
    lost_reason = "not-renewed" if outcome == "lost" else None
    return Ending(outcome, codes.get(outcome), None, 1.5, note, output, lost_reason)  # type: ignore[arg-type]


def blocked_by(answer: Lease | Refusal | AskAgain) -> BlockingLease:
    """Return the living lease that was told: by `held`, or by what `held` will be if nobody asks again."""
    refusal = answer.refusal if isinstance(answer, AskAgain) else answer
    assert isinstance(refusal, Refusal), refusal
    assert refusal.reason == "held"
    assert refusal.blocked_by is not None
    return refusal.blocked_by


def execution_record(
    firing: Firing, lease: Lease | None = None, outcome: str = "succeeded", **parts: Any
) -> dict[str, Any]:
    """Return what a firing spools when it cannot tell the store how it ended."""
    now = clock.wall()
    record = {
        "kind": "execution",
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "tick_instant": firing.tick.instant,
        "attempt": lease.attempt if lease else 1,
        "outcome": outcome,
        "exit_code": 0 if outcome == "succeeded" else None,
        "signal": None,
        **firing.holder._asdict(),
        "command": firing.command,
        "fired_at": firing.fired_at,
        "started_at": lease.started_at if lease else now - 2,
        "finished_at": now,
        "duration": 2.0,
        "fencing_token": lease.token if lease else None,
        "owner": firing.owner,
        "cause": lease.cause if lease else "schedule",
        "note": None,
        "lost_reason": "not-renewed" if outcome == "lost" else None,
        "request": None,
        "requested_by": None,
        "output": None,
        "output_cut": None,
        "place": None,
        "shards": firing.shards,
        "retries": firing.retries,
    }
    return {**record, **parts}


def skip_record(firing: Firing, reason: str, at: float) -> dict[str, Any]:
    """Return a refusal that could not be told to the store."""
    return {
        "kind": "skip",
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "tick_instant": firing.tick.instant,
        "reason": reason,
        "holder_host": None,
        "holder_pid": None,
        "detail": None,
        "host": firing.holder.host,
        "pid": firing.holder.pid,
        "fired_at": firing.fired_at,
        "at": at,
        "count": 1,
        "owner": firing.owner,
    }
