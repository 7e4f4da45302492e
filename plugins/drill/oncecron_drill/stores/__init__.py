"""What a drill asks of a store beside what hosts and people do: a namespace of its own, and what happens to the server.

Each store carries it out in its module `drill`. Nothing else imports these, and they touch no other namespace.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from oncecron.stores.address import Address


class Sight(NamedTuple):
    """The server that answered, as one question found it."""

    version: str
    """With its name: `PostgreSQL 17.2`."""
    place: str
    """Its address as it says itself; empty if it does not."""
    life: str
    """Another text after each restart, failover and promotion."""
    shown: str
    """The role and the life as people read them."""
    clock: float
    """Seconds since the epoch."""


Write = Callable[[int], int | None]


class DrilledStore(Protocol):
    """The store of a drill. Every method may raise `StoreError`."""

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        """Return host and port of each server that a proxy can stand in front of, as the address has them."""

    @property
    def unproxied(self) -> str:
        """Return why no proxy can stand in front of it; empty if one can."""

    def role(self) -> str | None:
        """Return the role that needs rights in the namespace; None where there are no roles."""

    def address_through(self, ports: Sequence[int]) -> tuple[str, dict[str, str]]:
        """Return the address for hosts and their environment; `ports`: of the proxies on 127.0.0.1, none for none."""

    def prepare(self) -> None:
        """Make what a `writer` writes into, in a namespace that has been initialised."""

    def remove(self) -> None:
        """Remove the namespace with all that is in it; none is no error."""

    def look(self) -> Sight:
        """Return what the server says of itself, by a session that stays; raises if that session was lost."""

    def writer(self, ports: Sequence[int]) -> Write:
        """Return what writes a number durably by a new session through these proxies, none for none.

        It returns the number that it replaces, or None if there is none to tell.
        """

    def plain_lock(self, key: str) -> AbstractContextManager[bool]:
        """Hold a lock as a script of ten lines does, while the block lasts; give whether it is ours."""

    def close(self) -> None:
        """End the session of `look`."""


def open_drilled(address: Address, namespace: str) -> DrilledStore:
    """Return the store of a drill; it connects at the first call."""
    module = importlib.import_module(f"oncecron_drill.stores.{address.kind}")
    store: DrilledStore = module.open_drilled(address, namespace)
    return store
