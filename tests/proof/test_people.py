"""People type commands as drawn, and give back what they have paused or drained, however often that fails."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import people
import pytest
from firing_hosts import FiringHost
from history import Recorder
from people import People
from servers import eventually

ENOUGH = 12

MakePeople = Callable[[str], People]


@pytest.fixture
def make(
    public_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> MakePeople:
    """Give a function that makes people in a hurry, whose `oncecron` is this script."""
    monkeypatch.setattr(people, "GAP", 0.02)
    monkeypatch.setattr(people, "AGAIN", 0.02)
    monkeypatch.setattr(people, "LASTS", (0.02, 0.1))

    def begin(script: str) -> People:
        oncecron = public_path / "oncecron"
        oncecron.write_text(f"#!/bin/sh\n{script}\n")
        oncecron.chmod(0o755)
        hosts = [FiringHost(name, None, public_path, "none") for name in ("host-a", "host-b")]
        recorder = Recorder(public_path)
        request.addfinalizer(recorder.close)
        keys = ["one", "two"]
        return People(Random(7), hosts, keys, oncecron, "sqlite:///x", recorder, lambda: keys)

    return begin


def act(these: People, recorder: Recorder) -> None:
    """Let them type for a while, then give everything back and wait for the last command."""

    def typed() -> bool:
        these.step()
        these.look()
        return len(recorder.operations) >= ENOUGH

    eventually(typed)
    eventually(these.give_back)
    eventually(lambda: (these.look(), not these.waiting)[1])


def test_what_is_taken_is_given_back(make: MakePeople) -> None:
    """Each pause has a resume after it, each drained host is let free, and all that is said is kept."""
    these = make('echo "did $*"; [ "$ONCECRON_STORE" = sqlite:///x ]')
    act(these, these.recorder)
    operations = these.recorder.operations.values()
    assert all(operation.stdout == f"did {' '.join(operation.words)}\n" for operation in operations)
    assert {operation.status for operation in operations} == {0}
    left: Counter[str] = Counter()
    for operation in operations:
        word, subject = operation.words[:2]
        left[subject] += {"pause": 1, "drain": 1, "resume": -1, "undrain": -1}.get(word, 0)
        assert left[subject] in (0, 1)
    assert not +left


def test_what_fails_is_tried_again(make: MakePeople, public_path: Path) -> None:
    """Until it is done: a key must not stay paused because the store was away."""
    these = make(
        'case "$1" in resume|undrain) '
        f'echo >>{public_path}/tries; [ "$(wc -l <{public_path}/tries)" -gt 5 ] || exit 69;; esac; echo done'
    )
    act(these, these.recorder)
    last = {
        operation.subject: operation.status
        for operation in these.recorder.operations.values()
        if operation.words[0] in ("resume", "undrain")
    }
    statuses = [operation.status for operation in these.recorder.operations.values()]
    assert 69 in statuses
    assert set(last.values()) == {0}


def test_nobody_types_on_a_frozen_host(make: MakePeople) -> None:
    """Nor anywhere, if all are."""
    these = make("echo done")
    for host in these.hosts:
        host.frozen = True
    for _ in range(100):
        these.step()
    assert not these.recorder.operations
    these.hosts[0].frozen = False
    act(these, these.recorder)
    assert {operation.host for operation in these.recorder.operations.values()} == {"host-a"}


def test_what_may_be_heard_late_is_undone_once_more(make: MakePeople) -> None:
    """A pause that was killed on its way may arrive after the resume."""
    these = make('case "$1" in pause|drain) exit 69;; esac; echo done')
    act(these, these.recorder)
    typed = Counter(operation.words[0] for operation in these.recorder.operations.values())
    assert typed["pause"] > 0
    assert (typed["resume"], typed["undrain"]) == (2 * typed["pause"], 2 * typed["drain"])
