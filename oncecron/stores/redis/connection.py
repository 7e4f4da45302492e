"""One connection to one Redis server, whose every wait ends by a deadline.

Who we are (AUTH, SELECT, CLIENT SETNAME) is sent ahead of the first command in the same write, without a round trip
of its own, except where a refusal would not keep the command from being executed as somebody else or in another
database: a user other than `default`, a database other than 0. A command is sent once and never again.

The lowest layer of Python's sockets is used as it is: importing `socket` costs a firing 4 ms, most of them for its
enumerations.
"""

from __future__ import annotations

import _socket
import errno
import os
import time

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.stores.redis.resp import ProtocolError, Push, Reader, ReplyError, packed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn, TypeVar

    from oncecron.stores.redis.address import Host, Target, Tls
    from oncecron.stores.redis.resp import Reply

    Answer = TypeVar("Answer")

# ruff: noqa: PLC0415 - what a firing rarely needs, it imports when it does

_CHUNK = 1 << 16
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_SHORTEST_USER_TIMEOUT = 2  # seconds


class Introduction:
    """Who a client is: the commands ahead of its first one."""

    def __init__(
        self, username: str | None, password: str | None, database: int = 0, name: str = "",
        whose: str = "",
    ) -> None:  # fmt: skip
        """`whose`: how the names of user and password begin in the URL."""
        self.whose = whose
        self.verbs: list[str] = []
        self.words = b""
        if password is not None or username is not None:
            who = (password or "",) if username is None else (username, password or "")
            self._add("AUTH", *who)
        if database:
            self._add("SELECT", database)
        if name:
            self._add("CLIENT", "SETNAME", client_name(name))
        self.must_be_heard_first = database != 0 or username not in (None, "default")
        """Whether a server that refuses it would execute the command all the same."""

    def _add(self, verb: str, *words: str | int) -> None:
        self.verbs.append(verb)
        self.words += packed((verb, *words))


def client_name(name: str) -> str:
    """Return a name that CLIENT SETNAME takes: printable ASCII without blanks."""
    return "".join(sign if "!" <= sign <= "~" else "_" for sign in name)


class Way:
    """What the connections of one wire have in common."""

    def __init__(self, target: Target, clock: int, patience: float) -> None:
        self._shown = target.shown
        self._names_places = target.kind in ("sentinel", "cluster")
        self._tls: Tls | None = target.tls
        self.is_plain = target.tls is None and target.kind != "socket"
        self._context: ssl.SSLContext | None = None
        self.clock = clock
        self.patience = patience

    def where(self, place: Host | str) -> str:
        """Return how messages name a place."""
        told = f"Redis {self._shown}"
        return f"{told}: {shown(place)}" if self._names_places else told

    def left(self, deadline: float) -> float:
        """Return the seconds until a deadline; raises `TimeoutError` when there are none."""
        left = deadline - time.clock_gettime(self.clock)
        if left <= 0:
            raise TimeoutError
        return left

    def soon(self, deadline: float) -> float:
        """Return when the patience with one server ends."""
        return min(deadline, time.clock_gettime(self.clock) + self.patience)

    def protected(self, raw: _socket.socket, place: Host) -> _socket.socket:
        """Return the socket, with TLS where the address asks for it."""
        if self._tls is None:
            return raw
        from oncecron.stores.redis import tls

        try:
            if self._context is None:
                self._context = tls.context(self._tls, self.where(place))
            return tls.wrapped(self._context, raw, place[0])
        except TimeoutError as error:
            silent = "no handshake in time; does the server speak TLS there?"
            raise TimeoutError(errno.ETIMEDOUT, silent) from error
        finally:
            raw.close()  # TLS has taken the descriptor out of it, or it is of no use

    def failure(self, error: OSError, place: Host | str) -> StoreError:
        """Return the oncecron error of a socket's error."""
        where = self.where(place)
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"{where}: {error.strerror or 'no answer in time'}")
        if error.errno == errno.EACCES and isinstance(place, str):
            return StoreRefusesError(
                f"{where}: this user may not use the socket; see unixsocketperm in redis.conf"
            )
        if self._tls is not None:
            import ssl

            if isinstance(error, ssl.SSLError):
                from oncecron.stores.redis.tls import explain

                return explain(error, where)
        return StoreUnavailable(f"{where}: {error.strerror or error}")


