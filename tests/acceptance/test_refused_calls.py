"""A sandbox or an old kernel that refuses system calls: a firing does without, or claims nothing, and `doctor` says so.

Judged by what the children wrote: no tick twice, no two at a time, and no process left.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from log_of import Store
from servers import Journal, assert_exclusive, job
from servers.namespaces import program, require_root
from servers.oncecron import Ended, Firing, Oncecron
from servers.process import command_line, process_table

REFUSING = Path(__file__).resolve().parent.parent / "children" / "refusing.py"
NEEDED = {
    "signalfd4": "signalfd4",
    "eventfd2": "eventfd2",
    "setsid": "setsid",
    "mmap=0x21": "mmap(MAP_SHARED)",  # with MAP_ANONYMOUS
    "prctl=36": "prctl(PR_SET_CHILD_SUBREAPER)",
    "prctl=1": "prctl(PR_SET_PDEATHSIG)",
    "kill,pidfd_send_signal": "kill",
}
"""Where one of these is refused nothing is claimed; what it is called in messages."""
REPLACED = ("pidfd_open", "pidfd_send_signal", "memfd_create", "close_range")
UNNOTICED = ("kill", "fsync", "flock", "prlimit64")
LIVE = ("--beats", "--sleep", 60)
STORY = ("timeout", "term", "guard", "each", "test")


def sandboxed(host: Oncecron, calls: str, error: str) -> Oncecron:
    """Return the host in a sandbox that answers an error to system calls."""
    python = os.path.realpath(sys.executable)
    host.prefix = [python, "-S", "-E", str(REFUSING), calls, error]
    return host


def fire_all(host: Oncecron, journal: Journal) -> dict[str, Firing]:
    """Fire each way through a firing that needs the kernel, all at once."""
    tick = ("--tick", "one")
    stubborn = job(journal, *LIVE, "--ignore-term", "--setsid-grandchild")
    return {
        "timeout": host.fire(
            "timeout", *tick, "--timeout", "4s", "--grace", "0.5s", "--", *stubborn
        ),
        "term": host.fire("term", *tick, "--", *job(journal, *LIVE)),
        "guard": host.fire("guard", *tick, "--", *job(journal, *LIVE, "--fork")),
        "each": host.start(
            *("each", "--key", "each", *tick, "--items", "echo 1; echo 2", "--batch", 2),
            *("--stdin", "--slots", 1, "--", *job(journal)),
        ),
        "test": host.fire(
            "test", *tick, "--only-if", "true", "--capture", "1k", "--", *job(journal, "--ready")
        ),
    }


def end_all(firings: dict[str, Firing], journal: Journal) -> dict[str, Ended]:
    """Wait until the jobs run, end them by a signal to the wrapper or to the guard, and wait for all."""
    for key in ("term", "guard"):
        journal.wait_for("start", where=lambda line, key=key: line.key == key)
    os.kill(firings["term"].wrapper.pid, signal.SIGTERM)
    os.kill(firings["guard"].guard().pid, signal.SIGKILL)
    return {key: firing.wait() for key, firing in firings.items()}


def assert_none_left(journal: Journal) -> None:
    """Fail if a process of a job lives on."""
    name = os.fsencode(journal.path)
    assert [each for each in process_table() if name in command_line(each.pid)] == []


def starts(journal: Journal) -> list[tuple[str, str, str]]:
    """Return who ran what, in order of the key."""
    return sorted((line.key, line.tick, line.host) for line in journal.starts())


def kernel(host: Oncecron) -> dict[str, str]:
    """Return what doctor says of the kernel, by the state."""
    found = json.loads(host("doctor", "--json").out)
    return {each["state"]: each["text"] for each in found if each["subject"] == "kernel"}


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ("clone3", "EPERM"),  # after ENOSYS glibc takes another call
        *((calls, error) for calls in NEEDED for error in ("EPERM", "ENOSYS")),
    ],
)
def test_what_a_firing_needs_is_refused(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal, calls: str, error: str
) -> None:
    """It claims nothing, says what is missing, exits with 78, and another host runs the tick."""
    host, named = sandboxed(new_host(), calls, error), NEEDED.get(calls, calls)
    line = (
        f"the kernel or a sandbox refuses {named} ({error}), which oncecron needs; nothing was started; "
        "allow it in the seccomp profile of the container\n"
    )
    for key, firing in fire_all(host, journal).items():
        ended = firing.wait()
        assert (ended.status, ended.out) == (78, b""), (key, ended)
        assert ended.err.removeprefix("oncecron: ").removeprefix(f"key {key}: ").endswith(line), key
        assert "internal error" not in ended.err, key
    assert starts(journal) == []
    assert f"refuses {named} ({error})" in kernel(host)["fail"]
    other = new_host("host-b")
    for key in STORY[:3]:
        assert other.run(key, "--tick", "one", "--", *job(journal)).status == 0
    assert starts(journal) == [(key, "one", "host-b") for key in sorted(STORY[:3])]
    assert store.executions("term")[0].outcome == "succeeded"


@pytest.mark.turns(3)
@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
@pytest.mark.parametrize("calls", [*REPLACED, *UNNOTICED])
def test_a_firing_does_without(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal, calls: str, error: str
) -> None:
    """It ends what is to end, each process of it, and no other host starts a tick of it."""
    host, other = sandboxed(new_host(), calls, error), new_host("host-b")
    ended = end_all(fire_all(host, journal), journal)
    assert_none_left(journal)
    assert {key: end.status for key, end in ended.items() if key != "term"} == {
        "timeout": 124,
        "guard": 75,
        "each": 0,
        "test": 0,
    }, ended
    # By TERM; a job that may not send itself a signal ends with 1 instead.
    assert ended["term"].status == (1 if calls == "kill" else 143), ended
    assert ended["test"].out == b"ready\n"
    assert "a record is lost" not in ended["guard"].err
    for key, firing in fire_all(other, journal).items():
        assert firing.wait() == Ended(0, b"", ""), key
    assert starts(journal) == [(key, "one", "host-a") for key in sorted(STORY)]
    assert_exclusive(journal)
    assert store.executions("timeout")[0].outcome == "timed-out"
    if calls in REPLACED:
        assert f"refuses {calls} ({error}); oncecron does without" in kernel(host)["warn"]
    else:
        assert kernel(host) == {"ok": "it refuses nothing that oncecron uses"}


NO_TABLE = (
    "/proc does not show the processes of this host or container; nothing was started; "
    "mount it: `mount -t proc proc /proc`"
)
NO_DEV = (
    "cannot open /dev/null: No such file or directory; "
    "give this host or container a /dev with null in it"
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("setup", "options", "said"),
    [
        ("mount -t tmpfs none /proc", "-m", NO_TABLE),
        ("true", "-p --fork", NO_TABLE),
        ("mount -t tmpfs none /dev", "-m", NO_DEV),
        ("mount -t proc -o hidepid=2 proc /proc", "-m", ""),
    ],
    ids=["no-proc", "proc-of-another-namespace", "no-dev", "hidepid"],
)
def test_file_systems_of_the_kernel_are_missing(
    host: Oncecron, journal: Journal, setup: str, options: str, said: str
) -> None:
    """Without a process table of its own nothing could be ended: nothing is claimed."""
    require_root("namespaces")
    words = [
        program("unshare"),
        *options.split(),
        "--",
        "/bin/sh",
        "-ec",
        f'{setup}; exec "$@"',
        "sh",
    ]
    host.prefix = words
    ended = host.run("k", "--tick", "one", "--", *job(journal))
    assert ended.status == (78 if said else 0), ended
    assert ended.err.removeprefix("oncecron: ").removeprefix("key k: ").removesuffix("\n") == said
    host.prefix = []
    assert host.run("k", "--tick", "one", "--", *job(journal)).status == 0
    assert len(journal.starts()) == 1
