"""One tick as `oncecron why` shows it: the outcome, then what each host did, in the order of time.

    Tick 2026-11-20T02:00Z of key billing failed on web1.
    On 2026-11-20 (UTC, by the store's clock):
    02:00:01 web1 started it (pid 4711, user batch): ./bill.sh
    02:00:02 web2 skipped: web1 (pid 4711) was running the key
    02:12:01 web1 failed after 12m00s (exit status 3)

Where nothing ran, it gives the reasons. It says only what is on record, and says where nothing is.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core import tick
from oncecron.core.errors import NotFoundError
from oncecron.core.job_summary import NO_END, is_living
from oncecron.core.light_modules import signal_name
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery
from oncecron.core.missed import MISSED_AT_MOST
from oncecron.core.text import Clock, part_of, visible
from oncecron.core.timing import MAX_CLOCK_SKEW, NOTABLE_LATENESS, SAME_TIME
from oncecron.core.units import format_duration, plain_duration
from oncecron.log.jobs import as_known
from oncecron.log.tick_history import division, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, LeaseView, Pause, Traced, TracedSkip
    from oncecron.log.jobs import Sources
    from oncecron.log.tick_history import Facts

_ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed-out": "stopped it",
    "stopped": "stopped it",
    "unclaimed": "ended",
}
_HEADLINES = {
    "running": "is running{by}",
    NO_END: "was started{by} and has no end on record",
    "succeeded": "succeeded{by}",
    "failed": "failed{by}",
    "timed-out": "timed out{by}",
    "stopped": "was stopped{by}",
    "lost": "was lost{by}",
    "unclaimed": "ran without a lease{by}, because the store was unreachable",
    "not-started": "did not start: a host claimed it and gave it back",
    "skipped": "did not run: every firing on record was skipped",
    "no-store": "did not run, as far as is known: no firing on record reached the store",
    "not-fired": "did not run: no firing is on record",
    "to-come": "is not due yet",
}
_SKIPS_SHOWN = 20
_FAILED = ("failed", "timed-out")
_EVIDENCE_AMONG = 20
"""The newest executions of a key that are searched for the one that a finding is about."""

_Event = tuple[float, str]
"""When it happened, and what."""


class Account(NamedTuple):
    """What happened at a tick."""

    verdict: str
    """The outcome of its last attempt, `no-end` where that is not known. Of several shards the worst outcome, or
    `incomplete` where one was not started. Without a start: `not-started`, `skipped`, `no-store`, `not-fired` or
    `to-come`."""
    sentences: list[str]


def _plain(words: str) -> str:
    return f"`oncecron {words}`"


def account(facts: Facts, clock: Clock, command: Callable[[str], str] = _plain) -> Account:
    """Return what happened, the outcome first; `command`: how to show `oncecron WORDS`, to be pasted."""
    known = [
        each._replace(execution=as_known(each.execution, facts.leases, facts.now))
        for each in facts.executions
    ]
    facts = facts._replace(executions=known)
    verdict = _verdict(facts)
    sentences = _Sentences(facts, clock, command)
    return Account(verdict, [sentences.headline(verdict), *sentences.all(verdict)])


def evidence(
    sources: Sources, key: str, text: str | None, since: float | None
) -> tuple[Sequence[str], str | None]:
    """Return the sentences about the tick behind a finding, and the captured output of its execution.

    `text`: the tick that the finding names. `since`: when the finding began; an execution began or ended then.
    """
    about = None
    if since is not None:
        newest = sources.log.history(HistoryQuery(key=key, limit=_EVIDENCE_AMONG))
        about = next(
            (each for each in newest if since in (each.started_at, each.finished_at)), None
        )
    try:
        facts = facts_of(sources, key, text or (about.tick if about else None), suggests=False)
        sentences = account(facts, Clock(utc=True)).sentences
    except NotFoundError:
        sentences = []
    output = sources.log.output(about.execution_id) if about else None
    return sentences, output.text if output else None


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
        return "no-store" if reasons == {"no-store"} else "skipped"
    return "to-come" if facts.instant is not None and facts.instant > facts.now else "not-fired"


class _Sentences:
    def __init__(self, facts: Facts, clock: Clock, command: Callable[[str], str]) -> None:
        self._facts = facts
        self._clock = clock
        self._command = command
        self._divided = division(facts.executions)
        times = [each.execution.started_at for each in facts.executions]
        times += [each.skip.at for each in facts.skips]
        times += [record["fired_at"] for record in facts.spooled]
        self._first = clock.seconds(min(times, default=None))

    def headline(self, verdict: str) -> str:
        """Return the outcome."""
        facts, divided = self._facts, self._divided
        tick_of = (
            f"Tick {visible(facts.tick)}" if facts.tick else "The newest firing without a tick"
        )
        if divided:
            shards = f"{divided.shards} shards: {divided.summary()}"
            return f"{tick_of} of key {facts.key} has {shards}."
        host = facts.executions[-1].execution.host if facts.executions else None
        by = f" on {visible(host)}" if host else ""
        return f"{tick_of} of key {facts.key} {_HEADLINES[verdict].format(by=by)}{self._at_last()}."

    def _at_last(self) -> str:
        """Return the end of the headline: whether another attempt follows, or none is left."""
        last = self._facts.executions[-1].execution if self._facts.executions else None
        if last is None:
            return ""
        if self._is_kept(last):
            return "; another attempt follows"
        unknown = last.outcome == "lost" and last.duration is None
        end = " and has no end on record" if unknown else ""
        if last.execution_id not in self._facts.exhausted:
            return end
        attempts = (
            f"after {last.attempt} attempts" if last.attempt > 1 else "after its only attempt"
        )
        return f"{end}; given up {attempts}"

    def all(self, verdict: str) -> Iterator[str]:
        """Yield what each host did, in the order of time, and then what holds now."""
        facts = self._facts
        events = [*self._executions(), *map(self._skip, facts.skips[:_SKIPS_SHOWN])]
        if events or facts.spooled:
            yield self._day(by=", by the store's clock" if events else "")
        yield from (f"{self._at(at)} {text}" for at, text in sorted(events, key=lambda e: e[0]))
        if len(facts.skips) > _SKIPS_SHOWN:
            more = len(facts.skips) - _SKIPS_SHOWN
            shown = self._command(f"history --skips {facts.key}")
            yield f"Further skips on record: {more}. To list all: {shown}"
        yield from map(self._spooled, facts.spooled)
        for traced in facts.executions:
            yield from self._state(traced.execution)
        if verdict in ("not-fired", "to-come"):
            yield from self._unfired()
        if verdict not in _ENDED and verdict != "running":
            yield from map(self._pause, facts.pauses)
            yield from self._elsewhere()
        yield from self._due()

    # Executions

    def _executions(self) -> Iterator[_Event]:
        before: Execution | None = None
        for traced in self._facts.executions:
            execution = traced.execution
            if execution.outcome == "not-started":
                what = f"claimed attempt {execution.attempt} and did not start it{_in_brackets(execution.note)}"
                yield execution.started_at, f"{self._who(execution)} {what}; the tick stayed open"
                continue
            same_shard = before is not None and before.shard == execution.shard
            yield self._start(traced, before if same_shard else None)
            yield from self._end(traced)
            before = execution

    def _who(self, execution: Execution) -> str:
        divided = execution.shards > 1 or execution.shard > 0
        shard = f" shard {part_of(execution.shard, execution.shards)}" if divided else ""
        return f"{visible(execution.host)}{shard}"

    def _start(self, traced: Traced, before: Execution | None) -> _Event:
        execution = traced.execution
        fired = self._fired_apart(traced.fired_at, execution.started_at)
        who = f"pid {execution.pid}, user {visible(execution.user)}{fired}"
        how = f"{_started(execution, before)}{self._late(traced)} ({who}): {visible(execution.command)}"
        return execution.started_at, f"{self._who(execution)} {how}"

    def _late(self, traced: Traced) -> str:
        """Return how long after its tick the first attempt was fired, where cron is not expected to need so long."""
        instant, fired_at = self._facts.instant, traced.fired_at
        scheduled = any(row.expected for row in self._facts.job_keys)
        if instant is None or fired_at is None or not scheduled:
            return ""
        if traced.execution.cause != "schedule":
            return ""
        minutes = (fired_at - instant) // NOTABLE_LATENESS
        if minutes < 1:
            return ""
        return f" {plain_duration(minutes * NOTABLE_LATENESS)} after the tick's time"

    def _fired_apart(self, fired_at: float | None, at: float) -> str:
        """Return when a host fired, where that is not what the store's clock shows."""
        if fired_at is None or abs(at - fired_at) < SAME_TIME:
            return ""
        return f", fired at {self._at(fired_at)} by its own clock"

    def _end(self, traced: Traced) -> Iterator[_Event]:
        execution, who = traced.execution, self._who(traced.execution)
        ended_at = _ended_at(execution)
        if execution.outcome == "lost":
            yield from self._loss(traced)
        elif execution.outcome in _ENDED:
            if traced.lost_at is not None:
                yield traced.lost_at, f"{who} was declared lost: its lease had ended"
            how = f"{_ENDED[execution.outcome]}{_after(execution)}{_stopped_why(execution)}"
            details = _in_brackets(_status(execution), execution.note)
            yield ended_at, f"{who} {how}{details}"

    def _loss(self, traced: Traced) -> Iterator[_Event]:
        execution, who = traced.execution, self._who(traced.execution)
        note = _in_brackets(execution.note)
        ended_at = execution.finished_at or traced.lost_at or execution.started_at
        if execution.duration is not None:
            killed = f"killed the command{_after(execution)}, before another host could start it"
            yield ended_at, f"{who} lost its lease and {killed}{note}"
        else:
            why = f"its lease had ended, and no end is on record{note}"
            yield (
                traced.lost_at or ended_at,
                f"{who} was declared lost: {why}. The host probably died or was cut off.",
            )
        later = self._facts.after_loss.get(execution.shard)
        if later and self._is_last(execution) and later.tick != execution.tick:
            next_run = f"tick {visible(later.tick)}" if later.tick else "a firing without a tick"
            yield later.started_at, f"{self._who(later)} started the key's next run, {next_run}"

    def _is_last(self, execution: Execution) -> bool:
        attempts = [each.execution for each in self._facts.executions]
        return execution == [each for each in attempts if each.shard == execution.shard][-1]

    # What holds now

    def _state(self, execution: Execution) -> Iterator[str]:
        who = self._who(execution)
        if execution.outcome == "running":
            yield from self._running(execution)
        elif execution.outcome == NO_END:
            yield (
                f"{who} has no end on record and its lease has expired: the host probably died. The next firing of "
                "the key declares it lost."
            )
        elif self._is_kept(execution):
            yield f"{who} keeps the lease and retries after the delay."
        if execution.execution_id in self._facts.exhausted:
            listing = self._command(f"history --exhausted {execution.key}")
            yield f"No further attempt follows. To list such ticks: {listing}"

    def _is_kept(self, execution: Execution) -> bool:
        """Return whether an attempt has failed and its lease is kept for the next one."""
        return execution.outcome in _FAILED and self._lease_of(execution) is not None

    def _lease_of(self, execution: Execution) -> LeaseView | None:
        """Return the active lease, found by its token: a separate log has execution ids of its own."""
        for lease in self._facts.leases:
            ours = (lease.shard, lease.fencing_token) == (execution.shard, execution.fencing_token)
            if ours and is_living(lease, self._facts.now):
                return lease
        return None

    def _running(self, execution: Execution) -> Iterator[str]:
        lease, who = self._lease_of(execution), self._who(execution)
        if lease is None:
            yield f"{who} has only just started it."
            return
        now = lease.asked_at or self._facts.now
        ago = max(0.0, round(now - (lease.heartbeat_at or now), 1))
        yield f"{who} is running it and renewed its lease {format_duration(ago)} ago."
        if lease.requested_by is not None:
            at = lease.request_acknowledged_at
            answer = (
                "has not acknowledged this yet"
                if at is None
                else f"acknowledged this at {self._at(at)}"
            )
            yield f"{visible(lease.requested_by)} asked {who} to end it; {who} {answer}."

    # Skips

    def _skip(self, traced: TracedSkip) -> _Event:
        skip = traced.skip
        shard = f" shard {skip.shard}" if self._divided or skip.shard > 0 else ""
        times = f" {skip.count} times" if skip.count > 1 else ""
        fired = self._fired_apart(traced.fired_at, skip.at)
        if skip.reason == "no-store":
            fired = ", by its own clock"
        return skip.at, f"{visible(skip.host)} skipped{shard}{times}: {self._reason(traced)}{fired}"

    def _reason(self, traced: TracedSkip) -> str:
        skip, detail = traced.skip, _in_brackets(traced.skip.detail)
        holder = f"{visible(skip.holder_host)} (pid {skip.holder_pid})" if skip.holder_host else ""
        holder = holder or "another host"
        return {
            "held": f"{holder} was running the key",
            "done": f"{holder} had already run it{detail}",
            "passed": f"a newer tick had already been claimed{detail}",
            "recent": f"{holder} had started the key less than --min-gap before",
            "late": f"{self._lateness(traced)}--starting-deadline had passed",
            "paused": f"the key was paused{detail}",
            "drained": f"the host was drained{detail}",
            "exhausted": f"no attempts were left{detail}",
            "broken": f"it could not start the command{detail}",
            "unmet": f"it did not meet --only-if{detail}",
            "no-store": f"it could not reach the store{detail}",
        }.get(skip.reason, f"{skip.reason}{detail}")

    def _lateness(self, traced: TracedSkip) -> str:
        if self._facts.instant is None:
            return ""
        late = round((traced.fired_at or traced.skip.at) - self._facts.instant, 1)
        return f"it fired {format_duration(late)} after the tick's time; " if late > 0 else ""

    # What the store does not know

    def _spooled(self, record: dict[str, Any]) -> str:
        if record["kind"] == "skip":
            why = {
                "no-store": "it could not reach the store",
                "broken": "it could not start the command",
                "unmet": "it did not meet --only-if",
            }
            reason = why.get(record["reason"], record["reason"])
            what = f"skipped: {reason}{_in_brackets(record.get('detail'))}"
        elif record["outcome"] == "not-started":
            what = f"did not start it{_in_brackets(record.get('note'))}"
        else:
            what = f"ran it and it ended as {record['outcome']}"
        return (
            f"{self._at(record['fired_at'])} {visible(record['host'])} {what}, by its own clock. This record is still "
            f"spooled on this host; to deliver it: {self._command('flush')}"
        )

    def _unfired(self) -> Iterator[str]:
        facts = self._facts
        if facts.near:
            yield f"Similar ticks on record: {', '.join(map(visible, facts.near))}."
        plan = next((row.expected for row in facts.job_keys if row.expected), None)
        if plan and facts.instant is not None:
            zone = f" ({plan.zone})" if plan.zone else ""
            schedule = f"The key's last schedule, {plan.schedule}{zone},"
            try:
                near = tick.scheduled_tick(plan.schedule, plan.zone, facts.instant)
            except ValueError:  # this host knows no such zone
                return
            if near.instant == facts.instant:
                yield f"{schedule} has this tick."
            else:
                yield f"{schedule} does not have this tick; the last one before it is {near.text}."

    def _due(self) -> Iterator[str]:
        """Yield which later ticks were not started."""
        due, key = self._facts.due, self._facts.key
        if due.missed:
            why = self._command(f"why {key} --tick {due.last_missed}")
            more = "+" * (due.missed >= MISSED_AT_MOST)
            which = (
                f"tick {due.first_missed} was missed"
                if due.missed == 1
                else f"{due.missed}{more} ticks were missed, {due.first_missed} to {due.last_missed}"
            )
            yield f"Since then, {which}: no host has started the command. To see more: {why}"
        if due.overdue:
            yield f"Tick {due.overdue} is due: no host has started it yet."
        if due.overruns:
            ticks = "1 tick was" if due.overruns == 1 else f"{due.overruns} ticks were"
            yield f"Since then, {ticks} skipped because this run was still running."

    def _pause(self, pause: Pause) -> str:
        everything = pause.key == ALL_KEYS
        what = "All keys are" if everything else f"Key {pause.key} is"
        until = "" if pause.until is None else f" until {self._at(pause.until)}"
        reason = f": {visible(pause.reason)}" if pause.reason else ""
        resume = self._command(f"resume {'--all' if everything else pause.key}")
        since = self._at(pause.since)
        return f"{what} paused by {visible(pause.author)} since {since}{until}{reason}; to resume: {resume}"

    def _elsewhere(self) -> Iterator[str]:
        facts = self._facts
        due = (facts.instant or 0.0) <= facts.now
        if facts.tick and due and not facts.executions and not facts.skips:
            why = self._command(f"why {facts.key} --tick {shlex.quote(facts.tick)}")
            yield (
                "A host that could not reach the store keeps its record in its own spool. To see it, run there: "
                f"{why}"
            )

    # Times

    def _day(self, *, by: str) -> str:
        zone = self._first[19:]
        utc = zone in ("Z", "+00:00")
        return f"On {self._first[:10]} ({'UTC' if utc else 'UTC' + zone}{by}):"

    def _at(self, time: float | None) -> str:
        """Return the time of day; in full where day or zone are not those of the line above the times."""
        text = self._clock.seconds(time)
        same = (text[:10], text[19:]) == (self._first[:10], self._first[19:])
        return text[11:19] if same else text


