"""Several hosts that do one thing at the same moment."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from contract_stores import StoreKind
from hosts import Host

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
