"""Each mutation is broken in the sense that it says, and the product is not: one directed scenario each.

A scenario is played with the product and with its mutation side by side, each in a store and with hosts of its own.
It raises an AssertionError when the promise is broken.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import mutations
import patched
import psycopg
import pytest
from scenes import TTL, Scene, a_store
from servers import Journal, SteppedClock, assert_exclusive, assert_tokens_rise, eventually
from servers.oncecron import CONSOLE_SCRIPT, Ended, Firing
from servers.process import kill_tree, public_directory, remove_directory, wait_gone

LIVE = ("--beats", "--ignore-term", "--sleep", 60)


# The scenarios


def holder_loses_its_session(scene: Scene) -> None:
    """Reset the holder's connections, which frees its session lock, and fire the next tick on another host."""
    via = scene.proxy()
    scene.fire(scene.host(via=via), "--tick", "one", *scene.job(*LIVE))
    scene.journal.wait_for("start")
    via.reset()
    states = "select state from oncecron.leases"
    eventually(lambda: scene.store.execute(states) == [("orphaned",)])
    scene.next_tick()


def same_tick_after_the_end(scene: Scene) -> None:
    """Fire a tick on a second host when its job has ended already."""
    for name in ("host-a", "host-b"):
        ended = scene.host(name).run("k", "--tick", "one", *scene.job())
        assert ended == Ended(0, b"", "")
    assert_exclusive(scene.journal)


def failed_job_leaves_a_process(scene: Scene) -> None:
    """Let a job fail and leave a process that ignores TERM, and fire the next tick within its grace."""
    left = ("--setsid-grandchild", "--sleep", 0.3, "--exit", 3)
    scene.fire(scene.host(), "--tick", "one", "--grace", "0.7s", *scene.job(*left))
    scene.journal.wait_for("end")
    scene.next_tick()


def answers_are_late_then_none_comes(scene: Scene) -> None:
    """Hold a renewal's answer back for almost as long as it may take, then everything, and let the job live on."""
    via = scene.proxy()
    process = scene.fire(scene.host(via=via), "--tick", "one", *scene.job(*LIVE)).job()
    scene.journal.wait_for("start")
    granted = scene.lease_end()
    eventually(lambda: scene.lease_end() > granted + 0.5)  # now the server knows the script
    told = via.connections()[-1].bytes_to_client
    via.delay(0.85, towards="client")  # of 1 s after which the connection would be given up
    eventually(lambda: via.connections()[-1].bytes_to_client > told)
    via.deaf()  # the next renewal comes a second after the answer
    lease_end = scene.lease_end()
    wait_gone([process], TTL + 4)
    outlived = scene.journal.runs()[0].last_sign - lease_end
    assert outlived < 0, f"the job outlived its lease by {outlived:.3f} s"


def answer_to_the_claim_is_lost(scene: Scene) -> None:
    """Drop the answer to a claim that was applied: the tick is started all the same, once."""
    scene.host().run("warm-up", "--tick", "one", "--", "true")  # now the server knows the script
    via = scene.proxy()
    via.drop_next_reply(containing=b"if_version")
    ended = scene.host(via=via).run("k", "--tick", "one", *scene.job("--beats"))
    assert via.dropped_replies() == 1
    assert ended == Ended(0, b"", "")
    assert len(scene.journal.runs()) == 1, "granted and never started"


def clock_is_set_back_while_cut_off(scene: Scene) -> None:
    """Cut the holder off and set its clock back by 5 s, and fire the next tick on another host."""
    via, clock = scene.proxy(), SteppedClock(scene.path)
    firing = scene.fire(
        scene.host(via=via, **clock.environment), "--tick", "one", *scene.job(*LIVE)
    )
    scene.stack.callback(clock.forget, firing.process.pid)
    scene.journal.wait_for("start")
    via.deaf()
    clock.step(-5)
    scene.next_tick()


