"""What a process keeps that collects no cycles, as the processes of a firing do."""

import gc
from collections.abc import Callable

import story_stores

TIMES = 1000 if story_stores.wanted() == "all" else 150
FIRST = 20
"""After so many, what is kept once for all is there: statements that were read, modules."""
PAGE = 4096
ONCE = 500_000
"""Bytes by which a process may grow once, because memory is taken in large pieces."""


def memory() -> int:
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def assert_nothing_kept(step: Callable[[], object], times: int = TIMES) -> None:
    """Repeat a step without the collector: neither objects remain, nor memory of a library."""
    for _ in range(FIRST):
        step()
    gc.collect()
    gc.disable()
    try:
        objects, size = len(gc.get_objects()), memory()
        for _ in range(times):
            step()
        kept = len(gc.get_objects()) - objects
        grown = memory() - size
    finally:
        gc.enable()
    assert kept < times, f"{kept / times:.1f} objects each"
    assert grown < ONCE + 4000 * times, f"{grown / times:.0f} bytes each"
