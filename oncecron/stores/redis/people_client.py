"""The client of the commands for people, with redis-py: it explains every error, with the words of a firing.

redis-py connects, asks the sentinels for the master and a cluster for its slots, and sends the commands: many in one
round trip, each of them once. TLS, the login and the messages are those of a firing (`stores.redis.connection`), so
that one URL means the same to both.
"""

from __future__ import annotations

import contextlib
import select

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import DefaultParser
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
)

from oncecron.core import clock
from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import READER_TIMEOUT, REPLICA_TIMEOUT
from oncecron.stores.redis import explain, scripts
from oncecron.stores.redis.client import master
from oncecron.stores.redis.connection import Handshake, ServerConnection, Transport, hung_up, shown
from oncecron.stores.redis.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, ClassVar

    from oncecron.stores.redis.address import Host, Target
    from oncecron.stores.redis.resp import Word

    Command = tuple[Word, ...]
    Values = Mapping[str, str | float | None]
    AnyConnection = redis.Connection
else:
    AnyConnection = object

# tcp(7): the smallest default send buffer of a socket on Linux (tcp_wmem). What is sent at once fits into it, so
# that this side never waits for a proxy that waits for this side to read.
_BATCH_BYTES = 1 << 14

if not hasattr(redis.Redis, "from_pool"):  # redis-py 5.0.1
    raise ImportError(f"version {redis.__version__} is too old, oncecron needs 6.0", name="redis")

_OF_STRANGERS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""With what redis-py fails when it converts what no Redis answers."""
_FAILURES = (RedisError, RedisClusterException, OSError, *_OF_STRANGERS)


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
                raise ReplyError(_CODES[NoScriptError]) from error

        with self._explained():
            answers: Any = scripts.run(ask, name, (len(keys), *keys, *scripts.arguments(values)))
        return list(answers)

    def _answers(self, commands: Sequence[Command]) -> list[Any]:
        client = self._connected()
        pipeline = client.pipeline(transaction=False)
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
        if self._cluster:
            self._client = self._node_of(
                self._cluster
            )  # perhaps another one since the last question
        return self._client

    def _connection(self) -> redis.Redis:
        target, transport = self._target, self._transport
        login = Handshake(target.username, target.password, target.database, "oncecron")
        if target.kind == "cluster":
            return self._node_of_cluster(login)
        if target.kind == "sentinel":
            return self._master(login)
        if target.kind == "socket":
            made = _with(_Unix, transport, login)
            return self._kept(
                redis.ConnectionPool(connection_class=made, path=target.path, **_options())
            )
        return self._kept(_pool_of(target.hosts[0], _with(_Tcp, transport, login)))

    def _master(self, login: Handshake) -> redis.Redis:
        target, transport = self._target, self._transport
        their_login = target.sentinel_username, target.sentinel_password
        theirs = Handshake(*their_login, name="oncecron", prefix="sentinel_")
        to_sentinel = _with(_ToSentinel, transport, theirs)
        sentinels = Sentinel([])
        sentinels.sentinels = [self._kept(_pool_of(place, to_sentinel)) for place in target.hosts]
        made = _with(_ToMaster, transport, login)
        pool = SentinelConnectionPool(target.master, sentinels, connection_class=made, **_options())
        return self._kept(pool)

    def _node_of_cluster(self, login: Handshake) -> redis.Redis:
        first, *others = self._target.hosts
        self._cluster = redis.RedisCluster(
            url=f"redis://{shown(first)}",  # only with a URL does it take a class of connections
            startup_nodes=[ClusterNode(host, port) for host, port in others],
            connection_class=_with(_Tcp, self._transport, login),
            require_full_coverage=False,
            **_options(),
        )
        self._open.callback(self._cluster.close)
        return self._node_of(self._cluster)

    def _node_of(self, cluster: redis.RedisCluster) -> redis.Redis:
        node = cluster.get_node_from_key(self.names.of_namespace("namespace"))
        return cluster.get_redis_connection(node)

    def _kept(self, pool: redis.ConnectionPool) -> redis.Redis:
        client = redis.Redis.from_pool(pool)
        self._open.callback(client.close)
        return client

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            explained = self._explain(error, self._place())
            self.close()
            raise explained from error

    def _place(self) -> Any:
        pool = self._client.connection_pool if self._client else None
        if master := getattr(pool, "master_address", None):
            return master
        options = pool.connection_kwargs if pool else {}
        if "host" in options:
            return options["host"], options["port"]
        return self._target.path or self._target.hosts[0]

    def _explain(self, error: Exception, place: Host | str) -> StoreError:
        if any(isinstance(each, MasterNotFoundError) for each in _causes(error)):
            return self._masterless()
        if failure := _explained(error, self._transport, place):
            return failure
        reply = _reply(error) or ReplyError(str(error))
        where = self._transport.where(place)
        if self._target.kind == "cluster":
            if reply.code in ("MOVED", "ASK", "TTL"):
                return explain.of_a_circle(str(reply), where)
            if (
                reply.code == "ERR" and self._client is None
            ):  # to the question which nodes there are
                return explain.of_no_cluster(reply, where)
        elif reply.code in ("MOVED", "ASK"):
            return explain.of_a_cluster(where)
        refused = explain.of_command(reply, where)
        return refused or explain.of_step(reply, self._target, self.names.namespace)

    def _masterless(self) -> StoreError:
        """Return why the sentinels name no master. redis-py does not say it, so they are asked as by a firing."""
        target = self._target
        impatient = Transport(target, clock.BOOTTIME, READER_TIMEOUT / len(target.hosts))
        try:
            master(target, impatient, clock.lease_time(clock.BOOTTIME) + READER_TIMEOUT)
        except StoreError as error:
            return error
        return StoreUnavailable(
            f"Redis {target.shown}: the sentinels take the master {target.master!r} for down; "
            "a failover may be in progress"
        )


class _Parser(DefaultParser):  # type: ignore[valid-type, misc]
    """Reads replies as a firing does: each has a largest size and a last moment, whatever the server sends meanwhile.

    An error is in the server's words, but for those by which redis-py finds the node of a cluster. redis-py takes some
    errors for the end of a connection: that the server is loading, or asks for no password.
    """

    _server: ServerConnection | None = None

    EXCEPTION_CLASSES: ClassVar = {
        "ASK": AskError,
        "CLUSTERDOWN": ClusterDownError,
        "MOVED": MovedError,
        "NOSCRIPT": NoScriptError,
        "TRYAGAIN": TryAgainError,
    }

    def on_connect(self, connection: Any) -> None:
        self._server = connection.server

    def on_disconnect(self) -> None:
        self._server = None

    def can_read(self, timeout: float = 0) -> bool:
        """Return whether something has come that nobody has asked for, or the end of the connection."""
        if self._server is None:
            return False
        poll = select.poll()
        poll.register(self._server.watch_fd(), select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def read_response(self, *_: Any, **__: Any) -> Any:
        if self._server is None:
            raise redis.ConnectionError from hung_up()
        try:
            reply = self._server.reply(deadline=_deadline())
        except StoreError as error:
            raise redis.ConnectionError(str(error)) from error
        return self.parse_error(str(reply)) if isinstance(reply, ReplyError) else reply


_CODES = {found: code for code, found in _Parser.EXCEPTION_CLASSES.items()}
_CODES[SlotNotCoveredError] = "CLUSTERDOWN"


class _Connection(AnyConnection):
    """A mixin in front of redis-py's connections: it connects and logs in as a firing does.

    redis-py's own TLS would trust the system's authorities beside `ssl_ca_certs`. Its own login refuses a password
    that the server does not ask for and a name that an ACL forbids, and sends CLIENT SETINFO, which an ACL may forbid.
    """

    transport: Transport
    handshake: Handshake
    server: ServerConnection
    driver_info: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.driver_info = self.lib_name = self.lib_version = None  # no CLIENT SETINFO

    def set_parser(self, parser_class: Any) -> None:
        """Take ours, also for a cluster, whose client brings another one."""
        del parser_class
        super().set_parser(_Parser)

    def _connect(self) -> Any:
        place = getattr(self, "path", None) or (self.host, self.port)
        deadline = _deadline()
        try:
            self.server = ServerConnection(place, self.transport, self.handshake, deadline)
            connected = self.server.log_in(deadline=deadline)
        except StoreError as error:  # as one that redis-py expects: it tries the next server
            raise redis.ConnectionError(str(error)) from error
        return connected

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send commands as a firing does: a server that hangs up meanwhile may have said why."""
        del check_health
        if self._sock is None:
            self.connect()
        try:
            words = command if isinstance(command, bytes) else b"".join(command)
            self.server.send(words, deadline=_deadline())
        except StoreError as error:
            self.disconnect()
            raise redis.ConnectionError(str(error)) from error


