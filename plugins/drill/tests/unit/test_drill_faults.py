"""What needs a job that has just begun strikes no other; whose clocks may be wrong."""

from __future__ import annotations

import time
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from oncecron.stores.address import parse_address
from oncecron_drill import faults
from oncecron_drill.faults import OUTLIVING, ROLES, TICKS, HostFaults
from oncecron_drill.history import Firing
from oncecron_drill.place import make_hosts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oncecron_drill.place import Place

LONG, SHORT = min(OUTLIVING), "quick"


class Trees:
    """The trees of firings, by the pid of their wrapper; whom a signal reached is kept."""

    def __init__(self) -> None:
        self.ages: dict[int, float] = {}
        self.reached: list[tuple[int, tuple[str, ...]]] = []

    def __call__(self, wrapper: int, _table: object, *, has_guard: bool) -> Any:
        """Return one."""
        assert has_guard

        def signal(roles: tuple[str, ...], _number: int) -> bool:
            self.reached.append((wrapper, tuple(roles)))
            return True

        started = (time.clock_gettime(time.CLOCK_BOOTTIME) - self.ages[wrapper]) * TICKS
        return SimpleNamespace(
            job=[SimpleNamespace(started=started)], signal=signal, parts=lambda _: []
        )


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("kill the wrapper of a new job", ("wrapper",)),
        ("stop the guard of a new job", ("guard",)),
        ("stop wrapper and guard of a new job", ROLES[:2]),
    ],
)
def test_only_a_new_job_that_outlives_its_lease_is_struck(
    monkeypatch: pytest.MonkeyPatch, name: str, roles: tuple[str, ...]
) -> None:
    """And the faults of any job strike the others too."""
    trees = Trees()
    monkeypatch.setattr(faults, "Tree", trees)
    monkeypatch.setattr(faults, "process_table", list)
    firings: list[Firing] = []
    host: Any = SimpleNamespace(has_clock=False, is_foreign=False, thaw=None)
    kinds = {kind.name: kind for kind in HostFaults(host, [], Random(1), firings.copy).kinds()}
    for pid, (key, age) in enumerate([(LONG, 60.0), (SHORT, 0.0)], 1):
        trees.ages[pid] = age
        firings.append(Firing(pid, 0.0, "a", key, None, ["oncecron", "run", "--key", key], pid))
    assert kinds[name].fresh
    assert kinds[name].begin() is None
    assert kinds["kill the wrapper"].begin() is not None
    trees.reached.clear()
    trees.ages[3] = 0.0
    firings.append(Firing(3, 0.0, "a", LONG, None, ["oncecron", "run", "--key", LONG], 3))
    done = kinds[name].begin()
    assert done is not None
    assert trees.reached == [(3, roles)]
    assert [(firing, role) for firing, role, _ in done[1]] == [(3, role) for role in roles]


class _NoPlace:
    def stand_between(self, names: Sequence[str], directory: Path) -> None: ...

    def address_for(self, name: str) -> tuple[str, dict[str, str]]:
        return name, {}


@pytest.mark.parametrize(
    ("address", "is_right"), [("sqlite:///var/lib/x.db", True), ("postgresql://db/x", False)]
)
def test_hosts_that_are_one_machine_have_one_clock(
    tmp_path: Path, address: str, is_right: bool
) -> None:
    """A store in a file goes by the clocks of its hosts, and they share it."""
    place = cast("Place", _NoPlace())
    hosts = make_hosts(4, Random(7), place, tmp_path, "n", parse_address(address))
    assert hosts[0].offset == 0.0
    assert all((host.offset == 0.0) == is_right for host in hosts[1:])
    assert all(host.has_clock for host in hosts[1:])
