"""Starting a job, and finding and ending everything below a process.

`Tree` means all that is below the process that asks, so every scene is played in a process of its own.
"""

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from oncecron.core import system
from oncecron.run import process_tree

NOBODY = 65534
PYTHON = [sys.executable, "-S", "-E", "-c"]
CHAIN = """
import os, sys, time
until = time.monotonic() + 40
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    time.sleep(float(sys.argv[1]))
"""
SCENES: list[Callable[[], None]] = []


def scene(play: Callable[[], None]) -> Callable[[], None]:
    """Play the function in a process of its own."""
    SCENES.append(play)

    def test() -> None:
        command = [sys.executable, __file__, play.__name__]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False,
            process_group=0,  # that of the tests may be of another pid namespace, and then has no number here
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    test.__doc__ = play.__doc__
    test.__name__ = play.__name__
    return test


def until_gone(tree: process_tree.Tree, deadline: float = 30) -> None:
    """Kill until nothing is left."""
    give_up = time.monotonic() + deadline
    while tree.kill():
        assert time.monotonic() < give_up, f"left: {list(process_tree.descendants(os.getpid()))}"
        time.sleep(0.002)


def spawn(*command: str, process_group: int | None = None) -> int:
    program = shutil.which(command[0]) or command[0]
    return process_tree.start(program, command, dict(os.environ), process_group, set())


def reaped(tree: process_tree.Tree, pid: int, deadline: float = 30) -> int:
    give_up = time.monotonic() + deadline
    while pid not in tree.statuses:
        assert time.monotonic() < give_up, f"{pid} has not ended"
        tree.reap()
        time.sleep(0.002)
    return tree.statuses[pid]


def below(count: int, sleeping: int = 0, deadline: float = 30) -> list[process_tree.Process]:
    """Wait until there are at least so many living processes below this one, so many of them `sleep`."""
    give_up = time.monotonic() + deadline
    while True:
        found = [p for p in process_tree.descendants(os.getpid()) if p.state != b"Z"]
        if len(found) >= count and [name_of(p) for p in found].count("sleep") >= sleeping:
            return found
        assert time.monotonic() < give_up, found
        time.sleep(0.002)


def name_of(process: process_tree.Process) -> str:
    """Return the name of the program that it executes."""
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/comm") as file:
        return file.read().strip()
    return ""


# Tree


@scene
def test_descendants_are_found_wherever_they_went() -> None:
    """Shells, other sessions, and whoever lost its parent, parents before children."""
    process_tree.become_subreaper()
    spawn(
        "sh", "-c", "(setsid sleep 30 &) ; sh -c 'sleep 30; true' & setsid sh -c 'sleep 30; true'"
    )
    found = below(5, sleeping=3)
    pids = [process.pid for process in found]
    places = {pid: place for place, pid in enumerate(pids)}
    for process in found:
        assert process.parent == os.getpid() or places[process.parent] < places[process.pid]
    assert len(pids) == len(set(pids))
    until_gone(process_tree.Tree())


@scene
def test_a_kernel_that_does_not_list_children_gives_the_same_answer() -> None:
    """Without CONFIG_PROC_CHILDREN the whole table is read."""
    process_tree.become_subreaper()
    spawn("sh", "-c", "sh -c 'sleep 30; true'; true")
    by_files = [process.pid for process in below(3, sleeping=1)]
    process_tree._KERNEL_TELLS_CHILDREN = False
    assert [process.pid for process in process_tree.descendants(os.getpid())] == by_files
    until_gone(process_tree.Tree())


@scene
def test_children_of_every_thread_are_found() -> None:
    """A process that a thread has forked is a descendant too."""
    process_tree.become_subreaper()
    threads = (
        "import subprocess, threading; "
        "threading.Thread(target=lambda: subprocess.run(['sleep', '30'])).start(); "
        "subprocess.run(['sleep', '30'])"
    )
    spawn(*PYTHON[:1], "-c", threads)
    below(3)
    until_gone(process_tree.Tree())


@scene
def test_kill_ends_a_tree_that_ignores_everything() -> None:
    """Ignored signals, stopped processes and orphans: nothing is left, and waitpid has said so."""
    process_tree.become_subreaper()
    spawn("sh", "-c", "trap '' TERM HUP INT; sleep 30 & (setsid sleep 30 &); sleep 30; true")
    found = below(4, sleeping=3)
    os.kill(found[-1].pid, signal.SIGSTOP)
    tree = process_tree.Tree()
    until_gone(tree)
    assert list(process_tree.descendants(os.getpid())) == []
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        raise AssertionError("a child is left")


