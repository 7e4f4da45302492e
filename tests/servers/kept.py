"""What a process keeps that collects no cycles, as the processes of a firing do."""

import gc
from collections.abc import Callable

import story_stores

TIMES = 1000 if story_stores.wanted() == "all" else 150
ROUNDS = 5
"""What is kept of each step is kept in every round; what memory takes in large pieces, or once for all, is not."""
PAGE = 4096


def memory() -> int:
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def assert_nothing_kept(step: Callable[[], object], times: int = TIMES) -> None:
    """Repeat a step without the collector: neither objects remain, nor memory of a library."""
    for _ in range(20):
        step()
    for _ in range(ROUNDS):
        objects, grown = _kept(step, times)
        if objects < times and grown < 4000 * times:
            return
    raise AssertionError(f"{objects / times:.1f} objects each, {grown / times:.0f} bytes each")


def _kept(step: Callable[[], object], times: int) -> tuple[int, int]:
    gc.collect()
    gc.disable()
    try:
        objects, size = len(gc.get_objects()), memory()
        for _ in range(times):
            step()
        return len(gc.get_objects()) - objects, memory() - size
    finally:
        gc.enable()
