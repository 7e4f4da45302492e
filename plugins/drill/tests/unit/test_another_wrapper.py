"""Another wrapper fires the same jobs; its parts are told by its jobs, and it is judged by what it promises."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from servers import eventually

from oncecron_drill.another_wrapper import OF_JOBS, Wrapper
from oncecron_drill.checker import OF_JOBS as CARRIED_OUT
from oncecron_drill.checker import check
from oncecron_drill.firing_hosts import Tree
from oncecron_drill.generator import KEYS, WITNESS_WORDS, Shot
from oncecron_drill.history import Firing, History, Log, Start

if TYPE_CHECKING:
    from pathlib import Path


def test_its_words_are_filled() -> None:
    """The job as words of its own, or quoted within one."""
    wrapper = Wrapper(["lock", "/shared/{key}", "{command}"])
    assert wrapper.command("k", ["sleep", "1 s"]) == ["lock", "/shared/k", "sleep", "1 s"]
    wrapper = Wrapper(["sh", "-c", "lock {key} {command}"])
    assert wrapper.command("k", ["sleep", "1 s"]) == ["sh", "-c", "lock k sleep '1 s'"]


def test_its_keys_have_the_same_jobs() -> None:
    """And nothing that only oncecron does: no further attempts, no parts."""
    keys = Wrapper(["lock", "{command}"]).keys(KEYS)
    assert [key.job for key in keys] == [key.job for key in KEYS]
    assert {(key.run, key.parts, key.attempts, key.again) for key in keys} == {("", 1, 1, 0.0)}


def test_its_jobs_are_told_what_oncecron_would_tell() -> None:
    """Else their ledger would not say which key they are of."""
    told = Wrapper([]).environment(Shot(0, "h1", KEYS[0], "t1"))
    assert (told["ONCECRON_KEY"], told["ONCECRON_TICK"]) == (KEYS[0].name, "t1")
    assert "ONCECRON_TICK" not in Wrapper([]).environment(Shot(0, "h1", KEYS[0], None))


def test_whatever_runs_above_the_job_is_the_wrapper(tmp_path: Path) -> None:
    """A shell between the two too; where a fault is for wrapper and guard, it is the wrapper's."""
    job = " ".join([*WITNESS_WORDS, str(tmp_path), "--seconds", "60", "--setsid"])
    words = ["sh", "-c", f"sh -c '{job}; true'; true"]
    told = dict(os.environ, WITNESS_FIRING="1", WITNESS_HOST="a", ONCECRON_KEY="k")
    with subprocess.Popen(words, env=told, start_new_session=True) as process:
        try:
            assert eventually(lambda: len(Tree(process.pid, has_guard=False).job) == 3)
            tree = Tree(process.pid, has_guard=False)
            assert tree.wrapper[0].pid == process.pid
            assert len(tree.wrapper) == 2
            assert tree.parts(["guard"]) == []
            assert tree.parts(["wrapper", "guard"]) == tree.wrapper
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_it_is_judged_by_what_it_promises() -> None:
    """Two jobs at once, and a tick twice; without a log that would say anything of it."""
    firings = [Firing(n, 1.0, f"h{n}", "k", "t1", ["lock"], n, 9.0, 0) for n in (1, 2)]
    starts = [
        Start(f"k/{n}", 1.0 + n, f"h{n}", 10 + n, n, "k", "0", "t1", 1, None, None, 8.0, ended=8.0, status=0)
        for n in (1, 2)
    ]  # fmt: skip
    head = {"ttl": 6.0, "hosts": ["h1", "h2"], "keys": {}, "promised": OF_JOBS}
    history = History(head, firings, [], starts, Log(), quiet=10.0, end=10.0)
    assert [each.rule for each in check(history).violations] == ["double", "overlap"]
    less = dataclasses.replace(history, head={**head, "promised": ["overlap"]})
    assert [each.rule for each in check(less).violations] == ["overlap"]
    assert set(OF_JOBS) == set(CARRIED_OUT)
