"""A pass of `oncecron notify` that is killed, whose store restarts, or whose channel answers too late.

Three hosts make the passes. Each change is sent at least once, and twice only where an acknowledgement was lost. What
was sent is what a real HTTP server has received.
"""

import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from breakable import start_breakable
from log_of import Store
from servers import Answer, PostgresServer, Received, Recorder, RedisServer, eventually
from servers.oncecron import Firing, Oncecron
from servers.process import kill_tree
from story_stores import seed

Hosts = Callable[..., Oncecron]

STEPPED = Path(__file__).parents[4] / "tests" / "children" / "stepped"
KILLED = int(os.environ.get("ONCECRON_TEST_KILLED_PASSES", "2"))
"""How many of the 36 pairs of a moment and a victim are tried."""
MOMENTS = {
    "call:prepare:1": 1,
    "return:prepare:1": 1,
    "call:_put:1": 1,  # which says that a message is under way
    "return:_put:1": 1,
    "call:send:1": 1,
    "return:send:1": 2,
    "call:_put:2": 2,  # which says that it was acknowledged
    "return:_put:2": 1,
    "return:_pass:1": 1,
}
"""The moments of a pass, and how often a change is sent if the pass is killed there."""
VICTIMS = ("pass", "guard", "wrapper", "host")
PAIRS = list(itertools.product(MOMENTS, VICTIMS))


class Told(NamedTuple):
    """A change as a message has it."""

    change_id: str
    change: str


class Passes:
    """Three hosts with a webhook."""

    def __init__(self, directory: Path, recorder: Recorder, hosts: list[Oncecron]) -> None:
        self.recorder = recorder
        self.hosts = hosts
        file = directory / "notify.toml"
        file.write_text(
            f'ttl = "6s"\n[notify.channel.hook]\nurl = "{recorder.url}/hook"\n[job."oncecron/notify"]\nttl = "6s"\n'
        )
        file.chmod(0o600)
        for host in hosts:
            host.environment["ONCECRON_CONFIG"] = str(file)
        self._next = itertools.cycle(hosts)

    def host(self) -> Oncecron:
        """Return the next host."""
        return next(self._next)

    def run(self, key: str, program: str) -> None:
        """Run a job."""
        self.host().run(key, "--no-tick", "--", program)

    def stopped_at(self, moment: str) -> Firing:
        """Start a pass on the next host and wait until it stands at a moment."""
        host = self.host()
        host.environment |= {"STOP_AT": moment, "PYTHONPATH": str(STEPPED)}
        firing = host.start("notify", "--now")
        del host.environment["STOP_AT"], host.environment["PYTHONPATH"]
        eventually(lambda: is_stopped(firing.job().pid), 30, (AssertionError, OSError))
        return firing

    def complete(self) -> None:
        """Make a pass on the next host, once the lease of a dead one has ended."""
        ended = self.host()("notify", "--now")
        assert (ended.status, ended.err) == (0, ""), ended

    def told(self, key: str) -> list[Told]:
        """Return what was sent about a key."""
        messages = [json.loads(each.body) for each in list(self.recorder.received)]
        return [
            Told(change["id"], change["change"])
            for message in messages
            for change in message["changes"]
            if change["key"] == key
        ]

    def recovers(self, key: str) -> None:
        """Check that the end of a failure is sent once."""
        before = self.told(key)
        self.run(key, "true")
        self.complete()
        self.complete()
        assert [each.change for each in self.told(key)[len(before) :]] == ["recovered"]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def kill(firing: Firing, victim: str) -> None:
    """Kill one process of a firing, or all of them as a power cut would."""
    if victim == "host":
        kill_tree(firing.process.pid)
    else:
        pids = {"pass": firing.job, "guard": firing.guard, "wrapper": lambda: firing.wrapper}
        os.kill(pids[victim]().pid, signal.SIGKILL)
    firing.process.wait(60)


@pytest.fixture
def passes(
    public_path: Path, store: Store, new_host: Hosts, new_recorder: Callable[..., Recorder]
) -> Passes:
    """Give three hosts that share a store."""
    return Passes(public_path, new_recorder(), [new_host(f"host-{name}") for name in "abc"])


def chosen() -> Iterator[tuple[int, str, str]]:
    """Yield the pairs of this run."""
    pairs = random.Random(seed()).sample(PAIRS, min(KILLED, len(PAIRS)))
    yield from ((number, moment, victim) for number, (moment, victim) in enumerate(pairs))


