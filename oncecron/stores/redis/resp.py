"""The Redis protocol: convert commands to bytes, and bytes to replies, without sockets.

RESP2, as https://redis.io/docs/latest/develop/reference/protocol-spec/ describes it, and the part of RESP3 that a
subscriber needs: maps (the reply to HELLO), its null, and push messages between two replies.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Reply = bytes | int | list["Reply"] | None
Word = bytes | str | int | float

_LONGEST_LINE = 1 << 16
LARGEST_REPLY = 64 << 20
"""In bytes: eight of the longest outputs on record."""
_COST_OF_VALUE = 64
"""How many bytes of it a value counts for, beside its own: what the interpreter needs for an empty one."""
_DEEPEST = 32


class ReplyError(Exception):
    """The server refused a command; `code` is the first word of its reply (NOSCRIPT, READONLY, OOM, ...)."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class ProtocolError(Exception):
    """The other side does not use this protocol."""


class TooLargeError(Exception):
    """A reply is larger than any that oncecron asks for."""


class Push(list["Reply"]):
    """A message that the server sends without a request."""


def packed(words: Iterable[Word]) -> bytes:
    """Return one command: text as UTF-8, numbers as Python writes them."""
    encoded = [_encoded(word) for word in words]
    return b"".join(
        (b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))
    )


def _encoded(word: Word) -> bytes:
    if isinstance(word, bytes):
        return word
    return (word if isinstance(word, str) else repr(word)).encode("utf-8", "surrogateescape")


class ReplyReader:
    """Reads replies from a stream; `more` returns its next bytes, at least one, or raises."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._buffer = bytearray()
        self._at = 0
        self._left = LARGEST_REPLY
        self._error: ReplyError | None = None

    @property
    def has_more(self) -> bool:
        """Whether bytes have arrived after the last reply."""
        return bool(self._buffer)

    def reply(self) -> Reply | ReplyError:
        """Return the next reply; skip the push messages before it."""
        while isinstance(found := self.next(), Push):
            pass
        return found

    def next(self) -> Reply | ReplyError:
        """Return the next reply or `Push`; for an array that holds an error, the error."""
        self._error = None
        self._left = LARGEST_REPLY
        value = self._value(_DEEPEST)
        del self._buffer[: self._at]
        self._at = 0
        return value if self._error is None else self._error

    def _take(self, size: int) -> None:
        """Count what a part of the reply needs, before it is read."""
        self._left -= size
        if self._left < 0:
            raise TooLargeError

    def _value(self, depth: int) -> Reply:
        line = self._line()
        self._take(len(line))
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            self._error = self._error or ReplyError(rest.decode("utf-8", "replace"))
            return None
        if kind == b":":
            return _number(rest, line)
        if kind == b"$":
            return self._bulk(_number(rest, line))
        if kind == b"*" and depth:
            return self._array(_number(rest, line), depth)
        return self._value_of_resp3(kind, rest, line, depth)

    def _value_of_resp3(self, kind: bytes, rest: bytes, line: bytes, depth: int) -> Reply:
        if kind == b"_":
            return None
        if kind == b"%" and depth:  # names and values in turn, as in RESP2
            return self._array(2 * _number(rest, line), depth)
        if kind == b">" and depth == _DEEPEST:
            return Push(self._array(_number(rest, line), depth) or ())
        raise ProtocolError(line[:40].decode("latin-1"))

    def _line(self) -> bytes:
        searched = self._at
        while (end := self._buffer.find(b"\r\n", searched)) < 0:
            searched = max(self._at, len(self._buffer) - 1)
            if searched - self._at > _LONGEST_LINE:
                raise ProtocolError(self._buffer[self._at : self._at + 40].decode("latin-1"))
            self._buffer += self._more()
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _bulk(self, size: int) -> bytes | None:
        if size == -1:
            return None
        if size < 0:
            raise ProtocolError(f"${size}")
        self._take(size)
        end = self._at + size
        while len(self._buffer) < end + 2:
            self._buffer += self._more()
        value = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return value

    def _array(self, size: int, depth: int) -> list[Reply] | None:
        if size == -1:
            return None
        if size < 0:
            raise ProtocolError(f"*{size}")
        self._take(size * _COST_OF_VALUE)
        return [self._value(depth - 1) for _ in range(size)]


def _number(text: bytes, line: bytes) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ProtocolError(line[:40].decode("latin-1")) from error