def wrapper_is_killed(scene: Scene) -> None:
    """Kill the process that cron started, by kill -9, and fire the next tick on another host."""
    command = scene.job(*LIVE, "--setsid-grandchild")
    firing = scene.fire(scene.host(), "--tick", "one", "--grace", "0.5s", *command)
    scene.journal.wait_for("start", 2)
    os.kill(firing.wrapper.pid, signal.SIGKILL)
    scene.next_tick()


def guard_is_stopped(scene: Scene) -> None:
    """Stop the guard beyond the end of trust, and fire the next tick on another host."""
    firing = scene.fire(scene.host(), "--tick", "one", *scene.job(*LIVE))
    scene.journal.wait_for("start")
    os.kill(firing.guard().pid, signal.SIGSTOP)
    scene.next_tick()


def guard_is_killed(scene: Scene) -> None:
    """Kill the guard of a job with a grandchild in a session of its own, and fire the next tick on another host."""
    firing = scene.fire(scene.host(), "--tick", "one", *scene.job(*LIVE, "--setsid-grandchild"))
    scene.journal.wait_for("start", 2)
    os.kill(firing.guard().pid, signal.SIGKILL)
    scene.next_tick()


def host_dies(scene: Scene) -> None:
    """Kill everything of a firing at once, and fire the next tick on another host."""
    firing = scene.fire(scene.host(), "--tick", "one", *scene.job(*LIVE))
    scene.journal.wait_for("start")
    kill_tree(firing.process.pid)
    scene.next_tick(wait="9s")


def job_fails(scene: Scene) -> None:
    """Run a job that ends with 3."""
    ended = scene.host().run("k", "--tick", "one", *scene.job("--exit", 3))
    assert ended.status == 3, "the status is not the job's"


def grandchild_has_left_the_session(scene: Scene) -> None:
    """Let a job with a grandchild in a session of its own time out: both are ended, and the run is over."""
    command = scene.job(*LIVE, "--setsid-grandchild")
    options = ("--timeout", "1s", "--grace", "0.5s")
    firing = scene.fire(scene.host(), "--tick", "one", *options, *command)
    try:
        status = firing.process.wait(4)
    except subprocess.TimeoutExpired:
        status = None
    assert status is not None, "the run has no end"
    assert status == 124


def two_ticks_one_after_another(scene: Scene) -> None:
    """Run a tick on each of two hosts."""
    for name, tick in (("host-a", "one"), ("host-b", "two")):
        ended = scene.host(name).run("k", "--tick", tick, *scene.job())
        assert ended == Ended(0, b"", "")
    assert_tokens_rise(scene.journal)


def stale_job_checks_its_fence(scene: Scene) -> None:
    """Come with a job's token when the next tick has been granted."""
    two_ticks_one_after_another(scene)
    stale, present = (int(start.token) for start in scene.journal.starts())
    with scene.store.connect("jobber") as connection:
        check = "select oncecron.assert_fence('k', %s)"
        connection.execute(check, [present])
        with pytest.raises(psycopg.Error, match="stale fencing token"):
            connection.execute(check, [stale])


def store_is_away_when_a_firing_begins(scene: Scene) -> None:
    """Fire while the store is away; the refusal is told at the next firing."""
    via = scene.proxy()
    via.reset()
    host = scene.host(via=via)
    away = host.run("k", "--tick", "one", "--connect-timeout", "1s", *scene.job())
    assert away.status == 69
    via.passing()
    assert host.run("k", "--tick", "two", *scene.job()) == Ended(0, b"", "")
    assert scene.skips() == {("host-a", "no-store")}, "the firing has left no record"


def loser_is_recorded(scene: Scene) -> None:
    """Fire a tick that is done on a second host."""
    same_tick_after_the_end(scene)
    assert scene.skips() == {("host-b", "done")}, "the firing has left no record"


