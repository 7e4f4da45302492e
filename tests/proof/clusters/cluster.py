"""What a store is to the chaos suite: where hosts find it, what can befall it, what it says afterwards."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from servers import FaultProxy, Host, Network

from oncecron_drill.faults import StoreFault

LOOKOUT = "lookout"


class Cluster(Protocol):
    """A store with its servers, used by one thread: what that one starts dies with it."""

    kind: str
    faults: list[StoreFault]
    proxies: dict[str, list[FaultProxy]]
    """By name of a firing host: what only that host's traffic passes."""

    def url(self, host: str, *, proxied: bool) -> str:
        """Return ONCECRON_STORE of a host, with a login that may fire and read, and nothing else."""

    def operator_url(self) -> str:
        """Return ONCECRON_STORE of whoever pauses, stops and releases; no proxy is in between."""

    def fenced_write(self) -> list[str]:
        """Return a command that writes under a fencing token; a job adds key and token. 0 is accepted."""

    def register(self) -> list[tuple[str, int]]:
        """Return key and token of the accepted writes, those of a key in the order in which they came to be."""

    def leftovers(self) -> list[str]:
        """Say in a sentence each what there is that should be gone when nothing runs."""

    def well(self) -> None:
        """Wait until the store does what is asked of it."""

    def beat(self) -> object:
        """Write once as a heartbeat does: from a host, by a new session past the proxies of nobody's faults.

        Whatever makes a heartbeat slow makes this one slow too. By any thread, and however long.
        """

    def stop(self) -> None:
        """End all; the servers' logs stay in the directory of the run."""


class Seat(NamedTuple):
    """Where a server stands: the keywords that all servers of the tests take."""

    host: str
    prefix: Sequence[str]

    @property
    def words(self) -> dict[str, Any]:
        return self._asdict()


class Place:
    """Seats for the servers of a store, and middleboxes beside them: on a network of hosts, else on loopback."""

    def __init__(self, network: Network | None) -> None:
        self.network = network

    def seat(self, name: str) -> Seat:
        """Return a seat on a host of this name, which is new."""
        if self.network is None:
            return Seat("127.0.0.1", ())
        host = self.network.host(name)
        return Seat(host.address, host.prefix)

    def lookout(self, proxied: Sequence[Any] = ()) -> "Lookout":
        """Return a host from which servers are reached as from the others: these past proxies of its own."""
        host = self.network.host(LOOKOUT) if self.network is not None else None
        proxies = Middleboxes().before(LOOKOUT, proxied)
        return Lookout(host, dict(zip(proxied, proxies, strict=True)))


class Lookout:
    """A host that no fault touches, for whoever sees how fast the servers answer."""

    def __init__(self, host: Host | None, proxies: dict[Any, FaultProxy]) -> None:
        self.host = host
        self._proxies = proxies

    @contextlib.contextmanager
    def to(self, server: Any) -> Iterator[Any]:
        """Give what to connect to for a server; the sockets that this thread makes meanwhile are that host's."""
        with self.host.network_of_thread() if self.host else contextlib.nullcontext():
            yield self._proxies.get(server, server)

    def close(self) -> None:
        """End the proxies."""
        for proxy in self._proxies.values():
            proxy.close()


class Middleboxes:
    """Proxies beside the servers that the traffic of one host passes."""

    def __init__(self) -> None:
        self.of: dict[str, list[FaultProxy]] = {}

    def before(self, host: str, servers: Iterable[Any]) -> list[FaultProxy]:
        """Return those of a host, one a server; made when they are first asked for."""
        if host not in self.of:
            self.of[host] = [
                FaultProxy(server.port, to=server.host, host=server.host, prefix=server.prefix)
                for server in servers
            ]
        return self.of[host]

    def close(self) -> None:
        for proxy in (proxy for proxies in self.of.values() for proxy in proxies):
            proxy.close()


def silent(step: Callable[[], object]) -> Callable[[Random], str]:
    """Return how a fault begins that has no details."""
    return lambda _: (step(), "")[1]


def save_log(directory: Path, name: str, server: Any) -> None:
    """Keep the log of a server beyond its life."""
    with contextlib.suppress(OSError):
        (directory / f"{name}.log").write_text(server.log())
