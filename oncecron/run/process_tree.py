"""Start the job, and find and end every process that it started (Linux).

That is the process tree, not the process group: a shell's children, a grandchild that called setsid(2), a daemon that
forked twice. The caller is a child subreaper (prctl(2)), so every process that loses its parent becomes its child. When
`waitpid` reports that no child is left, the tree is gone.
"""

from __future__ import annotations

import errno
import os
import select

from oncecron.core import clock, system
from oncecron.core.errors import shortage_of
from oncecron.core.light_modules import CDLL, c_void_p, get_errno, signal
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import FIRST_KILL_PAUSE, LONGEST_SLEEP, POLL_ROUNDING
from oncecron.run.program import as_execvp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

    from oncecron.core.errors import OncecronError

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_RLIMIT_CORE = 4
_SFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_SIGINFO_SIZE = 128  # sizeof(struct signalfd_siginfo)
_SIGINFOS = 16  # at a time
_SI_KERNEL = 0x80
_LOOKS = 10  # at most, before the stopped processes are killed

FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
"""The signals that the wrapper passes on to the job."""

_libc = CDLL(None, use_errno=True)


def become_subreaper(*, adopts: bool = True) -> None:
    """Adopt every descendant that loses its parent, instead of init; or leave it to init again."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0) != 0:
        raise OSError(get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


_Limits = c_void_p * 2  # a struct rlimit: two unsigned longs
_own_core_limit = _Limits()


def refuse_core() -> None:
    """Have no core of this process written: the store's password is in its memory. A job gets the limit back.

    One byte is too little for a file, and the only limit at which the kernel does not start the program that
    core_pattern names either (fs/coredump.c): at 0 it does.
    """
    limits = _Limits()
    _libc.getrlimit(_RLIMIT_CORE, limits)
    if limits[0] != 1 and limits[1]:
        _own_core_limit[0], _own_core_limit[1] = limits
        _libc.setrlimit(_RLIMIT_CORE, _Limits(1, limits[1]))


def restore_core_limit() -> None:
    """Take the limit back that `refuse_core` has lowered."""
    if _own_core_limit[1]:
        _libc.setrlimit(_RLIMIT_CORE, _own_core_limit)


def check_kernel() -> None:
    """Prove that this process could end a job. Raises `OSError` where the kernel or a sandbox prevents it.

    To be called in a process without a parent-death signal, which it would lose.
    """
    pid = os.getpid()
    find(pid)
    die_by(0)
    prove_signal(pid)


def become_guard(*, terminal: bool) -> None:
    """Lead a process group, in a session of its own unless it is on a terminal, and adopt what the job leaves.

    Raises `OSError` where this process could not end the job.
    """
    if terminal:
        os.setpgid(0, 0)
        # Otherwise writing a message would stop the guard.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    else:
        os.setsid()
    become_subreaper()
    check_kernel()


def find(pid: int) -> None:
    """Raise `OSError` if the process table does not have this process under its own number (PID namespaces)."""
    if os.readlink("/proc/self") != str(pid):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/proc/self")


def prove_signal(pid: int) -> None:
    """Raise `OSError` if this process may not even signal itself."""
    try:
        os.kill(pid, 0)
    except OSError:
        if not _signal(pid, os.pidfd_open(pid), 0):
            raise


class Received(NamedTuple):
    """A signal as signalfd(2) reports it."""

    number: int
    from_terminal: bool
    """Sent by the kernel (Ctrl-C), so the terminal's whole foreground group has received it."""


class Interrupted(Exception):  # noqa: N818 - no fault
    """A signal is to end this process, which may do something before: see `end_by`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end_by(number: int) -> NoReturn:
    """End this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
    os._exit(128 + number)


