"""Several hosts that do one thing at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from hosts import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract_stores import StoreKind

Answer = TypeVar("Answer")


def at_once(store: StoreKind, number: int, does: Callable[[Host, int], Answer]) -> list[Answer]:
    """Let as many hosts, each with a connection of its own, do it; return what they got, in their order."""
    hosts = [Host(store.firing(), f"host{place}.example") for place in range(number)]
    start = Barrier(number, timeout=30)

    def run(place: int) -> Answer:
        start.wait()
        return does(hosts[place], place)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(run, range(number)))
