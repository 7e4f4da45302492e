"""The TCP proxy with faults of the drill, on a port that no other test is given, whose life is tied to ours."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from servers.process import as_ourselves, free_port
from servers.waiting import eventually

try:
    from oncecron_drill import proxy
except ModuleNotFoundError:  # the plugin is not there
    proxy = None

__all__ = ["FaultProxy", "Traffic"]


@dataclass(frozen=True)
class Traffic:
    """What one connection through the proxy has carried until now."""

    requests: int  # times that the client spoke after the server (or first)
    round_trips: int  # times that the server spoke after the client
    bytes_to_server: int
    bytes_to_client: int
    open: bool


class FaultProxy(proxy.FaultProxy if proxy else object):
    """The proxy in front of a server of the tests."""

    def __init__(
        self, port: int, *, to: str = "127.0.0.1", host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if proxy is None:
            pytest.skip("a network with faults needs the plugin drill")
        words = [*prefix, *as_ourselves()]
        super().__init__((to, port), host=host, port=free_port(), prefix=words)

    def lead_to(self, *servers: Any) -> None:
        """Connect new clients to these servers (with `host` and `port`) in turn; those that are connected stay."""
        self._tell("lead", [[server.host, server.port] for server in servers])

    def dropped_replies(self) -> int:
        """Return how many answers were lost by `drop_next_reply`."""
        count: int = self._tell("dropped")
        return count

    def wait_dropped(self, count: int = 1, deadline: float = 10.0) -> None:
        """Wait until so many answers were lost."""
        eventually(lambda: self.dropped_replies() >= count, deadline)

    def connections(self) -> list[Traffic]:
        """Return the traffic of every connection so far, in the order of their beginning."""
        return [Traffic(*row) for row in self._tell("traffic")]

    def round_trips(self) -> int:
        return sum(connection.round_trips for connection in self.connections())

    def sigstop(self) -> None:
        """Stop the process; its kernel goes on accepting and acknowledging."""
        self.process.send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        """Let the process go on; what was held back is delivered."""
        self.process.send_signal(signal.SIGCONT)