def standby(scene: Scene) -> Firing:
    """Run a tick for 5 s, and let a second host wait for it; return that one's firing."""
    failover = ("--tick", "one", "--failover")
    scene.fire(scene.host(), *failover, *scene.job("--beats", "--sleep", 5))
    scene.journal.wait_for("start")
    waiting = scene.fire(scene.host("host-b"), *failover, *scene.job("--beats", "--sleep", 5))
    eventually(lambda: ("host-b", "held") in scene.skips())
    return waiting


def another_host_waits(scene: Scene) -> None:
    """Let a second host wait until the job of the first has ended."""
    waiting = standby(scene)
    waiting.process.wait(20)
    assert len(scene.journal.starts()) == 1, "taken over while it ran"


def job_is_stopped_while_another_host_waits(scene: Scene) -> None:
    """Stop what runs: the second host goes as well."""
    waiting = standby(scene)
    assert scene.host("host-c")("stop", "k").status == 0
    waiting.process.wait(20)
    assert len(scene.journal.starts()) == 1, "it goes on after a stop"


def job_succeeds_while_another_host_waits(scene: Scene) -> None:
    """Let the job of the first host end: what the second one waited for is done."""
    standby(scene).process.wait(30)
    assert len(scene.journal.starts()) == 1, "it goes on after a success"


def job_fails_at_each_attempt(scene: Scene) -> None:
    """Allow one further attempt of a job that always fails."""
    retries = ("--retries", 1, "--retry-delay", "100ms")
    ended = scene.host().run("k", "--tick", "one", *retries, *scene.job("--exit", 3))
    assert ended.status == 3
    assert len(scene.journal.starts()) == 2, "tried again too often"


def each_attempt_knows_its_number(scene: Scene) -> None:
    """Allow one further attempt of a job that fails."""
    job_fails_at_each_attempt(scene)
    numbers = [start.attempt for start in scene.journal.starts()]
    assert numbers == ["1", "2"], "the job is told another attempt"


def job_outlives_its_first_ttl(scene: Scene) -> None:
    """Run a job that is longer than the ttl, with nobody who hinders it."""
    firing = scene.fire(scene.host(), "--tick", "one", *scene.job("--beats", "--sleep", TTL + 2))
    assert firing.process.wait(60) == 0, "the lease was lost"


def failure_is_recorded(scene: Scene) -> None:
    """Run a job that ends with 3."""
    job_fails(scene)
    ended = scene.host()("history", "k", "--format", "json")
    [row] = json.loads(ended.out)
    assert (row["outcome"], row["exit_code"]) == ("failed", 3), "the log has another end"


def host_dies_in_an_item(scene: Scene) -> None:
    """Kill everything of a host that works on an item, and let another host go on with the list."""
    begun = scene.path / "begun"
    words = (
        "each",
        "--key",
        "k",
        "--ttl",
        TTL,
        "--tick",
        "one",
        "--items",
        "seq 3",
        "--wait",
        "20s",
    )
    firing = scene.host().start(*words, "--", "sh", "-c", f'echo "$1" >>{begun}; sleep 60', "sh")
    scene.stack.callback(kill_tree, firing.process.pid)
    eventually(begun.exists, 30)
    kill_tree(firing.process.pid)
    firing.wait()
    scene.host("host-b")(*words, "--", "sh", "-c", f'echo "$1" >>{begun}', "sh")
    items = begun.read_text().split()
    assert sorted({*items}) == ["1", "2", "3"]
    assert len(items) == 3, "an item was begun twice"


def one_host_runs_all_parts(scene: Scene) -> None:
    """Let one host run both parts of a tick."""
    scene.host().run("k", "--tick", "one", "--shards", 2, *scene.job())
    parts = {start.shard for start in scene.journal.starts()}
    assert parts == {"0", "1"}, "a part was left out"


class Scenario(NamedTuple):
    """What shows a mutation."""

    play: Callable[[Scene], None]
    says: str
    """Of the proof that fails."""
    stores: tuple[str, ...]
    """The cheapest that shows it; all where each has code of its own."""


