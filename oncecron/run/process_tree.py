"""Starting the job, and finding and ending everything that it started (Linux).

The tree, not the process group: a shell's children, a grandchild that called setsid(2), a daemon that forked
twice. The caller is a child subreaper (prctl(2)), so whatever loses its parent becomes its own child, and
`waitpid` saying that there is none left is the proof that the tree is gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import time

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import FIRST_KILL_PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_SIGINFO_SIZE = 128  # sizeof(struct signalfd_siginfo)
_SI_KERNEL = 0x80
_LOOKS = 10  # before those who were stopped are killed

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""The signals that the wrapper passes on to the job."""

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt every descendant that loses its parent, instead of init."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Received(NamedTuple):
    """A signal as signalfd(2) tells it."""

    number: int
    from_terminal: bool
    """Sent by the kernel (Ctrl-C), so that the terminal's whole foreground group has got it."""


class Signals:
    """The signals of a process as a descriptor to poll: nothing is interrupted, nothing is lost.

    A signal that was ignored when the program started stays ignored (nohup, `&` in a script): a blocked one
    would be queued for the descriptor all the same (signal(7)). The ends of children are seen in any case.
    """

    def __init__(self) -> None:
        """Block the forwarded signals and SIGCHLD, and open a descriptor for them.

        A process forked from this one uses the same descriptor: it tells the signals of its reader.
        """
        wanted = (number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN)
        watched = (*wanted, signal.SIGCHLD)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no child would leave its status
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        bits = sum(1 << (number - 1) for number in watched)
        mask = ctypes.create_string_buffer(bits.to_bytes(128, "little"))  # sigset_t is 1024 bits
        self.fd = int(_libc.signalfd(-1, mask, _SFD_FLAGS))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "signalfd")

    def read(self) -> list[Received]:
        """Return what has arrived since the last call."""
        received: list[Received] = []
        while True:
            try:
                data = os.read(self.fd, _SIGINFO_SIZE * 16)
            except BlockingIOError:
                return received
            for at in range(0, len(data), _SIGINFO_SIZE):
                number = int.from_bytes(data[at : at + 4], "little")
                code = int.from_bytes(data[at + 8 : at + 12], "little", signed=True)
                received.append(Received(number, code == _SI_KERNEL))


class Process(NamedTuple):
    """A row of the process table."""

    pid: int
    parent: int
    started: int
    state: bytes


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[1]), int(fields[19]), fields[0])


def descendants(root: int) -> Iterator[Process]:
    """Yield the processes below `root`, parents before children.

    Each is told before its own children are looked up, so that one whom the caller has stopped forks none
    in between. Zombies too: a leader that ended before its threads looks like one and still runs.
    """
    children_of = _children if _KERNEL_TELLS_CHILDREN else _children_in_table()
    waiting = [root]
    while waiting:
        for pid in children_of(waiting.pop()):
            if process := _read_process(pid):
                waiting.append(pid)
                yield process


def _children(parent: int) -> list[int]:
    """Return the children of all threads of a process, as proc(5) tells them.

    On two busy cores a look at the whole process table took 40 ms, this a tenth: chains of processes that
    live for 10 ms were caught after 7 looks instead of 50.
    """
    found: list[int] = []
    for thread in _listed(f"/proc/{parent}/task"):
        try:
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as children:
                found += map(int, children.read().split())
        except OSError:  # the thread is gone: what it leaves is told elsewhere
            continue
    return found


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _children_in_table() -> Callable[[int], Sequence[int]]:
    """Return what `_children` does, from one look at the process table (no CONFIG_PROC_CHILDREN)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read_process(int(name))):
            children.setdefault(process.parent, []).append(process.pid)
    return lambda parent: children.get(parent, ())


_KERNEL_TELLS_CHILDREN = os.path.exists("/proc/thread-self/children")


def send(process: Process, number: int) -> bool:
    """Send a signal to just this process; False if it is gone or may not be signalled.

    A pidfd pins the process, then its start time is compared: a reused pid is never hit.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        if (
            error.errno == errno.ENOSYS
        ):  # before Linux 5.3, or in a sandbox: a tiny risk beats no kill
            return _send_unpinned(process, number)
        return False
    try:
        present = _read_process(process.pid)
        if present is None or present.started != process.started:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def _send_unpinned(process: Process, number: int) -> bool:
    present = _read_process(process.pid)
    if present is None or present.started != process.started:
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True


