"""Every promise holds under the nemesis, and a broken copy is found out: what `tests/chaos` runs, for a short while."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

import clusters
import mutations
import pytest
from run import Proof, one
from servers.oncecron import CONSOLE_SCRIPT
from servers.process import public_directory, remove_directory
from servers.require import require_root
from summary import summary

from oncecron_drill.checker import check
from oncecron_drill.history import History
from oncecron_drill.narration import draw
from oncecron_drill.pulse import SLOW

MINUTES = float(os.environ.get("ONCECRON_TEST_CHAOS_MINUTES", "0.25"))
BROKEN = {"few": ("lock-without-tick",), "all": tuple(mutations.ALL)}[
    os.environ.get("ONCECRON_TEST_MUTATIONS", "few")
]
FOUND_WITHIN = 0.75
"""Minutes that a broken copy is given in each run."""
RUNS = 3

pytestmark = pytest.mark.timeout(300 + MINUTES * 120)


@pytest.fixture
def kept() -> Iterator[Path]:
    """Make a directory for the run that every host can enter."""
    path = public_directory("chaos")
    yield path
    remove_directory(path)


def told(history: History) -> str:
    """Return what a person is told of a run that went wrong."""
    verdict = check(history)
    drawn = [draw(history, violation) for violation in verdict.violations[:3]]
    return "\n\n".join([summary(verdict, history), *drawn])


@pytest.mark.chaos
@pytest.mark.stores(1)
@pytest.mark.parametrize("store", clusters.KINDS)
def test_every_promise_holds(store: str, kept: Path) -> None:
    """No violation outside the documented holes, whatever the nemesis draws."""
    require_root("the chaos suite")
    seed = SystemRandom().randrange(10**6)
    history = one(Proof(store, seed, MINUTES, kept, [str(CONSOLE_SCRIPT)]), print)
    assert history.starts
    assert any(fault.kind != SLOW for fault in history.faults)
    assert not check(history).violations, told(history)


@pytest.mark.chaos
@pytest.mark.turns(len(BROKEN), "found out")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_copy_is_found_out(name: str, kept: Path) -> None:
    """The checker sees what no promise allows; each run has its moments, which others have not."""
    require_root("the chaos suite")
    mutation = mutations.ALL[name]
    script = mutations.copy(mutation, kept / "mutated")
    store = "sqlite" if "sqlite" in mutation.stores and not mutation.shows else mutation.stores[0]
    minutes = FOUND_WITHIN if mutation.shows else FOUND_WITHIN / 4
    for number in range(RUNS):
        directory = kept / str(number)
        directory.mkdir()
        directory.chmod(0o755)
        wanted = Proof(
            store, SystemRandom().randrange(10**6), minutes, directory, [str(script)],
            faults=lambda kind: any(word in kind for word in mutation.shows),
        )  # fmt: skip
        history = one(wanted, print)
        if check(history).violations:
            return
    pytest.fail(told(history))


@pytest.mark.chaos
def test_without_root_the_reduced_form_runs(kept: Path) -> None:
    """Hosts are process trees then, and a store on loopback is behind proxies."""
    history = one(Proof("redis", 1, 0.1, kept, [str(CONSOLE_SCRIPT)], rooted=False), print)
    assert len(history.starts) > 1
    assert not check(history).violations, told(history)
