"""Provide what a firing needs of `signal`, `collections`, `threading` and `hashlib` without what they import.

Every host pays for its imports at every tick. `signal` makes enumerations of its numbers (`enum`, `functools`,
`operator`, ...), and `collections` brings as much: 2 of the 38 ms of a firing. `hashlib` loads all of OpenSSL. CPython
carries them out in private modules, which are taken as long as they are there. `signal` has plain numbers then, and
`signal_name` has their names.
"""

from __future__ import annotations

import sys

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as signal  # noqa: PLC0414 - a re-export
    from _thread import start_new_thread as start_thread
    from collections import deque
    from collections.abc import Iterable, Iterator
    from types import ModuleType
else:
    from _thread import start_new_thread as start_thread

__all__ = [
    "deque", "light_module", "sha256_digest", "sha256_digests", "signal", "signal_name", "start_thread",
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
