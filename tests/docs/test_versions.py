"""A version that the documentation names as supported is one that the tests run."""

import re
import tomllib

import pythons
from documents import ROOT
from servers import versions

from oncecron.stores.postgres.reader import _OLDEST_SERVER

OLDEST_POSTGRESQL, NEWEST_POSTGRESQL = versions.POSTGRESQL
OLDEST_REDIS, NEWEST_REDIS, _ = versions.REDIS
POSTGRESQL = f"PostgreSQL {OLDEST_POSTGRESQL} to {NEWEST_POSTGRESQL}"
REDIS = f"Redis {OLDEST_REDIS} to {NEWEST_REDIS}"
NAMED = re.compile(r"\b(?:PostgreSQL|Redis) \d+(?:\.\d+)? (?:to \d+(?:\.\d+)?|(?:or|and) newer)")


def read(path: str) -> str:
    """Return a file's text, whose lines may end anywhere."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


def test_what_is_claimed_is_tested() -> None:
    """From the oldest to the newest, and no page names another range."""
    pages = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    for path in (*pages, "README.md", "oncecron/stores/postgres/sql/tables.sql"):
        assert set(NAMED.findall(read(path))) <= {POSTGRESQL, REDIS}, path
    assert {POSTGRESQL, REDIS} <= set(NAMED.findall(read("README.md")))


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
