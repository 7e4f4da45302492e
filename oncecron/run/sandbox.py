"""Find out what a sandbox or an old kernel refuses: for `doctor`, and after a call has failed that a firing needs.

Profiles of containers answer EPERM to system calls that are newer than the profile, and old kernels ENOSYS. A firing
does without some of them. Without the others nothing could end its job, so it claims nothing.
"""

from __future__ import annotations

import _thread
import errno
import mmap
import os

from oncecron.core.diagnosis import Diagnosis
from oncecron.core.errors import ConfigurationError, OncecronError, shortage_of
from oncecron.core.light_modules import CDLL, get_errno, signal
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.run import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CLONE3, _CLOSE_RANGE = 435, 436  # on every machine
_NOWHERE = 0xFFFF_FFFF  # no descriptor has this number
_PROFILE = "in the seccomp profile of the container"
_libc = CDLL(None, use_errno=True)


def cause_of(error: BaseException) -> OncecronError | None:
    """Return what this host lacks or refuses, if that is the cause of an error; else None."""
    shortage = shortage_of(error)
    if isinstance(error, RuntimeError) or (isinstance(error, OSError) and shortage is None):
        why = next((each for each in diagnoses(refused()) if each.state == "fail"), None)
        if why:
            return ConfigurationError(f"{why.text}; nothing was started; {why.cure}")
    return shortage


def diagnoses(found: Mapping[str, int]) -> list[Diagnosis]:
    """Judge what is refused: error numbers by name."""
    judged = []
    if _TABLE in found:
        text = "/proc does not show the processes of this host or container"
        judged.append(Diagnosis("fail", "kernel", text, "mount it: `mount -t proc proc /proc`"))
    if needed := _listed(found, _NEEDED):
        text = f"the kernel or a sandbox refuses {needed}, which oncecron needs"
        judged.append(Diagnosis("fail", "kernel", text, f"allow it {_PROFILE}"))
    if replaced := _listed(found, _REPLACED):
        text = f"the kernel or a sandbox refuses {replaced}; oncecron does without"
        judged.append(
            Diagnosis("warn", "kernel", text, f"allow it {_PROFILE}, or use Linux 5.9 or newer")
        )
    return judged or [Diagnosis("ok", "kernel", "it refuses nothing that oncecron uses")]


def refused() -> dict[str, int]:
    """Try each call in a process of its own; return the error numbers of those that are refused, by name.

    Nothing is known on a host that is short of processes or descriptors.
    """
    try:
        reader, writer = os.pipe()
        pid = os.fork()
    except OSError:
        return {}
    if pid == 0:
        try:
            os.write(writer, "\n".join(_failures()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(pid, 0)
    return {name: int(number) for name, _, number in (line.rpartition(" ") for line in lines)}


def _failures() -> list[str]:
    failures = []
    for name, call in (
        *_NEEDED.items(),
        *_REPLACED.items(),
        (_TABLE, lambda: process_tree.find(os.getpid())),
    ):
        try:
            call()
        except OSError as error:
            if shortage_of(error) is None:
                failures.append(f"{name} {error.errno}")
    return failures


def _listed(found: Mapping[str, int], table: Mapping[str, object]) -> str:
    named = (name for name in found if name in table)
    return ", ".join(f"{name} ({errno.errorcode.get(found[name], 'unknown')})" for name in named)


def _start_thread() -> None:
    """Start a thread; glibc 2.34 and newer take another call instead of clone3 if that is unknown (ENOSYS)."""
    try:
        _thread.start_new_thread(int, ())
    except RuntimeError as error:
        if _libc.syscall(_CLONE3, 0, 0) < 0 and get_errno() == errno.EPERM:
            raise PermissionError(errno.EPERM, "clone3") from error


def _close_range() -> None:
    if _libc.syscall(_CLOSE_RANGE, _NOWHERE, _NOWHERE, 0) < 0:
        raise OSError(get_errno(), "close_range")


def _pidfd_send_signal() -> None:
    try:
        pidfd = os.pidfd_open(os.getpid())
    except OSError:  # reported by itself
        return
    signal.pidfd_send_signal(pidfd, 0)


_TABLE = "/proc"
_NEEDED: dict[str, Callable[[], object]] = {
    "setsid": os.setsid,
    "signalfd4": process_tree.Signals,
    "eventfd2": lambda: os.eventfd(0),
    "prctl(PR_SET_CHILD_SUBREAPER)": process_tree.become_subreaper,
    "prctl(PR_SET_PDEATHSIG)": lambda: process_tree.die_by(0),
    "mmap(MAP_SHARED)": lambda: mmap.mmap(-1, mmap.PAGESIZE),
    "clone3": _start_thread,
    "kill": lambda: process_tree.prove_signal(os.getpid()),
}
_REPLACED: dict[str, Callable[[], object]] = {
    "pidfd_open": lambda: os.pidfd_open(os.getpid()),
    "pidfd_send_signal": _pidfd_send_signal,
    "memfd_create": lambda: os.memfd_create("oncecron"),
    "close_range": _close_range,
}
