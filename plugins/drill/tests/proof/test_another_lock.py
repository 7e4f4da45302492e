"""`oncecron drill --wrapper`: another lock runs the same jobs, and is judged by what they wrote."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compare_locks
import pytest
from test_drill import Driller, told

from oncecron_drill.faults import CUT, SLOW

if TYPE_CHECKING:
    from servers import RedisServer

pytestmark = [pytest.mark.chaos, pytest.mark.turns(1, "another lock"), pytest.mark.timeout(400)]

SEED = 7
MINUTES = 0.4
LEFT = {"left"}
"""Where no job waits for another one, nothing waits for those either that have lost what had started them."""
LOCKS = Path(compare_locks.__file__).with_name("locks")
ONCE = "mkdir {place}/{{key}}-{{tick}} 2>/dev/null || exit 0; exec flock -n {place}/{{key}} {{command}}"
"""A tick is taken for good, and a key by a lock that the kernel holds for as long as anything of the job lives."""


@pytest.fixture
def driller(public_path: Path) -> Driller:
    """Make whoever drills, with the installed oncecron."""
    return Driller(public_path)


@pytest.fixture
def place(public_path: Path) -> Path:
    """Make a directory for locks."""
    (path := public_path / "locks").mkdir()
    return path


def drilled(
    driller: Driller, wrapper: str, *words: object, minutes: float = MINUTES
) -> tuple[int, dict[str, Any]]:
    """Drill another lock, and return the exit status and the certificate, which its history gives again."""
    options = ("--minutes", minutes, "--seed", SEED, "--yes", "--json", "-", *words)
    ended = driller("--wrapper", wrapper, *options)
    assert ended.out, ended.err
    certificate: dict[str, Any] = json.loads(ended.out)["certificate"]
    assert list(driller.temporary.iterdir()) == []
    assert driller.left() == []
    (file := driller.temporary.parent / "drill.json").write_bytes(ended.out)
    again = driller("--judge", file, "--json", "-")
    assert (again.status, json.loads(again.out)["certificate"]) == (ended.status, certificate)
    return ended.status, certificate


def rules(certificate: dict[str, Any]) -> set[str]:
    """Return the rules that were broken."""
    return {finding["rule"] for finding in certificate["violations"]}


def test_a_right_lock_is_clean(driller: Driller, place: Path) -> None:
    """Of what two jobs at once would show, and of ticks that are started twice."""
    script = ONCE.format(place=place)
    status, found = drilled(driller, f"sh -c {shlex.quote(script)}")
    assert rules(found) == set(), told(found)
    assert status in (0, 3)  # few faults are no proof
    assert found["starts"] > 10
    assert not any("{tick}" in text for text in found["not_tried"])


def test_no_lock_at_all_is_found(driller: Driller) -> None:
    """With the history that shows it."""
    status, found = drilled(driller, "sh -c ': {key}; exec {command}'")
    assert (status, rules(found) - LEFT) == (1, {"overlap"})
    assert "STARTS" in found["violations"][0]["timeline"]
    assert found["store"] == "sh -c ': {key}; exec {command}'"


def test_flock_is_clean_but_for_ticks(driller: Driller, place: Path) -> None:
    """It promises none; where its command is told of ticks, each is to be started once."""
    _, found = drilled(driller, f"flock -n {place}/{{key}} {{command}}")
    assert rules(found) == set(), told(found)
    assert any("{tick}" in text for text in found["not_tried"])
    status, found = drilled(driller, f"flock -n {place}/{{key}}-{{tick}} {{command}}")
    assert (status, rules(found) - LEFT) == (1, {"double", "overlap"})


def test_a_lock_that_waits_is_waited_for(driller: Driller, place: Path) -> None:
    """Each host has two firings of a key at most, and all of them end."""
    _, found = drilled(driller, f"flock {place}/{{key}} {{command}}")
    assert rules(found) == set(), told(found)
    assert found["latency"]["p95"] > 1.0  # some waited


def test_its_connections_go_through_a_proxy(driller: Driller, new_redis: Any) -> None:
    """But those of the first host; and what was cut is told."""
    server: RedisServer = new_redis(aof=True)
    wrapper = f"{LOCKS}/redis-lock redis://{{proxy}} {{key}} 30000 {{command}}"
    for minutes in (MINUTES, 3 * MINUTES):  # a busy machine has fewer faults
        _, found = drilled(
            driller, wrapper, "--proxy", f"{server.host}:{server.port}", minutes=minutes
        )
        hit = sum(found["classes"][name]["hit"] for name in (CUT, SLOW))  # by proxies alone
        if hit:
            break
    assert hit > 0
    assert found["topology"] == [f"{server.host}:{server.port}: takes connections"]
    assert not any("no --proxy" in text for text in found["not_tried"])
    with server.connect() as client:
        assert client.info("stats")["total_connections_received"] > found["starts"]


def test_a_server_that_is_away_is_not_drilled(driller: Driller) -> None:
    """As a store that is away is not."""
    words = ("--wrapper", "env SERVER={proxy} flock -n /tmp/{key} {command}", "--yes")
    ended = driller(*words, "--proxy", "127.0.0.1:1")
    assert ended.status == 69
    assert ended.err.startswith("oncecron: 127.0.0.1:1 takes no connection: ")
    assert list(driller.temporary.iterdir()) == []


def test_a_command_that_cannot_lock_is_refused(driller: Driller) -> None:
    """Before anything is asked or begun; without its password where it is shown."""
    for words, says in [
        (("--wrapper", "flock -n /tmp/{key}"), "it has no {command}"),
        (("--wrapper", "no-such-lock {key} {command}"), "'no-such-lock' is no command"),
        (("--wrapper", "flock {key} {command}", "--store", "local"), "--store is of oncecron"),
        (("--proxy", "db:5432"), "--proxy is of --wrapper"),
    ]:
        ended = driller(*words, "--yes")
        assert (ended.status, says in ended.err) == (64, True), ended.err
    ended = driller("--wrapper", "env DB=postgresql://me:hunter2@db/x flock {key} {command}")
    assert (ended.status, "hunter2" in ended.err, "add --yes" in ended.err) == (64, False, True)