def shown(place: Host | str) -> str:
    """Return HOST:PORT, or a socket's path."""
    if isinstance(place, str):
        return place
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Session:
    """A server that is connected; broken for good after the first error."""

    def __init__(
        self, place: Host | str, way: Way, introduction: Introduction, deadline: float
    ) -> None:
        """Connect within the patience. Raises `StoreError`."""
        self.place = place
        self._way = way
        self._introduction: Introduction | None = introduction
        self._deadline = deadline
        self._heard = False
        self.channels: set[str] = set()
        """To which we listen."""
        self._stirred_fd: int | None = None
        self._reader = Reader(self._receive)
        try:
            self._socket = _connected(place, way, way.soon(deadline))
        except OSError as error:
            raise way.failure(error, place) from error

    def fileno(self) -> int:
        """Return the socket, -1 when it is closed."""
        return self._socket.fileno()

    def watch_fd(self) -> int:
        """Return what is readable when the server has said something unasked, or has hung up.

        The socket; what came in one piece with the last answer is no longer there to be read.
        """
        if not self._reader.has_more:
            return self.fileno()
        if self._stirred_fd is None:
            self._stirred_fd = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self._stirred_fd

    def close(self) -> None:
        """Close the socket without waiting."""
        stirred, self._stirred_fd = self._stirred_fd, None
        if stirred is not None:
            os.close(stirred)
        try:
            self._socket.close()
        except OSError:  # what a reset left behind
            return

    def ask(self, *commands: bytes, deadline: float) -> Reply | ReplyError:
        """Send commands, each of them once, and return the last one's answer. Raises as `ask_all` does."""
        return self.ask_all(commands, deadline=deadline)[-1]

    def ask_all(self, commands: Sequence[bytes], *, deadline: float) -> list[Reply | ReplyError]:
        """Send commands, each of them once, in one write; return their answers.

        Raises `StoreError` when one is missing, or when the server does not let us in; closed then.
        """
        return self._told(lambda: self._ask(commands), deadline)

    def listen(self, channel: str, *, deadline: float) -> ReplyError | None:
        """Have the server say what is published there, or return its refusal.

        One round trip, or none where we listen already. Raises as `ask` does; closed after a server without RESP3.
        """
        if channel in self.channels:
            return None
        return self._told(lambda: self._listen(channel), deadline)

    def _told(self, talk: Callable[[], Answer], deadline: float) -> Answer:
        self._deadline = deadline
        answered = False
        try:
            reply = talk()
            answered = True
        except OSError as error:
            raise self._failure(error) from error
        except ProtocolError as error:
            from oncecron.stores.redis.explain import stranger

            raise stranger(str(error), self._way.where(self.place)) from error
        finally:
            if not answered:
                self.close()
        return reply

    def _failure(self, error: OSError) -> StoreError:
        if isinstance(error, ConnectionResetError) and not self._heard and self._way.is_plain:
            doubt = "hung up before its first answer; if it speaks TLS there, write rediss://"
            return StoreUnavailable(f"{self._way.where(self.place)}: the server {doubt}")
        return self._way.failure(error, self.place)

    def _ask(self, commands: Sequence[bytes]) -> list[Reply | ReplyError]:
        self._say(commands)
        return [self._reader.reply() for _ in commands]

    def _listen(self, channel: str) -> ReplyError | None:
        self._say((packed(("HELLO", 3)), packed(("SUBSCRIBE", channel))))
        hello = self._reader.reply()
        heard = self._reader.next()
        while isinstance(heard, Push) and heard[:1] != [b"subscribe"]:
            heard = self._reader.next()
        if isinstance(heard, ReplyError):
            return heard
        if isinstance(hello, ReplyError):  # in RESP2 who listens may ask nothing
            self.close()
            return hello
        self.channels.add(channel)
        return None

    def _say(self, commands: Sequence[bytes]) -> None:
        introduction, self._introduction = self._introduction, None
        if introduction is None:
            self._send(b"".join(commands))
        elif introduction.must_be_heard_first:
            self._send(introduction.words)
            self._hear(introduction)
            self._send(b"".join(commands))
        else:
            self._send(introduction.words + b"".join(commands))
            self._hear(introduction)

    def _hear(self, introduction: Introduction) -> None:
        """Read what the server thinks of who we are."""
        for verb in introduction.verbs:
            reply = self._reader.reply()
            if isinstance(reply, ReplyError):
                refused = self._refusal(verb, reply, introduction.whose)
                if refused:
                    raise refused

    def _refusal(self, verb: str, error: ReplyError, whose: str) -> StoreError | None:
        from oncecron.stores.redis import explain

        where = self._way.where(self.place)
        # A name is a courtesy; the command itself tells. But a step's many words, said by whoever has not logged in,
        # are to Redis a "Protocol error: unauthenticated multibulk length".
        if verb == "CLIENT" and error.code != "NOAUTH":
            return explain.at_the_door(error, where)
        return explain.of_introduction(error, where, whose)

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._way.left(self._deadline))
            try:
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:
                raise
            except OSError as error:  # it has hung up, maybe with a word of why
                raise self._last_words(error) from error

    def _last_words(self, error: OSError) -> Exception:
        """Return what the server said before it hung up, or the error of having hung up."""
        try:
            reply = self._reader.reply()
        except OSError as said:
            return said if getattr(said, "reason", None) else error  # an alert of TLS
        except ProtocolError:
            return error
        refused = None
        if isinstance(reply, ReplyError):
            from oncecron.stores.redis.explain import of_command

            refused = of_command(reply, self._way.where(self.place))
        return refused or error

    def _receive(self) -> bytes:
        self._socket.settimeout(self._way.left(self._deadline))
        chunk = self._socket.recv(_CHUNK)
        if not chunk:
            _hung_up()
        self._heard = True
        return chunk


