"""How often a drill finds each broken copy of oncecron; what is known stands in misses.tsv."""

import os
from pathlib import Path

import misses
import mutations
import pytest
from test_drill import NOT_SHOWN, Driller, standing, told

IS_WANTED = os.environ.get("ONCECRON_TEST_DRILLS") == "misses"
SHOWN = [name for name in mutations.ALL if name not in NOT_SHOWN]


@pytest.mark.skipif(not IS_WANTED, reason="hours: ONCECRON_TEST_DRILLS=misses")
@pytest.mark.timeout(len(misses.SEEDS) * 400)
@pytest.mark.parametrize("name", SHOWN)
def test_each_mutation_is_found_in_most_drills(
    name: str, request: pytest.FixtureRequest, public_path: Path
) -> None:
    """Drills are kept one by one: what is interrupted goes on where it was."""
    mutation = mutations.ALL[name]
    store = mutation.stores[0]
    script = mutations.copy(mutation, public_path / "mutated")
    driller = Driller(public_path, script)
    known = {
        drill.seed for drill in misses.drills() if (drill.mutation, drill.store) == (name, store)
    }
    for seed in misses.SEEDS:
        if seed not in known:
            (place := public_path / str(seed)).mkdir()
            with standing(store, request, place) as url:
                found = driller.certificate(url, misses.MINUTES, "--seed", seed)
            print(told(found))
            misses.keep(name, store, found)
    its = [drill for drill in misses.drills() if (drill.mutation, drill.store) == (name, store)]
    assert sum(drill.found for drill in its) >= misses.ENOUGH, its


def test_the_page_shows_what_is_kept() -> None:
    """And no drill that there was not."""
    page = (Path(__file__).parents[4] / "docs" / "proof.md").read_text()
    assert "\n".join(misses.table(misses.drills())) in page


def test_what_is_kept_is_of_mutations_that_there_are() -> None:
    """One drill of each seed at most."""
    kept = [(drill.mutation, drill.store, drill.seed) for drill in misses.drills()]
    assert {name for name, _, _ in kept} <= set(SHOWN)
    assert {seed for _, _, seed in kept} <= set(misses.SEEDS)
    assert len(kept) == len(set(kept))
