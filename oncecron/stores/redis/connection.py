"""One connection to one Redis server. Every wait ends by a deadline; no command is sent twice.

The handshake (AUTH, SELECT, CLIENT SETNAME) goes out in the same write as the first command and costs no round trip
of its own. It is confirmed first where a refused handshake would not stop the command: as a user other than `default`,
or in a database other than 0, the command would run as somebody else or in the wrong place.

This module uses `_socket` where it can, because importing `socket` costs a firing 4 ms.
"""

from __future__ import annotations

import errno
import os
import time

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.light_modules import light_module
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import (
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE,
    KEEPALIVE_INTERVAL,
    SHORTEST_SERVER_TIMEOUT,
)
from oncecron.stores.redis.resp import (
    ProtocolError,
    Push,
    ReplyError,
    ReplyReader,
    TooLargeError,
    packed,
)

if TYPE_CHECKING:
    import _socket
    import ssl
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from oncecron.stores.redis.address import Host, Target, Tls
    from oncecron.stores.redis.resp import Reply

    Answer = TypeVar("Answer")
else:
    _socket = light_module(
        *("_socket", "socket", "AF_UNIX", "SOCK_STREAM", "TCP_USER_TIMEOUT", "getaddrinfo"),
        "socket",
    )

# ruff: noqa: PLC0415 - a firing imports what it rarely needs only when it needs it

_CHUNK = 1 << 16
_PROBES = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
    ("TCP_KEEPCNT", KEEPALIVE_COUNT),
)


class Handshake:
    """The commands before the first one: login, client name and database."""

    def __init__(
        self, username: str | None, password: str | None, database: int = 0, name: str = "",
        prefix: str = "",
    ) -> None:  # fmt: skip
        """`prefix`: the prefix of the URL's user and password parameters, such as `sentinel_`."""
        self.prefix = prefix
        self.user = username or "default"
        self.verbs: list[str] = []
        self.words = b""
        if password is not None or username is not None:
            who = (password or "",) if username is None else (username, password or "")
            self._add("AUTH", *who)
        if database:
            self._add("SELECT", database)
        if name:
            printable = "".join(sign if "!" <= sign <= "~" else "_" for sign in name)
            self._add("CLIENT", "SETNAME", printable)
        self.must_be_confirmed = database != 0 or username not in (None, "default")
        """Whether a server that refuses the handshake would still execute the command."""

    def _add(self, verb: str, *words: str | int) -> None:
        self.verbs.append(verb)
        self.words += packed((verb, *words))


class Transport:
    """What all connections of one client share: TLS, clock, timeout, and the name of the server in messages."""

    def __init__(self, target: Target, clock: int, server_timeout: float) -> None:
        self._shown = target.shown
        self._names_places = target.kind in ("sentinel", "cluster")
        self._tls: Tls | None = target.tls
        self.is_plain = target.tls is None and target.kind != "socket"
        self._context: ssl.SSLContext | None = None
        self.clock = clock
        self.server_timeout = server_timeout

    def where(self, place: Host | str) -> str:
        """Return how messages name a server."""
        name = f"Redis {self._shown}"
        return f"{name}: {shown(place)}" if self._names_places else name

    def remaining(self, deadline: float) -> float:
        """Return the seconds until a deadline. Raises `TimeoutError` when it has passed."""
        remaining = deadline - time.clock_gettime(self.clock)
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def server_deadline(self, deadline: float) -> float:
        """Return by when one server must have answered: its timeout from now, at most the deadline."""
        return min(deadline, time.clock_gettime(self.clock) + self.server_timeout)

    def with_tls(self, raw: _socket.socket, place: Host) -> _socket.socket:
        """Return the socket, with TLS if the address asks for it."""
        if self._tls is None:
            return raw
        from oncecron.stores.redis import tls

        try:
            if self._context is None:
                self._context = tls.context(self._tls, self.where(place))
            return tls.wrapped(self._context, raw, place[0])
        except TimeoutError as error:
            silent = (
                "no TLS handshake in time (if the server has no TLS on this port, write redis://)"
            )
            raise TimeoutError(errno.ETIMEDOUT, silent) from error
        finally:
            raw.close()  # either TLS owns its descriptor now, or the socket is useless

    def failure(self, error: OSError, place: Host | str) -> StoreError:
        """Return the oncecron error of a socket's error."""
        where = self.where(place)
        if error.errno == errno.EACCES and isinstance(place, str):
            return StoreRefusesError(
                f"{where}: user {os.geteuid()} may not use the socket; see unixsocketperm in redis.conf"
            )
        if self._tls is not None:
            import ssl

            if isinstance(error, ssl.SSLError):
                from oncecron.stores.redis.tls import explain

                return explain(error, where)
        from oncecron.stores.redis.explain import reason_of

        return StoreUnavailable(f"{where}: {reason_of(error, is_socket=isinstance(place, str))}")


