"""What a server sends, to a client of the standard library: bounded in bytes and in time.

A timeout of a socket begins anew with each byte, and smtplib and http.client read as many lines as a server sends.
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

from oncecron.core.errors import OncecronError

if TYPE_CHECKING:
    from socket import socket

    from _typeshed import WriteableBuffer

_LARGEST = 1 << 20
"""In bytes, of all answers of one exchange: headers, or replies to each of a thousand recipients."""


class TooLargeError(OncecronError):
    """A server does not end its answer."""

    def __init__(self) -> None:
        super().__init__(f"the server's answer is larger than {_LARGEST >> 20} MB")


class BoundedAnswer:
    """What a server sends in one exchange, over one socket after another (TLS begins in the middle of SMTP)."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds from now."""
        self._deadline = time.monotonic() + timeout
        self._left = _LARGEST

    def stream(self, source: socket) -> io.BufferedReader:
        """Return what comes from a socket. Reading raises `TooLargeError`, or `TimeoutError` after the deadline."""
        return io.BufferedReader(_Stream(self, source))

    def receive(self, source: socket, buffer: WriteableBuffer) -> int:
        """Receive some bytes."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        source.settimeout(left)
        received = source.recv_into(buffer)
        self._left -= received
        if self._left < 0:
            raise TooLargeError
        return received


class _Stream(io.RawIOBase):
    def __init__(self, answer: BoundedAnswer, source: socket) -> None:
        self._answer = answer
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._answer.receive(self._source, buffer)
