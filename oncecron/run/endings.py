"""How attempts ended: recorded, followed by another attempt or part, or by the firing's own end.

record     an attempt is over, nothing of it is left.  Another is to follow (`attempts`) -> its end is recorded
           and the lease kept; else the end is recorded, and the lease released.  What cannot be recorded is spooled
kept       nothing runs; the lease is renewed.  The delay is over -> the next attempt is begun, which the guard
           starts like any other.  Told that it is enough, or refused by the store -> no attempt follows: the lease
           is released with a note, and the exit status is that of the last attempt
recorded   of a key in parts the next one is claimed, unless it is enough or this one did not go as it should;
           else the firing leaves, with the status of the first part that failed
"""

from __future__ import annotations

from oncecron.core.errors import StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import NEVER, RECORD_GIVE_UP
from oncecron.run import spool_records
from oncecron.run.job import JobEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.model import Lease
    from oncecron.run.events import NotRetried
    from oncecron.run.reporter import Reporter
    from oncecron.run.spec import RunSpec
    from oncecron.run.store_thread import StoreThread

_GOES_ON_AFTER = ("succeeded", "failed", "timed-out")


class Endings:
    """The end of one attempt after another, in the guard's process; times are lease clock."""

    def __init__(
        self, spec: RunSpec, heartbeat: StoreThread, telling: Reporter, idle: Callable[[], None]
    ) -> None:
        """`idle` tells the wrapper that nothing runs, and that the last end is on record."""
        self._spec = spec
        self._heartbeat = heartbeat
        self._telling = telling
        self._idle = idle
        self.enough: str | None = None
        """Why neither a further attempt nor another part follows."""
        self.last: JobEnd | None = None
        """How the last attempt ended, until the next one is started."""
        self.kept = False
        """Whether another attempt is to follow, and has not begun."""
        self.left = False
        self.exit_status = 0
        """That of the first part that failed."""
        self._lease: Lease | None = None
        self._record: dict[str, object] | None = None
        self._retry_at = self._give_up_at = NEVER
        self._ran = False

    @property
    def recording(self) -> bool:
        """Whether an end is being recorded."""
        return self._record is not None

    @property
    def waiting(self) -> bool:
        """Whether the delay before the next attempt is not over."""
        return self._retry_at < NEVER

    def wait(self, now: float) -> float:
        """Return the seconds until something is to be judged."""
        return max(0.0, min(self._give_up_at, self._retry_at) - now)

    def judge(self, now: float) -> None:
        """Do what is due."""
        if now >= self._retry_at:
            self._retry_at = NEVER
            self._heartbeat.retry()
        elif now >= self._give_up_at and self._record and self.last:
            self.recorded(StoreUnavailable("the store does not answer"))
            self.leave(self.last.exit_status)  # nor would it hear of another part

    def record(
        self, lease: Lease | None, end: JobEnd, now: float, started_wall: float = 0.0
    ) -> None:
        """Record the end of an attempt. `started_wall`: wall time, for one without a lease."""
        spec, (ending, exit_status) = self._spec, end
        follows = lease is not None and spec.retrying.wanted(ending, lease.attempt)
        if lease is None:
            note = _joined(f"without a lease, {ending.outcome}", ending.note)
            ending, follows = ending._replace(outcome="unclaimed", note=note), False
        elif self.enough:
            follows = False
        elif follows and exit_status in spec.retrying.permanent:
            note = _joined(ending.note, f"exit status {exit_status} is not retried")
            ending, follows = ending._replace(note=note), False
        self._lease, self.last = lease, JobEnd(ending, exit_status)
        firing = spec.firing_of(lease) if lease else spec.firing
        self._record = spool_records.execution_record(
            firing, lease, ending, started_at=started_wall
        )
        self._telling.log.tell(self._record)
        if lease is None:
            self.recorded(StoreUnavailable("the store was away when the command was started"))
            return
        self._give_up_at = now + RECORD_GIVE_UP
        (self._heartbeat.keep if follows else self._heartbeat.end)(ending)

    def wait_to_retry(self, now: float) -> None:
        """Wait for the delay: the end of the attempt is on record, and the lease kept."""
        if self._lease is None:
            return
        self._record, self._give_up_at, self.kept = None, NEVER, True
        self._idle()
        self._retry_at = now + self._spec.retrying.seconds_after(self._lease.attempt)
        if self.enough:
            self.end_retries(self.enough, now)

    def not_retried(self, event: NotRetried, now: float) -> None:
        """No further attempt was begun, or nobody knows."""
        if self._lease is None:
            return
        firing = self._spec.firing_of(self._lease)
        if isinstance(event.why, Refusal):
            self._telling.refused(firing, event.why, waits=False)
            detail = f" ({event.why.detail})" if event.why.detail else ""
            why = f"no further attempt: {event.why.reason}{detail}"
        elif self.enough:
            why = self.enough
        else:
            why = f"the next attempt could not be begun: {event.why}"
            self._telling.say(why)
        if event.unanswered:
            self._telling.not_started(firing, why)
        self.end_retries(why, now)

    def end_retries(self, why: str, now: float) -> None:
        """Release the lease; what is recorded of the last attempt stays, with a note."""
        if self._lease is None or self.last is None:
            return
        self.kept, self._retry_at = False, NEVER
        ending, firing = self.last.ending, self._spec.firing_of(self._lease)
        noted = ending._replace(note=_joined(ending.note, why))
        self._record = spool_records.execution_record(firing, self._lease, noted)
        self._give_up_at = now + RECORD_GIVE_UP
        self._heartbeat.end(ending._replace(note=why))

    def started(self) -> None:
        """Forget the last attempt: the next one, or the first, is about to run."""
        self.last, self.kept = None, False

    def recorded(self, error: Exception | None) -> bool:
        """Go on after an end that is on record, or cannot be; return whether another part is claimed."""
        last, record = self.last, self._record
        if last is None or record is None:
            return False
        if error is not None:
            if self._lease:
                self._telling.say(f"the end could not be recorded and is kept for later: {error}")
            self._telling.spool(record)
        self._record, self._give_up_at, self._ran = None, NEVER, True
        stopped = error or self.enough or last.ending.outcome not in _GOES_ON_AFTER
        if stopped or self._spec.firing.shards == 1:
            self.leave(last.exit_status)
            return False
        self.exit_status = self.exit_status or last.exit_status
        self.last = self._lease = None
        self._idle()
        self._heartbeat.go_on()
        return True

    def over(self) -> None:
        """No part is to be had any more."""
        self.leave(0 if self._ran else self._spec.skip_exit)

    def leave(self, exit_status: int) -> None:
        """Leave with the status of the first part that failed, if any has, else with this one."""
        if not self.left:
            self.exit_status = self.exit_status or exit_status
        self.left = True


def _joined(*notes: str | None) -> str:
    return "; ".join(filter(None, notes))
