"""The server of another wrapper's lock: all that is known of it is an address, or nothing."""

from __future__ import annotations

import contextlib
import socket
import time

from oncecron.core.errors import StoreUnavailable, UsageError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron_drill.stores import Sight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron_drill.stores import Write

ANOTHER = "another"
"""The kind of such a store."""
_PATIENCE = 5.0
"""Seconds in which it must take a connection."""


class AnotherServer:
    """See `DrilledStore`; whatever protocol it speaks, it takes connections."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self._address = address

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        return () if self._address is None else (self._address,)

    @property
    def unproxied(self) -> str:
        return "" if self._address else "the wrapper was given no --proxy"

    def role(self) -> str | None:
        return None

    def address_through(self, ports: Sequence[int]) -> tuple[str, dict[str, str]]:
        return (f"127.0.0.1:{ports[0]}" if ports else self._text), {}

    def prepare(self) -> None:
        """See whether it is there at all."""
        self._connect()

    def remove(self) -> None:
        """Do nothing: whatever the wrapper has made is its own."""

    def look(self) -> Sight:
        self._connect()
        shown = "takes connections" if self._address else "no server"
        return Sight("", self._text, "", shown, time.time())

    def writer(self, ports: Sequence[int]) -> Write:
        """Past the proxies, which take a connection also when the server does not."""
        del ports
        return lambda _: self._connect()

    @contextlib.contextmanager
    def plain_lock(self, key: str) -> Iterator[bool]:
        """Refuse: which lock this server has, nobody knows. The control is of a file instead."""
        raise NotImplementedError(key)

    def close(self) -> None:
        """Hold nothing."""

    @property
    def _text(self) -> str:
        if self._address is None:
            return ""
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _connect(self) -> None:
        if self._address is None:
            return
        try:
            socket.create_connection(self._address, _PATIENCE).close()
        except OSError as error:
            raise StoreUnavailable(f"{self._text} takes no connection: {error}") from error


def parse_server(text: str) -> tuple[str, int]:
    """Read HOST:PORT, or [HOST]:PORT. Raises `UsageError`."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise UsageError(f"--proxy: {text!r} is not an address such as 127.0.0.1:2379")
    return host, int(port)