@scene
def test_kill_catches_a_chain_of_processes_that_run_away() -> None:
    """Links that live for 2 ms are caught, and their zombies do not slow the look."""
    process_tree.become_subreaper()
    for _ in range(2):
        spawn(*PYTHON, CHAIN, "0.002")
    while (
        len(list(process_tree.descendants(os.getpid()))) < 100
    ):  # nobody reaps: zombies are in the way
        time.sleep(0.01)
    until_gone(process_tree.Tree())


@scene
def test_kill_returns_while_something_runs_away() -> None:
    """What it cannot catch, because each look finds another link, must not keep it from what is due."""
    spawn("sleep", "30")
    links = itertools.count(2**22)
    look = process_tree.descendants
    process_tree.descendants = lambda *_: iter(
        [process_tree.Process(next(links), os.getpid(), 1, b"R")]
    )
    signal.alarm(30)
    tree = process_tree.Tree()
    assert tree.kill()
    process_tree.descendants = look
    until_gone(tree)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVEN: another user's process needs root")
@scene
def test_a_process_of_another_user_is_said_to_be_left() -> None:
    """Without the right to signal it, kill() goes on saying that something is left, until it ends."""
    process_tree.become_subreaper()
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    other = spawn("sh", "-c", "read line; exit 7")
    os.setresuid(NOBODY, NOBODY, 0)  # the job stays root's
    tree = process_tree.Tree(other)
    for _ in range(5):
        assert tree.kill()
    assert other not in tree.statuses
    assert not process_tree.send(next(iter(process_tree.descendants(os.getpid()))), signal.SIGKILL)
    os.close(writer)
    assert process_tree.exit_status(reaped(tree, other)) == 7
    assert not tree.kill()


@scene
def test_a_status_is_kept_whoever_reaps() -> None:
    """The killer may reap the job itself: its status is found all the same."""
    process_tree.become_subreaper()
    pid = spawn("sh", "-c", "exit 3")
    other = spawn("sleep", "30")
    tree = process_tree.Tree(pid, other)
    while tree.kill():
        pass
    assert process_tree.exit_status(tree.statuses[other]) == 128 + signal.SIGKILL
    assert tree.statuses[pid] in {3 << 8, signal.SIGKILL}
    assert not tree.reap()


@scene
def test_a_signal_reaches_every_member_and_wakes_the_stopped() -> None:
    """TERM to the whole tree, CONT behind it to who is stopped."""
    process_tree.become_subreaper()
    job = spawn("sh", "-c", "setsid sleep 30 & sleep 30; true")
    found = below(3, sleeping=2)  # a shell that waits for its child's exec could not be stopped
    for process in found:
        os.kill(process.pid, signal.SIGSTOP)
    while any(p.state != b"T" for p in process_tree.descendants(os.getpid())):
        time.sleep(0.002)
    tree = process_tree.Tree(*(process.pid for process in found))
    tree.signal(signal.SIGTERM)
    assert os.WTERMSIG(reaped(tree, job)) == signal.SIGTERM
    while tree.reap():
        time.sleep(0.002)
    assert len(tree.statuses) == len(found)
    assert {os.WTERMSIG(status) for status in tree.statuses.values()} == {signal.SIGTERM}


@scene
def test_what_an_earlier_job_left_on_purpose_is_no_part_of_the_next_one() -> None:
    """Nor is what it starts meanwhile: no signal reaches it, no kill, and the tree is gone without it."""
    process_tree.become_subreaper()
    spawn("sh", "-c", "trap 'sleep 30 & wait' USR1; setsid sleep 30 & while :; do wait; done")
    left = below(2, sleeping=1)
    tree = process_tree.Tree()
    tree.set_apart()
    job = spawn("sh", "-c", "(setsid sleep 30 &); sleep 30; true")
    tree.expect(job)
    below(5, sleeping=3)
    os.kill(left[0].pid, signal.SIGUSR1)
    below(6, sleeping=4)
    tree.signal(signal.SIGTERM)
    give_up = time.monotonic() + 30
    while tree.reap():
        assert time.monotonic() < give_up, "the tree is never gone"
        time.sleep(0.002)
    assert os.WTERMSIG(tree.statuses[job]) == signal.SIGTERM
    tree.expect(spawn("sleep", "30"))
    until_gone(tree)
    assert len(below(3, sleeping=2)) == 3
    known, process_tree._read_process = process_tree._read_process, lambda _: None
    assert tree.reap(), "what cannot be looked at may be of the job"
    process_tree._read_process = known
    assert not tree.reap()
    until_gone(process_tree.Tree())


