"""The TCP proxy with faults of the drill, on a port that no other test is given, whose life is tied to ours."""

from collections.abc import Sequence
from typing import Any

import pytest

from servers.process import as_ourselves, free_port

try:
    from oncecron_drill import proxy
except ModuleNotFoundError:  # the plugin is not there
    proxy = None

__all__ = ["FaultProxy", "Traffic"]
Traffic = proxy and proxy.Traffic


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
