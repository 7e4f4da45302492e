"""The client of the commands for people: redis-py, and one translation of its errors into lines with a cure.

redis-py connects, logs in, asks a cluster for its slots, and sends the commands: many in one round trip, each of them
once. The sentinels are asked as by a firing, which says what each of them has answered.
"""

from __future__ import annotations

import contextlib
import ssl

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import (
    AskError,
    AuthenticationError,
    InvalidResponse,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
)
from redis.retry import Retry

from oncecron.core import clock
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import READER_TIMEOUT, REPLICA_TIMEOUT
from oncecron.stores.redis import explain, scripts, tls
from oncecron.stores.redis.address import Tls
from oncecron.stores.redis.client import master
from oncecron.stores.redis.connection import Transport, hung_up, shown
from oncecron.stores.redis.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.stores.redis.address import Host, Target
    from oncecron.stores.redis.resp import Word

    Command = tuple[Word, ...]
    Values = Mapping[str, str | float | None]

# tcp(7): the smallest default send buffer of a socket on Linux (tcp_wmem). What is sent at once fits into it, so
# that this side never waits for a proxy that waits for this side to read.
_BATCH_BYTES = 1 << 14

if not hasattr(redis.Redis, "from_pool"):  # redis-py 5.0.1
    raise ImportError(f"version {redis.__version__} is too old, oncecron needs 6.0", name="redis")

_OF_STRANGERS = (
    *(InvalidResponse, ValueError, LookupError, TypeError, AttributeError, RecursionError),
)
"""With what redis-py fails when it reads or converts what no Redis answers."""
_FAILURES = (RedisError, RedisClusterException, OSError, *_OF_STRANGERS)
_CODES = {
    found: code
    for code, found in redis.connection.DefaultParser.EXCEPTION_CLASSES.items()
    if isinstance(found, type)
} | {SlotNotCoveredError: "CLUSTERDOWN"}
"""The code of an answer, which redis-py takes off its text."""


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
        self._transport = Transport(target, clock.BOOTTIME, READER_TIMEOUT)
        self._client: redis.Redis | None = None
        self._cluster: redis.RedisCluster | None = None
        self._place: Host | str = target.path or target.hosts[0]
        """The server that was asked last, as far as that is known."""
        self._open = contextlib.ExitStack()

    def close(self) -> None:
        """Close the connections."""
        self._client = self._cluster = None
        self._open.close()

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies in the order of the commands, as redis-py converts them: a hash is a dictionary."""
        answers: list[Any] = []
        with self._explained():
            for batch in _batches(commands):
                answers += self._answers(batch)
        return answers

    def step(self, name: str, shards: Sequence[str], values: Values) -> Any:
        """Run a Lua script on some shards of keys and return its reply."""
        return self.step_of_keys(name, self.names.keys(*shards), values)

    def step_of_keys(self, name: str, keys: Sequence[str], values: Values) -> Any:
        """Run a Lua script with these keys and return its reply."""
        return self._run(name, keys, values)[0]

    def confirmed_step(
        self, name: str, shards: Sequence[str], values: Values, more: Sequence[str] = ()
    ) -> Any:
        """Run a step that a failover must not undo. `more`: keys behind those of the shards.

        Raises `StoreUnavailable` if fewer replicas have it than `?wait=` asks for.
        """
        wanted = self._target.wait
        keys = [*self.names.keys(*shards), *more]
        if not wanted:
            return self.step_of_keys(name, keys, values)
        # In the same batch, and so on the same connection: WAIT counts the replicas that have its writes.
        wait = ("WAIT", wanted, round(REPLICA_TIMEOUT * 1000))
        answer, _, found = self._run(name, keys, values, self.names.mark(), wait)
        if found < wanted:
            raise StoreUnavailable(
                f"Redis {self._target.shown}: the change is made, but only {found!r} of {wanted} replicas "
                "(?wait=) have it, so a failover could undo it; run the command again"
            )
        return answer

    def _run(self, name: str, keys: Sequence[str], values: Values, *more: Command) -> list[Any]:
        def ask(*command: Word) -> Any:
            try:
                return self._answers([command, *more])
            except NoScriptError as error:
                raise ReplyError("NOSCRIPT") from error

        with self._explained():
            answers: Any = scripts.run(ask, name, (len(keys), *keys, *scripts.arguments(values)))
        return list(answers)

    def _answers(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._connected().pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        if self._cluster and any(isinstance(answer, AskError) for answer in answers):
            self._ask_others(self._cluster, commands, answers)
        for answer in answers:
            if isinstance(answer, RedisError):
                raise answer
        return answers

    def _ask_others(
        self, cluster: redis.RedisCluster, commands: Sequence[Command], answers: list[Any]
    ) -> None:
        """Ask again what a node has not executed, because the slot is on its way to another one (MOVED, ASK)."""
        for at, command in enumerate(commands):
            if isinstance(answers[at], AskError):
                answers[at] = cluster.execute_command(*command)
            elif command[0] == "WAIT":
                answers[at] = 0  # replicas of a node that has not run the step

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = self._connection()
            if self._refusal:
                name = self.names.of_namespace("namespace")
                [recorded] = self._answers([("HMGET", name, "layout", "oldest")])
                if wrong := self._refusal(recorded):
                    self.close()
                    raise wrong
        if self._cluster:  # perhaps another node since the last question
            self._client = self._node_of(self._cluster)
        return self._client

    def _connection(self) -> redis.Redis:
        target = self._target
        made: type[Any] = redis.Connection
        options = _options(target)
        if target.tls:
            options |= _tls_options(target.tls)
            made = _TlsConnection
        if target.kind == "cluster":
            return self._node_of_cluster(made, options)
        if target.kind == "socket":
            made, options["path"] = redis.UnixDomainSocketConnection, target.path
        else:
            self._place = options["host"], options["port"] = self._server()
        pool = redis.ConnectionPool(connection_class=made, db=target.database, **options)
        client = redis.Redis.from_pool(pool)
        self._open.callback(client.close)
        pool.release(pool.get_connection())  # what fails here is about the login
        return client

    def _server(self) -> Host:
        target = self._target
        if target.kind == "server":
            return target.hosts[0]
        impatient = Transport(target, clock.BOOTTIME, READER_TIMEOUT / len(target.hosts))
        return master(target, impatient, clock.lease_time(clock.BOOTTIME) + READER_TIMEOUT)

    def _node_of_cluster(self, made: type[Any], options: dict[str, Any]) -> redis.Redis:
        first, *others = self._target.hosts
        self._cluster = redis.RedisCluster(
            url=f"redis://{shown(first)}",  # only with a URL does it take a class of connections
            startup_nodes=[ClusterNode(host, port) for host, port in others],
            connection_class=made,
            require_full_coverage=False,
            **options,
        )
        self._open.callback(self._cluster.close)
        return self._node_of(self._cluster)

    def _node_of(self, cluster: redis.RedisCluster) -> redis.Redis:
        node = cluster.get_node_from_key(self.names.of_namespace("namespace"))
        self._place = node.host, node.port
        return cluster.get_redis_connection(node)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of redis-py into a one-line error with a cure."""
        try:
            yield
        except _FAILURES as error:
            explained = self._explain(error)
            self.close()
            raise explained from error

    def _explain(self, error: Exception) -> StoreError:
        for each in _causes(error):
            if explained := self._explained_cause(each):
                return explained
        if isinstance(error, redis.TimeoutError):
            return self._transport.failure(TimeoutError(), self._place)
        if self._client is None and self._transport.is_plain:
            doubt = "closed the connection before its first answer; if it uses TLS, write rediss://"
            return StoreUnavailable(f"{self._transport.where(self._place)}: the server {doubt}")
        return self._transport.failure(hung_up(), self._place)

    def _explained_cause(self, error: BaseException) -> StoreError | None:
        where = self._transport.where(self._place)
        if isinstance(error, OSError) and not isinstance(error, ConnectionResetError):
            return self._transport.failure(error, self._place)
        if isinstance(error, _OF_STRANGERS):
            return explain.no_answer_of_redis(where)
        if reply := _reply(error):
            return self._refused(reply, where)
        return error if isinstance(error, StoreError) else None

    def _refused(self, reply: ReplyError, where: str) -> StoreError:
        target = self._target
        if target.kind == "cluster":
            if reply.code in ("MOVED", "ASK", "TTL"):
                return explain.of_a_circle(str(reply), where)
            if reply.code == "ERR" and self._client is None:  # asked which nodes there are
                return explain.of_no_cluster(reply, where)
        elif reply.code in ("MOVED", "ASK"):
            return explain.of_a_cluster(where)
        if self._client is None:
            is_login = isinstance(reply.__cause__, AuthenticationError) or not target.database
            verb = "AUTH" if is_login else "SELECT"
            return explain.of_handshake(verb, reply, where, "", target.username or "default")
        refused = explain.of_command(reply, where)
        return refused or explain.of_step(reply, target, self.names.namespace)


