"""Which programs a schema serves, and that the steps of each store lead to its version."""

from pathlib import Path

import pytest

from oncecron import __version__
from oncecron.core.errors import StoreRefusesError
from oncecron.stores.postgres import people_sql, schema
from oncecron.stores.redis import scripts
from oncecron.stores.schema_version import Recorded, misfit, missing, serves, steps
from oncecron.stores.sqlite import connection


@pytest.mark.parametrize(
    ("version", "oldest", "program", "is_served"),
    [
        *((1, None, 1, True), (1, None, 2, False), (2, None, 1, False), (2, None, 2, True)),
        *((2, 1, 1, True), (2, 1, 2, True), (2, 1, 3, False)),
        *((3, 2, 1, False), (3, 2, 2, True), (0, None, 1, False)),
    ],
)
def test_a_schema_serves_programs_from_its_oldest_version_to_its_own(
    version: int, oldest: int | None, program: int, is_served: bool
) -> None:
    """Without an oldest one, its own alone."""
    assert serves(Recorded(version, oldest), program) is is_served


def test_the_cure_is_for_the_older_of_the_two() -> None:
    """Both versions are named; who upgrades a schema is told by its store."""
    init = "have ann, the owner, run `oncecron init`"
    assert str(misfit("S", Recorded(1), 2, init)) == (
        f"S: the schema has version 1, and oncecron {__version__} on this host needs version 2; {init} of this release"
    )
    assert str(misfit("S", Recorded(3, 2), 1, init)) == (
        f"S: the schema has version 3, and oncecron {__version__} on this host is for version 1; "
        "upgrade oncecron on this host"
    )


def test_the_steps_that_are_missing_are_run_in_order(tmp_path: Path) -> None:
    """A schema that is newer, or older than the first step, is refused."""
    for number in (4, 3, 2):
        (tmp_path / f"000{number}_what.sql").write_text(f"step {number}")
    (tmp_path / "README.md").write_text("no step")
    place = str(tmp_path)
    assert missing("S", Recorded(2), 4, place) == ["step 3", "step 4"]
    assert missing("S", Recorded(4, 3), 4, place) == []
    for version, why in ((5, "upgrade oncecron on this host"), (0, "of an earlier release first")):
        with pytest.raises(StoreRefusesError, match=why):
            missing("S", Recorded(version), 4, place)


@pytest.mark.parametrize(
    ("place", "version", "oldest"),
    [
        (people_sql.STEPS, schema.VERSION, schema.OLDEST),
        (scripts.STEPS, scripts.LAYOUT, scripts.OLDEST),
        (connection.STEPS, connection.SCHEMA_VERSION, connection.SCHEMA_OLDEST),
    ],
)
def test_each_store_has_a_step_to_each_of_its_versions(
    place: str, version: int, oldest: int | None
) -> None:
    """And serves the version before, if there was one."""
    assert list(steps(place)) == list(range(2, version + 1))
    assert oldest == (version - 1 or None)
