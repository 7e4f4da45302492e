"""The store as a firing sees it: calls over a bad network to the server."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kernel import INF
from memory_store import MemoryStore

from oncecron.core import clock
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.model import Unconfirmed
from oncecron.core.timing import CALL_TIMEOUT, HEARTBEATS_PER_TTL
from oncecron.stores import steadied

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kernel import Kernel, Process, Thread
    from memory_store import Row
    from server import Server
    from world import Life

    from oncecron.core.model import Firing, Lease

_LONGEST_TWIN = 20.0
"""Seconds after which the second copy of a packet may arrive."""


class Connection:
    """A session of the server. It ends a moment after its client does, but later behind a hole: no FIN comes."""

    def __init__(self, network: Network, process: Process, *, holds: bool) -> None:
        self._network, self._process, self.epoch = network, process, network.server.epoch
        self.holds = holds
        self.closed, self._ends = False, None

    def lives(self) -> bool:
        """Return whether the server still has the session."""
        network = self._network
        if (self.closed or self._process.dead) and self._ends is None:
            hole = network.hole(self._process.host.name)
            self._ends = max(network.kernel.now, hole and hole + 25) + 0.003
        is_over = self._ends is not None and network.kernel.now >= self._ends
        return self.epoch == network.server.epoch and not is_over


class Call:
    """A request on its way, and its answer; a `twin`, the second copy, is one that nobody waits for."""

    def __init__(
        self,
        host: str,
        op: str,
        args: tuple[Any, ...],
        connection: Connection | None,
        by: float,
        thread: Thread | None,
        twin_of: Call | None = None,
    ) -> None:
        self.twin_of, self.granted = twin_of, False
        self.host, self.op, self.args, self.by = host, op, args, by
        self.connection, self.thread = connection, thread
        self.done, self.value, self.error = False, None, None


class Network:
    """Between hosts and the server: `holes` swallow packets, which may still arrive when they end."""

    def __init__(
        self, kernel: Kernel, server: Server, draws: dict[str, random.Random], *, timely: bool
    ) -> None:
        """`draws`: by host. The server of a `timely` one drops what arrives after its caller has given up."""
        self.kernel, self.server, self._draws, self._timely = kernel, server, draws, timely
        self.holes: defaultdict[str | None, float] = defaultdict(float)
        """When the hole of a host ends; None: that of all hosts."""
        self.late: dict[str, tuple[float, float]] = {}
        """By host: until when answers are late, and by how much."""
        self.heal()

    def heal(self) -> None:
        """Let everything pass from now on."""
        self.holes.clear()
        self.late.clear()
        self.slow_until = self.lossy_until = self.double_until = self.unconfirmed_until = 0.0

    def delay(self, host: str) -> float:
        """Return the seconds that a packet takes from or to a host."""
        draw, is_slow = self._draws[host], self.kernel.now < self.slow_until
        return 0.0005 + draw.random() * 0.002 + (draw.expovariate(1.5) if is_slow else 0.0)

    def hole(self, host: str) -> float:
        """Return when the hole ends, or has ended, that a host is in."""
        return max(self.holes[host], self.holes[None])

    def carry(self, seconds: float, host: str, then: Callable[..., None], *args: Any) -> None:
        """Do something when a packet has arrived."""
        self.kernel.at(self.kernel.now + seconds, self._pass_hole, host, then, *args)

    def _pass_hole(self, host: str, then: Callable[..., None], *args: Any) -> None:
        end = self.hole(host)
        if end <= self.kernel.now:
            then(*args)
        elif self._draws[host].random() < 0.5:
            seconds = end + self._draws[host].uniform(0, 0.5) - self.kernel.now
            self.carry(seconds, host, then, *args)

    def _is_lost(self, host: str) -> bool:
        return self.kernel.now < self.lossy_until and self._draws[host].random() < 0.3

    def send(self, call: Call) -> None:
        """Send a request, perhaps twice."""
        self.carry(self.delay(call.host), call.host, self._arrive, call)
        if self.kernel.now < self.double_until:
            twin = Call(call.host, call.op, call.args, call.connection, call.by, None, call)
            later = self._draws[call.host].uniform(0, _LONGEST_TWIN)
            self.carry(later, call.host, self._arrive, twin)

    def _arrive(self, call: Call) -> None:
        server = self.server
        if self._is_lost(call.host):
            return
        if self.kernel.now < server.away_until or call.connection.epoch != server.epoch:
            reset = StoreUnavailable("reset")
            self.kernel.at(self.kernel.now + self.delay(call.host), self.answer, call, None, reset)
            return
        if self._timely and self.kernel.now > call.by:
            self.kernel.trace("too late", call.host, call.op)
            return
        if call.op in ("grant", "retry") and call.twin_of and not call.twin_of.granted:
            return  # before its original, or of one that was refused: TCP drops the copy
        value, error = self._ask(call)
        call.granted = isinstance(value, dict) and "execution_id" in value
        until, late = self.late.get(call.host, (0.0, 0.0))
        back = self.delay(call.host) + (late if self.kernel.now < until else 0.0)
        if not self._is_lost(call.host):
            self.carry(back, call.host, self.answer, call, value, error)

    def _ask(self, call: Call) -> tuple[Any, StoreError | None]:
        value, error = None, None
        try:
            self.server.by = call.connection
            value = getattr(self.server, call.op)(*call.args)
        except StoreError as refused:
            error = refused
        if call.op != "look":
            about, said = call.args[0], "none" if value is None else "ok"
            if isinstance(value, dict):
                said = value.get("execution_id", "ok")
            key = about.get("key") if isinstance(about, dict) else getattr(about, "key", about)
            owner, late = getattr(about, "owner", "")[:8], "" if call.thread else "late"
            self.kernel.trace("store", call.host, call.op, key, owner, said, late)
        return value, error

    def answer(self, call: Call, value: Any, error: StoreError | None) -> None:
        """Wake the caller, if it still waits."""
        if call.thread and not call.done:
            call.done, call.value, call.error = True, value, error
            self.kernel.wake(call.thread)


class Caller:
    """Calls the steps of the server over the network."""

    lease_clock = clock.BOOTTIME

    def __init__(self, network: Network, life: Life) -> None:
        self._network, self._life = network, life
        self._connection: Connection | None = None
        self._host, self._ttl, self.holds_connection = life.host.name, life.key.ttl, life.key.holds

    def _call(self, op: str, deadline: float, *args: Any) -> tuple[Any, float]:
        kernel, network = self._network.kernel, self._network
        left = deadline - clock.lease_time(self.lease_clock)
        by = kernel.now + max(0.0, min(left, CALL_TIMEOUT, self._ttl / HEARTBEATS_PER_TTL))
        self._connect(by)
        sent = clock.lease_time(self.lease_clock)
        call = Call(self._host, op, args, self._connection, by, kernel.current)
        network.send(call)
        self._await(call)
        if not call.done or isinstance(call.error, StoreUnavailable):
            error = call.error or StoreUnavailable("no answer in time")
            error.unanswered = True
            call.thread = None
            raise error
        if call.error:
            raise call.error
        return call.value, sent

    def _connect(self, by: float) -> None:
        network, current = self._network, self._network.kernel.current
        if self._connection is not None:
            return
        call = Call(self._host, "connect", (), None, by, current)
        there = network.delay(self._host) + network.delay(self._host)
        network.carry(there, self._host, network.answer, call, 1, None)
        self._await(call)
        if not call.done:
            raise StoreUnavailable("cannot connect in time")
        if network.kernel.now < network.server.away_until:
            raise StoreUnavailable("connection refused")
        self._connection = Connection(network, current.process, holds=self.holds_connection)

    def _await(self, call: Call) -> None:
        self._network.kernel.sleep_until(call.by, lambda: call.done)
        self._network.kernel.point()

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.closed = True
        self._connection = None


class SimulatedStore(Caller, MemoryStore):
    """`LeaseStore` of one firing."""

    def _call(self, op: str, deadline: float, *args: Any) -> tuple[Any, float]:
        if self._life.bug:
            self._life.bug = False
            raise SimulatedBugError
        return super()._call(op, deadline, *args)

    def renew(self, lease: Lease, **how: Any) -> Lease | None:
        """Renew; the ledger hears what was confirmed."""
        now, seconds, network = self._network.kernel.now, INF, self._network
        try:
            renewed = super().renew(lease, **how)
            seconds = network.kernel.now - now if now >= network.double_until else INF
        finally:
            self._life.renewed(lease.execution_id, how.get("place"), seconds)
        return renewed

    def look(self, firing: Firing, **how: Any) -> Row:
        self._place = (firing.key, firing.shard)
        return super().look(firing, **how)

    def _confirmed(self, lease: Lease) -> Lease | Unconfirmed:
        """Return a lease that enough replicas have, as with `?wait=` of Redis, which has no sessions."""
        network = self._network
        if network.kernel.now < network.unconfirmed_until and not network.server.sessions:
            return Unconfirmed(lease, StoreUnavailable("too few replicas"))
        return lease

    @steadied
    def evict(self, stale: object, *, deadline: float) -> None:
        self._call("evict", deadline, self._place)


class SimulatedBugError(Exception):
    """A bug in the guard that a fault has put there."""
