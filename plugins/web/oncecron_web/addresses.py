"""The addresses of the pages: each links to the others by these, relative to wherever the pages stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from oncecron.core.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.log_rows import Execution

_AS_THEY_ARE = "/:@"
"""What a key may have, and what needs no escape in a query."""


class Link(NamedTuple):
    """A link: its text, and its address."""

    text: str
    address: str


class NoSuchPageError(NotFoundError):
    """There is no such page."""

    def __init__(self, message: str, near: Sequence[Link] = ()) -> None:
        """`near`: what may have been meant."""
        super().__init__(message)
        self.near = near


def address(path: str, **fields: str) -> str:
    """Return the address of a page with its fields, without those that are empty."""
    query = "&".join(
        f"{name}={quote(value, safe=_AS_THEY_ARE)}" for name, value in fields.items() if value
    )
    return f"{path}?{query}" if query else path


def key_address(name: str) -> str:
    """Return the address of the page of a key."""
    return address("key", name=name)


def host_address(name: str) -> str:
    """Return the address of the page of a host."""
    return address("host", name=name)


def run_address(run: Execution) -> str:
    """Return the address of the page of a key, where the tick of a run, or the run, is explained."""
    which = {"tick": run.tick} if run.tick else {"run": str(run.execution_id)}
    return address("key", name=run.key, **which)
