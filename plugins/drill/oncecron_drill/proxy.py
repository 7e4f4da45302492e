"""A TCP proxy with faults, as a process of its own: it can be stopped while its kernel answers.

The other end, `proxy_process.py`, does what it is told on its standard input and ends with it.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("proxy_process.py")


class FaultProxy:
    """Forwards TCP connections to one server until it is told to misbehave.

    Every method returns when the new behaviour is in force. All faults but `refuse` concern
    both the living connections and new ones, and `passing` ends them all.
    """

    def __init__(
        self, server: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0, prefix: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """Forward to a server, from a port (0: any that is free); `prefix` is put in front of its command."""
        self.host = host
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-S", str(SCRIPT), host, str(port), server[0], str(server[1])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.port: int = self._tell("port")

    def passing(self) -> None:
        """Forward everything; what was held back is delivered now."""
        self._tell("pass")

    def deaf(self) -> None:
        """Accept and keep connections and forward nothing, also no end of a connection."""
        self._tell("block", ["to_server", "to_client"])

    def one_way(self, towards: str) -> None:
        """Forward only towards `server` or only towards `client`."""
        blocked = {"server": "to_client", "client": "to_server"}[towards]
        self._tell("block", [blocked])

    def reset(self) -> None:
        """Answer every connection, the living and the new ones, with RST."""
        self._tell("reset")

    def refuse(self) -> None:
        """Close the listening port; connections that exist go on."""
        self._tell("refuse")

    def sever(self) -> None:
        """RST the connections that exist, this once; what new ones meet stays as it is."""
        self._tell("sever")

    def delay(self, seconds: float, towards: str | None = None) -> None:
        """Hold each chunk back for so long: in each direction, or only towards `server` or `client`."""
        self._tell("delay", [seconds, [towards] if towards else ["server", "client"]])

    def drop_next_reply(
        self, n: int = 1, containing: bytes = b"", *, then_refuse: bool = False
    ) -> None:
        """Lose the server's answer to the n-th request from now, then close the connection.

        The server gets the request, does it in full and sees an orderly end of the session. A
        request is what a client says after the server has spoken; only those with the bytes
        `containing` count. Name them wherever more than one client may speak. `then_refuse`: in the
        same moment as `refuse` does.
        """
        self._tell("drop", [n, containing.hex(), then_refuse])

    def close(self) -> None:
        """End the process; its connections are closed."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _tell(self, order: str, value: object = None) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([order, value]).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the proxy ended with status {self.process.wait()}")
        return json.loads(answer)
