"""Provide `signal`, `deque`, `start_thread` and SHA-256 without the standard modules around them.

Every host pays for its imports at every tick. `signal` makes enumerations of its numbers (`enum`, `functools`,
`operator`, ...: 3 ms); `threading` and `collections` bring another 2 ms; `hashlib` loads all of OpenSSL. What a firing
needs of them are built-in modules. `signal` has plain numbers here, and `signal_name` has their names.
"""

from __future__ import annotations

import sys

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as signal  # noqa: PLC0414 - a re-export
    from _thread import start_new_thread as start_thread
    from collections import deque
    from collections.abc import Iterable, Iterator
else:
    import _signal as signal
    from _collections import deque
    from _thread import start_new_thread as start_thread

__all__ = ["deque", "sha256_digest", "sha256_digests", "signal", "signal_name", "start_thread"]


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
    # ruff: noqa: PLC0415 - only some firings need it
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
        else:
            from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import sha256
    return (sha256(text).hexdigest() for text in texts)
