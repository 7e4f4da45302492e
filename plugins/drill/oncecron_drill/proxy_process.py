"""The process behind FaultProxy: one loop, no threads, standard library only.

Arguments: listen-host listen-port server-host server-port. Each line on standard input is an
order `[name, value]`, obeyed before the line with its answer is written to standard output. The
process ends when its input does. Bytes move one way at a time: read from one end, queue with the
time at which they are due, write to the other. A direction that is blocked is neither read nor
written, so that nothing is lost, the sender's kernel buffers fill, and no end is noticed.
"""

import errno
import itertools
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

CHUNK = 65536
MOST_QUEUED = 1 << 20
RST_ON_CLOSE = struct.pack("ii", 1, 0)
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
END = b""


class Direction:
    """The bytes on their way from one end of a connection to the other."""

    def __init__(self, name: str, source: socket.socket, sink: socket.socket) -> None:
        self.name = name
        self.source = source
        self.sink = sink
        self.queue: deque[tuple[float, bytes]] = deque()
        self.queued = 0
        self.moved = 0
        self.source_ended = False
        self.sink_ended = False

    def put(self, chunk: bytes, due: float) -> None:
        """Queue a chunk, or END for the end of the stream."""
        self.queue.append((due, chunk))
        self.queued += len(chunk)

    def write(self, now: float) -> None:
        """Write what is due, as far as the sink takes it."""
        while self.queue and self.queue[0][0] <= now:
            due, chunk = self.queue.popleft()
            if chunk == END:
                self.sink_ended = True
                self.sink.shutdown(socket.SHUT_WR)
                return
            try:
                sent = self.sink.send(chunk)
            except BlockingIOError:
                sent = 0
            self.queued -= sent
            self.moved += sent
            if sent < len(chunk):
                self.queue.appendleft((due, chunk[sent:]))
                return

    def hurry(self) -> None:
        """Make everything in the queue due now."""
        self.queue = deque((0.0, chunk) for _, chunk in self.queue)

    def finished(self) -> bool:
        """Say whether its end has been passed on."""
        return self.sink_ended


class Connection:
    """One client and, as soon as anything may be forwarded to it, the server."""

    def __init__(self, client: socket.socket, family: int) -> None:
        self.client = client
        self.server = socket.socket(family)
        self.connecting = False
        self.connected = False
        self.open = True
        self.to_server = Direction("to_server", client, self.server)
        self.to_client = Direction("to_client", self.server, client)
        self.client_spoke = False
        self.requests = 0
        self.round_trips = 0
        self.counted = False  # this request has been counted by the pending drop
        self.swallow = False  # the answer to this request is to be lost
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (self.client, self.server):
            end.setblocking(False)

    def directions(self) -> tuple[Direction, Direction]:
        """Return both directions."""
        return self.to_server, self.to_client

    def traffic(self) -> list[int | bool]:
        """Return the fields of Traffic."""
        return [
            self.requests, self.round_trips, self.to_server.moved, self.to_client.moved, self.open,
        ]  # fmt: skip


