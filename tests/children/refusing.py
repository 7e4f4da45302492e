"""Execute a command in a sandbox whose kernel refuses system calls. Standard library only.

    python3 -S -E refusing.py CALL[=VALUE][,CALL...] ERRNO COMMAND...

CALL: a name of `CALLS`. ERRNO: EPERM, as profiles of containers answer, or ENOSYS, as old kernels do. With VALUE a
call is refused only if the argument that `CALLS` names has this value. The filter (seccomp(2)) passes to every
process that the command starts, and nothing can take it off.
"""

import ctypes
import errno
import os
import sys

CALLS = {  # number on x86-64 and on arm64 (asm/unistd.h), and the argument that VALUE is compared with
    "clone3": (435, 435, 0),
    "close_range": (436, 436, 0),
    "eventfd2": (290, 19, 0),
    "flock": (73, 32, 0),
    "fsync": (74, 82, 0),
    "kill": (62, 129, 1),
    "memfd_create": (319, 279, 0),
    "mmap": (9, 222, 3),
    "pidfd_open": (434, 434, 0),
    "pidfd_send_signal": (424, 424, 0),
    "prctl": (157, 167, 0),
    "prlimit64": (302, 261, 0),
    "setsid": (112, 157, 0),
    "signalfd4": (289, 74, 0),
}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD+W+ABS, BPF_JMP+JEQ+K, BPF_RET+K
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse(calls: str, number: int) -> None:
    arm = os.uname().machine == "aarch64"
    code: list[tuple[int, int, int, int]] = []
    for call in calls.split(","):
        name, _, value = call.partition("=")
        *numbers, argument = CALLS[name]
        refused = [(_RETURN, 0, 0, _REFUSE | number)]
        if value:
            offset = _FIRST_ARGUMENT + 8 * argument  # the low half: both machines are little-endian
            refused = [(_LOAD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, 1, int(value, 0)), *refused]
        code += [(_LOAD, 0, 0, _NUMBER), (_JUMP_IF_EQUAL, 0, len(refused), numbers[arm]), *refused]
    code.append((_RETURN, 0, 0, _ALLOW))
    filters = (_Instruction * len(code))(*code)
    program = _Program(len(code), ctypes.addressof(filters))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    _, calls, error, *command = sys.argv
    refuse(calls, getattr(errno, error))
    os.execvp(command[0], command)  # noqa: S606 - as it was given