def shown(place: Host | str) -> str:
    """Return HOST:PORT, or a socket's path."""
    if isinstance(place, str):
        return place
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ServerConnection:
    """A connected server. After the first failure the connection is closed for good."""

    def __init__(
        self, place: Host | str, transport: Transport, handshake: Handshake, deadline: float
    ) -> None:
        """Connect within the timeout of one server. Raises `StoreError`."""
        self.place = place
        self._transport = transport
        self._handshake: Handshake | None = handshake
        self._said: tuple[str, ReplyError] | None = None
        """The first refusal in the handshake, and of what, until the server has answered a command."""
        self.channels: set[str] = set()
        """The channels that this connection has subscribed to."""
        self._unread_fd: int | None = None
        try:
            self._socket = _connected(place, transport, transport.server_deadline(deadline))
        except OSError as error:
            raise transport.failure(error, place) from error
        self._incoming = _Incoming(self._socket, transport)
        self._reader = ReplyReader(self._incoming.more)

    def fileno(self) -> int:
        """Return the socket, -1 when it is closed."""
        return self._socket.fileno()

    def watch_fd(self) -> int:
        """Return a descriptor that is readable after a push message or when the server has hung up.

        This is the socket, unless a push message was read together with the last reply.
        """
        if not self._reader.has_more:
            return self.fileno()
        if self._unread_fd is None:
            self._unread_fd = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self._unread_fd

    def close(self) -> None:
        """Close the socket without waiting."""
        unread, self._unread_fd = self._unread_fd, None
        if unread is not None:
            os.close(unread)
        try:
            self._socket.close()
        except OSError:  # the server had reset the connection
            return

    def ask(self, *commands: bytes, deadline: float) -> Reply | ReplyError:
        """Send commands, each of them once, in one write, and return the last reply.

        Raises `StoreError`, and closes the connection, when a reply is missing or the server refuses the handshake.
        """
        return self._guarded(lambda: self._ask(commands), deadline)

    def _next_reply(self) -> Reply | ReplyError:
        reply = self._reader.reply()
        self._said = None
        return reply

    def listen(self, channel: str, *, deadline: float) -> ReplyError | None:
        """Subscribe to a channel, or return the refusal.

        One round trip, or none for a channel that is subscribed already. Raises as `ask` does. A server without
        RESP3 leaves the connection closed.
        """
        if channel in self.channels:
            return None
        return self._guarded(lambda: self._listen(channel), deadline)

    def _guarded(self, talk: Callable[[], Answer], deadline: float) -> Answer:
        self._incoming.deadline = deadline
        answered = False
        try:
            reply = talk()
            answered = True
        except OSError as error:
            raise self._failure(error) from error
        except ProtocolError as error:
            from oncecron.stores.redis.explain import stranger

            raise stranger(str(error), self._transport.where(self.place)) from error
        except TooLargeError as error:
            from oncecron.stores.redis.explain import too_large

            raise too_large(self._transport.where(self.place)) from error
        finally:
            if not answered:
                self.close()
        return reply

    def _failure(self, error: OSError) -> StoreError:
        if self._said and not isinstance(error, TimeoutError):
            from oncecron.stores.redis.explain import turned_away

            return turned_away(self._said[1], self._transport.where(self.place))
        if (
            isinstance(error, ConnectionResetError)
            and not self._incoming.has_begun
            and self._transport.is_plain
        ):
            doubt = "closed the connection before its first answer; if it uses TLS, write rediss://"
            return StoreUnavailable(f"{self._transport.where(self.place)}: the server {doubt}")
        return self._transport.failure(error, self.place)

    def _ask(self, commands: Sequence[bytes]) -> Reply | ReplyError:
        self._send_all(commands)
        return [self._next_reply() for _ in commands][-1]

    def _listen(self, channel: str) -> ReplyError | None:
        self._send_all((packed(("HELLO", 3)), packed(("SUBSCRIBE", channel))))
        hello = self._reader.reply()
        reply = self._reader.next()
        while isinstance(reply, Push) and reply[:1] != [b"subscribe"]:
            reply = self._reader.next()
        if isinstance(reply, ReplyError):
            return reply
        if isinstance(hello, ReplyError):  # in RESP2 a subscriber cannot send other commands
            self.close()
            return hello
        self.channels.add(channel)
        return None

    def _send_all(self, commands: Sequence[bytes]) -> None:
        handshake, self._handshake = self._handshake, None
        if handshake is None:
            self._send(b"".join(commands))
        elif handshake.must_be_confirmed:
            self._send(handshake.words)
            self._read_handshake(handshake)
            self._send(b"".join(commands))
        else:
            self._send(handshake.words + b"".join(commands))
            self._read_handshake(handshake)

    def _read_handshake(self, handshake: Handshake) -> None:
        """Read the replies to the handshake. Raises `StoreError` for a refusal.

        ERR says nothing of the cause. A server that is full says so and hangs up (`_failure`), so the other replies
        are read before it counts.
        """
        refused: StoreError | None = None
        for verb in handshake.verbs:
            reply = self._reader.reply()
            if not isinstance(reply, ReplyError):
                continue
            from oncecron.stores.redis.explain import is_harmless, of_handshake

            self._said = self._said or (verb, reply)
            if is_harmless(verb, reply, handshake.user):
                continue
            cause = self._said if reply.code == "NOAUTH" else (verb, reply)
            where = self._transport.where(self.place)
            refused = refused or of_handshake(*cause, where, handshake.prefix, handshake.user)
            if reply.code != "ERR":
                break
        if refused:
            raise refused

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._transport.remaining(self._incoming.deadline))
            try:
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:
                raise
            except OSError:  # the server closed the connection, and may have sent the reason
                self._raise_last_words()
                raise

    def _raise_last_words(self) -> None:
        try:
            reply = self._reader.reply()
        except OSError as said:
            if getattr(said, "reason", None):  # a TLS alert
                raise
            return
        except (ProtocolError, TooLargeError):
            return
        if isinstance(reply, ReplyError):
            from oncecron.stores.redis.explain import turned_away

            raise turned_away(reply, self._transport.where(self.place))


