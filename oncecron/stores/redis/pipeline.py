"""What people ask of Redis: many commands in one round trip, over the same client that a firing uses.

A batch is small enough to be sent whole before the first answer is read. So neither side, nor a proxy between them, can
wait for the other to read first.
"""

from __future__ import annotations

import contextlib
import select

from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.stores.redis import scripts
from oncecron.stores.redis.client import Wire
from oncecron.stores.redis.explain import of_step
from oncecron.stores.redis.resp import ReplyError, packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import Word

    Command = tuple[Word, ...]

TIMEOUT = 10.0
"""Seconds that one server may take to be connected to, and to answer a batch."""

# tcp(7): by default Linux gives a socket at least so much for what is sent (tcp_wmem).
_BATCH_BYTES = 1 << 14
_WAIT_MILLISECONDS = 5000


class Pipeline:
    """Commands and steps of people; it connects at the first of them, and again after a failure.

    Every command is sent once. All methods raise `StoreError`.
    """

    def __init__(self, target: Target, names: scripts.Names) -> None:
        self.names = names
        self._target = target
        self._wire: Wire | None = None

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers, in the order of the commands."""
        answers: list[Any] = []
        if commands:
            with self._connected() as wire:
                for batch in _batches(map(packed, commands)):
                    answers += wire.ask_batch(batch, deadline=_deadline())
        return answers

    def step(
        self, name: str, parts: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        """Run one of the Lua scripts for some parts of keys, and return its answer."""
        with self._connected() as wire:
            return self._run(wire, name, parts, values)

    def confirmed_step(
        self, name: str, parts: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        """Run a step that a failover must not forget.

        Raises `StoreUnavailable` if fewer replicas have it than the address asks for.
        """
        with self._connected() as wire:
            answer = self._run(wire, name, parts, values)
            if wanted := self._target.wait:
                # By the same connection: WAIT is about what that one wrote.
                found = wire.ask("WAIT", wanted, _WAIT_MILLISECONDS, deadline=_deadline())
                if not isinstance(found, int) or found < wanted:
                    raise StoreUnavailable(
                        f"Redis {self._target.shown}: it is done, but only {found!r} of {wanted} replicas "
                        "(?wait=) have it; a failover could forget it: do it again"
                    )
        return answer

    def close(self) -> None:
        """Close the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _run(
        self, wire: Wire, name: str, parts: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        keys = self.names.keys(*parts)
        words = (len(keys), *keys, *scripts.arguments(values))
        return scripts.run(lambda *command: wire.ask(*command, deadline=_deadline()), name, words)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Wire]:
        """Give the connection, and turn what the server refuses into an error with a cure."""
        if self._wire is not None and _has_hung_up(self._wire):
            self.close()
        try:
            if self._wire is None:
                self._wire = self._new_wire()
            yield self._wire
        except ReplyError as error:
            self.close()
            raise of_step(error, self._target) from error

    def _new_wire(self) -> Wire:
        target = self._target
        deadline = _deadline(1 + len(target.hosts))  # a frozen server leaves time for the next
        wire = Wire(
            target, clock=clock.BOOTTIME, deadline=deadline, patience=TIMEOUT, name="oncecron"
        )
        if target.kind == "cluster":
            # This leads to the node that has the namespace; TIME and INFO are answered by every node.
            wire.ask("EXISTS", self.names.of_namespace("namespace"), deadline=_deadline())
        return wire


def _deadline(turns: int = 1) -> float:
    return clock.lease_time(clock.BOOTTIME) + turns * TIMEOUT


def _has_hung_up(wire: Wire) -> bool:
    """Return whether the server has closed the connection, as after its `timeout`: it has no other reason to speak."""
    if wire.fileno() == -1:
        return True
    poll = select.poll()
    poll.register(wire.watch_fd(), select.POLLIN)
    return bool(poll.poll(0))


def _batches(commands: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for command in commands:
        if batch and size + len(command) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += len(command)
    if batch:
        yield batch
