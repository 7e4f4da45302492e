"""The watch over a store: what happens to it while a drill goes on, by whomever.

A session that stays asks the server every second who it is; a new session each time writes a number and reads the one
before. So a restart, a failover and a step of the clock are seen and dated, and so is a write that the store had
confirmed and does not have any more. All of it is a fault of the store for the checker; what a store must never do is
a finding as well.
"""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from oncecron.core.errors import OncecronError
from oncecron_drill.history import Fault, Never, Seen, now
from oncecron_drill.stores import DrilledStore, Sight, Write

CHANGED, LOST, STEPPED, AWAY = (
    "another server or another life", "confirmed writes lost", "the store's clock stepped", "session lost",
)  # fmt: skip
FORGETFUL = (CHANGED, LOST)
"""After these a store may not know any more what it had confirmed."""
EACH = 1.0
"""Seconds between two looks."""
STEP = 1.0
"""Seconds by which two looks at a clock may differ beyond the time that they took."""
LONG_STEP = 6.0
"""Seconds: the shortest ttl. A longer step forward can end a living lease."""
PATIENCE = 2.0
"""Seconds that a look which goes on is waited for when the drill ends."""
FIRST_ID = 2_000_001


class Watch:
    """Looks until it is stopped."""

    def __init__(self, store: DrilledStore) -> None:
        self._store = store
        self._ids = itertools.count(FIRST_ID)
        self._new: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self.events: list[tuple[str, str]] = []
        """When, and what was seen at the store."""
        self.found: list[Never] = []
        """What a store must never do."""
        self.sights: dict[str, Sight] = {}
        """Each server, and each of its lives, as it was first seen."""
        self._last: tuple[float, Sight] | None = None
        self._away: Fault | None = None
        self._numbers = itertools.count(1)
        self._confirmed = (now(), 0)
        self._thread = threading.Thread(target=self._go, name="watch", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join(PATIENCE)

    def seen(self) -> Seen:
        """Return what has been seen."""
        sights = list(self.sights.values())
        version = sights[0].version if sights else Seen.version
        topology = [": ".join(filter(None, (sight.place, sight.shown))) for sight in sights]
        return Seen("", version, topology, self.events, self.found)

    def faults(self) -> Iterator[Fault]:
        """Yield what happened since the last call."""
        while not self._new.empty():
            yield self._new.get()

    def beat(self, write: Write) -> None:
        """Write the next number; raises what the store raises."""
        number = next(self._numbers)
        at, confirmed = (
            self._confirmed
        )  # before it is asked: another thread may have beaten meanwhile
        before = write(number)
        if before is not None and before < confirmed:
            answer = "had none" if before < 0 else f"answered {before}"
            lost = f"the store had confirmed write {confirmed} and {answer} when it was asked"
            self._fault(LOST, at, f"{confirmed - before} of them", ended=now())
            self._note(f"{lost}: it lost what it had confirmed")
            self._find("lost-write", f"{lost}: a failover or restart lost it", now())
            self._confirmed = (now(), number)
        else:
            self._confirmed = max(self._confirmed, (now(), number), key=lambda beat: beat[1])

    # The thread

    def _go(self) -> None:
        while not self._stopped.wait(EACH):
            try:
                self.look()
            except Exception:
                if not self._stopped.is_set():  # else its session was closed while it waited
                    raise

    def look(self) -> None:
        """Look once."""
        since = now()
        try:
            sight = self._store.look()
        except OncecronError as error:
            self._missed(since, str(error))
            return
        at = now()
        if self._away is not None:
            self._away.healed = at
            self._new.put(self._away)
            self._note(f"answers again, after {at - self._away.at:.1f} s")
            self._away = None
        self._compare(since, at, sight)

    def _missed(self, since: float, why: str) -> None:
        if self._away is None:
            self._away = Fault(next(self._ids), since, AWAY, "store", why)
            self._new.put(self._away)
            self._note(f"the session of the watch was lost: {why}")

    def _compare(self, since: float, at: float, sight: Sight) -> None:
        who = f"{sight.place} {sight.life}"
        self.sights.setdefault(who, sight)
        offset = sight.clock - (since + at) / 2
        if self._last is not None:
            last_at, last = self._last
            was = last.clock - last_at
            if who != f"{last.place} {last.life}":
                where = f" at {sight.place}" if sight.place else ""
                self._fault(CHANGED, last_at, sight.shown, ended=at)
                self._note(f"another server answers{where}: {sight.version}, {sight.shown}")
            if abs(offset - was) > STEP + (at - since) / 2:
                self._stepped(offset - was, last_at, at)
        self._last = ((since + at) / 2, sight)

    def _stepped(self, seconds: float, since: float, at: float) -> None:
        self._fault(STEPPED, since, f"{seconds:+.1f} s", ended=at)
        text = f"the store's clock stepped by {seconds:+.1f} s"
        self._note(text)
        if abs(seconds) > LONG_STEP:
            why = "a step of more than the ttl can end a living lease, or keep a dead one"
            self._find("clock-step", f"{text}: {why}", at)

    def _fault(self, kind: str, since: float, detail: str, *, ended: float) -> None:
        self._new.put(Fault(next(self._ids), since, kind, "store", detail, healed=ended))

    def _note(self, text: str) -> None:
        self.events.append((utc(time.time()), text))

    def _find(self, rule: str, sentence: str, at: float) -> None:
        self.found.append(Never(rule, sentence, at))


def utc(seconds: float) -> str:
    """Return a time since the epoch in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


Progress = Callable[[float, str], None]
"""Takes the seconds that have passed, and a sentence."""
