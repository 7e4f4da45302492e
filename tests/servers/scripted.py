"""A server on loopback that says what the test says, in any protocol."""

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

Behave = Callable[[socket.socket, int], None]
"""What a server does to its connection of this number."""


class Scripted:
    """A server that does to each connection what the test says: `behave(socket, number)`."""

    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.host, self.port = self._listener.getsockname()
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.add(connection)
                self.accepted += 1
                arguments = (connection, self.accepted)
                threading.Thread(target=self._one, args=arguments, daemon=True).start()

    def _one(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError):
            self._behave(connection, number)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def says(answer: bytes) -> Behave:
    """Return a behaviour: to each command, this."""

    def behave(connection: socket.socket, _: int) -> None:
        while data := connection.recv(1 << 16):
            connection.sendall(answer * (b"\r\n" + data).count(b"\r\n*"))

    return behave


def floods(beginning: bytes, more: bytes, *, asked: bool = True) -> Behave:
    """Return a behaviour: an answer without end, to the first command or before it."""

    def behave(connection: socket.socket, _: int) -> None:
        if asked:
            connection.recv(1 << 16)
        connection.sendall(beginning)
        many = more * (1 + 100_000 // len(more))
        while True:
            connection.sendall(many)

    return behave


def dribbles(answer: bytes, pause: float = 0.05) -> Behave:
    """Return a behaviour: to the first command this answer, a byte at a time, again and again."""

    def behave(connection: socket.socket, _: int) -> None:
        connection.recv(1 << 16)
        while True:
            for byte in answer:
                connection.sendall(bytes([byte]))
                time.sleep(pause)

    return behave


def between(server: Any, strange: bytes, first: int) -> Behave:
    """Return a behaviour: what a server answers, and from its reply of this number on always something else."""

    def behave(connection: socket.socket, _: int) -> None:
        with socket.create_connection((server.host, server.port)) as real:
            number = 0
            while data := connection.recv(1 << 20):
                real.sendall(data)
                answer = real.recv(1 << 20)
                number += 1
                # One for each command, of which a batch has many.
                asked = (b"\r\n" + data).count(b"\r\n*")
                connection.sendall(answer if number < first else strange * asked)

    return behave
