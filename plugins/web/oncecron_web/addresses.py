"""The addresses of the pages: each links to the others by these, relative to wherever the pages stand."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

_AS_THEY_ARE = "/:@"
"""What a key may have, and what needs no escape in a query."""


class Link(NamedTuple):
    """A link: its text, and its address."""

    text: str
    address: str


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
