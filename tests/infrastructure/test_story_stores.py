"""Which stores a test runs on: the next one with the next seed, the same in all processes, or those that are named."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import story_stores
from servers.oncecron import CONSOLE_SCRIPT, SHORT_TTL, Oncecron

STORES = ["logged", "postgres", "redis", "sqlite"]
TESTS = Path(__file__).parent.parent


class Item:
    """What is asked of a test that pytest has collected."""

    def __init__(
        self, name: str, *, directory: str = "acceptance", count: Any = None, **parameters: Any
    ) -> None:
        ids = "-".join(str(value) for value in parameters.values())
        self.path = TESTS / directory / "test_x.py"
        self.nodeid = f"tests/{directory}/test_x.py::{name}" + (f"[{ids}]" if ids else "")
        self.callspec = SimpleNamespace(params=parameters)
        self.count = count
        self.turns: list[tuple[Any, Any]] = []

    def iter_markers_with_node(self, name: str) -> list[tuple[Any, Any]]:
        """Return the markers `turns`, with what carries each."""
        assert name == "turns"
        return self.turns

    def get_closest_marker(self, name: str) -> Any:
        """Return the marker `stores`, if it was given."""
        assert name == "stores"
        return None if self.count is None else SimpleNamespace(args=(self.count,))


@pytest.fixture(autouse=True)
def _as_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCECRON_TEST_SEED", "0")
    monkeypatch.delenv("ONCECRON_TEST_STORES", raising=False)


def story(**parameters: Any) -> list[Any]:
    return [Item("test_it", **parameters, store=store) for store in STORES]


def chosen(items: list[Any], typed: str = "") -> list[list[str]]:
    """Return the stores of the tests that are left."""
    return [story_stores.stores_of(item) for item in story_stores.choose(items, typed)]


def test_a_story_goes_to_its_next_store_with_the_next_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four successive seeds are all four stores, one each."""
    seen = []
    for seed in range(4):
        monkeypatch.setenv("ONCECRON_TEST_SEED", str(seed))
        [one] = chosen(story())
        seen += one
    assert sorted(seen) == STORES
    monkeypatch.setenv("ONCECRON_TEST_SEED", "2")
    assert chosen(story()) == [[seen[2]]]
    assert [len(chosen(story(count=count))) for count in (2, 9, "all")] == [2, 4, 4]


def test_the_contract_runs_on_postgresql_in_one_of_its_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another one with the next seed; on all other stores always, and so does a test with the marker."""
    seen = set()
    for seed in ("0", "1", "2", "3"):
        monkeypatch.setenv("ONCECRON_TEST_SEED", seed)
        items = [
            Item("test_it", directory="contract", store=each)
            for each in (*STORES, "pooled", "unheld", "warm")
        ]
        [*others, one] = sorted(chosen(items), key=lambda stores: stores[0] in story_stores.ALIKE)
        assert others == [["logged"], ["redis"], ["sqlite"]]
        seen.add(*one)
    assert seen == set(story_stores.ALIKE)
    marked = [
        Item("test_it", directory="contract", count="all", store=each)
        for each in story_stores.ALIKE
    ]
    assert len(chosen(marked)) == len(story_stores.ALIKE)


@pytest.mark.parametrize(
    ("stores", "left"),
    [
        ("all", [[store] for store in STORES]),
        ("sqlite", [["sqlite"]]),
        ("postgres,redis", [["postgres"], ["redis"]]),
    ],
)
def test_the_stores_can_be_named(
    monkeypatch: pytest.MonkeyPatch, stores: str, left: list[list[str]]
) -> None:
    """For all tests, the contract's too; a test that names no store always runs."""
    monkeypatch.setenv("ONCECRON_TEST_STORES", stores)
    assert chosen([*story(), Item("test_that")]) == [*left, []]
    assert chosen(story(directory="contract")) == left


def test_some_of_those_that_share_a_marker_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seed: the parameters of a function, or the tests of a module; all of them in the long form."""
    module, marker = (
        SimpleNamespace(nodeid="tests/acceptance/test_x.py"),
        SimpleNamespace(args=(1,)),
    )
    items = [Item("test_it", case=case) for case in "abc"]
    others = [Item(f"test_{name}") for name in "xyz"]
    for item in items:
        item.turns = [(item, marker)]
    for item in others:
        item.turns = [(module, marker)]
    seen = set()
    for seed in range(3):
        monkeypatch.setenv("ONCECRON_TEST_SEED", str(seed))
        left = [item.nodeid for item in story_stores.choose([*items, *others])]
        assert len(left) == 2
        seen.update(left)
    assert seen == {item.nodeid for item in [*items, *others]}
    marker.args = (1, "group")
    left = [item.nodeid for item in story_stores.choose([*items, *others])]
    assert left in ([item.nodeid for item in items], [item.nodeid for item in others])
    items[0].turns = [(items[0], SimpleNamespace(args=(0,)))]
    assert story_stores.choose(items[:1]) == []
    assert story_stores.choose(items, items[1].nodeid) == items
    monkeypatch.setenv("ONCECRON_TEST_STORES", "all")
    assert story_stores.choose(items) == items


def test_a_short_ttl_is_of_the_tests_alone(tmp_path: Path) -> None:
    """The script that users have refuses it, and takes nothing else for it."""
    host = Oncecron(f"sqlite:///{tmp_path}/oncecron.db", tmp_path)
    assert host.run("k", "--ttl", SHORT_TTL, "--", "true").status == 0
    command = [str(CONSOLE_SCRIPT), "run", "--key", "k", "--ttl", str(SHORT_TTL), "--", "true"]
    refused = subprocess.run(command, env=host.environment, capture_output=True, check=False)
    assert refused.returncode == 64
    assert host.run("k", "--ttl", SHORT_TTL + 1, "--", "true").status == 64