OVERLAP, RECORD = "two at a time", "has left no record"
ALL_STORES = ("postgres", "redis", "sqlite")
SCENARIOS = {
    "no-lease-row": Scenario(holder_loses_its_session, OVERLAP, ("postgres",)),
    "lock-without-tick": Scenario(same_tick_after_the_end, "started twice", ALL_STORES),
    "release-before-dead": Scenario(failed_job_leaves_a_process, OVERLAP, ("sqlite",)),
    "deadline-from-receipt": Scenario(answers_are_late_then_none_comes, "outlived", ("redis",)),
    "retry-as-new-claim": Scenario(answer_to_the_claim_is_lost, "never started", ("redis",)),
    "wall-clock": Scenario(clock_is_set_back_while_cut_off, OVERLAP, ("redis",)),
    "no-guard": Scenario(wrapper_is_killed, OVERLAP, ("sqlite",)),
    "no-watchdog": Scenario(guard_is_stopped, OVERLAP, ("sqlite",)),
    "leave-the-tree": Scenario(guard_is_killed, OVERLAP, ("sqlite",)),
    "asking-renews": Scenario(host_dies, "the key is blocked", ("sqlite",)),
    "wrong-status": Scenario(job_fails, "not the job's", ("sqlite",)),
    "kill-group-only": Scenario(grandchild_has_left_the_session, "has no end", ("sqlite",)),
    "token-stands-still": Scenario(two_ticks_one_after_another, "token", ALL_STORES),
    "fence-asleep": Scenario(stale_job_checks_its_fence, "DID NOT RAISE", ("postgres",)),
    "no-spool": Scenario(store_is_away_when_a_firing_begins, RECORD, ("redis",)),
    "no-skip": Scenario(loser_is_recorded, RECORD, ALL_STORES),
    "takeover-while-alive": Scenario(another_host_waits, "taken over", ALL_STORES),
    "stopped-goes-on": Scenario(
        job_is_stopped_while_another_host_waits, "after a stop", ("sqlite",)
    ),
    "retries-too-many": Scenario(job_fails_at_each_attempt, "too often", ("sqlite",)),
    "done-goes-on": Scenario(job_succeeds_while_another_host_waits, "after a success", ALL_STORES),
    "never-renews": Scenario(job_outlives_its_first_ttl, "was lost", ("sqlite",)),
    "failure-as-success": Scenario(failure_is_recorded, "another end", ("sqlite",)),
    "attempt-untold": Scenario(each_attempt_knows_its_number, "another attempt", ("sqlite",)),
    "doubt-drawn-again": Scenario(host_dies_in_an_item, "begun twice", ALL_STORES),
    "parts-share-a-tick": Scenario(one_host_runs_all_parts, "left out", ("sqlite", "postgres")),
}

LONG = (
    *("no-lease-row", "wall-clock", "no-guard", "no-watchdog", "leave-the-tree", "asking-renews"),
    *("kill-group-only", "never-renews"),
)
"""They mostly wait, so all of them at once."""
CASES = [
    [(name, SCENARIOS[name].stores[0]) for name in LONG],
    *([(name, kind)] for name in SCENARIOS if name not in LONG for kind in SCENARIOS[name].stores),
]


# How they are played


@pytest.fixture
def new_scene(request: pytest.FixtureRequest) -> Iterator[Callable[[str, Path], Scene]]:
    """Give a function that makes a scene: (kind of store, console script)."""
    with ExitStack() as stack:

        def make(kind: str, script: Path) -> Scene:
            path = public_directory("scene")
            stack.callback(remove_directory, path)
            path.chmod(0o1777)
            journal = Journal(path / "journal")
            stack.callback(journal.kill_jobs)
            store, url = stack.enter_context(a_store(kind, request, path, script))
            return Scene(script, store, url, path, journal, stack)

        yield make


@pytest.fixture
def directory() -> Iterator[Path]:
    """Make a directory for a copy, which other users can enter."""
    path = public_directory("mutation")
    yield path
    remove_directory(path)