def _hung_up() -> NoReturn:
    raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")


def _connected(place: Host | str, way: Way, deadline: float) -> _socket.socket:
    """Return a connected socket. Raises `OSError`: the last one of several addresses' errors."""
    if isinstance(place, str):
        return _opened(_socket.AF_UNIX, place, way, deadline)
    host, port = place
    # A host in bytes: text would import the IDNA codec.
    name = host.encode("ascii" if host.isascii() else "idna")
    found = _socket.getaddrinfo(name, port, _socket.AF_UNSPEC, _socket.SOCK_STREAM)
    failure: OSError = OSError(f"{host} has no address")
    for number, (family, _, _, _, address) in enumerate(found):
        try:
            # A silent address leaves time for the next one.
            turn = deadline - way.left(deadline) * (1 - 1 / (len(found) - number))
            return way.protected(_opened(family, address, way, turn), place)
        except OSError as error:
            failure = error
    raise failure


def _opened(
    family: int,
    address: str | tuple[Any, ...],
    way: Way,
    deadline: float,
) -> _socket.socket:
    raw = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        if family != _socket.AF_UNIX:
            _prepare(raw, way.patience)
        raw.settimeout(way.left(deadline))
        raw.connect(address)
        raw.settimeout(way.left(deadline))  # for the handshake of TLS
    except BaseException:
        raw.close()
        raise
    return raw


def _prepare(raw: _socket.socket, patience: float) -> None:
    """Send at once, and learn within seconds that the packets have stopped."""
    raw.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    raw.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        raw.setsockopt(_socket.IPPROTO_TCP, getattr(_socket, name), value)
    milliseconds = max(_SHORTEST_USER_TIMEOUT, int(patience)) * 1000
    raw.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_USER_TIMEOUT, milliseconds)