class Signals:
    """The signals of a process as a descriptor to poll: nothing is interrupted, and nothing is lost.

    A signal that was ignored when the program started stays ignored (nohup, `&` in a script): a blocked one would still
    be queued for the descriptor (signal(7)). SIGCHLD is always received.
    """

    def __init__(self) -> None:
        """Block the forwarded signals and SIGCHLD, and open a descriptor for them.

        A process forked from this one uses the same descriptor, which returns the signals of the process that reads.
        """
        wanted = (number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN)
        watched = (*wanted, signal.SIGCHLD)
        # If it were ignored, no exit status would be kept.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        bits = sum(1 << (number - 1) for number in watched)
        mask = bits.to_bytes(128, "little")  # sigset_t is 1024 bits
        self.fd = int(_libc.signalfd(-1, mask, _SFD_FLAGS))
        if self.fd < 0:
            raise OSError(get_errno(), "signalfd")

    def close(self) -> None:
        """Let the signals act again as before; one that has come and was not read acts now."""
        os.close(self.fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, at most a second. Raises `Interrupted` at one that is to end this process."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll((min(seconds, LONGEST_SLEEP) + POLL_ROUNDING) * 1000)
        for number, _ in self.read():
            if number != signal.SIGCHLD:
                raise Interrupted(number)

    def read(self) -> list[Received]:
        """Return what has arrived since the last call."""
        received: list[Received] = []
        while True:
            try:
                data = os.read(self.fd, _SIGINFO_SIZE * _SIGINFOS)
            except BlockingIOError:
                return received
            for at in range(0, len(data), _SIGINFO_SIZE):
                number = int.from_bytes(data[at : at + 4], "little")
                code = int.from_bytes(data[at + 8 : at + 12], "little", signed=True)
                received.append(Received(number, code == _SI_KERNEL))
            if len(data) < _SIGINFO_SIZE * _SIGINFOS:  # what comes now makes it readable again
                return received


class Process(NamedTuple):
    """A row of the process table."""

    pid: int
    parent: int
    started: int
    state: bytes


def _read_process(pid: int) -> Process | None:
    try:
        stat = system.calls.read_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return Process(pid, int(fields[1]), int(fields[19]), fields[0])


def descendants(root: int, apart: Collection[tuple[int, int]] = ()) -> Iterator[Process]:
    """Yield the processes below `root`, parents before children, without those that are apart and what is below them.

    Each process is yielded before its own children are looked up. So a process that the caller has stopped cannot fork
    in between. Zombies are included: a thread-group leader that has ended before its threads looks like one.
    """
    children_of = _children if _KERNEL_TELLS_CHILDREN else _children_in_table()
    waiting = [root]
    while waiting:
        for pid in children_of(waiting.pop()):
            process = _read_process(pid)
            if process and (pid, process.started) not in apart:
                waiting.append(pid)
                yield process


def _children(parent: int) -> list[int]:
    """Return the children of all threads of a process (proc(5), /proc/PID/task/TID/children).

    On two busy cores, reading the whole process table took 40 ms and this a tenth. Chains of processes that live for
    10 ms were caught after 7 looks instead of 50.
    """
    found: list[int] = []
    for thread in _names_in(f"/proc/{parent}/task"):
        try:
            children = system.calls.read_file(f"/proc/{parent}/task/{thread}/children")
        except OSError:  # the thread has ended: its children have another parent
            continue
        found += map(int, children.split())
    return found


def _names_in(directory: str) -> list[str]:
    try:
        return system.calls.listdir(directory)
    except OSError:
        return []


def _children_in_table() -> Callable[[int], Sequence[int]]:
    """Return a function like `_children` that reads the process table once (no CONFIG_PROC_CHILDREN)."""
    children: dict[int, list[int]] = {}
    for name in _names_in("/proc"):
        if name.isdigit() and (process := _read_process(int(name))):
            children.setdefault(process.parent, []).append(process.pid)
    return lambda parent: children.get(parent, ())


_KERNEL_TELLS_CHILDREN = os.path.exists("/proc/thread-self/children")


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; return False if it is gone or may not be signalled.

    A pidfd pins the process, then its start time is compared, so a reused pid is never signalled. Where the kernel or a
    sandbox has no pidfd, or no descriptor is left, kill(2) follows the comparison: the small risk is better than no
    kill.
    """
    try:
        pidfd = system.calls.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        pidfd = None
    try:
        present = _read_process(process.pid)
        return (
            present is not None
            and present.started == process.started
            and _signal(process.pid, pidfd, number)
        )
    finally:
        if pidfd is not None:
            system.calls.close(pidfd)


def _signal(pid: int, pidfd: int | None, number: int) -> bool:
    try:
        if pidfd is not None:
            system.calls.pidfd_send_signal(pidfd, number)
            return True
    except ProcessLookupError:
        return False
    except OSError:  # a sandbox, or a process of another user, which kill(2) cannot signal either
        pass
    try:
        system.calls.kill(pid, number)
    except OSError:
        return False
    return True


class Tree:
    """Everything below this process, and how the children ended that it awaits.

    The kernel may give a pid again when its process was reaped. So only an awaited child is signalled by its pid, and
    only its status is kept: an orphan may have the pid of an earlier or a later command.
    """

    def __init__(self, *awaited: int) -> None:
        """Await these children."""
        self.awaited = set(awaited)
        """The pids of those that have not been reaped."""
        self.statuses: dict[int, int] = {}
        """The wait statuses of those that have been, by pid."""
        self._apart: set[tuple[int, int]] = set()
        """Pid and start time of what is no part of the tree."""

    def set_apart(self) -> None:
        """Take what is below this process now for no part of the tree, and what that starts.

        It was there before the tree: an earlier job that succeeded has left it on purpose. A process that such a one
        starts later, and leaves to us, counts as a part: nothing shows where it comes from.
        """
        if self.reap():
            self._apart = {(each.pid, each.started) for each in descendants(system.calls.getpid())}

    def expect(self, pid: int) -> None:
        """Await a child that was just started."""
        self.statuses.pop(pid, None)  # of an earlier one with this pid
        self.awaited.add(pid)

    def signal_awaited(self, number: int) -> None:
        """Send a signal to the awaited children alone."""
        for pid in self.awaited:
            try:
                system.calls.kill(pid, number)
            except OSError:  # a sandbox, or a process of another user
                if process := _read_process(pid):
                    send(process, number)

    def signal(self, number: int) -> None:
        """Send a signal to every member, and SIGCONT to those that are stopped, so that they get it."""
        members = list(descendants(system.calls.getpid(), self._apart))
        for process in members:
            send(process, number)
        for process in members:
            if process.state == b"T":
                send(process, signal.SIGCONT)

    def reap(self) -> bool:
        """Collect the zombies; return whether any other child is left.

        If no child is left, the tree is gone, because every process that loses its parent becomes our child.
        """
        while True:
            try:
                pid, status = system.calls.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return not self._apart or self._has_child()
            if pid in self.awaited:
                self.awaited.remove(pid)
                self.statuses[pid] = status

    def _has_child(self) -> bool:
        """Return whether a child is left that is not apart; also if that cannot be seen now.

        While this process reaps none, none leaves the list that the kernel gives. Where it gives no list
        (CONFIG_PROC_CHILDREN), what was left on purpose is waited for and ended.
        """
        own = system.calls.getpid()  # also the main thread, which forks, and adopts
        try:
            pids = system.calls.read_file(f"/proc/self/task/{own}/children").split()
        except OSError:
            return True
        children = [_read_process(int(pid)) for pid in pids]
        known = (child and (child.pid, child.started) in self._apart for child in children)
        return not (children and all(known))

    def kill(self) -> bool:
        """Send STOP, then KILL, to every process in the tree; return whether any is left.

        STOP comes first, so that no process can fork between the look and the kill. It looks only a few times and reaps
        in between: a chain of processes that fork and exit faster than that would keep it here for ever. Call it again
        until it returns False: a killed process needs a moment, and a process of another user cannot be killed.
        """
        stopped: dict[tuple[int, int], Process] = {}
        for _ in range(_LOOKS):
            known = len(stopped)
            for process in descendants(system.calls.getpid(), self._apart):
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
        """Kill until no process is left; return False if one is left after `timeout` seconds."""
        deadline = clock.lease_time(clock.MONOTONIC) + timeout
        while self.kill():
            # Not time.sleep: a simulation has its own time.
            system.calls.poll().poll(FIRST_KILL_PAUSE * 1000)
            if clock.lease_time(clock.MONOTONIC) >= deadline:
                return False
        return True


def start(
    program: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    process_group: int | None,
    signal_mask: Iterable[int],
    streams: Iterable[tuple[int, int]] = (),
    body: Callable[[], int] | None = None,
) -> int:
    """Fork and execute a program with a command as its arguments; return its pid. Nothing looks in PATH here.

    It runs in its own session, or, on a terminal, in the given process group. It dies with the thread that called this
    (PR_SET_PDEATHSIG). It gets only the descriptors 0, 1 and 2 (Debian's cron leaks some), and the signal mask and
    actions that it would have without oncecron. `streams`: descriptors above 2 that replace its 0, 1 and 2. Raises the
    `OSError` of execve(2).

    With `body` nothing is executed: the process calls this function, and exits with what it returns. It gets TERM
    instead of KILL when the caller dies, because it has commands of its own to end.
    """
    parent = os.getpid()
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _prepare(process_group, signal_mask, streams, parent, writer, body)
        _execute(program, command, environment, writer)
    os.close(writer)
    try:
        failure = os.read(reader, 16)
    finally:
        os.close(reader)
    if failure:  # else execve(2) has closed the pipe: the program runs
        os.waitpid(pid, 0)
        number = int(failure)
        raise OSError(number, os.strerror(number), command[0])
    return pid


def start_detached(function: Callable[[], object]) -> None:
    """Run a function in a process that init adopts: nothing that ends the job, the guard or the wrapper ends it.

    To be called before this process is a child subreaper, and before any thread starts. Signals stay blocked as they
    are now: under systemd, the TERM that follows the end of a unit does not end it. Raises `OSError`.
    """
    first = os.fork()
    if first == 0:
        try:
            if os.fork() == 0:
                function()
        finally:
            os._exit(0)
    os.waitpid(first, 0)


def detach(needed: Iterable[int], empty: Iterable[int]) -> None:
    """Give up the terminal, the working directory, and each descriptor that is not needed.

    `empty`: those of 0, 1 and 2 that become /dev/null. Who reads the job's output waits for each process that holds it.
    """
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in empty:
        os.dup2(nothing, standard)
    close_above_standard(*needed)


def die_with(parent: int, number: int) -> None:
    """Get a signal when the parent dies, or rather when its thread does that forked this process. Raises `OSError`."""
    die_by(number)
    if os.getppid() != parent:  # it died before the prctl, so nothing would end this process
        os._exit(126)


def die_by(number: int) -> None:
    """Get a signal when the thread ends that forked this process; 0 for none. Raises `OSError`."""
    if _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(get_errno(), "prctl(PR_SET_PDEATHSIG)")


def close_above_standard(*kept: int) -> None:
    """Close each descriptor above 2 but those.

    The process table names the last one, which may lie above a limit that was lowered since. Up to the limit itself it
    takes minutes where containers have none and their profile refuses close_range(2), for which close(2) stands in.
    """
    found = _names_in("/proc/self/fd")
    last = max(map(int, found)) if found else os.sysconf("SC_OPEN_MAX")
    below = 2
    for above in (*sorted(number for number in kept if number > below), last + 1):
        os.closerange(below + 1, above)
        below = above


def _prepare(
    process_group: int | None,
    signal_mask: Iterable[int],
    streams: Iterable[tuple[int, int]],
    parent: int,
    failures: int,
    body: Callable[[], int] | None,
) -> None:
    """Make the forked process what the job is to be; with a body, do not return."""
    try:
        die_with(parent, signal.SIGTERM if body else signal.SIGKILL)
        if process_group is None:
            os.setsid()
        else:
            os.setpgid(0, process_group)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU):  # ignored by us, or Python
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        for standard, descriptor in streams:
            os.dup2(descriptor, standard)
        close_above_standard(failures)
        if body:
            os.close(failures)
            os._exit(body())
        restore_core_limit()
    except OSError as error:
        _report(failures, error)


def _execute(
    program: str, command: Sequence[str], environment: Mapping[str, str], failures: int
) -> NoReturn:
    try:
        as_execvp(lambda file, words: os.execve(file, words, environment), program, command)  # noqa: S606
    except (OSError, ValueError) as error:  # a NUL in a word is a ValueError
        _report(failures, error)
    finally:
        os._exit(126)


def _report(failures: int, error: OSError | ValueError) -> NoReturn:
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    os.write(failures, str(code).encode())
    os._exit(126)


def exit_status(status: int) -> int:
    """Return the exit status that a shell reports for a wait status: the code, or 128 + the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def cause_of(error: BaseException) -> OncecronError | None:
    """Return what this host lacks or refuses, if that is why a process cannot do its work; else None."""
    if (shortage := shortage_of(error)) and not isinstance(error, RuntimeError):
        return shortage  # without an import, for which nothing may be left
    if isinstance(error, ImportError):
        from oncecron.host.installation import broken  # noqa: PLC0415 - only after a failure

        return broken(error)
    from oncecron.run import sandbox  # noqa: PLC0415 - only after a failure

    return sandbox.cause_of(error)