def signal_one(pid: int, number: int) -> None:
    """Send a signal to a child that this process has not reaped: its pid cannot have been reused."""
    try:
        os.kill(pid, number)
    except OSError:
        return


class Tree:
    """Everything below this process; keeps every status that it reaps."""

    def __init__(self) -> None:
        """Start with nothing reaped."""
        self.statuses: dict[int, int] = {}
        """Wait statuses by pid: whoever reaps, the job's own status is found here."""

    def signal(self, number: int) -> None:
        """Send a signal to every member, and SIGCONT to those that are stopped, so that they get it."""
        members = list(descendants(os.getpid()))
        for process in members:
            send(process, number)
        for process in members:
            if process.state == b"T":
                send(process, signal.SIGCONT)

    def reap(self) -> bool:
        """Collect the zombies; return whether any child is left.

        No child left means that the tree is gone: whoever loses its parent becomes our child.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.statuses[pid] = status

    def kill(self) -> bool:
        """STOP, then KILL what is there now; return whether anything is left.

        Stopped first, so that nothing forks away between the look and the kill. A few looks only, with the
        zombies away in between: a chain whose links fork and end faster than we look is new at each look,
        and would keep us here for ever. Call it again until it returns False: a killed process needs a
        moment, and one of another user cannot be killed.
        """
        stopped: dict[tuple[int, int], Process] = {}
        for _ in range(_LOOKS):
            known = len(stopped)
            for process in descendants(os.getpid()):
                if (process.pid, process.started) not in stopped:
                    send(process, signal.SIGSTOP)
                    stopped[process.pid, process.started] = process
            if len(stopped) == known:
                break
            self.reap()
        for process in stopped.values():
            send(process, signal.SIGKILL)
        return self.reap()

    def kill_all(self, timeout: float) -> bool:
        """Kill until nothing is left; return False if something still is after so many seconds."""
        deadline = time.monotonic() + timeout
        while self.kill():
            select.select((), (), (), FIRST_KILL_PAUSE)
            if time.monotonic() >= deadline:
                return False
        return True


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    process_group: int | None,
    signal_mask: Iterable[int],
    outputs: Iterable[tuple[int, int]] = (),
) -> int:
    """Fork and execute the command; return its pid.

    In a session of its own, or, on a terminal, in the given process group. It dies with the thread that
    called this (PR_SET_PDEATHSIG), sees no descriptor but 0, 1 and 2 (Debian's cron leaks some) and
    has the signal mask and actions it would have without oncecron. `outputs`: what is to take the place of its 1
    and 2, from descriptors above them. Raises `OSError` of the execve(2).
    """
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _execute(command, environment, process_group, signal_mask, outputs, parent, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        number = int(failure)
        raise OSError(number, os.strerror(number), command[0])
    return pid


def _execute(
    command: Sequence[str],
    environment: Mapping[str, str],
    process_group: int | None,
    signal_mask: Iterable[int],
    outputs: Iterable[tuple[int, int]],
    parent: int,
    failures: int,
) -> NoReturn:
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the prctl: nobody would kill us
            os._exit(126)
        if process_group is None:
            os.setsid()
        else:
            os.setpgid(0, process_group)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        for standard, descriptor in outputs:
            os.dup2(descriptor, standard)
        os.closerange(3, failures)
        os.closerange(failures + 1, os.sysconf("SC_OPEN_MAX"))
        for name in _listed("/proc/self/fd"):  # opened before the limit was lowered
            if int(name) > failures:
                os.closerange(int(name), int(name) + 1)
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError) as error:  # a NUL in a word is a ValueError
        code = error.errno if isinstance(error, OSError) else errno.EINVAL
        os.write(failures, str(code).encode())
    finally:
        os._exit(126)


def exit_status(status: int) -> int:
    """Return what a shell would report of a wait status: the code, or 128 + the signal."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
