"""Send many commands in one round trip, for the commands for people, with the client that a firing uses.

The commands are sent in batches that fit into the send buffer. So the client never waits for a server, or a proxy, that
waits for the client to read.
"""

from __future__ import annotations

import contextlib
import select

from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import INSPECTOR_TIMEOUT, REPLICA_TIMEOUT
from oncecron.stores.redis import scripts
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.explain import of_step
from oncecron.stores.redis.resp import ReplyError, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.errors import StoreError
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import Reply, Word

    Command = tuple[Word, ...]

# tcp(7): the smallest default send buffer of a socket on Linux (tcp_wmem).
_BATCH_BYTES = 1 << 14


class Pipeline:
    """Sends commands and steps. It connects at the first one, and again after a failure.

    No command is sent twice. All methods raise `StoreError`.
    """

    def __init__(
        self,
        target: Target,
        names: scripts.Names,
        refusal: Callable[[Reply], StoreError | None] | None = None,
    ) -> None:
        """Prepare; `refusal` returns the error of data that cannot be used, by what their namespace has on record."""
        self.names = names
        self._target = target
        self._refusal = refusal
        self._client: RedisClient | None = None

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies, in the order of the commands."""
        answers: list[Any] = []
        if commands:
            with self._connected() as client:
                for batch in _batches(map(packed, commands)):
                    answers += client.ask_batch(batch, deadline=_deadline())
        return answers

    def step(
        self, name: str, shards: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        """Run a Lua script on some shards of keys and return its reply."""
        with self._connected() as client:
            return self._run(client, name, shards, values)

    def step_of_keys(
        self, name: str, keys: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        """Run a Lua script with these keys and return its reply."""
        with self._connected() as client:
            return _run(client, name, keys, values)

    def confirmed_step(
        self, name: str, shards: Sequence[str], values: Mapping[str, str | float | None]
    ) -> Any:
        """Run a step that a failover must not undo.

        Raises `StoreUnavailable` if fewer replicas have it than `?wait=` asks for.
        """
        with self._connected() as client:
            answer = self._run(client, name, shards, values)
            if wanted := self._target.wait:
                # On the same connection: WAIT counts the replicas that have its writes.
                found = client.ask(
                    "WAIT", wanted, round(REPLICA_TIMEOUT * 1000), deadline=_deadline()
                )
                if not isinstance(found, int) or found < wanted:
                    raise StoreUnavailable(
                        f"Redis {self._target.shown}: the change is made, but only {found!r} of {wanted} replicas "
                        "(?wait=) have it, so a failover could undo it; run the command again"
                    )
        return answer

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _run(
        self,
        client: RedisClient,
        name: str,
        shards: Sequence[str],
        values: Mapping[str, str | float | None],
    ) -> Any:
        return _run(client, name, self.names.keys(*shards), values)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[RedisClient]:
        """Give a connected client; turn a refusal of the server into an error with a cure."""
        if self._client is not None and _has_hung_up(self._client):
            self.close()
        try:
            yield self._client or self._connect()
        except ReplyError as error:
            self.close()
            raise of_step(error, self._target) from error

    def _connect(self) -> RedisClient:
        target = self._target
        deadline = _deadline(1 + len(target.hosts))  # a frozen server leaves time for the next one
        self._client = RedisClient(
            target,
            clock=clock.BOOTTIME,
            deadline=deadline,
            server_timeout=INSPECTOR_TIMEOUT,
            name="oncecron",
        )
        if self._refusal or target.kind == "cluster":
            # In a cluster any node replies to TIME and INFO: this moves to the one that has the namespace.
            name = self.names.of_namespace("namespace")
            recorded = self._client.ask("HMGET", name, "layout", "oldest", deadline=_deadline())
            if wrong := self._refusal and self._refusal(recorded):
                self.close()
                raise wrong
        return self._client


def _run(
    client: RedisClient, name: str, keys: Sequence[str], values: Mapping[str, str | float | None]
) -> Any:
    words = (len(keys), *keys, *scripts.arguments(values))
    return scripts.run(lambda *command: client.ask(*command, deadline=_deadline()), name, words)


def _deadline(turns: int = 1) -> float:
    return clock.lease_time(clock.BOOTTIME) + turns * INSPECTOR_TIMEOUT


def _has_hung_up(client: RedisClient) -> bool:
    """Return whether the server has closed the idle connection (its setting `timeout`)."""
    if client.fileno() == -1:
        return True
    poll = select.poll()
    poll.register(client.watch_fd(), select.POLLIN)
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
