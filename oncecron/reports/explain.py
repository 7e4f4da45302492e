"""One tick in sentences: who fired when by which clock, who got it, what the others were told, how it ended.

Where nothing ran, the reasons that explain it. Told is what is recorded,
and what the records cannot tell is said to be unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core import tick
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.text import part_of, signal_name, visible
from oncecron.core.units import format_duration
from oncecron.reports.jobs import NO_END, as_known, is_living
from oncecron.reports.shards import division

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.log_rows import Execution, LeaseView, Traced, TracedSkip
    from oncecron.core.text import Clock
    from oncecron.reports.tick_history import Facts

_ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed-out": "was stopped by its --timeout",
    "stopped": "was stopped by a signal to oncecron",
    "unclaimed": "ended",
}
_HEADLINES = {
    "running": "is running{by}",
    NO_END: "was started{by}, and no end is recorded",
    "succeeded": "succeeded{by}",
    "failed": "failed{by}",
    "timed-out": "timed out{by}",
    "stopped": "was stopped{by}",
    "lost": "was lost{by}",
    "unclaimed": "ran without any promise{by}, since the store was away",
    "not-started": "did not start: a host had it and gave it back",
    "refused": "did not run: every firing that is known was refused",
    "no-store": "did not run as far as is known: who fired could not reach the store",
    "not-fired": "did not run: no host is recorded as having fired it",
    "to-come": "is still to come",
}
_HOSTS_NAMED = 20
_FAILED = ("failed", "timed-out")


class Account(NamedTuple):
    """What happened at a tick."""

    verdict: str
    """The outcome of its last attempt, `no-end` where it is not known, of parts the worst one, or `incomplete` where
    one was not started; else `not-started`, `refused`, `no-store`, `not-fired` or `to-come`."""
    sentences: list[str]


def account(facts: Facts, clock: Clock) -> Account:
    """Return what happened, the outcome first."""
    known = [
        each._replace(execution=as_known(each.execution, facts.leases, facts.now))
        for each in facts.executions
    ]
    facts = facts._replace(executions=known)
    verdict = _verdict(facts)
    telling = _Telling(facts, clock)
    return Account(verdict, [telling.headline(verdict), *telling.all(verdict)])


def _verdict(facts: Facts) -> str:
    divided = division(facts.executions)
    if divided:
        return divided.verdict()
    started = [e.execution for e in facts.executions if e.execution.outcome != "not-started"]
    if started:
        return started[-1].outcome
    spooled = [
        r for r in facts.spooled if r["kind"] == "execution" and r["outcome"] != "not-started"
    ]
    if spooled:
        return str(spooled[-1]["outcome"])
    if facts.executions:
        return "not-started"
    reasons = {each.skip.reason for each in facts.skips}
    reasons |= {record.get("reason", "not-started") for record in facts.spooled}
    if reasons:
        return "no-store" if reasons == {"no-store"} else "refused"
    return "to-come" if facts.instant is not None and facts.instant > facts.now else "not-fired"


class _Telling:
    """The sentences about one tick."""

    def __init__(self, facts: Facts, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock

    def headline(self, verdict: str) -> str:
        """Return the outcome."""
        facts = self._facts
        host = facts.executions[-1].execution.host if facts.executions else None
        by = f" on {visible(host)}" if host and verdict != "not-started" else ""
        tick_of = (
            f"Tick {visible(facts.tick)}" if facts.tick else "The newest firing without a tick"
        )
        divided = division(facts.executions)
        if divided:
            parts = f"{divided.shards} parts: {divided.described()}"
            return f"{tick_of} of key {facts.key} is divided into {parts}."
        return f"{tick_of} of key {facts.key} {_HEADLINES[verdict].format(by=by)}{self._at_last()}."

    def _at_last(self) -> str:
        """Return the end of the headline: whether that is all, whether it goes on, or was given up."""
        last = self._facts.executions[-1].execution if self._facts.executions else None
        if last is None:
            return ""
        if self._is_kept(last):
            return "; another attempt is to follow"
        unknown = last.outcome == "lost" and last.duration is None
        end = ": it was started, and its end is unknown" if unknown else ""
        if last.execution_id not in self._facts.exhausted:
            return end
        attempts = f"after {last.attempt} attempts" if last.attempt > 1 else "at its only attempt"
        return f"{end}; it was given up {attempts}"

    def all(self, verdict: str) -> Iterator[str]:
        """Yield what led to it."""
        facts = self._facts
        before: Execution | None = None
        for traced in facts.executions:
            same_part = before is not None and before.shard == traced.execution.shard
            yield from self._attempt(traced, before if same_part else None)
            if traced.execution.outcome != "not-started":
                before = traced.execution
        yield from self._others()
        yield from map(self._spooled, facts.spooled)
        if verdict in ("not-fired", "to-come"):
            yield from self._unfired()
        if verdict not in _ENDED and verdict != "running":
            yield from self._present()

    # Executions

    def _attempt(self, traced: Traced, before: Execution | None) -> Iterator[str]:
        execution = traced.execution
        if execution.outcome == "not-started":
            yield (
                f"{self._fired(traced)}got attempt {execution.attempt} at {self._at(execution.started_at)} and gave "
                f"it back without starting the command{_noted(execution)}, which left the tick open."
            )
            return
        divided = execution.shards > 1 or execution.shard > 0
        part = f", part {part_of(execution.shard, execution.shards)}" if divided else ""
        yield (
            f"{self._started(traced, before)} at {self._at(execution.started_at)} by the store's clock "
            f"(pid {execution.pid}, user {visible(execution.user)}{part}): {visible(execution.command)}"
        )
        yield from self._end(traced)

    def _started(self, traced: Traced, before: Execution | None) -> str:
        """Return who started which attempt, and why there was a further one."""
        execution = traced.execution
        attempt = f"as attempt {execution.attempt}"
        if execution.cause == "retry":
            return f"{visible(execution.host)} tried again, {attempt},"
        how = "started it" if execution.outcome != "unclaimed" else "started it without a lease"
        which = f" {attempt}" if before or execution.attempt > 1 else ""
        if execution.cause == "manual":
            which = f" {attempt}, asked for by --again,"
        elif execution.cause == "takeover":
            of_whom = "the last"
            if before:
                of_whom = f"attempt {before.attempt} on {visible(before.host)}"
            which = f" {attempt}, taken over because {of_whom} was lost,"
        return f"{self._fired(traced)}{how}{which}"

    def _end(self, traced: Traced) -> Iterator[str]:
        execution = traced.execution
        if execution.outcome == "running":
            yield from self._running(execution)
        elif execution.outcome == NO_END:
            yield (
                "It is recorded as running and has no living lease: its host died or cannot tell, and the next firing "
                "will declare it lost."
            )
        elif execution.outcome == "lost":
            yield from self._lost(traced)
        else:
            yield from self._ended(traced)
        if execution.execution_id in self._facts.exhausted:
            yield "No further attempt follows by itself: oncecron history --exhausted lists it."

    def _ended(self, traced: Traced) -> Iterator[str]:
        execution = traced.execution
        after = (
            f" after {format_duration(execution.duration)}"
            if execution.duration is not None
            else ""
        )
        how = _ENDED[execution.outcome]
        if execution.outcome == "stopped" and execution.requested_by is not None:
            how = f"was stopped, as {visible(execution.requested_by)} asked,"
        yield (
            f"It {how}{after} at {self._at(execution.finished_at)}{_status(execution)}"
            f"{_noted(execution)}."
        )
        if traced.lost_at is not None:
            yield f"Its lease was found to be over at {self._at(traced.lost_at)}."
        if self._is_kept(execution):
            yield "Its host keeps the lease, and tries again after the delay."

    def _is_kept(self, execution: Execution) -> bool:
        """Return whether an attempt has failed whose lease lives on, for the next one."""
        return execution.outcome in _FAILED and self._lease_of(execution) is not None

    def _lease_of(self, execution: Execution) -> LeaseView | None:
        """Return the living lease: by its token, since the ids of a log beside the store are its own."""
        for lease in self._facts.leases:
            ours = (lease.shard, lease.fencing_token) == (execution.shard, execution.fencing_token)
            if ours and is_living(lease, self._facts.now):
                return lease
        return None

    def _lost(self, traced: Traced) -> Iterator[str]:
        execution = traced.execution
        note = _noted(execution)
        if execution.duration is not None:
            yield (
                f"It lost its lease and was killed after {format_duration(execution.duration)}, before anybody else "
                f"could start{note}."
            )
        else:
            yield (
                f"It was declared lost at {self._at(traced.lost_at)}, when its lease had ended{note}: its host "
                "died, or was cut off, and has not told how the command ended."
            )
        later = self._facts.after_loss.get(execution.shard)
        if later and self._is_last(execution) and later.tick != execution.tick:
            yield (
                f"The key then went on with tick {visible(later.tick or '-')}, started by {visible(later.host)} at "
                f"{self._at(later.started_at)}."
            )

    def _is_last(self, execution: Execution) -> bool:
        attempts = [each.execution for each in self._facts.executions]
        return execution == [each for each in attempts if each.shard == execution.shard][-1]

    def _running(self, execution: Execution) -> Iterator[str]:
        lease = self._lease_of(execution)
        if lease is None:
            yield "It has only just begun."
            return
        now = lease.asked_at or self._facts.now
        ago = max(0.0, round(now - (lease.heartbeat_at or now), 1))
        yield f"It is running; its lease was renewed {format_duration(ago)} ago."
        if lease.requested_by is not None:
            acknowledged = lease.request_acknowledged_at
            told = (
                "has not acknowledged it yet"
                if acknowledged is None
                else f"acknowledged it at {self._at(acknowledged)}"
            )
            yield f"{visible(lease.requested_by)} has asked for its end; {visible(execution.host)} {told}."

    def _fired(self, traced: Traced) -> str:
        host = visible(traced.execution.host)
        if traced.fired_at is None:
            return f"{host} "
        return f"{host} fired at {self._at(traced.fired_at)} by its own clock and "

    # Refusals

    def _others(self) -> Iterator[str]:
        skips = self._facts.skips
        for traced in skips[:_HOSTS_NAMED]:
            yield self._refused(traced)
        if len(skips) > _HOSTS_NAMED:
            yield f"{len(skips) - _HOSTS_NAMED} more were refused (history --skips shows all)."

    def _refused(self, traced: TracedSkip) -> str:
        skip = traced.skip
        fired = (
            f" at {self._at(traced.fired_at)} by its own clock"
            if traced.fired_at is not None
            else ""
        )
        times = f", {skip.count} times" if skip.count > 1 else ""
        told = f"was told at {self._at(skip.at)} by the store's clock"
        if skip.reason == "no-store":
            told = f"gave up at {self._at(skip.at)} by its own clock"
        divided = division(self._facts.executions) is not None or skip.shard > 0
        part = f" of part {skip.shard}" if divided else ""
        return (
            f"{visible(skip.host)} fired{fired}{times}, and {told}{part}: {self._reason(traced)}."
        )

    def _reason(self, traced: TracedSkip) -> str:
        skip, detail = traced.skip, visible(traced.skip.detail or "")
        by = f" by {visible(skip.holder_host)} (pid {skip.holder_pid})" if skip.holder_host else ""
        in_brackets = f" ({detail})" if detail else ""
        return {
            "held": f"held, it was being run{by}",
            "done": f"done, it had been run{by}{in_brackets}",
            "passed": f"passed, a newer tick had been claimed before{in_brackets}",
            "recent": f"recent, the key had been started too short a time ago{by}",
            "late": f"late, {self._lateness(traced)}more than --starting-deadline allows",
            "paused": f"paused, the key starts nothing new{in_brackets}",
            "drained": f"drained, that host claims nothing new{in_brackets}",
            "exhausted": f"exhausted, no attempt was left after what failed or was lost{in_brackets}",
            "broken": f"broken, that host cannot start the command{in_brackets}",
            "no-store": f"no-store, that host could not reach the store{in_brackets}",
        }.get(skip.reason, f"{skip.reason}{by}{in_brackets}")

    def _lateness(self, traced: TracedSkip) -> str:
        if self._facts.instant is None:
            return ""
        late = round((traced.fired_at or traced.skip.at) - self._facts.instant, 1)
        return f"{format_duration(late)} after its time, " if late > 0 else ""

    # What the store does not know, and what it knows of the present

    def _spooled(self, record: dict[str, Any]) -> str:
        fired = (
            f"{visible(record['host'])} fired at {self._at(record['fired_at'])} by its own clock"
        )
        kept = "that record is still spooled on this host (`oncecron flush` delivers it)"
        if record["kind"] == "skip":
            detail = f" ({visible(record['detail'])})" if record.get("detail") else ""
            why = {"no-store": "could not reach the store", "broken": "could not start the command"}
            what = why.get(record["reason"], f"was refused: {record['reason']}")
            return f"{fired} and {what}{detail}; {kept}."
        if record["outcome"] == "not-started":
            return f"{fired} and did not start ({visible(record.get('note') or '-')}); {kept}."
        return f"{fired}, ran it, and it ended as {record['outcome']}; {kept}."

    def _unfired(self) -> Iterator[str]:
        facts = self._facts
        if facts.near:
            yield f"Ticks of nearly this name: {', '.join(map(visible, facts.near))}."
        plan = next((part for part in facts.parts if part.schedule is not None), None)
        if plan and plan.schedule and facts.instant is not None:
            zone = f" ({plan.zone})" if plan.zone else ""
            schedule = f"the schedule that the key was last claimed with, {plan.schedule}{zone}"
            try:
                near = tick.scheduled_tick(plan.schedule, plan.zone, facts.instant)
            except ValueError:  # this host knows no such zone
                return
            if near.instant == facts.instant:
                yield f"It is a tick of {schedule}."
            else:
                yield f"It is no tick of {schedule}; the last before it is {near.text}."

    def _present(self) -> Iterator[str]:
        for pause in self._facts.pauses:
            what = "Every key" if pause.key == ALL_KEYS else f"Key {pause.key}"
            until = "it is resumed" if pause.until is None else self._at(pause.until)
            reason = f": {visible(pause.reason)}" if pause.reason else ""
            yield f"{what} is paused since {self._at(pause.since)} until {until}, by {visible(pause.author)}{reason}."
        if not self._facts.executions and self._facts.tick and self._verdict_is_open():
            yield (
                "A host that could not reach the store keeps its record in a spool of its own: `oncecron why` there "
                "shows it."
            )

    def _verdict_is_open(self) -> bool:
        return not self._facts.skips and (self._facts.instant or 0.0) <= self._facts.now

    def _at(self, time: float | None) -> str:
        return self._clock.seconds(time)


def _noted(execution: Execution) -> str:
    """Return the note as the end of a sentence."""
    return f" ({visible(execution.note)})" if execution.note else ""


def _status(execution: Execution) -> str:
    if execution.signal is not None:
        return f", by signal {signal_name(execution.signal) or execution.signal}"
    return "" if execution.exit_code is None else f", exit status {execution.exit_code}"
