"""How a finding ended that is no longer there: what is said of it is true of the store at that moment.

recovered   what was wrong is well again: a run has succeeded, a host fires again
closed      nobody expects it any more, or it cannot be known: the key was forgotten, the host was drained

As long as neither can be said, because a run is under way, or because a dead host explains it, nothing is said.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from oncecron.core.log_rows import is_internal, is_success
from oncecron.core.text import held_by, listed
from oncecron.core.units import DAY
from oncecron.log.job_summary import DOUBTFUL, NO_END
from oncecron.log.missed import paused_time
from oncecron.log.silent_hosts import last_ticks, newest_rows, recent, silences
from oncecron.watch.findings import UNSTARTED, is_of_all, kinds
from oncecron.watch.standstill import stops
from oncecron_notify.changes import Ending
from oncecron_notify.notify_times import CHANNEL_FORGOTTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from oncecron.core.log_rows import KeyHost
    from oncecron.core.text import Clock
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.silent_hosts import HostSilence
    from oncecron.watch.findings import Limits, Situation
    from oncecron_notify.changes import Failing, Identity, Known


class Now:
    """What is so now, and how it is said."""

    def __init__(
        self,
        situation: Situation,
        limits: Limits,
        clock: Clock,
        channels: Collection[str] = (),
        failing: Mapping[str, Failing] = {},
    ) -> None:
        """Take what is judged, and the channels of `notify` that are configured and that fail."""
        self.situation = situation
        self.limits = limits
        self.clock = clock
        self.channels = channels
        self.failing = failing
        self.jobs = {job.key: job for job in situation.jobs}
        self.rows: Sequence[KeyHost] = list(recent(situation.hosts, situation.now))
        self.silenced = {
            key
            for each in situation.remarks(clock)
            if each.finding == "standstill"
            for key in each.keys
        }
        self.drained = {pause.host: pause for pause in situation.pauses if pause.host is not None}

    @cached_property
    def _dead(self) -> Sequence[HostSilence]:
        found = silences(self.rows, self.drained, self.situation.now, self.limits.silent_after)
        return [each for each in found if each.is_whole]

    def when(self, time: float | None) -> str:
        """Return a time for people."""
        return self.clock.seconds(time)

    def is_dead(self, host: str | None = None, key: str | None = None) -> bool:
        """Return whether a host that fires nothing explains what else is said of it, or of a key."""
        return any(each.host == host or key in each.keys for each in self._dead)


def ending_of(which: Identity, before: Known, now: Now) -> Ending | None:
    """Return how a finding ended that is not there any more; None: nothing can be said yet."""
    if which.key is None:
        return _OF_NO_KEY.get(which.finding, _unknown)(which, before, now)
    job = now.jobs.get(which.key)
    if job is None:
        return _closed("is not known to the store any more")
    if job.forgotten_at is not None and (job.retired or which.finding in _OF_A_RUN):
        by = job.forgotten_by or "somebody"
        return _closed(f"was forgotten by {by} at {now.when(job.forgotten_at)}")
    if which.finding in UNSTARTED and which.key in now.silenced:
        return None
    ending = _OF_KEYS.get(which.finding)
    if (
        ending is None and which.finding in kinds()
    ):  # it is read afresh at each pass, and is not so now
        return _recovered(kinds()[which.finding].over)
    return ending(which, before, now, job) if ending else _unknown(which, before, now)


def _recovered(words: str) -> Ending:
    return Ending("recovered", words, is_covered=True)


def _closed(words: str) -> Ending:
    return Ending("closed", words)


def _ended_otherwise(words: str) -> Ending:
    return Ending("closed", words, is_covered=True)


def _unknown(which: Identity, _before: Known, _now: Now) -> Ending:
    """Say so of a kind that a newer version has written."""
    return _closed(f"{which.finding} is no finding any more")


# Findings of keys


def _newest_run(job: JobSummary, now: Now) -> str:
    if job.running_since is not None:
        how = f", {job.lease}" if job.lease in DOUBTFUL else ""
        return f"running on {listed(job.running_on)} since {now.when(job.running_since)}{how}"
    if job.running_on:
        return f"tried again soon on {listed(job.running_on)}"
    if is_success(job):
        return f"succeeded at {now.when(job.succeeded_at)}"
    outcome = "lost" if job.outcome == NO_END else job.outcome
    return f"{outcome}, started at {now.when(job.started_at)}"


def _starts(which: Identity, before: Known, now: Now, job: JobSummary) -> Ending:
    started = max(job.running_since or 0.0, job.started_at or 0.0)
    if started > before.since:
        return _recovered(f"runs again: {_newest_run(job, now)}")
    if which.finding == "overrun" and job.overruns:
        return _ended_otherwise("still skips ticks: it is slow")
    if paused := _paused(job, now):
        return paused
    if job.schedule is None:
        return _closed("is expected by no schedule any more")
    return _closed("misses no tick by what is expected of it now")


def _paused(job: JobSummary, now: Now) -> Ending | None:
    pauses = [each for each in now.situation.pauses if each.key is not None]
    since, _ = paused_time(job.key, pauses)
    if since is None:
        return None
    return _closed(f"is paused by {job.paused_by} since {now.when(since)}")


def _resumed(_which: Identity, _before: Known, now: Now, job: JobSummary) -> Ending:
    return _paused(job, now) or _recovered("is not paused any more")


def _ends_well(which: Identity, before: Known, now: Now, job: JobSummary) -> Ending | None:
    if job.settled:
        return _recovered("is well again: all items of its tick are done by now")
    if is_success(job) and (job.succeeded_at or 0.0) >= before.since:
        was_lost = which.finding == "lost"
        how = "it was lost, and a later run succeeded" if was_lost else "it succeeded"
        return _recovered(f"is well again: {how} at {now.when(job.succeeded_at)}")
    if job.running_on:
        goes_on = job.tick is None and job.running_since is not None  # with what was cut short
        return _recovered(f"runs again: {_newest_run(job, now)}") if goes_on else None
    if job.outcome is None:
        return _closed("has no run on record any more")
    return _ended_otherwise(f"{_was(which, now)}; its newest run: {_newest_run(job, now)}")


def _was(which: Identity, now: Now) -> str:
    """Return what happened: a later run changes nothing about that."""
    if which.finding != "expired":
        return "was lost" if which.finding == "lost" else "had failed"
    is_there = any(each.key == which.key for each in now.situation.leases)
    return "has an expired lease still" if is_there else "has no expired lease any more"


def _slow(_which: Identity, before: Known, now: Now, job: JobSummary) -> Ending | None:
    if job.lease in DOUBTFUL:
        return None  # it is lost soon, or renews its lease
    if job.running_since is not None and job.running_since <= before.since:
        return _closed("still runs, and that is no longer slow for it")
    if job.running_since is None and job.outcome is None:
        return _closed("has ended, and has no run on record any more")
    is_well = is_success(job) and (job.started_at or 0.0) >= before.since
    ending = _recovered if job.running_since is not None or is_well else _ended_otherwise
    return ending(f"has ended; its newest run: {_newest_run(job, now)}")


def _silent_on_key(which: Identity, before: Known, now: Now, _job: JobSummary) -> Ending | None:
    of_key = [row for row in now.rows if row.key == which.key]
    if which.host is None:
        last = last_ticks(of_key, now.drained).get(which.key or "")
        if last is not None and len(last.hosts) >= now.limits.min_hosts:
            return _recovered(f"was fired by {len(last.hosts)} hosts in its last ticks")
        return None if now.is_dead(key=which.key) else _closed("needs no more hosts than fire it")
    fired = _fired([row for row in of_key if row.host == which.host])
    drained = now.drained.get(which.host)
    if fired is not None and fired[0] > before.since:
        return _recovered(f"is fired by {which.host} again: at {now.when(fired[0])}")
    if drained is not None:
        return _closed(
            f"is not expected from {which.host}: drained by {drained.author} at {now.when(drained.since)}"
        )
    if fired is None:
        return _closed(
            f"is not expected from {which.host} any more: the host was forgotten, or long gone"
        )
    return None if now.is_dead(which.host) else _closed(f"is no longer due on {which.host}")


# Findings of no key


def _silent_host(which: Identity, before: Known, now: Now) -> Ending | None:
    fired = _fired([row for row in now.rows if row.host == which.host])
    drained = now.drained.get(which.host or "")
    if fired is not None and fired[0] > before.since:
        return _recovered(f"{which.host} fires again: {fired[1]} at {now.when(fired[0])}")
    if drained is not None:
        return _closed(
            f"{which.host} is drained by {drained.author} since {now.when(drained.since)}"
        )
    if fired is None:
        return _closed(
            f"{which.host} is not expected to fire any more: it was forgotten, or is long gone"
        )
    of_host = {row.key for row in now.rows if row.host == which.host}
    retired = [job for key in of_host if (job := now.jobs.get(key)) and job.retired]
    if len(retired) == len(of_host):
        last = max(retired, key=lambda job: job.forgotten_at or 0.0)
        by = f"the last one was forgotten by {last.forgotten_by or 'somebody'}"
        return _closed(f"nothing that {which.host} used to fire is expected any more: {by}")
    return _closed(f"{which.host} is not called silent any more, by what is expected of it now")


def _standstill(_which: Identity, before: Known, now: Now) -> Ending:
    fired = _fired([row for row in now.rows if not is_internal(row.key)])
    if fired is not None and fired[0] > before.since:
        return _recovered(f"hosts fire again: {fired[1]} at {now.when(fired[0])}")
    return _closed("no host fires, but nothing is missed by what is expected now")


def _stopped(which: Identity, _before: Known, now: Now) -> Ending | None:
    if which.host is None:
        if any(map(is_of_all, stops(now.situation, 0.0, now.clock))):
            return None  # one more is held back with them, for a short while
        return _recovered(
            "hosts and keys are held back no more: not all are drained, and not all are paused"
        )
    if which.host in now.drained:
        return _closed(f"{which.host} is drained {held_by(now.drained[which.host], now.clock)}")
    return _recovered(f"{which.host} is not drained any more")


def _clock(which: Identity, _before: Known, now: Now) -> Ending:
    seen = newest_rows(now.rows, now.situation.now - DAY)
    row = next((row for row in seen if row.host == which.host), None)
    if row is None:
        return _closed(f"the clock of {which.host} is not known: it has fired nothing for a day")
    return _recovered(f"the clock of {which.host} is right again ({row.clock_ahead:+.1f} s)")


def _same_name(which: Identity, _before: Known, now: Now) -> Ending:
    if any(row.host == which.host for row in now.rows):
        return _recovered(f"{which.host} is the name of one machine again")
    return _closed(f"{which.host} is the name of no host any more")


def _channel(which: Identity, _before: Known, now: Now) -> Ending | None:
    if which.channel not in now.channels:
        return _closed(f"channel {which.channel} of notify is not configured any more")
    failing = now.failing.get(which.channel or "")
    if failing is not None and failing.tried_at >= now.situation.now - CHANNEL_FORGOTTEN:
        return None  # it has failed again, once
    if failing is not None:
        return _closed(f"channel {which.channel} of notify has not been tried for an hour")
    return _recovered(f"channel {which.channel} of notify works again")


def _fired(rows: Sequence[KeyHost]) -> tuple[float, str] | None:
    return max(((at, row.key) for row in rows for _, at in row.ticks), default=None)


_OF_A_RUN = ("failed", "lost")
"""A key that is fired again after it was forgotten has started nothing since: these are of a run before that."""
_OF_KEYS: dict[str, Callable[[Identity, Known, Now, JobSummary], Ending | None]] = {
    **dict.fromkeys(("missed", "silent", "overrun"), _starts),
    **dict.fromkeys(("failed", "lost", "expired"), _ends_well),
    "slow": _slow,
    "stopped": _resumed,
    "silent-host": _silent_on_key,
}
_OF_NO_KEY: dict[str, Callable[[Identity, Known, Now], Ending | None]] = {
    "silent-host": _silent_host,
    "standstill": _standstill,
    "stopped": _stopped,
    "clock": _clock,
    "same-name": _same_name,
    "channel": _channel,
}