@pytest.mark.parametrize("cases", CASES, ids=lambda cases: "+".join(map("-".join, cases)))
def test_the_product_keeps_what_its_mutation_breaks(
    cases: Sequence[tuple[str, str]], directory: Path, new_scene: Callable[[str, Path], Scene]
) -> None:
    """The product passes, its mutation fails in the way it says, and runs a plain job all the same."""
    played: dict[str, tuple[Future[None], Future[None]]] = {}
    with ThreadPoolExecutor(2 * len(cases)) as pool:
        for name, kind in cases:
            assert kind in mutations.ALL[name].stores
            product = new_scene(kind, CONSOLE_SCRIPT)
            mutated = new_scene(kind, mutations.copy(mutations.ALL[name], directory / name))
            plain = mutated.host().run("plain", "--tick", "one", "--", "sh", "-c", "echo ran")
            assert plain == Ended(0, b"ran\n", "")
            play = SCENARIOS[name].play
            played[name] = pool.submit(play, product), pool.submit(play, mutated)
    for name, (kept, broken) in played.items():
        kept.result()
        with pytest.raises((AssertionError, pytest.fail.Exception), match=SCENARIOS[name].says):
            broken.result()


@pytest.mark.parametrize("name", [*mutations.ALL, *mutations.SIMULATED])
def test_each_change_finds_its_place(name: str) -> None:
    """Seen at once, and not only where its scenario is played."""
    for change in {**mutations.ALL, **mutations.SIMULATED}[name].changes:
        assert (patched.INSTALLED / change.file).read_text().count(change.old) == 1, change


def test_every_mutation_has_a_scenario() -> None:
    """None is told to the checker that was not seen to be broken."""
    assert SCENARIOS.keys() == mutations.ALL.keys()


@pytest.mark.parametrize("name", mutations.ALL)
def test_each_mutation_says_what_it_takes(name: str) -> None:
    """Where it applies, and which faults make it show."""
    mutation = mutations.ALL[name]
    assert set(mutation.stores) <= set(mutations.EVERYWHERE)
    assert all((mutation.stores, mutation.how, mutation.changes))
    assert mutation.breaks.endswith(".")


VERSION = mutations.Change("__init__.py", '__version__ = "', '__version__ = "mutated-')


def _mutation(*changes: mutations.Change) -> mutations.Mutation:
    return mutations.Mutation("some", "Something.", (), (), "", changes)


def test_a_copy_runs_its_own_code(directory: Path) -> None:
    """Its console script imports the copy, bytecode included, and nothing else differs from the installed one."""
    script = mutations.copy(_mutation(VERSION), directory / "copy")
    version = subprocess.run([script, "--version"], check=True, capture_output=True, text=True)
    assert version.stdout.startswith("oncecron mutated-")
    installed_lines = CONSOLE_SCRIPT.read_text().splitlines()
    lines = script.read_text().splitlines()
    added = ["import sys", f"sys.path.insert(0, {str(directory / 'copy')!r})"]
    at = lines.index(added[1])
    assert lines[at - 1 : at + 1] == added
    assert lines[: at - 1] + lines[at + 1 :] == installed_lines
    package = directory / "copy" / "oncecron"
    compiled = {path.stem.split(".")[0] for path in package.glob("__pycache__/*.pyc")}
    assert compiled == {path.stem for path in package.glob("*.py")}
    assert "mutated-" not in (patched.INSTALLED / "__init__.py").read_text()


@pytest.mark.parametrize(
    "change",
    [
        mutations.Change("run/guard.py", "nobody has ever written this", ""),
        mutations.Change("run/guard.py", "self._state", ""),
        mutations.Change("no_such_file.py", "x", ""),
    ],
    ids=["the text is gone", "the text is there twice", "the file is gone"],
)
def test_a_change_that_no_longer_applies_is_an_error(
    directory: Path, change: mutations.Change
) -> None:
    """It names the file, so that nobody takes the product itself for a mutation."""
    with pytest.raises(mutations.DoesNotApplyError, match=change.file):
        mutations.copy(_mutation(VERSION, change), directory / "copy")