def _started(execution: Execution, before: Execution | None) -> str:
    """Return which attempt was started, and why there was a further one."""
    attempt = f"attempt {execution.attempt}"
    if execution.cause == "retry":
        return f"retried it, {attempt}"
    if execution.cause == "manual":
        return f"started {attempt}, requested by --again"
    if execution.cause == "takeover":
        last = f" from {visible(before.host)}" if before else ""
        return f"took over{last} with {attempt}"
    lease = " without a lease" if execution.outcome == "unclaimed" else ""
    return f"started {attempt if before or execution.attempt > 1 else 'it'}{lease}"


def _ended_at(execution: Execution) -> float:
    """Return when an execution ended; if the clock was set meanwhile, by the clock before."""
    started, ended, took = execution.started_at, execution.finished_at, execution.duration
    if ended is not None and took is not None and abs(ended - started - took) > MAX_CLOCK_SKEW:
        return started + took
    return ended or started


def _after(execution: Execution) -> str:
    return "" if execution.duration is None else f" after {format_duration(execution.duration)}"


def _stopped_why(execution: Execution) -> str:
    if execution.outcome == "timed-out":
        return ", by --timeout"
    if execution.outcome != "stopped":
        return ""
    if execution.requested_by is not None:
        return f", as {visible(execution.requested_by)} had asked"
    return ", because oncecron was stopped or killed"


def _in_brackets(*texts: str | None) -> str:
    """Return what is known as the end of a sentence."""
    known = "; ".join(visible(text) for text in texts if text)
    return f" ({known})" if known else ""


def _status(execution: Execution) -> str:
    if execution.signal is not None:
        return f"signal {signal_name(execution.signal) or execution.signal}"
    return "" if execution.exit_code is None else f"exit status {execution.exit_code}"
