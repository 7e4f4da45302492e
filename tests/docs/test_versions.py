"""A version that the documentation names as supported is one that the tests run."""

import re
import tomllib

import pytest
import pythons
from documents import ROOT
from servers import versions

from oncecron.stores.postgres.reader import _OLDEST_SERVER

OLDEST_POSTGRESQL, NEWEST_POSTGRESQL = versions.POSTGRESQL
OLDEST_REDIS, NEWEST_REDIS, VALKEY = versions.REDIS
POSTGRESQL = f"PostgreSQL {OLDEST_POSTGRESQL} to {NEWEST_POSTGRESQL}"
REDIS = f"Redis {OLDEST_REDIS} to {NEWEST_REDIS}"
CLAIMS = {
    "README.md": (POSTGRESQL, REDIS, "Valkey"),
    "docs/stores/postgresql.md": (POSTGRESQL,),
    "docs/stores/redis.md": (REDIS, "Valkey"),
    "docs/guarantees.md": (POSTGRESQL, f"{REDIS}, Valkey"),
    "docs/proof.md": (POSTGRESQL, REDIS, "Valkey"),
    "oncecron/stores/postgres/sql/tables.sql": (POSTGRESQL,),
}
NAMED = re.compile(r"\b(?:PostgreSQL|Redis) \d+(?:\.\d+)? (?:to \d+(?:\.\d+)?|(?:or|and) newer)")


def read(path: str) -> str:
    """Return a file's text, whose lines may end anywhere."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


@pytest.mark.parametrize("path", CLAIMS)
def test_what_is_claimed_is_tested(path: str) -> None:
    """From the oldest to the newest, and nothing beyond."""
    text = read(path)
    for claim in CLAIMS[path]:
        assert claim in text
    assert set(NAMED.findall(text)) <= {POSTGRESQL, REDIS}


def test_nothing_else_is_claimed() -> None:
    """No other page names a range of its own."""
    for path in (ROOT / "docs").rglob("*.md"):
        name = str(path.relative_to(ROOT))
        if name not in CLAIMS:
            assert not NAMED.findall(read(name)), name


def test_all_of_them_are_run() -> None:
    """`tests/run` names the versions, and so does what it says of them."""
    program = read("tests/run")
    assert f"for version in {' '.join(versions.POSTGRESQL)}; do" in program
    assert f"for version in {' '.join(versions.REDIS)}; do" in program
    assert (
        f"versions=({NEWEST_POSTGRESQL} {' '.join(versions.REDIS)})" in program
    )  # of which each run has one
    assert f"on PostgreSQL {OLDEST_POSTGRESQL} and {NEWEST_POSTGRESQL}" in read("tests/README.md")


def test_older_servers_are_refused() -> None:
    """By the same number."""
    assert int(OLDEST_POSTGRESQL) * 10000 == _OLDEST_SERVER


def test_pythons_that_are_claimed_are_tested() -> None:
    """From the oldest to the newest: by the classifiers, and by the workflow, whose last job runs one of them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    named = [
        name.rpartition(" ")[2]
        for name in project["classifiers"]
        if name.startswith("Programming Language :: Python :: ")
    ]
    assert named == list(pythons.RELEASES)
    assert project["requires-python"] == f">={named[0]}"
    assert f"Python {named[0]} or newer" in read("README.md")
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    assert re.findall(r'"(3\.\d+)"', workflow)[:-1] == named
