"""The running job: started, signalled, ended in time, and known to be gone.

Every call takes the time (lease clock), and none waits. `judge` is called at least once a second and after every event:

- The job has failed and left processes: they get TERM, and KILL after the grace.
- --timeout has passed: the tree gets TERM, and KILL after the grace.
- A quarter of the ttl is left before trust ends: TERM, because the lease could not be renewed in time.
- A twelfth of the ttl is left: KILL. At a twentieth the wrapper kills the job and the guard, which is stopped or hung.
- No process is left: it returns how the job ended.

`terminate` (TERM, then KILL after the grace), `obey` and `kill` are for all other reasons. The first reason is
recorded, but a lost lease replaces any other.

The end of trust is the one number that wrapper and guard share. It is in a page of shared memory, and each reads it
when it decides, so neither has to read a pipe before a kill. Only the guard writes it. Local time may only end trust,
never extend it.
"""

from __future__ import annotations

import mmap
import os

from oncecron.core.errors import EX_TEMPFAIL, EX_TIMED_OUT
from oncecron.core.light_modules import signal, signal_name
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import REQUEST_KINDS, REQUEST_SIGNALS, Ending
from oncecron.core.timing import (
    FIRST_KILL_PAUSE,
    GUARD_KILLS_BEFORE,
    NEVER,
    TERM_BEFORE,
    WRAPPER_KILLS_BEFORE,
)
from oncecron.core.units import LONGEST_DURATION, format_duration
from oncecron.run import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from oncecron.core.model import LostByHolder, Outcome, Request
    from oncecron.run.seams import Processes

