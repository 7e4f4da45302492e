"""On which of its stores a test runs, and of which tests each run tries a few.

A story, a test of a folder `acceptance` with the same words for several stores, runs on one of them in each run. The
seed of the run chooses it: each story goes to its next store with the next seed, so that as many runs with
successive seeds as there are stores prove all of them. ONCECRON_TEST_SEED repeats a choice.

All other tests run on all of their stores. So does the contract of the stores, but that each of its tests asks
PostgreSQL either directly, directly by the functions for poolers (`warm`), through a pooler or with `?hold=no`
(`unheld`): the statements are the same. The marker `stores` says otherwise:
`stores("all")` for a story whose promise each store keeps in its own way, `stores(2)` for a test that runs on two.

Of the tests that carry one marker `turns(n)`, with a function's parameters or in a whole module, n run: the next ones
with the next seed. `turns(0)` is for the long form alone. Of the functions and modules that carry the same
`turns(n, "group")`, n run as a whole.

ONCECRON_TEST_STORES=all runs everything on all stores; `sqlite` or `postgres,redis` only on those.
"""

import os
import random
import re
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

NAMES = {
    *("memory", "sqlite", "redis", "cluster", "sentinel", "postgres"),
    *("pooled", "unheld", "warm", "logged"),
}
PARAMETERS = ("breakable", "kind", "log", "store", "store_kind")
"""The parameters of tests and fixtures that name a store."""
ALIKE = ("pooled", "postgres", "unheld", "warm")
"""Those of which a test of the contract runs on one."""
LARGEST_SEED = 100_000


def seed() -> int:
    """Return the seed of this run; the first call chooses one, for all processes that are started from here."""
    chosen = os.environ.get("ONCECRON_TEST_SEED")
    if chosen is None:
        chosen = str(random.SystemRandom().randrange(LARGEST_SEED))
        os.environ["ONCECRON_TEST_SEED"] = chosen
    return int(chosen)


def wanted() -> str:
    """Return `one`, `all` or the names of stores."""
    return os.environ.get("ONCECRON_TEST_STORES", "one")


def choose(items: list[pytest.Item], typed: str = "") -> list[pytest.Item]:
    """Return the tests to run, in their order; `typed` are pytest's arguments.

    Whoever names a store there, as in `-k redis` or `test_it[redis]`, gets all tests so named; so does
    whoever names a test, as in `test_x.py::test_it`.
    """
    if wanted() == "all" or NAMES.intersection(re.findall(r"\w+", typed)):
        return items
    on_stores = _on_their_stores(items)
    return on_stores if "::" in typed else _whose_turn_it_is(on_stores)


def _on_their_stores(items: list[pytest.Item]) -> list[pytest.Item]:
    stories: dict[str, list[pytest.Item]] = {}
    for item in items:
        if stores_of(item):
            stories.setdefault(_story(item), []).append(item)
    left_out = {item for name, story in stories.items() for item in _left_out(name, story)}
    return [item for item in items if item not in left_out]


def _whose_turn_it_is(items: list[pytest.Item]) -> list[pytest.Item]:
    sharing: dict[tuple[str, int], dict[str, list[pytest.Item]]] = {}
    for item in items:
        for node, marker in item.iter_markers_with_node("turns"):
            count, *group = marker.args
            place = item.nodeid.partition("[")[0] if node is item else node.nodeid
            parts = sharing.setdefault((group[0] if group else place, count), {})
            parts.setdefault(place if group else item.nodeid, []).append(item)
    left_out: set[pytest.Item] = set()
    for (name, count), parts in sharing.items():
        kept = rotated(sorted(parts), zlib.crc32(name.encode()) + seed(), count)
        left_out.update(*(those for part, those in parts.items() if part not in kept))
    return [item for item in items if item not in left_out]


def stores_of(item: pytest.Item) -> list[str]:
    """Return the names of the stores among a test's parameters."""
    callspec = getattr(item, "callspec", None)
    parameters = sorted(callspec.params.items(), key=lambda each: each[0]) if callspec else []
    return [value for name, value in parameters if _names_a_store(name, value)]


def fraction(name: str) -> float:
    """Return a number from 0 to 1 that is this name's in this run."""
    return zlib.crc32(f"{name} {seed()}".encode()) / 2**32


def rotated(names: Iterable[Any], turn: int, count: int) -> list[Any]:
    """Return `count` of the names, beginning with the next one at each turn."""
    names = list(names)
    return [names[(turn + n) % len(names)] for n in range(min(count, len(names)))]


def _left_out(name: str, story: list[pytest.Item]) -> set[pytest.Item]:
    if wanted() != "one":
        named = wanted().split(",")
        return {item for item in story if not set(stores_of(item)) <= set(named)}
    count = _count(story[0])
    if count != "all":
        rotating = sorted(story, key=stores_of)
    elif _folder(story[0]) == "contract" and not story[0].get_closest_marker("stores"):
        rotating, count = [item for item in story if set(stores_of(item)) <= set(ALIKE)], 1
    else:
        return set()
    return set(rotating) - set(rotated(rotating, zlib.crc32(name.encode()) + seed(), count))


def _count(item: pytest.Item) -> Any:
    marker = item.get_closest_marker("stores")
    if marker:
        return marker.args[0]
    return 1 if _folder(item) == "acceptance" else "all"


def _folder(item: pytest.Item) -> str:
    """Return the folder of tests in which a test stands: the core's, or that of the same name of a plugin."""
    return item.path.parent.name


def _story(item: pytest.Item) -> str:
    place, _, parameters = item.nodeid.partition("[")
    stores = stores_of(item)
    return "-".join([place, *(part for part in parameters[:-1].split("-") if part not in stores)])


def _names_a_store(name: str, value: Any) -> bool:
    return name in PARAMETERS and isinstance(value, str) and value in NAMES
