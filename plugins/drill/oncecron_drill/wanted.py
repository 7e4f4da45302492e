"""What a run is asked for, and what it asks of the store that its hosts use."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from oncecron_drill.another_wrapper import Wrapper
from oncecron_drill.faults import StoreFault
from oncecron_drill.generator import ITEM_KEYS, KEYS, TTL, Key
from oncecron_drill.proxy import FaultProxy
from oncecron_drill.pulse import PAUSE


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a run is asked for."""

    store: str
    seed: int
    minutes: float
    directory: Path
    oncecron: Sequence[str]
    """The words that start it."""
    keys: Sequence[Key] = KEYS
    item_keys: Sequence[Key] = ITEM_KEYS
    faults: Callable[[str], bool] = lambda _: True
    outside: bool = True
    """Whether to try too what the promise leaves out."""
    pulse: float = PAUSE
    """Seconds between two beats."""
    wrapper: Wrapper | None = None
    """What fires instead of oncecron."""

    @property
    def lease(self) -> float:
        """Seconds after which the lock of a dead holder is free."""
        return self.wrapper.lease if self.wrapper else TTL


class Store(Protocol):
    """What a run asks of the store that its hosts use."""

    @property
    def faults(self) -> Sequence[StoreFault]:
        """Return what the nemesis may do to it."""

    @property
    def proxies(self) -> Mapping[str, Sequence[FaultProxy]]:
        """Return, by name of a firing host, what only that host's traffic passes."""

    def fenced_write(self) -> list[str]:
        """Return a command that writes under a fencing token; a job adds key and token. 0 is accepted."""

    def register(self) -> list[tuple[str, int]]:
        """Return key and token of the accepted writes, those of a key in the order in which they came to be."""

    def leftovers(self) -> list[str]:
        """Say in a sentence each what there is that should be gone when nothing runs."""

    def well(self) -> None:
        """Wait until the store does what is asked of it."""

    def beat(self) -> object:
        """Write once, by a new session, so that it counts as a heartbeat does; by any thread, and however long."""
