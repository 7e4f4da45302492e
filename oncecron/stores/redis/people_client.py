"""The client of the commands for people: that of a firing, which sends many commands in one round trip, each once."""

from __future__ import annotations

import select

from oncecron.core import clock
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import READER_TIMEOUT, REPLICA_TIMEOUT
from oncecron.stores.redis import scripts
from oncecron.stores.redis.client import RedisClient
from oncecron.stores.redis.explain import of_step
from oncecron.stores.redis.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import Word

    Command = tuple[Word, ...]
    Values = Mapping[str, str | float | None]

# tcp(7): the smallest default send buffer of a socket on Linux (tcp_wmem). What is sent at once fits into it, so
# that this side never waits for a proxy that waits for this side to read.
_BATCH_BYTES = 1 << 14


class PeopleClient:
    """Sends commands and steps. It connects at the first one, and again after a failure.

    All methods raise `StoreError`.
    """

    def __init__(
        self,
        target: Target,
        names: scripts.Names,
        refusal: Callable[[Any], StoreError | None] | None = None,
    ) -> None:
        """Prepare; `refusal` returns the error of data that cannot be used, by what their namespace has on record."""
        self.names = names
        self._target = target
        self._refusal = refusal
        self._client: RedisClient | None = None

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client:
            client.close()

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies in the order of the commands; that to HGETALL, and to INFO, as a dictionary."""
        try:
            return [answer for batch in _batches(commands) for answer in self._answers(batch)]
        except ReplyError as error:
            raise self._refused(error) from error

    def step(self, name: str, shards: Sequence[str], values: Values) -> Any:
        """Run a Lua script on some shards of keys and return its reply."""
        return self.step_of_keys(name, self.names.keys(*shards), values)

    def step_of_keys(self, name: str, keys: Sequence[str], values: Values) -> Any:
        """Run a Lua script with these keys and return its reply."""
        words = (len(keys), *keys, *scripts.arguments(values))
        try:
            return scripts.run(lambda *command: self._answers([command])[0], name, words)
        except ReplyError as error:
            raise self._refused(error) from error

    def confirmed_step(
        self, name: str, shards: Sequence[str], values: Values, more: Sequence[str] = ()
    ) -> Any:
        """Run a step that a failover must not undo. `more`: keys behind those of the shards.

        Raises `StoreUnavailable` if fewer replicas have it than `?wait=` asks for.
        """
        wanted = self._target.wait
        answer = self.step_of_keys(name, [*self.names.keys(*shards), *more], values)
        if not wanted:
            return answer
        wait = ("WAIT", wanted, round(REPLICA_TIMEOUT * 1000))
        _, found = self.ask([self.names.mark(), wait])
        if found < wanted:
            raise StoreUnavailable(
                f"Redis {self._target.shown}: the change is made, but only {found!r} of {wanted} replicas "
                "(?wait=) have it, so a failover could undo it; run the command again"
            )
        return answer

    def _answers(self, commands: Sequence[Command]) -> list[Any]:
        try:
            found = self._connected().ask_all(commands, deadline=_deadline())
        except StoreError:
            self.close()
            raise
        return [
            _CONVERTED.get(command[0], _unchanged)(answer)
            for command, answer in zip(commands, found, strict=True)
        ]

    def _connected(self) -> RedisClient:
        if self._client and _has_ended(self._client):
            self.close()
        if self._client is None:
            self._client = RedisClient(
                self._target,
                clock=clock.BOOTTIME,
                deadline=_deadline(),
                # One that is silent leaves time for the next.
                server_timeout=READER_TIMEOUT / max(1, len(self._target.hosts)),
                name="oncecron",
            )
            # Asked in any case: a cluster answers it with the node that has the namespace, and TIME must be of that.
            name = self.names.of_namespace("namespace")
            recorded = self._client.ask("HMGET", name, "layout", "oldest", deadline=_deadline())
            if self._refusal and (wrong := self._refusal(recorded)):
                raise wrong
        return self._client

    def _refused(self, error: ReplyError) -> StoreError:
        self.close()
        return of_step(error, self._target, self.names.namespace)


def _has_ended(client: RedisClient) -> bool:
    """Return whether the server has hung up, as by its `timeout` while `--follow` slept: nothing else comes unasked."""
    if client.fileno() == -1:
        return True
    poll = select.poll()  # select(2) takes no descriptor above 1,023, and `web` may have more
    poll.register(client.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _deadline() -> float:
    return clock.lease_time(clock.BOOTTIME) + READER_TIMEOUT


def _batches(commands: Sequence[Command]) -> Iterator[list[Command]]:
    batch: list[Command] = []
    size = 0
    for command in commands:
        length = sum(len(word) if isinstance(word, (str, bytes)) else 8 for word in command)
        if batch and size + length > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += length
    if batch:
        yield batch


def _unchanged(answer: Any) -> Any:
    return answer


def _fields(answer: Any) -> dict[bytes, bytes]:
    return dict(zip(answer[::2], answer[1::2], strict=True))


def _lines(answer: Any) -> dict[str, str]:
    """Return what INFO tells; lines without a colon are titles."""
    lines = (line.partition(":") for line in answer.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


_CONVERTED: dict[Any, Callable[[Any], Any]] = {"HGETALL": _fields, "INFO": _lines}
