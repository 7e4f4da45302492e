"""Firings in virtual time keep every promise, and what is broken on purpose does not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import bites
import pytest
import pythons
import reached
import story_stores
from memory_store import MemoryStore
from server import Server

from oncecron.core import clock, presence
from oncecron.core.decision import Grant
from oncecron.core.facts import state_of
from oncecron.core.model import Firing, Holder
from oncecron.core.tick import named_tick

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/proof.md").read_text(encoding="utf-8")
MINUTES = float(os.environ.get("ONCECRON_TEST_SIMULATED_MINUTES", "1"))
"""Of CPU. From 10 on, what is broken is looked for from seed 1 on."""
IS_LONG = MINUTES >= 10
PYTHONS = pythons.RELEASES if os.environ.get("ONCECRON_TEST_PYTHONS") == "all" else ()
REACHED_BY = ("--seeds", "12", "--hours", "1")
FIRING = Firing(
    *("k", 0, named_tick("one"), "owner", Holder("h", 1, "u"), "true", clock.wall(), 60.0),
    *(None, None, False, None, None),
)
COMFORTABLE = 50
"""What is reached so often in the record is reached in every run."""

pytestmark = pytest.mark.timeout(1800 + 600 * MINUTES)  # a minute of CPU on a busy machine


def simulate(*arguments: str, status: int = 0, hash_seed: str = "random") -> str:
    """Return what the command prints, once its exit status is as expected."""
    command = [sys.executable, str(HERE), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ended.returncode == status, (
        f"tests/simulate {' '.join(arguments)}\n{ended.stdout}{ended.stderr}"
    )
    return ended.stdout


def digests(output: str) -> list[str]:
    return re.findall(r"\b[0-9a-f]{64}\b", output)


def test_one_seed_gives_one_history() -> None:
    """Whatever order Python's sets have, and whatever ran before in the same process."""
    first = digests(simulate("--from", "3", "--seeds", "2", "--hours", "0.5", hash_seed="0"))
    again = digests(simulate("--from", "3", "--seeds", "2", "--hours", "0.5", hash_seed="77"))
    alone = digests(simulate("--from", "4", "--hours", "0.5"))
    assert first == again
    assert first[1:] == alone
    assert first[0] != first[1]


@pytest.mark.parametrize("version", PYTHONS)
def test_every_python_gives_the_same_history(version: str) -> None:
    """Where it can be had, in a test environment of its own."""
    environment = {**os.environ, "ONCECRON_TEST_PYTHON": version}
    command = [HERE.parent / "simulate", "--from", "3", "--seeds", "2", "--hours", "0.5"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    if ended.returncode == 69:
        pytest.skip(ended.stderr.strip().splitlines()[-1])
    assert digests(ended.stdout) == digests(simulate(*map(str, command[1:])))


@pytest.mark.slow
def test_nothing_is_found() -> None:
    """The same seeds each time; those of the long form follow from that of the tests, for it is a search.

    A failure ends with the smallest part that shows it.
    """
    first = str(story_stores.seed() * 1000 if IS_LONG else 1)
    simulate("--from", first, "--seeds", "1000000", "--seconds", str(60 * MINUTES))


def test_a_place_that_is_being_written_is_looked_at_again() -> None:
    """A job dies while it writes, a second after a look that met it at that as well."""
    part = ("--hours", "0.3", "--hosts", "2", "--keys", "0,3", "--faults", "none")
    assert "seed 76: 83 firings" in simulate("--from", "76", *part)


@pytest.mark.parametrize("bite", bites.table(PAGE), ids=lambda bite: bite.name)
def test_what_is_broken_is_found(bite: bites.Bite) -> None:
    """By the seed that docs/proof.md has, or by a later one within a minute of CPU."""
    if not bite.rule:
        pytest.skip(f"the simulator does not have what {bite.name} breaks")
    first = "1" if IS_LONG else bite.seed
    found, said = bites.find(bite.name, "--from", first, "--seeds", "1000", "--seconds", "60")
    assert found.rule, said


def test_the_table_is_whole() -> None:
    """Of what is broken on purpose."""
    assert [bite.name for bite in bites.table(PAGE)] == bites.NAMES


def test_a_failure_shrinks() -> None:
    """One fault, one host and one key are left of a seed; the command that is printed shows the same."""
    found = simulate("--broken", "claim_forgotten", "--from", "15", "--hours", "0.5", status=1)
    shows, words = re.findall(r"smallest part that shows (\w+): tests/simulate (.*)", found)[0]
    assert re.search(r"--hours 0\.\d --hosts \d --keys \d --faults \d+ ", words), found
    last = re.findall(rf"[\d.]+ VIOLATION {shows} .*", found)[0]
    again = simulate(*words.split(), "--trace", status=1)
    assert last in again.splitlines()


@pytest.mark.slow
def test_what_was_reached_is_reached_still(tmp_path: Path) -> None:
    """`reached.txt` has every name, and a reason for what no seed has reached."""
    path = tmp_path / "reached.txt"
    simulate(*REACHED_BY, "--reached", str(path))
    now, then = (
        reached.read(each.read_text(encoding="utf-8")) for each in (path, HERE / "reached.txt")
    )
    assert now.keys() == then.keys(), "renew reached.txt"
    missed = [
        name for name, (count, _) in then.items() if count >= COMFORTABLE and not now[name][0]
    ]
    assert not missed, "no longer reached"
    assert "NO REASON" not in [reason for _, reason in then.values()]


@pytest.mark.parametrize("holds", [True, False])
def test_only_a_session_that_holds_has_a_lock(*, holds: bool) -> None:
    """As on PostgreSQL: with `?hold=no` nobody sees from a session that a holder is gone."""
    server = Server(SimpleNamespace(now=0.0), guarded=False, sessions=True)
    store, (holder, other) = MemoryStore(server), (FIRING._replace(owner=each) for each in "ab")
    server.by = SimpleNamespace(holds=holds, lives=lambda: True)
    state, start = state_of(store.peek(holder, deadline=0)), Grant(1, "schedule")
    host = presence.seen(state, holder, won=True)
    assert store.grant(holder, state, start, host, alone=False, deadline=0)
    server.by = SimpleNamespace(holds=holds, lives=lambda: True)
    seen = store.peek(other, deadline=0)
    expected = ("taken", True) if holds else ("none", False)
    assert (seen["lock"], seen["lease_has_session"]) == expected


def test_items_keep_their_promises() -> None:
    """None is begun beside itself, or again once it is done, and none is left."""
    simulate("--from", str(story_stores.seed() * 100), "--seeds", "4", "--hours", "1", "--items")
