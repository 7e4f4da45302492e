"""Ping monitoring services when a job starts and when it ends (`[[ping]]`): the observer in wrapper and guard.

- The wrapper forks one process for all pings of the firing, before it forks the guard. It is no child of the wrapper,
  so the end of wrapper, guard or job neither waits for it nor ends it.
- Guard and wrapper append events to memory that this process reads. They never wait for it.
- The process sleeps until the first event (`pings`). It decides which events are pings, and exits when wrapper
  and guard have exited and the last ping has been sent. A firing that starts nothing, and declares no run lost, sends
  nothing.
- Each service has a thread, so one that hangs does not delay another. A ping has two tries of five
  seconds.
- A ping that fails is reported in the system log, and with -v on standard error. It changes nothing else.

No URL is in the arguments of any process, because this one only forks.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import time

from oncecron.config.ping_table import PING_PAUSE, PING_TIMEOUT
from oncecron.core.light_modules import signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import LONGEST_SLEEP
from oncecron.host.safe_paths import memory_file
from oncecron.run.process_tree import detach, start_detached

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from oncecron.run.process_tree import Signals
    from oncecron.run.seams import EventKind
    from oncecron.run.spec import RunSpec

_PINGS_END_WITHIN = 3 * PING_TIMEOUT + 2 * PING_PAUSE
"""Within this time after the job the last ping has been sent or given up: one try of the start, two of the end."""

_LENGTH = 4  # bytes before an event
_LEAVE_AT = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_INIT = 1


def start(spec: RunSpec) -> Pinger | None:
    """Start what pings the services of a firing; None if the host is short of processes: no job depends on it."""
    try:
        return Pinger(spec)
    except OSError:
        return None


class Pinger:
    """The events of a firing, and the process that reads them."""

    def __init__(self, spec: RunSpec) -> None:
        """Fork the process. To be called before this one is a subreaper, and before any thread starts.

        Raises `OSError`.
        """
        self._events = memory_file("oncecron-pings")
        fcntl.fcntl(self._events, fcntl.F_SETFL, os.O_APPEND)  # guard and wrapper both write
        woken, self._wake = os.pipe()
        self._over, over = os.pipe()
        os.set_blocking(self._wake, False)
        start_detached(lambda: _deliver(spec, self._events, woken, over))
        os.close(woken)
        os.close(over)

    def send(self, kind: EventKind, record: dict[str, Any]) -> None:
        """Report an event with the record of its execution; drop it if the process or the memory is gone."""
        try:
            event = marshal.dumps((kind, record))
            os.write(self._events, len(event).to_bytes(_LENGTH, "little") + event)
            os.write(self._wake, b"\0")
        except (OSError, ValueError):  # also a full pipe: then the process is awake
            return

    def close(self, signals: Signals) -> None:
        """Let the process finish. In the wrapper, when the guard has exited and nothing more will be reported.

        Wait for it only if the end of this process would end it: as the first process of a container, or as the child
        of that. The lease has been released by then. A signal that ends the firing ends the wait.
        """
        os.close(self._wake)
        if _INIT not in (os.getpid(), os.getppid()):
            return
        deadline = time.monotonic() + _PINGS_END_WITHIN
        poll = select.poll()
        poll.register(self._over, select.POLLIN)
        poll.register(signals.fd, select.POLLIN)
        while (remaining := deadline - time.monotonic()) > 0:
            found = dict(poll.poll(min(remaining, LONGEST_SLEEP) * 1000))
            if self._over in found or any(one.number in _LEAVE_AT for one in signals.read()):
                return


def events_in(data: bytes) -> tuple[list[tuple[EventKind, dict[str, Any]]], int]:
    """Return the whole events at the beginning of the bytes of the memory, and how many bytes they take."""
    events, at = [], 0
    while at + _LENGTH <= len(data):
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "little")
        if end > len(data):  # still being written
            break
        events.append(marshal.loads(data[at + _LENGTH : end]))  # noqa: S302 - written by this program's own fork
        at = end
    return events, at


def _events_from(events: int, at: int) -> tuple[list[tuple[EventKind, dict[str, Any]]], int]:
    return events_in(os.pread(events, os.fstat(events).st_size - at, at))


def _deliver(spec: RunSpec, events: int, woken: int, over: int) -> NoReturn:
    try:
        detach((events, woken, over), empty=(0, 1) if spec.verbose else (0, 1, 2))
        if os.read(woken, 1):  # else there was no event
            from oncecron.watch.pings import deliver  # noqa: PLC0415 - of a winner alone

            deliver(spec, lambda at: _events_from(events, at), woken)
    except Exception as error:  # noqa: BLE001 - nobody else would hear of it
        import syslog  # noqa: PLC0415 - likewise

        syslog.openlog("oncecron", syslog.LOG_PID, syslog.LOG_CRON)
        syslog.syslog(syslog.LOG_WARNING, f"key {spec.firing.key}: no ping is sent: {error!r}")
    finally:
        os._exit(0)
