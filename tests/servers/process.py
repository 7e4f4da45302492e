"""Start processes that cannot outlive the tests, and find, freeze and end them by pid."""

import atexit
import contextlib
import functools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from servers.require import program

__all__ = [
    "DISK", "MEMORY", "PORTS", "Process", "as_ourselves", "as_server_user", "command_line", "descendants", "end",
    "free_port", "is_free", "kill_tree", "place_of_servers", "process_table", "public_directory", "read_process",
    "remove_directory", "send", "server_directory", "server_user", "spawn", "wait_gone",
]  # fmt: skip

# Below the range from which the kernel takes ports for outgoing connections, so that a server
# that is restarted finds its port still free.
PORTS = range(17000, 32000)
DISK, MEMORY = Path("/tmp"), Path("/dev/shm")  # noqa: S108 - their places in Linux
ROOM = 4 << 30  # bytes: for the servers of a handful of workers
_random = random.SystemRandom()  # pytest-randomly seeds the others alike in every process
_PORTS_AT_ONCE = 100
_ports: list[int] = []
_locks: list[socket.socket] = []


class Process(NamedTuple):
    """One process of this machine; the start time tells it from a later one with its pid."""

    pid: int
    started: int
    parent: int
    state: str

    def alive(self) -> bool:
        """Say whether it still runs; one that only waits to be reaped does not."""
        now = read_process(self.pid)
        return now is not None and now.started == self.started and now.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """Read one entry of the process table, or None when there is none (proc(5), stat)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, int(fields[19]), int(fields[1]), fields[0].decode())


def process_table() -> list[Process]:
    entries = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [entry for entry in entries if entry is not None]


def command_line(pid: int) -> list[bytes]:
    """Return the words of a process's command line; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int, table: Sequence[Process] | None = None) -> list[Process]:
    """Return the process and all that descend from it, parents first; `table` spares reading all anew."""
    table = process_table() if table is None else table
    found = [entry for entry in table if entry.pid == pid]
    for parent in found:  # grows while it is walked
        found += [entry for entry in table if entry.parent == parent.pid]
    return found


def send(processes: Iterable[Process], number: int) -> None:
    """Send a signal to those that still live."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            if process.alive():
                os.kill(process.pid, number)


def kill_tree(pid: int) -> None:
    """End a process and its descendants as a power cut would: no one gets to say a word."""
    tree = descendants(pid)
    send(tree, signal.SIGSTOP)  # so that nobody forks on while the others die
    tree = descendants(pid) or tree
    send(tree, signal.SIGKILL)


def wait_gone(processes: Iterable[Process], deadline: float = 10.0) -> None:
    """Wait until none of them lives; raises TimeoutError."""
    waiting, end = list(processes), time.monotonic() + deadline
    while any(process.alive() for process in waiting):
        if time.monotonic() >= end:
            raise TimeoutError(f"not within {deadline:g} s")
        time.sleep(0.01)


@functools.cache
def server_user() -> pwd.struct_passwd | None:
    """Return the user that servers run as: ourselves (None), or for root an unprivileged one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise LookupError("neither the user postgres nor nobody exists on this machine")


def as_server_user(death_signal: str = "KILL") -> list[str]:
    """Return the command prefix that drops root and ties the process's life to ours."""
    prefix = [program("setpriv"), "--pdeathsig", death_signal]
    user = server_user()
    if user is not None:
        prefix += ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return [*prefix, "--"]


def as_user(number: int) -> list[str]:
    """Return the command prefix that makes root a user with this number, who may read all: the clone may be root's."""
    reads = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    who = ["--reuid", str(number), "--regid", str(number), "--clear-groups"]
    return [program("setpriv"), *who, *reads, "--"]


def without_overrides() -> list[str]:
    """Return the command prefix by which root may enter, read and write no more than anybody else may."""
    limited = [program("setpriv"), "--bounding-set=-dac_override,-dac_read_search", "--"]
    return limited if os.geteuid() == 0 else []


def as_ourselves(death_signal: str = "KILL") -> list[str]:
    """Return the command prefix that ties the process's life to ours and changes nothing else."""
    return [program("setpriv"), "--pdeathsig", death_signal, "--"]


def spawn(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own; it is killed at the latest when the tests end.

    A session of its own, because Ctrl-C on the terminal must reach the tests, which then stop
    their servers in order, and not the servers too.
    """
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, start_new_session=True, **options)
    _living.append(process)
    return process


def end(process: "subprocess.Popen[bytes]", number: int = signal.SIGTERM) -> int:
    """Send a signal, wait for the end (10 s, then KILL) and close the pipes; return the status."""
    if process.poll() is None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
    try:
        status = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        status = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process in _living:
        _living.remove(process)
    return status


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nobody uses now, and that no other test on this machine is given."""
    while True:
        if not _ports:
            _ports.extend(_own_ports())
        port = _ports.pop()
        if is_free(port, host):
            return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether nobody uses a TCP port now."""
    with socket.socket() as attempt, contextlib.suppress(OSError):
        attempt.bind((host, port))
        return True
    return False


def _own_ports() -> list[int]:
    """Return ports of this process alone, as long as it lives: the name of a socket is their lock.

    A server may start long after it was given its port, and again after it was killed.
    """
    while True:
        first = _random.randrange(PORTS.start, PORTS.stop, _PORTS_AT_ONCE)
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0oncecron-test-ports-{first}")
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        return _random.sample(range(first, first + _PORTS_AT_ONCE), _PORTS_AT_ONCE)


@functools.cache
def place_of_servers() -> Path:
    """Return where servers keep their data: in memory where there is room for those of many tests at a time.

    The data of a PostgreSQL is a thousand files. On a disk, where the tests remove as many at the same time, that took
    a second of a processor (ext4 passes over inodes that have just been freed), in memory a twentieth of it.
    """
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK):
            return MEMORY
    return DISK


def public_directory(purpose: str, place: Path = DISK) -> Path:
    """Make a directory that other users can enter, short enough for a socket's path.

    pytest's own are for the user who runs it alone. It is removed when the tests end.
    """
    path = Path(tempfile.mkdtemp(prefix=f"oncecron-{purpose}-", dir=place))
    path.chmod(0o755)
    _directories.append(path)
    return path


def server_directory(purpose: str) -> Path:
    """Make a directory that belongs to the user whom servers run as."""
    path = public_directory(purpose, place_of_servers())
    user = server_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
    return path


def remove_directory(path: Path) -> None:
    """Remove a directory of ours with all its content."""
    shutil.rmtree(path, ignore_errors=True)
    if path in _directories:
        _directories.remove(path)


_living: list["subprocess.Popen[bytes]"] = []
_directories: list[Path] = []


@atexit.register
def _leave_nothing() -> None:
    for process in _living.copy():
        if process.poll() is None:
            kill_tree(process.pid)
            process.wait()
    for path in _directories.copy():
        remove_directory(path)
