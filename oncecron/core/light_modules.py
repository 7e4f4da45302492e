"""Provide what a firing needs of `signal`, `collections`, `threading`, `hashlib` and `ctypes`, not what they import.

Every host pays for its imports at every tick. `signal` makes enumerations of its numbers (`enum`, `functools`,
`operator`, ...), and `collections` brings as much: 2 of the 38 ms of a firing. `hashlib` loads all of OpenSSL. CPython
carries them out in private modules, which are taken as long as they are there. `signal` has plain numbers then, and
`signal_name` has their names.

The 44 classes of `ctypes` and their modules cost a winning firing 3 to 5 % of its CPU on each store (120 pairs).
`_ctypes`, in C, does the work: `ctypes` gives it names, pointer types and a library object, and here are those that a
firing uses. A pointer to an array is passed as `c_void_p`, which takes the array itself.
"""

from __future__ import annotations

import os
import sys

# ruff: noqa: ANN001, ANN002, ANN201, ANN204, TRY301 - the type checker sees the classes of `ctypes`
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as signal  # noqa: PLC0414 - a re-export
    from _thread import start_new_thread as start_thread
    from collections import deque
    from collections.abc import Iterable, Iterator
    from ctypes import *  # noqa: F403 - what is made below
    from types import ModuleType
else:
    from _thread import start_new_thread as start_thread

__all__ = [
    "CDLL", "CFUNCTYPE", "Structure", "byref", "c_char_p", "c_int", "c_void_p", "deque", "get_errno", "light_module",
    "sha256_digest", "sha256_digests", "signal", "signal_name", "sizeof", "start_thread",
]  # fmt: skip


def light_module(private: str, public: str, *names: str) -> ModuleType:
    """Return a private module of CPython if it has these names, else the public one that has them on every Python."""
    try:
        module = __import__(private)
    except ImportError:
        return __import__(public)
    return module if all(hasattr(module, name) for name in names) else __import__(public)


if not TYPE_CHECKING:
    signal = light_module(
        *("_signal", "signal", "SIGKILL", "SIG_BLOCK", "getsignal", "pidfd_send_signal"),
        *("pthread_sigmask", "signal"),
    )
    deque = light_module("_collections", "collections", "deque").deque

    try:
        from _ctypes import (
            FUNCFLAG_CDECL,
            FUNCFLAG_USE_ERRNO,
            CFuncPtr,
            Structure,
            _SimpleCData,
            byref,
            dlopen,
            get_errno,
            sizeof,
        )

        class c_int(_SimpleCData):  # noqa: N801 - the names of `ctypes`
            """A C int."""

            _type_ = "i"

        class c_void_p(_SimpleCData):  # noqa: N801
            """A pointer: an int, None for NULL."""

            _type_ = "P"

        class c_char_p(_SimpleCData):  # noqa: N801
            """A pointer to bytes that end with a NUL, None for NULL."""

            _type_ = "z"

        class _Function(CFuncPtr):
            _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
            _restype_ = c_int

        def CFUNCTYPE(restype, *argtypes):  # noqa: N802
            """Return a type of callbacks."""
            body = {"_flags_": FUNCFLAG_CDECL, "_restype_": restype, "_argtypes_": argtypes}
            return type(CFuncPtr)("Callback", (CFuncPtr,), body)

        class CDLL:
            """A shared library, whose functions are its attributes. `None`: what the interpreter is linked with."""

            def __init__(self, name, use_errno=True):
                """Load it. Raises `OSError`."""
                del use_errno  # always
                self._name = name
                self._handle = dlopen(name, 0)

            def __getattr__(self, name):
                """Return a function. Raises `AttributeError` if the library has none with this name."""
                if name.startswith("__"):
                    raise AttributeError(name)
                function = _Function((name, self))
                setattr(self, name, function)
                return function

        if CDLL(None).getpid() != os.getpid():
            raise ImportError
    except Exception:  # noqa: BLE001 - private names may be gone, or have changed in any way
        from ctypes import *  # noqa: F403


def signal_name(number: int) -> str | None:
    """Return the name of a signal, None for one that has only a number."""
    names = (
        name for name, value in vars(signal).items() if name.startswith("SIG") and value == number
    )
    return min((name for name in names if "_" not in name), default=None)  # SIGABRT is SIGIOT too


def sha256_digest(text: str) -> str:
    """Return the SHA-256 digest of a text, 64 hexadecimal digits."""
    return next(sha256_digests((text.encode(),)))


def sha256_digests(texts: Iterable[bytes]) -> Iterator[str]:
    """Yield the SHA-256 digest of each text, 64 hexadecimal digits.

    A process that has just waited for a command needs 23 microseconds for 20 short texts, and 32 with OpenSSL, whose
    code is large. A Python that was built with other `--with-builtin-hashlib-hashes` has OpenSSL's alone.
    """
    private = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
    sha256 = light_module(private, "hashlib", "sha256").sha256
    return (sha256(text).hexdigest() for text in texts)
