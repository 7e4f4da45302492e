"""Report on one firing: on standard error, to the store through the spool, and to the log store."""

from __future__ import annotations

import errno
import os
import time

from oncecron.core import system
from oncecron.core.errors import EX_NOT_EXECUTABLE, StoreUnavailable, shortage_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import SILENT_WAIT
from oncecron.core.units import format_duration
from oncecron.host import stderr
from oncecron.run.spool import not_started_record, skip_record
from oncecron.stores.address import again_words

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.errors import OncecronError
    from oncecron.core.model import AskAgain, Ending, Firing, Lease
    from oncecron.run.events import NotRetried
    from oncecron.run.log_mirror import LogMirror
    from oncecron.run.spec import RunSpec


class NoLog:
    """What a firing without a log store reports to."""

    def send(self, record: dict[str, Any]) -> None:
        """Drop a record."""

    def hold(self) -> None:
        """Do nothing."""

    def resume(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_log(spec: RunSpec) -> LogMirror | NoLog:
    """Return what takes the records for the separate log store of a firing (`--log`)."""
    if spec.log is None:
        return NoLog()
    from oncecron.run.log_mirror import LogMirror  # noqa: PLC0415 - few firings have a log store

    return LogMirror(spec, spec.log)


class Reporter:
    """The reports of one firing, in the guard's process."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.log = open_log(spec)
        self._spare: int | None = None

    def reserve_descriptor(self) -> None:
        """Open a descriptor to give up for the spool, which is needed most when no other is left."""
        self._spare = system.calls.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def say(self, text: str) -> None:
        """Write a line about the key to standard error; some errors begin with the key themselves."""
        name = f"key {self._spec.firing.key}"
        named = text.startswith((f"{name}:", f"{name},"))
        stderr.complain(text if named else f"{name}: {text}")

    def say_no_start(self, error: OSError) -> int:
        """Say why the command cannot be executed; return the exit status."""
        shortage = shortage_of(error)
        is_foreign = error.errno == errno.ENOEXEC
        cure = "; it is neither a script nor a program for this machine" if is_foreign else ""
        self.say(f"cannot start {self._spec.shown_program}: {shortage or error.strerror}{cure}")
        return shortage.exit_status if shortage else EX_NOT_EXECUTABLE

    def say_start(self, lease: Lease) -> None:
        """With -v, say that this host has won."""
        if self._spec.verbose:
            tick = f"tick {lease.tick}, " if lease.tick else ""
            attempt = f"attempt {lease.attempt}, " if lease.attempt > 1 else ""
            host = self._spec.firing.holder.host
            self.say(f"started on {host} ({tick}{attempt}execution {lease.execution_id})")

    def delay_after(self, lease: Lease) -> float:
        """Return the seconds until the next attempt, and tell a person of them."""
        delay = self._spec.retry_policy.seconds_after(lease.attempt)
        if self._spec.verbose or (system.calls.isatty(2) and delay > SILENT_WAIT):
            pause = format_duration(round(delay, 3))
            self.say(f"waiting {pause} before attempt {lease.attempt + 1} (--retry-delay)")
        return delay

    def say_end(self, ending: Ending) -> None:
        """Say that oncecron has ended the command: cron mails it to people who did not expect that.

        A lost lease is reported when it is lost, and a signal to oncecron is known to its sender.
        """
        if ending.outcome == "timed-out":
            self.say(f"--timeout ended the command after {ending.duration:.1f} s")
        elif ending.outcome == "stopped" and ending.request:
            self.say(f"the command was stopped: {ending.request.author} asked for it")

    def say_refusal(self, firing: Firing, refusal: Refusal, *, waits: bool) -> None:
        """Report that a shard was refused; the store has recorded it. `waits`: it is claimed again later."""
        message = ""
        if self._spec.verbose or system.calls.isatty(2):
            message = skip_message(self._spec, firing, refusal, waits=waits)
        if self._spec.body is None:
            if message:
                stderr.complain(message)
        elif not waits:
            self._spec.body.refuse(refusal.reason, message)
        self.log.send(skip_record(firing, refusal))

    def say_no_retry(self, lease: Lease, event: NotRetried, stop_reason: str | None = None) -> str:
        """Report that no further attempt starts; return the note for the last one.

        `stop_reason`: why the firing is to end, if it was stopped meanwhile.
        """
        firing = self._spec.firing_of(lease)
        if isinstance(event.why, Refusal):
            self.say_refusal(firing, event.why, waits=False)
            detail = f" ({event.why.detail})" if event.why.detail else ""
            why = f"no further attempt: {event.why.reason}{detail}"
        elif stop_reason:
            why = stop_reason
        else:
            why = f"the next attempt could not start: {event.why}"
            self.say(why)
        if event.unanswered:
            self.spool_not_started(firing, why)
        return why

    def say_no_input(self, what: str) -> str:
        """Report that the command is not started again; return the note. `what` does not happen."""
        self.say(
            f"{what}: an earlier start may have read the standard input, which cannot be given again; let the command "
            "read a file, or </dev/null"
        )
        return f"{what}: its standard input cannot be given again"

    def say_store_failure(self, error: OncecronError) -> int:
        """Report why the claim failed; return the exit status of a firing that starts nothing."""
        if isinstance(error, StoreUnavailable):
            return self._no_store(error)
        self.say(str(error))
        return error.exit_status

    def spool_not_started(self, firing: Firing, why: str) -> None:
        """Spool `not-started` for a lease that may have been granted: only that record re-opens a tick."""
        self.spool(not_started_record(firing, why))

    def record_interrupted(self, firing: Firing, why: str) -> None:
        """Spool the skip of a firing that ends before its claim is answered."""
        record = skip_record(firing, Refusal("interrupted", detail=why))
        self.spool(record)
        self.log.send(record)

    def spool(self, record: dict[str, object]) -> bool:
        """Spool a record for the store; return whether the disk has taken it."""
        if self._spare is not None:
            system.calls.close(self._spare)
            self._spare = None
        return self._spec.spool.keep(record)

    def _no_store(self, error: StoreUnavailable) -> int:
        spec = self._spec
        starts = spec.on_store_error == "run"
        if spec.spool.note_unreachable(spec.firing.key) or spec.verbose or system.calls.isatty(2):
            what = "starts without a lease" if starts else "was not started"
            self.say(f"{error}; the command {what}")
        if not starts:
            record = skip_record(spec.firing, Refusal("no-store", detail=str(error)))
            self.spool(record)
            self.log.send(record)
        return spec.skip_exit if spec.on_store_error == "skip" else error.exit_status


# Why a firing starts nothing, for people: what happened, and what they can do about it

WAITS = {
    "contended": "another host is claiming or releasing the key; it is asked again for {budget} (--connect-timeout)",
    "orphaned": "its holder seems dead, but the lease has not expired yet; it ends in {ends_in}",
    "stale": "the lease has expired, but a session still holds its lock; it is taken over in {ends_in}",
    "fenced": "a transaction of the last attempt still holds the fence; to end it: {release}",
    "recovering": "the store has started and may have forgotten a lease; nothing starts for {ends_in}, until each "
    "lease that it may have granted has expired; a new Redis is used at once if its redis.conf has `appendonly yes`",
}
"""What a firing waits for when the store cannot decide yet, by `AskAgain.why`: how long, and the cure."""


def waiting_message(spec: RunSpec, answer: AskAgain) -> str:
    """Return the line for an answer of a store that cannot decide yet."""
    return WAITS[answer.why].format(
        budget=format_duration(spec.connect_timeout),
        ends_in=format_duration(max(1, round(answer.ends_in or answer.after))),
        release=spec.command_line(f"release --force {spec.firing.key}"),
    )


def skip_message(spec: RunSpec, firing: Firing, refusal: Refusal, *, waits: bool) -> str:
    """Return the line for a refusal of `firing`, a shard of the firing in `spec`.

    `waits`: the shard is claimed again later.
    """
    part = f" shard {firing.shard}" if firing.shards > 1 else ""
    key = firing.key + part
    tick = f"{firing.key} tick {firing.tick.text}{part}" if firing.tick.text else key
    on = f" on {refusal.holder.host} (pid {refusal.holder.pid})" if refusal.holder else ""
    at = ""
    if refusal.since is not None:
        at = time.strftime(" %Y-%m-%dT%H:%M:%SZ", time.gmtime(refusal.since))
    since, when = at and f" since{at}", at and f" at{at}"
    detail = f" ({refusal.detail})" if refusal.detail else ""
    by = f" {refusal.detail}" if refusal.detail else ""
    resume = spec.command_line(f"resume {firing.key}")
    line = again_words(firing.key, firing.tick.text, firing.command, firing.shards)
    again = "--again" if spec.body else spec.command_line(line)
    why = {
        "held": f"{key} is running{on}{since}{detail}",
        "done": f"{tick} has already run{on}{when}{detail}; to run it again: {again}",
        "passed": f"{tick} is older than the newest claimed tick{detail}; to run it anyway: {again}",
        "recent": f"{key} started{on}{when}, which is too recent{detail}; to run it anyway: {again}",
        "exhausted": f"{tick} has no attempts left; the last one ran{on}{when}{detail}; "
        f"to run it again: {again}",
        "unmet": f"{tick}: this host does not meet --only-if{detail}",
        "late": f"{tick} is later than --starting-deadline allows",
        "paused": f"{firing.key} is paused{since}{by}; resume it: {resume}, "
        f"or {spec.command_line('resume --all')} if all keys are paused",
        "drained": f"{firing.key}: host {firing.holder.host} is drained{since}{by}; "
        f"undrain it: {spec.command_line('undrain ' + firing.holder.host)}",
    }.get(refusal.reason, f"{tick}: {refusal.reason}{on}{when}{detail}")
    if refusal.reason == "held" and not waits:
        why += _cure_of_held(spec, firing)
    return f"{'waiting' if waits else 'skipped'}: {why}"


def _cure_of_held(spec: RunSpec, firing: Firing) -> str:
    """Return what to do: --wait is an option of neither `oncecron again` nor `oncecron notify`."""
    from oncecron.core.log_rows import is_internal  # noqa: PLC0415 - only this message needs it

    if firing.again or is_internal(firing.key):
        stop = spec.command_line(f"stop {firing.key}")
        return f"; wait until it has ended, or stop it: {stop}"
    return "; to wait for it: --wait DURATION"