class Proxy:
    """The loop and what it has been told."""

    def __init__(self, listen: tuple[str, int], server: tuple[str, int]) -> None:
        self.listen_address = listen
        self.server_addresses = itertools.cycle([server])
        self.family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
        self.selector = selectors.DefaultSelector()
        self.connections: list[Connection] = []
        self.listener: socket.socket | None = None
        self.blocked: frozenset[str] = frozenset()
        self.resetting = False
        self.delays: dict[str, float] = {}
        self.drop: tuple[int, bytes] | None = None
        self.refuse_after_drop = False
        self.dropped = 0
        self.orders = bytearray()

    def run(self) -> None:
        """Serve until standard input ends."""
        os.set_blocking(0, False)
        self.selector.register(0, READ, None)
        self._listen()
        while True:
            self._watch_all()
            for key, events in self.selector.select(self._until_due()):
                if key.fd == 0:
                    if not self._obey():
                        return
                elif key.data is None:
                    self._accept()
                else:
                    self._serve(key.data, key.fileobj, events)
            self._write_due()

    # Orders

    def _obey(self) -> bool:
        chunk = os.read(0, CHUNK)
        self.orders += chunk
        while b"\n" in self.orders:
            line, _, rest = self.orders.partition(b"\n")
            self.orders = bytearray(rest)
            name, value = json.loads(line)
            answer = getattr(self, f"do_{name}")(value)
            os.write(1, json.dumps(answer).encode() + b"\n")
        return bool(chunk)

    def do_port(self, _: None) -> int:
        """Return the port that it listens on; it stays the same after `refuse`."""
        return self.listen_address[1]

    def do_pass(self, _: None) -> None:
        """End all faults."""
        self.blocked, self.resetting, self.delays, self.drop = frozenset(), False, {}, None
        for connection in self._open():
            for direction in connection.directions():
                direction.hurry()
        self._listen()

    def do_block(self, names: list[str]) -> None:
        """Forward nothing in these directions."""
        self.blocked = frozenset(names)

    def do_reset(self, _: None) -> None:
        """RST all connections, and each new one."""
        self.resetting = True
        self.do_sever(None)

    def do_sever(self, _: None) -> None:
        """RST the connections of now."""
        for connection in self._open():
            self._close(connection, abort=True)

    def do_refuse(self, _: None) -> None:
        """Stop listening; who is in the backlog is accepted first, as a living connection."""
        self._accept()
        if self.listener is not None:
            self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None

    def do_lead(self, servers: list[list[Any]]) -> None:
        """Connect whoever comes from now on to each of these servers in turn."""
        self.server_addresses = itertools.cycle([(host, port) for host, port in servers])

    def do_delay(self, value: tuple[float, list[str]]) -> None:
        """Delay every chunk that comes from now on and goes towards one of these."""
        seconds, towards = value
        self.delays = {f"to_{name}": seconds for name in towards}

    def do_drop(self, value: tuple[int, str, bool]) -> None:
        """Lose the answer to the n-th request with these bytes, and perhaps stop listening then."""
        n, containing, self.refuse_after_drop = value
        self.drop = (n, bytes.fromhex(containing))

    def do_dropped(self, _: None) -> int:
        """Return the number of lost answers."""
        return self.dropped

    def do_traffic(self, _: None) -> list[list[int | bool]]:
        """Return what every connection carried."""
        return [connection.traffic() for connection in self.connections]

    # Sockets

    def _listen(self) -> None:
        if self.listener is None:
            self.listener = socket.create_server(self.listen_address, backlog=512)
            self.listen_address = self.listener.getsockname()[:2]
            self.listener.setblocking(False)
            self.selector.register(self.listener, READ, None)

    def _accept(self) -> None:
        while self.listener is not None:
            try:
                client, _ = self.listener.accept()
            except BlockingIOError:
                return
            connection = Connection(client, self.family)
            self.connections.append(connection)
            if self.resetting:
                self._close(connection, abort=True)

    def _connect(self, connection: Connection) -> None:
        connection.connecting = True
        status = connection.server.connect_ex(next(self.server_addresses))
        if status not in (0, errno.EINPROGRESS):
            self._close(connection, abort=True)

    def _close(self, connection: Connection, *, abort: bool = False) -> None:
        connection.open = False
        for end in (connection.client, connection.server):
            self._watch(end, 0, connection)
            if abort and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
            end.close()

    def _open(self) -> Iterator[Connection]:
        return (connection for connection in self.connections if connection.open)

    # What the loop waits for

    def _watch_all(self) -> None:
        for connection in self._open():
            if not connection.connecting and "to_server" not in self.blocked:
                self._connect(connection)
        now = time.monotonic()
        for connection in self._open():
            for end in (connection.client, connection.server):
                if end.fileno() >= 0:
                    self._watch(end, self._events(connection, end, now), connection)

    def _events(self, connection: Connection, end: socket.socket, now: float) -> int:
        if end is connection.server and not connection.connected:
            return WRITE if connection.connecting else 0
        events = 0
        for direction in connection.directions():
            if direction.name in self.blocked:
                continue
            if direction.source is end and not direction.source_ended:
                # Before the server is reached its direction's queue must not fill either.
                events |= READ if direction.queued < MOST_QUEUED else 0
            if direction.sink is end and direction.queue and direction.queue[0][0] <= now:
                events |= WRITE
        return events

    def _watch(self, end: socket.socket, events: int, connection: Connection) -> None:
        if end.fileno() < 0:
            return
        watched = self.selector.get_map().get(end)
        if watched is None and events:
            self.selector.register(end, events, connection)
        elif watched is not None and not events:
            self.selector.unregister(end)  # epoll would report its hang-up for ever
        elif watched is not None and watched.events != events:
            self.selector.modify(end, events, connection)

    def _until_due(self) -> float | None:
        now = time.monotonic()
        waits = [
            max(0.0, direction.queue[0][0] - now)
            for connection in self._open()
            for direction in connection.directions()
            if direction.queue and direction.name not in self.blocked
            if direction.queue[0][0] > now
        ]
        return min(waits, default=None)

    # Bytes

    def _serve(self, connection: Connection, end: Any, events: int) -> None:
        if not connection.open or end.fileno() < 0:
            return
        try:
            if end is connection.server and not connection.connected:
                self._finish_connecting(connection)
            elif events & READ:
                self._read(connection, end)
        except OSError:  # the other side is gone: whoever is left learns it the same way
            self._close(connection, abort=True)

    def _finish_connecting(self, connection: Connection) -> None:
        status = connection.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            raise OSError(status, os.strerror(status))
        connection.connected = True

    def _read(self, connection: Connection, end: socket.socket) -> None:
        try:
            chunk = end.recv(CHUNK)
        except BlockingIOError:
            return
        if end is connection.client:
            self._from_client(connection, chunk)
        else:
            self._from_server(connection, chunk)

    def _from_client(self, connection: Connection, chunk: bytes) -> None:
        if chunk and not connection.client_spoke:
            connection.client_spoke = True
            connection.requests += 1
            connection.counted = False
        self._arm(connection, chunk)
        self._forward(connection.to_server, chunk)

    def _arm(self, connection: Connection, chunk: bytes) -> None:
        if self.drop is None or connection.counted or not chunk:
            return
        n, containing = self.drop
        if containing in chunk:
            connection.counted = True
            connection.swallow = n == 1
            self.drop = None if n == 1 else (n - 1, containing)

    def _from_server(self, connection: Connection, chunk: bytes) -> None:
        if chunk and connection.client_spoke:
            connection.client_spoke = False
            connection.round_trips += 1
        if not connection.swallow:
            self._forward(connection.to_client, chunk)
        elif connection.client.fileno() >= 0:
            self._lose_client(connection)
        if not chunk and connection.client.fileno() < 0:
            self._close(connection)

    def _lose_client(self, connection: Connection) -> None:
        self.dropped += 1
        if self.refuse_after_drop:
            self.do_refuse(None)
        self._watch(connection.client, 0, connection)
        connection.client.close()
        # The server finishes the request and ends the session by itself; its words are drained.
        connection.to_server.source_ended = True
        connection.to_server.put(END, time.monotonic())

    def _forward(self, direction: Direction, chunk: bytes) -> None:
        direction.source_ended = chunk == END
        direction.put(chunk, time.monotonic() + self.delays.get(direction.name, 0.0))

    def _write_due(self) -> None:
        now = time.monotonic()
        for connection in list(self._open()):
            try:
                for direction in connection.directions():
                    if direction.name in self.blocked or not connection.connected:
                        continue
                    direction.write(now)
            except OSError:
                self._close(connection, abort=True)
                continue
            if all(direction.finished() for direction in connection.directions()):
                self._close(connection)


if __name__ == "__main__":
    host, port, server_host, server_port = sys.argv[1:]
    Proxy((host, int(port)), (server_host, int(server_port))).run()