class _TlsConnection(redis.SSLConnection):
    """TLS as a firing has it: redis-py by itself trusts the system's authorities beside those of `ssl_ca_certs`."""

    def _wrap_socket_with_ssl(self, sock: Any) -> ssl.SSLSocket:
        asked = Tls(
            self.ca_certs, self.certfile, self.keyfile, self.certificate_password,
            verify=self.cert_reqs != ssl.CERT_NONE, check_hostname=self.check_hostname,
        )  # fmt: skip
        with sock:  # its descriptor is that of the result then
            made = tls.context(asked, f"Redis {shown((self.host, self.port))}")
            return tls.wrapped(made, sock, self.host)


def _options(target: Target) -> dict[str, Any]:
    """Return what every connection has: no retry of redis-py's, which would repeat a command ten times."""
    return {
        "username": target.username,
        "password": target.password,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "socket_timeout": READER_TIMEOUT,
        "socket_connect_timeout": READER_TIMEOUT,
        "encoding_errors": "surrogateescape",
    }


def _tls_options(asked: Tls) -> dict[str, Any]:
    return {
        "ssl_ca_certs": asked.ca_certs,
        "ssl_certfile": asked.certfile,
        "ssl_keyfile": asked.keyfile,
        "ssl_password": asked.keyfile_password,
        "ssl_cert_reqs": "required" if asked.verify else "none",
        "ssl_check_hostname": asked.check_hostname,
    }


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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reply(error: BaseException) -> ReplyError | None:
    """Return the server's answer, if an error of redis-py is one."""
    code = getattr(error, "status_code", None) or _CODES.get(type(error))  # the former from 8 on
    if code is None and not isinstance(error, ResponseError):
        return None
    reply = ReplyError(f"{code} {error}" if code else str(error))
    reply.__cause__ = error
    return reply