@pytest.mark.slow
@pytest.mark.timeout(300 + 30 * KILLED)
def test_a_pass_that_is_killed_at_any_moment_is_no_silence(store: Store, passes: Passes) -> None:
    """Another host sends what is not known to have arrived; the same change has the same id, whatever comes with it."""
    for number, moment, victim in chosen():
        key = f"job-{number}"
        passes.run(key, "false")
        firing = passes.stopped_at(moment)
        kill(firing, victim)
        passes.run(f"other-{number}", "false")
        passes.complete()
        passes.complete()
        told = passes.told(key)
        where = f"{victim} killed at {moment}"
        assert [each.change for each in told] == ["problem"] * MOMENTS[moment], where
        assert len({each.change_id for each in told}) == 1, where
        passes.recovers(key)


@pytest.mark.turns(0)
def test_every_moment_is_one_that_a_pass_has(store: Store, passes: Passes) -> None:
    """So that the test above waits for none in vain; left alone, a pass that stood there sends once."""
    passes.run("job", "false")
    for number, moment in enumerate(MOMENTS):
        firing = passes.stopped_at(moment)
        os.kill(firing.job().pid, signal.SIGCONT)
        ended = firing.wait()
        assert (ended.status, ended.err) == (0, ""), (moment, ended)
        assert len(passes.told("job")) == number + 1
        passes.run("job", "true" if number % 2 == 0 else "false")


@pytest.mark.turns(2, "passes")
def test_a_webhook_that_answers_after_the_pass_was_killed_gets_the_message_again(
    store: Store, passes: Passes
) -> None:
    """Nobody has heard the answer; the id is the same."""
    answer = threading.Event()

    def late(_: Received) -> Answer:
        answer.wait(60)
        return Answer()

    passes.recorder.behave = late
    passes.run("job", "false")
    firing = passes.host().start("notify", "--now")
    passes.recorder.wait_for(1)
    kill(firing, "host")
    answer.set()
    passes.complete()
    passes.complete()
    told = passes.told("job")
    assert [each.change for each in told] == ["problem", "problem"]
    assert len({each.change_id for each in told}) == 1
    passes.recovers("job")


@pytest.mark.turns(2, "passes")
def test_what_comes_and_goes_while_a_channel_fails_is_sent(store: Store, passes: Passes) -> None:
    """A problem whose message failed and that is gone by now is sent as recovered."""
    passes.recorder.behave = lambda _: Answer(503)
    passes.run("job", "false")
    assert passes.host()("notify", "--now").status == 1
    passes.run("job", "true")
    assert passes.host()("notify", "--now").status == 1
    passes.recorder.behave = lambda _: Answer()
    passes.complete()
    passes.complete()
    assert [each.change for each in passes.told("job")] == ["problem", "recovered", "recovered"]


@pytest.mark.turns(2, "passes")
def test_a_pass_that_wakes_up_late_sends_nothing(store: Store, passes: Passes) -> None:
    """Another host has made the pass meanwhile: it has written the document first."""
    passes.run("job", "false")
    frozen = passes.stopped_at("call:_put:1")
    pid = frozen.job().pid
    for process in (frozen.guard(), frozen.wrapper):
        os.kill(process.pid, signal.SIGSTOP)
    passes.complete()
    assert [each.change for each in passes.told("job")] == ["problem"]
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: not Path(f"/proc/{pid}/cmdline").read_bytes(), 30, OSError)
    kill(frozen, "host")
    assert [each.change for each in passes.told("job")] == ["problem"]
    passes.recovers("job")


@pytest.mark.turns(2, "passes")
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_store_that_restarts_during_a_pass_loses_no_change(
    kind: str,
    public_path: Path,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
    new_recorder: Callable[..., Recorder],
) -> None:
    """While the message is under way: it may be sent twice, and is sent."""
    breakable = start_breakable(kind, new_postgres, new_redis)
    answer = threading.Event()

    def slow(_: Received) -> Answer:
        answer.wait(60)
        return Answer()

    hosts = [Oncecron(breakable.url(), public_path, f"host-{name}") for name in "abc"]
    passes = Passes(public_path, new_recorder(slow), hosts)
    passes.run("job", "false")
    firing = passes.host().start("notify", "--now")
    passes.recorder.wait_for(1)
    breakable.stop("kill")
    breakable.server.start()
    answer.set()
    firing.wait()
    eventually(lambda: passes.host()("notify", "--now").status == 0, 60)
    passes.complete()
    told = passes.told("job")
    assert [each.change for each in told] in (["problem"], ["problem"] * 2)
    assert len({each.change_id for each in told}) == 1
    passes.recovers("job")
