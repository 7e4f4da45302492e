"""The pulse: how long the store and the machine take to answer, seen by nothing of oncecron.

A machine with too much to do lets a heartbeat wait, and a lease may end of that. The checker cannot tell it from a
fault of oncecron unless somebody else waited too. So a thread starts a process and writes to the store, again and
again, and what takes too long is recorded as a fault.
"""

import itertools
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator

from oncecron_drill.generator import TTL
from oncecron_drill.history import Fault, now

SLOW = "slow answer"
LONGEST = TTL / 6
"""Seconds: for as long a heartbeat is waited for."""
PAUSE = 0.25
"""Seconds between two beats."""
FIRST_ID = 1_000_001
"""The nemesis counts its own from 1."""


class Pulse:
    """A thread that beats until it is stopped; `beat` does one write that counts, and may raise what it likes."""

    def __init__(
        self, beat: Callable[[], object], longest: float = LONGEST, pause: float = PAUSE
    ) -> None:
        self._beat = beat
        self._pause = pause
        self._longest = longest
        self._ids = itertools.count(FIRST_ID)
        self._slow: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._since = now()
        self._thread = threading.Thread(target=self._go, name="pulse", daemon=True)
        self._thread.start()

    def slow(self) -> Iterator[Fault]:
        """Yield what took too long since the last call."""
        while not self._slow.empty():
            yield self._slow.get()

    def stop(self) -> None:
        """Beat no more; a beat that does not end in time is a fault that lasts."""
        self._stopped.set()
        self._thread.join(self._longest)
        if self._thread.is_alive():
            self._slow.put(Fault(next(self._ids), self._since, SLOW, "store"))

    def _go(self) -> None:
        while not self._stopped.is_set():
            answered = self._once()
            took = now() - self._since
            if answered and took > self._longest:
                fault = Fault(next(self._ids), self._since, SLOW, "store", f"{took:.1f} s")
                fault.healed = now()
                self._slow.put(fault)
            self._stopped.wait(self._pause)
            if answered:  # else it is away since then
                self._since = now()

    def _once(self) -> bool:
        try:
            subprocess.run(["true"], check=True)
            self._beat()
        except Exception:  # noqa: BLE001 - whatever it is, the store has not answered
            return False
        return True
