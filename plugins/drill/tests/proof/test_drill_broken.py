"""A drill finds each store that is broken on purpose, and a broken oncecron."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import broken_stores
import mutations
import pytest
from broken_stores import BrokenStore
from servers import Database, eventually
from test_drill import BEGUN, SHORT, Driller, prepare, standing, told

from oncecron.stores.address import parse_address
from oncecron_drill.stores import open_drilled

IS_LONG = os.environ.get("ONCECRON_TEST_DRILLS") == "long"
MINUTES = 2.0 if IS_LONG else 0.5
KINDS = [*broken_stores.KINDS] if IS_LONG else ["forgetful"]
SEED = 7
WELL, BROKEN = 4.0, 3.0
"""Seconds."""
RUNS = 3
SHOWN_WITHOUT_A_FAULT = "lock-without-tick"
"""A mutation of oncecron."""

one_of_them = pytest.mark.turns(9 if IS_LONG else 1, "found out")


@pytest.mark.chaos
@one_of_them
@pytest.mark.timeout(500)
@pytest.mark.parametrize("kind", KINDS)
def test_a_drill_finds_it(kind: str, public_path: Path) -> None:
    """Within its two minutes, by the rule that shows this hole, and with the history of it."""
    with broken_stores.KINDS[kind]() as store:
        found = drilled(Driller(public_path), store)
    assert found["verdict"] == "violated", told(found)
    print(json.dumps({"kind": kind, **found}))  # for whoever asks (-rP) when it was found
    shown = [each for each in found["violations"] if each["rule"] in store.rules]
    assert shown, told(found)
    of_jobs = [each for each in shown if each["rule"] in ("double", "overlap")]
    if of_jobs:
        assert of_jobs[0]["sentence"] in found["why"]
        assert "STARTS" in of_jobs[0]["timeline"]


@pytest.mark.chaos
@one_of_them
def test_a_drill_finds_a_broken_copy(public_path: Path, request: pytest.FixtureRequest) -> None:
    """The verdict has the history that shows it."""
    mutation = mutations.ALL[SHOWN_WITHOUT_A_FAULT]
    script = mutations.copy(mutation, public_path / "mutated")
    driller = Driller(public_path, script)
    with standing("sqlite", request, public_path) as url:
        for _ in range(RUNS):  # not each has the moment that shows it
            found = driller.certificate(url, SHORT)
            if found["verdict"] == "violated":
                break
    assert found["verdict"] == "violated"
    doubles = [each for each in found["violations"] if each["rule"] == "double"]
    assert doubles
    assert "STARTS" in doubles[0]["timeline"]


@pytest.mark.chaos
@one_of_them
@pytest.mark.parametrize("prepared", [True, False])
def test_a_drill_finds_a_schema_that_is_lost(
    public_path: Path, database: Database, prepared: bool
) -> None:
    """Though no log is left that could be judged, nothing was fired, and in one of a DBA it had no table of its own."""
    driller = Driller(public_path)
    words = ["--minutes", 0.2, "--yes", "--json", "-"]
    if prepared:
        words += ["--namespace", prepare(driller, database, public_path)]
    url = database.url("runner" if prepared else "owner")
    process = driller.start("--store", url, *words)
    query = "select nspname from pg_namespace where nspname like 'oncecron_drill%'"
    eventually(lambda: any(driller.temporary.glob("*/control")), BEGUN)
    [[name]] = eventually(lambda: database.execute(query), 60)
    database.execute(f"drop schema {name} cascade")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1, err
    lost = [
        each
        for each in json.loads(out)["certificate"]["violations"]
        if each["rule"] == "lost-write"
    ]
    assert len(lost) == 1, lost


def test_a_schema_that_is_lost_before_it_has_a_table_is_seen_once(database: Database) -> None:
    """By a role that may not make one; what is told again would be another loss."""
    store = open_drilled(parse_address(database.url("runner")), "oncecron_drill_a")
    database.execute("create schema oncecron_drill_a")
    store.prepare()
    write = store.writer(())
    assert [write(1), write(2)] == [None, None]
    database.execute("drop schema oncecron_drill_a cascade")
    assert [write(3), write(4)] == [-1, None]
    store.close()


def drilled(driller: Driller, store: BrokenStore) -> dict[str, Any]:
    """Drill, and break the store again and again meanwhile; return the certificate."""
    words = ("--store", store.url, "--minutes", MINUTES, "--yes", "--json", "-", "--seed", SEED)
    drill = driller.start(*words)
    # A namespace that is lost before anything was fired is a store that is away.
    eventually(lambda: any(driller.temporary.glob("*/journal/*/*")), BEGUN)
    for _ in range(int(MINUTES * 60 / (WELL + BROKEN))):
        if has_ended(drill, WELL):
            break
        store.begin()
        over = has_ended(drill, BROKEN)
        store.end()
        if over:
            break
    out, err = drill.communicate(timeout=300)
    assert out, err.decode()
    certificate: dict[str, Any] = json.loads(out)["certificate"]
    assert (drill.returncode, err) == (1, b""), told(certificate)
    return certificate


def has_ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Return whether a process ends within some seconds; what it writes is kept."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
