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
else:
    import _signal as signal
    from _collections import deque
    from _thread import start_new_thread as start_thread

__all__ = ["deque", "sha256_digest", "signal", "signal_name", "start_thread"]


def signal_name(number: int) -> str | None:
    """Return the name of a signal, None for one that has only a number."""
    names = (
        name for name, value in vars(signal).items() if name.startswith("SIG") and value == number
    )
    return min((name for name in names if "_" not in name), default=None)  # SIGABRT is SIGIOT too


def sha256_digest(text: str) -> str:
    """Return the SHA-256 digest of a text, 64 hexadecimal digits."""
    if sys.version_info >= (3, 12):
        from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - of some firings
    else:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - as above
    digest: str = sha256(text.encode()).hexdigest()
    return digest