def test_an_orphan_is_not_taken_for_a_child_that_had_or_gets_its_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel gives a pid again: a status is that of the awaited child alone, and no orphan's stays."""
    ends = iter([(7, 0), (0, 0), (7, 9 << 8), (7, 0), (0, 0), (8, 0), (0, 0)])
    signalled: list[int] = []
    monkeypatch.setattr(system.calls, "waitpid", lambda *_: next(ends))
    monkeypatch.setattr(system.calls, "kill", lambda pid, _: signalled.append(pid))
    tree = process_tree.Tree()
    tree.reap()
    tree.signal_awaited(signal.SIGUSR1)
    assert (tree.statuses, signalled) == ({}, [])
    tree.expect(7)
    tree.signal_awaited(signal.SIGUSR1)
    tree.reap()
    tree.signal_awaited(signal.SIGUSR1)
    assert (tree.statuses, signalled) == ({7: 9 << 8}, [7])
    tree.expect(7)
    assert tree.statuses == {}
    tree.reap()
    assert tree.statuses == {}


@scene
def test_a_reused_pid_is_never_hit() -> None:
    """A row of the table whose start time is another one's gets no signal."""
    process_tree.become_subreaper()
    pid = spawn("sleep", "30")
    [process] = below(1)
    assert not process_tree.send(process._replace(started=process.started - 1), signal.SIGKILL)
    assert not process_tree.send(process._replace(pid=2**22 - 1), signal.SIGKILL)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert process_tree.send(process, signal.SIGKILL)
    os.waitpid(pid, 0)


@scene
def test_a_signal_arrives_whichever_call_is_refused() -> None:
    """By a pidfd or by kill(2), after any errno but ESRCH; and never at a process with another start time."""

    def refusing(number: int) -> Callable[..., object]:
        def call(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        return call

    process_tree.become_subreaper()
    for number in (errno.EPERM, errno.ENOSYS, errno.EMFILE, errno.ENODEV, errno.EINVAL):
        for refused in ("pidfd_open", "pidfd_send_signal", "kill"):
            pid = spawn("sleep", "30")
            [process] = below(1)
            system.use(system.Calls())
            setattr(system.calls, refused, refusing(number))
            assert not process_tree.send(process._replace(started=1), signal.SIGKILL)
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            if refused == "kill":
                process_tree.Tree(pid).signal_awaited(signal.SIGKILL)
            else:
                assert process_tree.send(process, signal.SIGKILL), (refused, number)
            system.use(system.Calls())
            assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
            assert not process_tree.send(process, signal.SIGKILL)


# Starting


def test_only_what_may_be_open_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without close_range(2) each number is closed: up to a container's limit of 2**30 that took minutes."""
    closed: list[int] = []
    monkeypatch.setattr(os, "sysconf", lambda _: 1 << 30)
    monkeypatch.setattr(os, "closerange", lambda low, high: closed.extend(range(low, high)))
    process_tree.close_above_standard(0, 5)
    is_open = {int(name) for name in os.listdir("/proc/self/fd")}
    assert {*range(3, max(is_open))} - {5} <= {*closed}
    assert not {0, 1, 2, 5} & {*closed}
    assert len(closed) < 10_000


@scene
def test_signals_are_read_from_a_descriptor_with_who_sent_them() -> None:
    """One from kill(2) is not from the terminal; several kinds are all told."""
    signals = process_tree.Signals()
    assert signals.read() == []
    for number in process_tree.FORWARDED:
        os.kill(os.getpid(), number)
    assert {received.number for received in signals.read()} == set(process_tree.FORWARDED)
    assert signals.read() == []
    os.kill(os.getpid(), signal.SIGINT)
    assert signals.read() == [process_tree.Received(signal.SIGINT, from_terminal=False)]


if __name__ == "__main__":
    {play.__name__: play for play in SCENES}[sys.argv[1]]()