class _Tcp(_Connection, redis.Connection):
    """TCP, perhaps with TLS."""


class _Unix(_Connection, redis.UnixDomainSocketConnection):
    """A socket of this machine."""


class _ToMaster(_Connection, SentinelManagedConnection):
    """The master that the sentinels name."""


class _ToSentinel(_Tcp):
    """A sentinel. redis-py asks the next one after an error of the connection, but not after a refusal."""

    def read_response(self, *words: Any, **options: Any) -> Any:
        try:
            return super().read_response(*words, **options)
        except ResponseError as error:
            raise redis.ConnectionError(str(error)) from error


def _with(base: type[Any], transport: Transport, handshake: Handshake) -> type[Any]:
    """Return a class of connections to the servers of an address: a cluster's client passes no options of ours on."""
    return type(base.__name__, (base,), {"transport": transport, "handshake": handshake})


def _options() -> dict[str, Any]:
    """Return what every client has: no retry of redis-py's, which would repeat a command ten times."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "socket_timeout": READER_TIMEOUT,
        "encoding_errors": "surrogateescape",
    }


def _pool_of(place: Host, connection_class: type[Any]) -> redis.ConnectionPool:
    host, port = place
    return redis.ConnectionPool(
        connection_class=connection_class, host=host, port=port, **_options()
    )


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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reply(error: BaseException) -> ReplyError | None:
    for each in _causes(error):
        if code := _CODES.get(type(each)):
            return ReplyError(f"{code} {each}")
        if isinstance(each, ResponseError):
            return ReplyError(str(each))
    return None


def _explained(error: BaseException, transport: Transport, place: Host | str) -> StoreError | None:
    for each in _causes(error):
        if isinstance(each, StoreError):
            return each
        if isinstance(each, OSError):
            return transport.failure(each, place)
        if isinstance(each, _OF_STRANGERS):
            return explain.no_answer_of_redis(transport.where(place))
    if _reply(error) is None and isinstance(error, redis.ConnectionError):
        return transport.failure(hung_up(), place)
    return None