class _Incoming:
    """What a server sends, until a deadline.

    It does not know its connection: that would be a cycle, and a firing, which collects none (`gc` is off), would keep
    each connection that it has closed. With TLS that is 0.8 MB.
    """

    def __init__(self, socket: _socket.socket, transport: Transport) -> None:
        self._socket = socket
        self._transport = transport
        self.deadline = 0.0
        self.has_begun = False

    def more(self) -> bytes:
        """Return the next bytes. Raises `OSError`."""
        self._socket.settimeout(self._transport.remaining(self.deadline))
        chunk = self._socket.recv(_CHUNK)
        if not chunk:
            raise hung_up()
        self.has_begun = True
        return chunk


def hung_up() -> OSError:
    """Return the error of a connection that the server has closed."""
    return ConnectionResetError(errno.ECONNRESET, "the server closed the connection")


def _connected(place: Host | str, transport: Transport, deadline: float) -> _socket.socket:
    """Return a connected socket. Raises `OSError`: that of the last address."""
    if isinstance(place, str):
        return _opened(_socket.AF_UNIX, place, transport, deadline)
    host, port = place
    # Of several names: a name server that hangs has time limits of its own.
    transport.remaining(deadline)
    # Bytes, because text would import the IDNA codec.
    name = host.encode("ascii" if host.isascii() else "idna")
    found = _socket.getaddrinfo(name, port, _socket.AF_UNSPEC, _socket.SOCK_STREAM)
    for left, (family, _, _, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        try:
            # An address that does not answer must leave time for the next one.
            turn = deadline - transport.remaining(deadline) * (1 - 1 / left)
            return transport.with_tls(_opened(family, address, transport, turn), place)
        except OSError:
            if left == 1:
                raise
    raise OSError(f"{host} has no address")


def _opened(
    family: int, address: str | tuple[Any, ...], transport: Transport, deadline: float
) -> _socket.socket:
    raw = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        if family != _socket.AF_UNIX:
            _prepare(raw, transport.server_timeout)
        raw.settimeout(transport.remaining(deadline))
        raw.connect(address)
        raw.settimeout(transport.remaining(deadline))  # for the handshake of TLS
    except BaseException:
        raw.close()
        raise
    return raw


def _prepare(raw: _socket.socket, server_timeout: float) -> None:
    """Set TCP_NODELAY, keepalives and TCP_USER_TIMEOUT: a dead connection is noticed within seconds."""
    raw.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    raw.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        raw.setsockopt(_socket.IPPROTO_TCP, getattr(_socket, name), value)
    milliseconds = max(SHORTEST_SERVER_TIMEOUT, int(server_timeout)) * 1000
    raw.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_USER_TIMEOUT, milliseconds)
