"""The server of the simulated hosts: the store in memory, with a clock of its own, restarts and sessions.

By seed a lease has a session lock beside it, as on PostgreSQL, or a restart makes claims wait, as on Redis.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from memory_items import MemoryItems
from memory_store import Memory, Part, Place, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel import Kernel
    from store import Connection

    from oncecron.core.model import Firing

EPOCH = 1_795_132_800.0  # 2026-11-20T00:00Z


class Server(Memory):
    """`by` is the session that asks; `offset` is the error of the clock; a restart forgets `forgets` seconds."""

    forgets = 0.0

    def __init__(self, kernel: Kernel, *, guarded: bool, sessions: bool) -> None:
        super().__init__(lambda: EPOCH + kernel.now + self.offset)
        self.kernel, self.guarded, self.sessions = kernel, guarded, sessions
        self.offset, self.away_until, self.recovering_until = 0.0, 0.0, 0.0
        self.epoch, self.longest_ttl = 0, 0.0
        items = MemoryItems(self)
        self.draw = partial(items.draw, deadline=0)
        self.progress = partial(items.progress, deadline=0)
        self.by: Connection | None = None
        self._locks: dict[Place, Connection | None] = {}
        self._undo: list[tuple[float, Place, Part]] = []
        self.on_expire: Callable[[Part], None] = lambda part: None
        self.on_begin: Callable[[Row], None] = lambda row: None

    def restart(self, away: float) -> None:
        """End all sessions; be away for some seconds."""
        self.epoch += 1
        self.away_until = self.kernel.now + away
        while self._undo and self._undo[-1][0] > self.kernel.now - self.forgets:
            _, place, part = self._undo.pop()
            self.parts[place] = part
        if self.guarded:
            self.recovering_until = self.now() + away + self.longest_ttl

    def version(self, key: str) -> tuple[int, ...]:
        return *super().version(key), self.epoch

    def written(self, key: str, shard: int) -> Part:
        part = super().written(key, shard)
        if self.forgets:
            before = copy.copy(part)
            before.__dict__ |= {
                name: copy.copy(getattr(part, name))
                for name in ("marks", "lease", "rows", "running")
            }
            self._undo.append((self.kernel.now, (key, shard), before))
        return part

    # The session lock

    @property
    def _keeps_locks(self) -> bool:
        """Whether who asks has the session lock with its lease: not with `?hold=no`."""
        return bool(self.sessions and self.by and self.by.holds)

    def _is_locked(self, place: Place) -> bool:
        session = self._locks.get(place)
        return bool(self._keeps_locks and session and session is not self.by and session.lives())

    def _lock(self, place: Place) -> None:
        if not self._is_locked(place):
            self._locks[place] = self.by

    def look(self, firing: Firing, awaited: int | None, closely: bool) -> Row:
        facts, place = super().look(firing, awaited, closely), (firing.key, firing.shard)
        part = self.known(*place)
        facts["lease_has_session"] = self._keeps_locks
        if self._keeps_locks and not closely:
            facts["lock"] = "unknown"
        else:
            facts["recovering_for"] = max(0.0, self.recovering_until - self.now())
            taken = "taken" if part.lease else "busy"
            free = "free" if self._keeps_locks else "none"
            facts["lock"] = taken if self._is_locked(place) else free
        return facts

    def grant(self, firing: Firing, *args: Any) -> Row | None:
        place, alone = (firing.key, firing.shard), args[-1]
        if self.recovering_until > self.now() or (self._is_locked(place) and not alone):
            return None
        row = super().grant(firing, *args)
        if row:
            self._lock(place)
            self.longest_ttl = max(self.longest_ttl, firing.ttl)
        return row

    def _begin(self, part: Part, values: Row, *args: Any) -> Row:
        row = super()._begin(part, values, *args)
        self.on_begin(row)
        return part.put(row, granted=self.kernel.now)  # for the ledger

    def take_away(self, part: Part, *args: Any) -> Row | None:
        self.on_expire(part)
        return super().take_away(part, *args)

    def evict(self, place: Place) -> None:
        """End the session that has the lock."""
        self._locks.pop(place, None)

    def renew(self, key: str, shard: int, *named: Any) -> tuple[Any] | None:
        held = super().renew(key, shard, *named)
        if held:
            self._lock((key, shard))
        return held

    def regain(self, key: str, shard: int, *named: Any) -> bool:
        is_held = super().regain(key, shard, *named)
        if is_held:
            self._lock((key, shard))
        return is_held
