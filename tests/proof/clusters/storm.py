"""A storm of connections: one client that takes every connection that a server has to give, and leaves it idle."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

PAUSE = 0.05
"""Between a refusal and the next attempt, in seconds: what others give back is taken soon."""


class Storm:
    """Holds up to `most` connections until it ends; `connect` makes one, or raises one of `refusals`."""

    def __init__(
        self, connect: Callable[[], Any], most: int, refusals: tuple[type[Exception], ...]
    ) -> None:
        self._connect = connect
        self._most = most
        self._refusals = refusals
        self._held: list[Any] = []
        self._over = threading.Event()
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._blow, daemon=True)

    def begin(self) -> str:
        """Return how many were taken when the server gave no more, or a slow machine had taken long enough."""
        self._thread.start()
        still = "" if self._full.wait(20) else ", and the server still gives more"
        return f"{len(self._held)} connections{still}"

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        while self._held:
            with contextlib.suppress(Exception):  # a server that is gone cannot be taken leave of
                self._held.pop().close()

    def _blow(self) -> None:
        while not self._over.is_set():
            try:
                if len(self._held) < self._most:
                    self._held.append(self._connect())
                    continue
            except self._refusals:
                self._full.set()
            self._over.wait(PAUSE)