_KILL_PAUSE_GROWTH = 1.5
"""Each later pause between two kills is longer by this factor."""
_LONGEST_KILL_PAUSE = 0.5
"""The longest pause between two kills."""

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""They end the whole run. HUP, USR1 and USR2 are for the job itself: a daemon reloads at a HUP."""


class Stop(NamedTuple):
    """Why oncecron ends the job."""

    outcome: Outcome
    note: str | None
    exit_status: int | None = None
    """None: that of the job."""
    lost_reason: LostByHolder | None = None
    """With `lost`."""


class JobEnd(NamedTuple):
    """How the job ended, and the exit status for it."""

    ending: Ending
    exit_status: int


def signal_note(number: int) -> str:
    """Return the note for an end after a signal to oncecron."""
    return f"after {signal_name(number)} to oncecron"


def request_note(request: Request) -> str:
    """Return the note for an end that a person requested."""
    return f"asked by {request.author}: {request.kind}"


def wrong_with(request: Request) -> str | None:
    """Return why a holder does not obey a request, None for one as `oncecron stop` and `oncecron release` send it.

    A request comes from the store, where another program, or a person with SQL, may have written anything.
    """
    if request.kind not in REQUEST_KINDS:
        return f"{request.kind!r} is not one of {', '.join(REQUEST_KINDS)}"
    numbers = (int(getattr(signal, f"SIG{name}")) for name in REQUEST_SIGNALS)
    if request.signal not in numbers:
        return f"signal {request.signal} is not one of {', '.join(REQUEST_SIGNALS)}"
    if request.grace is not None and not 0 <= request.grace <= LONGEST_DURATION:
        return f"a grace of {format_duration(request.grace)} is not 0 to 3653d"
    return None


NOTHING_TO_FENCE = 0.0
"""No job runs under a lease: it has not started, its tree is gone, or it has none (`--on-store-error run`)."""


def term_at(trusted_until: float, ttl: float) -> float:
    """Return when the guard sends TERM (lease clock)."""
    return trusted_until - ttl * TERM_BEFORE


def guard_kills_at(trusted_until: float, ttl: float) -> float:
    """Return when the guard sends KILL (lease clock)."""
    return trusted_until - ttl * GUARD_KILLS_BEFORE


def wrapper_kills_at(trusted_until: float, ttl: float) -> float:
    """Return when the wrapper kills all (lease clock)."""
    return trusted_until - ttl * WRAPPER_KILLS_BEFORE


class Trust:
    """The time on the lease clock at which the job must be dead, shared by wrapper and guard."""

    def __init__(self) -> None:
        """Make a page of memory that forked processes share."""
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")

    @property
    def until(self) -> float:
        """The end of trust, or `NOTHING_TO_FENCE`."""
        return float(self._page[0])

    @until.setter
    def until(self, value: float) -> None:
        self._page[0] = value  # eight aligned bytes: written in one step


class Job:
    """One start of the command, in the guard's process; times are lease clock, durations seconds.

    `why_not_renewed` returns why the last renewal of the lease has failed; nothing if it has not.
    """

    def __init__(
        self,
        *,
        grace: float,
        timeout: float | None,
        ttl: float,
        say: Callable[[str], None],
        why_not_renewed: Callable[[], str] = str,
        processes: Processes = process_tree,
    ) -> None:
        self._processes = processes
        self._grace = grace
        self._timeout = timeout
        self._ttl = ttl
        self._say = say
        self._why_not_renewed = why_not_renewed
        self._tree = process_tree.Tree()
        self._pid = 0
        self._started = 0.0
        self._on_terminal = False
        self._stop: Stop | None = None
        self._obeyed: Request | None = None
        self._forwarded: set[int] = set()
        self._ending_signal: int | None = None
        """The first one that was forwarded."""
        self._ending_signals = 0
        self._kill_at = NEVER
        self._kill_pause = FIRST_KILL_PAUSE

    def start(
        self,
        program: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        process_group: int | None,
        signal_mask: Iterable[int],
        now: float,
        streams: Iterable[tuple[int, int]] = (),
        body: Callable[[], int] | None = None,
    ) -> None:
        """Execute the command, or call the body; see `process_tree.start`. Raises `OSError`."""
        self._started = now
        self._on_terminal = process_group is not None
        self._tree.set_apart()
        self._pid = self._processes.start(
            program, command, environment, process_group, signal_mask, streams, body
        )
        self._tree.expect(self._pid)

    def forward(self, number: int, now: float, *, already_there: bool) -> None:
        """Forward a signal. A second ending signal starts the grace, and a third one kills.

        `already_there`: the terminal has sent it to the job as well.
        """
        self._forwarded.add(number)
        if not already_there:
            if number in ENDING_SIGNALS:
                self._tree.signal(number)
            else:
                self._tree.signal_awaited(number)
        if number in ENDING_SIGNALS:
            self._ending_signal = self._ending_signal or number
            self._ending_signals += 1
            grace = {1: NEVER, 2: self._grace}.get(self._ending_signals, 0.0)
            self._kill_at = min(self._kill_at, now + grace)

    def terminate(self, stop: Stop, now: float) -> None:
        """TERM now, KILL after the grace."""
        if self._stop is None or (stop.outcome == "lost" and self._stop.outcome != "lost"):
            self._stop = stop
            self._tree.signal(signal.SIGTERM)
            self._kill_at = min(self._kill_at, now + self._grace)

    def obey(self, request: Request, now: float) -> None:
        """Send the requested signal, once even if the request is repeated; KILL after the grace."""
        if request == self._obeyed:
            return
        self._obeyed = request
        self._stop = self._stop or Stop("stopped", None)
        self._tree.signal(request.signal)
        grace = self._grace if request.grace is None else request.grace
        self._kill_at = min(self._kill_at, now + grace)

    def kill(self, stop: Stop, now: float) -> None:
        """KILL now."""
        self._stop = stop
        self._kill_at = now

    def poll_timeout(self, now: float, trusted_until: float) -> float:
        """Return the seconds until `judge` has something to do."""
        if now >= self._kill_at:
            return self._kill_pause
        deadlines = [self._kill_at, self._started + (self._timeout or NEVER)]
        if trusted_until:
            deadlines.append(term_at(trusted_until, self._ttl))
            deadlines.append(guard_kills_at(trusted_until, self._ttl))
        return min((deadline - now for deadline in deadlines if deadline > now), default=NEVER)

    def judge(self, now: float, trusted_until: float) -> JobEnd | None:
        """Do what is due; return how the job ended once none of its processes is left.

        `trusted_until`: `Trust.until`.
        """
        children_left = self._tree.reap()
        status = self._tree.statuses.get(self._pid)
        if status is not None:
            if not children_left or self._succeeded(status):
                return self._end_of(status, now)
            if self._kill_at == NEVER:
                self._tree.signal(signal.SIGTERM)
                self._kill_at = now + self._grace
        if trusted_until and now >= term_at(trusted_until, self._ttl):
            self._end_untrusted(now, trusted_until)
        if self._timeout and now >= self._started + self._timeout:
            self.terminate(Stop("timed-out", f"after {self._timeout:g} s", EX_TIMED_OUT), now)
        if now >= self._kill_at:
            self._tree.kill()
            self._kill_pause = min(_LONGEST_KILL_PAUSE, self._kill_pause * _KILL_PAUSE_GROWTH)
        return None

    def _end_untrusted(self, now: float, trusted_until: float) -> None:
        if self._stop is None or self._stop.outcome != "lost":
            why = self._why_not_renewed()
            note = f"the lease could not be renewed in time{f': {why}' if why else ''}"
            self._say(f"stopping the command: {note}")
            self.terminate(Stop("lost", note, EX_TEMPFAIL, "not-renewed"), now)
        self._kill_at = min(self._kill_at, guard_kills_at(trusted_until, self._ttl))

    def _succeeded(self, status: int) -> bool:
        """Return whether the job succeeded: then what it left running is there on purpose."""
        return status == 0 and self._stop is None and not self._ending_signal

    def _end_of(self, status: int, now: float) -> JobEnd:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number else os.WEXITSTATUS(status)
        exit_status = process_tree.exit_status(status)
        outcome: Outcome = "succeeded" if code == 0 else "failed"
        note = lost_reason = None
        sent = number in self._forwarded or (self._on_terminal and number in ENDING_SIGNALS)
        by = self._ending_signal or (number if sent else None)  # Ctrl-C reaches the job before us
        if self._stop:
            outcome, note, override, lost_reason = self._stop
            exit_status = exit_status if override is None else override
        elif outcome == "failed" and by:
            outcome = "stopped"
            note = signal_note(by)
        ending = Ending(outcome, code, number, now - self._started, note)
        ending = ending._replace(lost_reason=lost_reason, request=self._obeyed)
        return JobEnd(ending, exit_status)
