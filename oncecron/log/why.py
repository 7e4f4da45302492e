"""One tick as `oncecron why` shows it: the outcome, then what each host did, in the order of time.

    Tick 2026-11-20T02:00Z of key billing failed on web1.
    On 2026-11-20 (UTC, by the store's clock):
    02:00:01 web1 started it 1s after its tick (pid 4711, user batch): ./bill.sh
    02:00:02 web2 skipped: web1 (pid 4711) was running it
    02:12:01 web1 failed after 12m00s (exit status 3)

Where nothing ran, it gives the reasons. It says only what is on record, and says where nothing is.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.core.errors import NotFoundError
from oncecron.core.log_rows import ALL_KEYS, HistoryQuery
from oncecron.core.text import Clock, listed, part_of, visible
from oncecron.core.tick import instant_of
from oncecron.core.timing import SAME_TIME
from oncecron.core.units import format_duration
from oncecron.host import local_time
from oncecron.log.job_summary import DOUBTFUL, NO_END, is_living
from oncecron.log.jobs import as_known, jobs
from oncecron.log.missed import MISSED_AT_MOST
from oncecron.log.run_phrases import (
    after_phrase,
    delay,
    end_time,
    in_brackets,
    rounded,
    start_phrase,
    status_phrase,
    stop_phrase,
)
from oncecron.log.tick_history import (
    Which,
    division,
    facts_of,
    holder_of,
    outcome_of,
    spooled_of,
    which_of,
)
from oncecron.log.which_tick import Ticks
from oncecron.plugins import line_again
from oncecron.stores.address import again_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.core.log_rows import Execution, LeaseView, Pause, Skip, Traced, TracedSkip
    from oncecron.log.sources import Sources
    from oncecron.log.tick_history import Facts
    from oncecron.log.which_tick import Choice

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
    **dict.fromkeys(DOUBTFUL, "was started{by}, whose holder seems dead"),
    "succeeded": "succeeded{by}",
    "failed": "failed{by}",
    "timed-out": "timed out{by}",
    "stopped": "was stopped{by}",
    "lost": "was lost{by}",
    "unclaimed": "ran without a lease{by}, because the store was unreachable",
    "not-started": "did not start: a host claimed it and gave it back",
    "skipped": "did not run: every firing on record was skipped ({reasons})",
    "no-store": "did not run, as far as is known: no firing on record reached the store",
    "not-fired": "did not run: no firing is on record",
    "no-record": "is older than all records of the key",
    "to-come": "is not due yet",
}
_SINCE = {
    "succeeded": ", which has succeeded",
    "failed": ", which has failed",
    "timed-out": ", which has timed out",
    "stopped": ", which was stopped",
    "lost": ", which was lost too",
}
"""What is said of the run after a lost one."""
_OF_HOST = {
    "no-store": "it could not reach the store",
    "broken": "it could not start the command",
    "unmet": "it did not meet --only-if",
    "interrupted": "it was ended before it could start the command",
}
"""The reasons of skips that a host decides without the store, which may be spooled."""
_SKIPS_SHOWN = 20
_PLACE_SHOWN = 200
"""Characters of a place, which may be long."""
_FAILED = ("failed", "timed-out")
_UNFIRED = ("not-fired", "no-record", "to-come")
_RUN_AGAIN = (
    *("failed", "timed-out", "stopped", "lost", NO_END, "not-fired", "no-store", "not-started"),
)
"""The verdicts after which a person may run the tick by hand."""
_ON_PURPOSE = {"done", "recent", "unmet"}
"""The reasons of skips after which nobody runs the tick by hand: it has run, or was not wanted."""
_EVIDENCE_AMONG = 20
"""The newest executions of a key that are searched for the one that a finding is about."""

_Event = tuple[float, str]
"""When it happened, and what."""


class Account(NamedTuple):
    """What happened at a tick."""

    verdict: str
    """The outcome of its last attempt, `no-end` where that is not known. Of several shards the worst outcome, or
    `incomplete` where one was not started. Without a start: `not-started`, `skipped`, `no-store`, `not-fired`,
    `no-record` or `to-come`."""
    sentences: list[str]


def account(facts: Facts, clock: Clock) -> Account:
    """Return what happened, the outcome first."""
    facts = _known(facts)
    verdict = _verdict(facts)
    sentences = _Sentences(facts, clock)
    return Account(verdict, [sentences.headline(verdict), *sentences.all(verdict)])


def others(
    sources: Sources, key: str, choice: Choice, spooled: Sequence[dict[str, Any]], clock: Clock
) -> Iterator[tuple[str, str | None, Account]]:
    """Yield the outcome alone of each other tick than the chosen one that matters: why it does, and its name."""
    subjects = {
        "newest": ("The newest one that was fired", choice.newest),
        "trouble": ("The last one that went wrong", choice.trouble),
    }
    for because, (subject, which) in subjects.items():
        if which is not None:
            facts = _known(facts_of(sources, key, which, spooled))
            verdict = _verdict(facts)
            how = f"--tick {shlex.quote(which.tick)}" if which.tick else f"--outcome {verdict}"
            sentences = _Sentences(facts, clock)
            line = sentences.headline(verdict, f"{subject}, {sentences.name()},")
            line += f" To see more: `oncecron why {key} {how}`"
            yield because, which.tick, Account(verdict, [line])


def _known(facts: Facts) -> Facts:
    executions, holders = (
        [row._replace(execution=as_known(row.execution, facts.leases, facts.now)) for row in rows]
        for rows in (facts.executions, facts.holders)
    )
    return facts._replace(executions=executions, holders=holders)


def evidence(
    sources: Sources, key: str, text: str | None, since: float | None, shown: Clock
) -> tuple[Sequence[str], str | None]:
    """Return the sentences about the tick behind a finding, and the captured output of its execution.

    `text`: the tick that the finding names. `since`: when the finding began; an execution began or ended then.
    `shown`: how times are shown.
    """
    about = None
    if since is not None:
        newest = sources.log.history(HistoryQuery(key=key, limit=_EVIDENCE_AMONG))
        about = next(
            (each for each in newest if since in (each.started_at, each.finished_at)), None
        )
    try:
        spooled = spooled_of(sources, key, ())
        if text is not None:
            which = Which(text)
        elif about:
            which = which_of(about)
        else:
            job = next(jobs(sources, [key]), None)
            which = Ticks(sources, key, spooled, shown).worst(job).which
        judges = text is None and about is None
        facts = facts_of(sources, key, which, judges=judges)
        sentences = account(facts, shown).sentences
    except NotFoundError:
        sentences = []
    output = sources.log.output(about.execution_id) if about else None
    return sentences, output.text if output else None


def _verdict(facts: Facts) -> str:
    started = outcome_of([each.execution for each in facts.executions])
    if started:
        return started
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
    return _unfired(facts)


def _unfired(facts: Facts) -> str:
    instant = facts.instant
    if instant is not None and instant > facts.now:
        return "to-come"
    is_older = instant is not None and facts.oldest is not None and instant < facts.oldest
    return "no-record" if is_older else "not-fired"


class _Sentences:
    def __init__(self, facts: Facts, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock
        self._divided = division([each.execution for each in facts.executions])
        times = [each.execution.started_at for each in (*facts.executions, *facts.holders)]
        times += [each.skip.at for each in facts.skips]
        times += [record["fired_at"] for record in facts.spooled]
        self._first = clock.logged(min(times, default=None))

    def headline(self, verdict: str, subject: str | None = None) -> str:
        """Return the outcome; `subject`: its first words."""
        facts, divided = self._facts, self._divided
        if subject is None:
            name = self.name()
            subject = f"{name[0].upper()}{name[1:]} of key {facts.key}"
        if divided:
            return f"{subject} has {divided.shards} shards: {divided.summary()}."
        if off := self._off_schedule(verdict):
            return f"{subject} is no tick of the key's last schedule, {off}."
        if verdict == "skipped" and (run := self._outlasted()):
            return f"{subject} did not run: {run}."
        host = facts.executions[-1].execution.host if facts.executions else None
        by = f" on {visible(host)}" if host else ""
        how = _HEADLINES[verdict].format(by=by, reasons=", ".join(self._reasons()))
        return f"{subject} {how}{self._at_last()}."

    def name(self) -> str:
        facts = self._facts
        if facts.tick:
            return f"tick {visible(self._clock.said_tick(facts.tick))}"
        runs = [each.execution.started_at for each in facts.executions]
        return f"the firing at {self._clock.logged(min(runs)) if runs else self._first}"

    def _reasons(self) -> Sequence[str]:
        skips = [each.skip.reason for each in self._facts.skips]
        spooled = [record.get("reason", "not-started") for record in self._facts.spooled]
        return list(dict.fromkeys([*skips, *spooled]))

    def _outlasted(self) -> str:
        skips = [each.skip for each in self._facts.skips]
        row = holder_of(skips[0], self._facts.holders) if skips else None
        if row is None or any(skip.reason != "held" for skip in skips):
            return ""
        return f"{visible(row.execution.host)} {self._held(skips[0])}"

    def _at_last(self) -> str:
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
            shown = f"`oncecron history --skips {facts.key}`"
            yield f"Further skips on record: {more}. To list all: {shown}"
        yield from map(self._spooled, facts.spooled)
        for traced in (*facts.holders, *facts.executions):
            yield from self._state(traced.execution)
            yield from self._place(traced.execution)
        if verdict in _UNFIRED:
            yield from self._due()
            yield from self._unfired(verdict)
        if self._off_schedule(verdict):
            return
        if verdict not in {*_ENDED, *DOUBTFUL, "running", "no-record"}:
            yield from map(self._pause, facts.pauses)
            yield from self._elsewhere()
        if verdict not in _UNFIRED:
            yield from self._due()
        yield from self._again(verdict)

    def _again(self, verdict: str) -> Iterator[str]:
        """Yield the command that runs the tick again, where it has not run as it should."""
        facts = self._facts
        runs = [each.execution for each in facts.executions]
        last = runs[-1] if runs else facts.newest_start
        is_wanted = verdict in _RUN_AGAIN
        if verdict == "skipped":
            is_wanted = last is not None and not _ON_PURPOSE & {*self._reasons()}
        if not is_wanted or facts.is_divided or (runs and self._is_kept(runs[-1])):
            return
        made_up_from = instant_of(facts.due.first_caught_up)
        if not runs and made_up_from is not None and made_up_from <= (facts.instant or 0.0):
            return  # the next firing starts it; by hand, it would pass the older ones
        command, user = (last.command, last.user) if last else ("", "")
        shards = last.shards if last else 1
        line = again_words(facts.key, facts.tick, command, shards)
        by = f", as user {visible(user)}" if user else ""
        if any(row.expected for row in facts.job_keys):  # so a crontab has its line
            found = line_again(facts.key, facts.tick)
            line, by = (found, f"{by or ','} on a host with its line") if found else (line, by)
        which = "again" if runs else "now"
        yield f"To run it {which}{by}: `oncecron {visible(line)}`"

    # Executions

    def _executions(self) -> Iterator[_Event]:
        before: Execution | None = None
        for traced in (*self._facts.holders, *self._facts.executions):
            execution = traced.execution
            if execution.outcome == "not-started":
                what = f"claimed attempt {execution.attempt} and did not start it{in_brackets(execution.note)}"
                yield execution.started_at, f"{self._who(execution)} {what}; the tick stayed open"
                continue
            same = before is not None and _part_of(before) == _part_of(execution)
            is_new = before is None or before.command != execution.command
            yield self._start(traced, before if same else None, is_new=is_new)
            yield from self._end(traced)
            before = execution

    def _who(self, execution: Execution) -> str:
        divided = execution.shards > 1 or execution.shard > 0
        shard = f" shard {part_of(execution.shard, execution.shards)}" if divided else ""
        of = f" ({self._tick_of(execution)})" if self._is_other(execution) else ""
        return f"{visible(execution.host)}{shard}{of}"

    def _is_other(self, execution: Execution) -> bool:
        return any(each.execution == execution for each in self._facts.holders)

    def _start(self, traced: Traced, before: Execution | None, *, is_new: bool) -> _Event:
        execution = traced.execution
        is_retry = execution.cause == "retry"  # started long after its firing, by any clock
        fired = "" if is_retry else self._fired_apart(traced.fired_at, execution.started_at)
        who = f"pid {execution.pid}, user {visible(execution.user)}{fired}"
        command = f": {visible(execution.command)}" if is_new else ""
        how = f"{start_phrase(execution, before)}{self._late(traced)} ({who}){command}"
        return execution.started_at, f"{self._who(execution)} {how}"

    def _late(self, traced: Traced) -> str:
        late = delay(traced)
        if late is None or traced.execution.cause != "schedule":
            return ""
        side = "after" if late >= 0 else "before"
        return f" {rounded(abs(late))} {side} its tick"

    def _fired_apart(self, fired_at: float | None, at: float) -> str:
        if fired_at is None or abs(at - fired_at) < SAME_TIME:
            return ""
        return f", fired at {self._at(fired_at)} by its own clock"

    def _end(self, traced: Traced) -> Iterator[_Event]:
        execution, who = traced.execution, self._who(traced.execution)
        ended_at = end_time(execution)
        if execution.outcome == "lost":
            yield from self._loss(traced)
        elif execution.outcome in _ENDED:
            if traced.lost_at is not None:
                yield traced.lost_at, f"{who} was declared lost: its lease had ended"
            how = f"{_ENDED[execution.outcome]}{after_phrase(execution)}{stop_phrase(execution)}"
            details = in_brackets(status_phrase(execution), execution.note)
            yield ended_at, f"{who} {how}{details}"

    def _loss(self, traced: Traced) -> Iterator[_Event]:
        execution, who = traced.execution, self._who(traced.execution)
        note = in_brackets(execution.note)
        ended_at = execution.finished_at or traced.lost_at or execution.started_at
        if execution.duration is not None:
            killed = (
                f"killed the command{after_phrase(execution)}, before another host could start it"
            )
            yield ended_at, f"{who} lost its lease and {killed}{note}"
        else:
            why = f"its lease had ended, and no end is on record{note}"
            yield (
                traced.lost_at or ended_at,
                f"{who} was declared lost: {why}. The host probably died or was cut off.",
            )
        later = self._facts.after_loss.get(execution.shard)
        is_last = not self._is_other(execution) and self._is_last(execution)
        if later and is_last and later.tick != execution.tick:
            end = _SINCE.get(later.outcome, "")
            what = f"started the key's next run, {self._tick_of(later)}{end}"
            yield later.started_at, f"{self._who(later)} {what}"

    def _is_last(self, execution: Execution) -> bool:
        attempts = [each.execution for each in self._facts.executions]
        return execution == [each for each in attempts if each.shard == execution.shard][-1]

    # What holds now

    def _state(self, execution: Execution) -> Iterator[str]:
        who = self._who(execution)
        if execution.outcome in ("running", *DOUBTFUL):
            yield from self._running(execution)
        elif execution.outcome == NO_END:
            yield (
                f"{who} has no end on record and its lease has expired: the host probably died. The next firing of "
                "the key declares it lost."
            )
        elif self._is_kept(execution):
            yield f"{who} keeps the lease and retries after the delay."
        if execution.execution_id in self._facts.exhausted:
            listing = f"`oncecron history --exhausted {execution.key}`"
            yield f"No further attempt follows. To list such ticks: {listing}"

    def _place(self, execution: Execution) -> Iterator[str]:
        """Yield where the next attempt goes on, if there may be one."""
        is_over = execution.outcome == "succeeded" or self._is_other(execution)
        if execution.place is None or is_over or not self._is_last(execution):
            return
        shown = visible(execution.place)
        if len(shown) > _PLACE_SHOWN:
            more = f"`oncecron history --id {execution.execution_id} --json`"
            shown = f"{shown[:_PLACE_SHOWN]}... (all of it: {more})"
        shard = f" of shard {execution.shard}" if execution.shards > 1 else ""
        yield f"The next attempt{shard} goes on after {shown}"

    def _is_kept(self, execution: Execution) -> bool:
        return execution.outcome in _FAILED and self._lease_of(execution) is not None

    def _lease_of(self, execution: Execution) -> LeaseView | None:
        """Return the active lease, found by its token: a separate log has execution ids of its own."""
        for lease in self._facts.leases:
            ours = (lease.shard, lease.fencing_token) == (execution.shard, execution.fencing_token)
            if ours and is_living(lease):
                return lease
        return None

    def _running(self, execution: Execution) -> Iterator[str]:
        lease, who = self._lease_of(execution), self._who(execution)
        if lease is None:
            yield f"{who} has only just started it."
            return
        now = lease.asked_at
        ago = max(0.0, round(now - (lease.heartbeat_at or now), 1))
        ran = rounded(max(0.0, now - execution.started_at))
        renewed = f"renewed its lease {format_duration(ago)} ago"
        if execution.outcome in DOUBTFUL:
            left = rounded((lease.expires_at or now) - now)
            yield (
                f"{who} {renewed}, and the lease is {execution.outcome}: the host probably died or was cut off. "
                f"The lease ends in {left}; the next firing of the key then declares it lost."
            )
        else:
            is_held = self._is_other(execution)
            end = f" To end it: `oncecron stop {execution.key}`" if is_held else ""
            yield f"{who} has been running it for {ran}, and {renewed}.{end}"
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
        skip, detail = traced.skip, in_brackets(traced.skip.detail)
        holder = f"{visible(skip.holder_host)} (pid {skip.holder_pid})" if skip.holder_host else ""
        holder = holder or "another host"
        return {
            "held": f"{holder} {self._held(skip)}",
            "done": f"{holder} had already run it{detail}",
            "passed": f"a newer tick had already been claimed{detail}",
            "recent": f"{holder} had started {self._recent(skip)} less than --min-gap before",
            "late": f"{self._lateness(traced)}--starting-deadline had passed",
            "paused": f"the key was paused{detail}",
            "drained": f"the host was drained{detail}",
            "exhausted": f"no attempts were left{detail}",
        }.get(skip.reason, f"{_OF_HOST.get(skip.reason, skip.reason)}{detail}")

    def _held(self, skip: Skip) -> str:
        row = holder_of(skip, self._facts.executions)
        which, still = "it", ""
        if row is None:
            row = holder_of(skip, self._facts.holders)
            if row is None:
                return "had the lease of the key, and no such run is on record"
            which, still = self._tick_of(row.execution), "still "
        run = row.execution
        if run.outcome in _FAILED and end_time(run) <= skip.at:
            return f"was waiting to retry {which}"
        attempt = f"attempt {run.attempt} of " if run.attempt > 1 and still else ""
        return f"was {still}running {attempt}{which}"

    def _recent(self, skip: Skip) -> str:
        row = holder_of(skip, self._facts.holders)
        return self._tick_of(row.execution) if row and row.execution.tick else "the key"

    def _lateness(self, traced: TracedSkip) -> str:
        if self._facts.instant is None:
            return ""
        late = round((traced.fired_at or traced.skip.at) - self._facts.instant, 1)
        return f"it fired {format_duration(late)} after the tick's time; " if late > 0 else ""

    # What the store does not know

    def _spooled(self, record: dict[str, Any]) -> str:
        if record["kind"] == "skip":
            reason = _OF_HOST.get(record["reason"], record["reason"])
            what = f"skipped: {reason}{in_brackets(record.get('detail'))}"
        elif record["outcome"] == "not-started":
            what = f"did not start it{in_brackets(record.get('note'))}"
        else:
            what = f"ran it and it ended as {record['outcome']}"
        return (
            f"{self._at(record['fired_at'])} {visible(record['host'])} {what}, by its own clock. This record is still "
            f"spooled on this host; to deliver it: `oncecron flush`"
        )

    def _unfired(self, verdict: str) -> Iterator[str]:
        facts = self._facts
        if verdict == "no-record":
            yield (
                f"The records of the key begin at {self._clock.logged(facts.oldest)}: older ones have been removed, or"
                " there were none."
            )
        is_off = self._off_schedule(verdict)
        if is_off == "":
            yield "The key's last schedule has this tick."
        if verdict == "not-fired" and facts.hosts and not is_off:
            hosts = [
                f"{visible(row.host)} (last at {self._at(row.seen_at)})" for row in facts.hosts
            ]
            yield (
                f"Hosts that have fired the key: {listed(hosts)}. If one is up, look at its "
                f"crontab and the log of its cron; to see all hosts: `oncecron hosts`"
            )

    def _off_schedule(self, verdict: str) -> str | None:
        """Return of a tick that nobody fired the schedule that lacks it; empty: it has it; None: none is known."""
        facts = self._facts
        plan = next((row.expected for row in facts.job_keys if row.expected), None)
        if not plan or facts.instant is None or verdict not in _UNFIRED:
            return None
        try:
            near = local_time.scheduled_tick(plan.schedule, plan.zone, facts.instant)
        except ValueError:  # this host knows no such zone
            return None
        zone = f" ({plan.zone})" if plan.zone else ""
        before = (
            f"{plan.schedule}{zone}; the last one before it is {self._clock.said_tick(near.text)}"
        )
        return "" if near.instant == facts.instant else before

    def _due(self) -> Iterator[str]:
        due, key = self._facts.due, self._facts.key
        if due.missed:
            yield self._missed()
        if due.catching_up:
            yield to_make_up(due.catching_up, due.first_caught_up)
        if due.overdue:
            yield f"Tick {self._clock.said_tick(due.overdue)} is due: no host has started it yet."
        if due.overruns > bool(self._facts.holders):
            ticks = "1 tick was" if due.overruns == 1 else f"{due.overruns} ticks were"
            start = self._facts.newest_start
            run = (
                f"the run of {self._tick_of(start)}"
                if start and start.shards == 1
                else "an earlier run"
            )
            yield f"Since the newest start, {ticks} skipped because {run} was still running."
        if due.silent_since is not None:
            yield f"The key has not run since {self._at(due.silent_since)}: longer than three times its longest gap."
        keys = self._facts.job_keys
        forgotten = max((row.forgotten_at or 0.0 for row in keys), default=0.0)
        if forgotten and not any(row.expected for row in keys):
            yield f"Key {key} was forgotten at {self._at(forgotten)}: no tick of it is expected."

    def _missed(self) -> str:
        due, key = self._facts.due, self._facts.key
        more = "+" * (due.missed >= MISSED_AT_MOST)
        first, last = map(self._clock.said_tick, (due.first_missed, due.last_missed))
        many = f"{due.missed}{more} ticks were missed, {first} to {last}"
        if self._facts.tick == due.first_missed:
            return f"In all, {many}." if due.missed > 1 else "It is the only one that was missed."
        why = f"`oncecron why {key} --tick {due.last_missed}`"
        which = f"tick {first} was missed" if due.missed == 1 else many
        return f"Since then, {which}: no host has started the command. To see more: {why}"

    def _pause(self, pause: Pause) -> str:
        everything = pause.key == ALL_KEYS
        what = "All keys are" if everything else f"Key {pause.key} is"
        until = "" if pause.until is None else f" until {self._at(pause.until)}"
        reason = f": {visible(pause.reason)}" if pause.reason else ""
        resume = f"`oncecron resume {'--all' if everything else pause.key}`"
        since = self._at(pause.since)
        return f"{what} paused by {visible(pause.author)} since {since}{until}{reason}; to resume: {resume}"

    def _elsewhere(self) -> Iterator[str]:
        facts = self._facts
        due = (facts.instant or 0.0) <= facts.now
        if facts.tick and due and not facts.executions and not facts.skips:
            why = f"`oncecron why {facts.key} --tick {shlex.quote(facts.tick)}`"
            yield (
                "A host that could not reach the store keeps its record in its own spool. To see it, run there: "
                f"{why}"
            )

    # Times

    def _tick_of(self, execution: Execution) -> str:
        if not execution.tick:
            return "a firing without a tick"
        return f"tick {visible(self._clock.said_tick(execution.tick))}"

    def _day(self, *, by: str) -> str:
        if self._clock.now is not None:
            return f"In {local_time.zone_name(self._clock)}{by}:"
        zone = self._first[19:].strip()
        if self._clock.zone is None:
            zone = "UTC" if zone in ("Z", "+00:00") else f"UTC{zone}"
        return f"On {self._first[:10]} ({zone}{by}):"

    def _at(self, time: float | None) -> str:
        text = self._clock.logged(time)
        is_same = (text[:10], text[19:]) == (self._first[:10], self._first[19:])
        return text[11:19] if is_same and self._clock.now is None else text


def to_make_up(many: int, first: str | None) -> str:
    """Return what the next firing makes up."""
    if many == 1:
        return f"Tick {first} was not started; the next firing makes it up (--catch-up)."
    return f"{many} ticks, from {first} on, were not started; the next firing makes them up (--catch-up)."


def _part_of(execution: Execution) -> tuple[Which, int]:
    return which_of(execution), execution.shard
