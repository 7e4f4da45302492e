"""The Redis client, with the standard library alone. Every command ends by a deadline.

No command is sent twice, with one exception: MOVED or ASK from a node of a Redis Cluster means that this node did not
execute the command, and names the node that will. An error from the server is a `ReplyError`. A client that gets no
reply is closed. Open a new one, and query whether the command was executed.
"""

from __future__ import annotations

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.redis.connection import Handshake, ServerConnection, Transport
from oncecron.stores.redis.resp import ReplyError, packed

if TYPE_CHECKING:
    from oncecron.stores.redis.address import Host, Target
    from oncecron.stores.redis.resp import Reply, Word

# ruff: noqa: PLC0415 - a firing imports what it rarely needs only when it needs it

_MOST_REDIRECTS = 5


class RedisClient:
    """A connection to the server of an address; in a cluster, to the node that replied last."""

    def __init__(
        self, target: Target, *, clock: int, deadline: float, server_timeout: float, name: str
    ) -> None:
        """Connect. `server_timeout`: seconds that one server may take; `name`: as CLIENT LIST shows it.

        Name resolution has timeouts of its own. Raises `StoreUnavailable` or, when a retry does not help,
        `StoreRefusesError`.
        """
        self._target = target
        self._name = name
        self._transport = Transport(target, clock, server_timeout)
        self._impatient: Transport | None = None
        self._connection: ServerConnection | None = self._connect(deadline)

    def fileno(self) -> int:
        """Return the socket, -1 when closed."""
        return -1 if self._connection is None else self._connection.fileno()

    def watch_fd(self) -> int:
        """Return a descriptor that is readable after a push message or when the server hangs up; -1 when closed."""
        return -1 if self._connection is None else self._connection.watch_fd()

    def close(self) -> None:
        """Close the connection without waiting."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ask(self, *words: Word, deadline: float) -> Reply:
        """Send one command and return its reply: one round trip.

        `deadline`: seconds of the client's clock. Raises `ReplyError`. Without a reply by the deadline it closes the
        client and raises `StoreUnavailable`; when the server refuses the login, `StoreRefusesError`.
        """
        try:
            answer = self._answer(packed(words), deadline)
            if not isinstance(answer, ReplyError):
                return answer
            from oncecron.stores.redis.explain import of_command

            failure = of_command(answer, self._transport.where(self._current().place))
        except BaseException:
            self.close()
            raise
        if failure is None:
            raise ReplyError(str(answer))  # of its own: this frame must not refer to what it raises
        self.close()
        raise failure

    def listen(self, channel: str, *, deadline: float) -> bool:
        """Subscribe to a channel; return False if this server never allows it.

        One round trip, or none for a channel that is subscribed already. Raises as `ask` does. A server without RESP3
        leaves the client closed.
        """
        connection = self._current()
        try:
            refusal = connection.listen(channel, deadline=deadline)
        except BaseException:
            self.close()
            raise
        if refusal is not None:
            from oncecron.stores.redis.explain import of_command

            failure = of_command(refusal, self._transport.where(connection.place))
            if failure is not None:
                self.close()
                raise failure
        if connection.fileno() == -1:
            self.close()
        return refusal is None

    def is_at_master(self, deadline: float) -> bool:
        """Return False if the sentinels name another master than the connected server.

        A master that survives a failover learns of it seconds later, and accepts writes until then. A holder that
        stayed connected would renew a lease there that the new master grants to others. If no sentinel answers, the
        connected server is taken for the master.
        """
        if self._target.kind != "sentinel" or self._connection is None:
            return True
        if self._impatient is None:
            self._impatient = Transport(
                self._target,
                self._transport.clock,
                self._transport.server_timeout / 2 / len(self._target.hosts),
            )
        try:
            return master(self._target, self._impatient, deadline) == self._connection.place
        except StoreError:
            return True

    def _answer(self, command: bytes, deadline: float) -> Reply | ReplyError:
        answer = self._current().ask(command, deadline=deadline)
        redirects = 0
        while isinstance(answer, ReplyError) and answer.code in ("MOVED", "ASK"):
            if redirects == _MOST_REDIRECTS:
                from oncecron.stores.redis.explain import of_a_circle

                raise of_a_circle(str(answer), self._transport.where(self._current().place))
            redirects += 1
            answer = self._redirected(answer, command, deadline)
        return answer

    def _redirected(
        self, redirection: ReplyError, command: bytes, deadline: float
    ) -> Reply | ReplyError:
        """Ask the node that a redirection names. All keys of a namespace share one slot, and so one node."""
        here = self._current()
        if self._target.kind != "cluster":
            from oncecron.stores.redis.explain import of_a_cluster

            raise of_a_cluster(self._transport.where(here.place))
        there = self._connect_to(_named_node(redirection, here, self._transport), deadline)
        if redirection.code == "ASK":  # for this command only: the slot has not moved yet
            try:
                return there.ask(packed(("ASKING",)), command, deadline=deadline)
            finally:
                there.close()
        self._connection = there
        here.close()
        for channel in here.channels:
            there.listen(channel, deadline=deadline)
        return there.ask(command, deadline=deadline)

    def _current(self) -> ServerConnection:
        if self._connection is None:
            raise StoreUnavailable(f"Redis {self._target.shown}: this connection is closed")
        return self._connection

    def _connect_to(self, place: Host | str, deadline: float) -> ServerConnection:
        target = self._target
        handshake = Handshake(target.username, target.password, target.database, self._name)
        return ServerConnection(place, self._transport, handshake, deadline)

    def _connect(self, deadline: float) -> ServerConnection:
        target = self._target
        if target.kind == "socket":
            return self._connect_to(target.path, deadline)
        if target.kind == "sentinel":
            return self._connect_to(master(target, self._transport, deadline), deadline)
        if len(target.hosts) == 1:
            return self._connect_to(target.hosts[0], deadline)
        return self._first_of_cluster(deadline)

    def _first_of_cluster(self, deadline: float) -> ServerConnection:
        """Return the first node that replies: a frozen one accepts connections too."""
        failures = []
        for place in self._target.hosts:
            try:
                return self._checked(self._connect_to(place, deadline), deadline)
            except StoreUnavailable as error:
                failures.append(str(error).removeprefix(f"Redis {self._target.shown}: "))
        raise StoreUnavailable(f"Redis {self._target.shown}: {'; '.join(failures)}")

    def _checked(self, connection: ServerConnection, deadline: float) -> ServerConnection:
        reply = connection.ask(
            packed(("PING",)), deadline=self._transport.server_deadline(deadline)
        )
        if isinstance(reply, ReplyError):
            from oncecron.stores.redis.explain import of_command

            failure = of_command(reply, self._transport.where(connection.place))
            if failure:
                connection.close()
                raise failure
        return connection


def _named_node(redirection: ReplyError, here: ServerConnection, transport: Transport) -> Host:
    host, _, port = str(redirection).rpartition(" ")[2].rpartition(":")
    if not host and not isinstance(here.place, str):
        host = here.place[0]
    if not host.isascii() or host in ("", "?") or not port.isdigit():
        from oncecron.stores.redis.explain import nameless

        raise nameless(redirection, transport.where(here.place))
    return host, int(port)


def master(target: Target, transport: Transport, deadline: float) -> Host:
    """Return the master that the first sentinel to reply names.

    Raises `StoreRefusesError` when a sentinel replied, but none knows the master; else `StoreUnavailable`.
    """
    failures: list[str] = []
    answered = False
    for place in target.hosts:
        try:
            return _named_by(place, target, transport, deadline)
        except StoreError as error:
            answered = answered or isinstance(error, StoreRefusesError)
            failures.append(str(error).removeprefix(f"Redis {target.shown}: "))
    raise (StoreRefusesError if answered else StoreUnavailable)(
        f"Redis {target.shown}: {'; '.join(failures)}"
    )


def _named_by(place: Host, target: Target, transport: Transport, deadline: float) -> Host:
    where = transport.where(place)
    until = transport.server_deadline(deadline)
    login = target.sentinel_username, target.sentinel_password
    handshake = Handshake(*login, name="oncecron", prefix="sentinel_")
    connection = ServerConnection(place, transport, handshake, until)
    try:
        question = packed(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master))
        reply = connection.ask(question, deadline=until)
    finally:
        connection.close()
    if isinstance(reply, ReplyError):
        from oncecron.stores.redis.explain import of_sentinel

        raise of_sentinel(reply, where, handshake.user)
    match reply:
        case [bytes(host), bytes(port)] if host and port.isdigit():
            return host.decode("ascii", "replace"), int(port)
    raise StoreRefusesError(
        f"{where}: this sentinel does not know the master {target.master!r}; list those it knows: "
        f"`redis-cli -h {place[0]} -p {place[1]} sentinel masters`"
    )
