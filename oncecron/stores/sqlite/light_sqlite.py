"""Provide `sqlite3` without what it imports, which costs a winning firing 11 % of its CPU: 4 of 36 ms, in 120 pairs.

`sqlite3` is a package around `_sqlite3`, in C, which does all the work. It adds conversions of dates, which no
statement of ours has, by the module `datetime`. `_sqlite3` itself imports all of `functools` for one function,
`lru_cache`, the cache of a connection's statements. `_functools`, in C, has it, so it gets that alone.
That alone is 7 % (250 pairs). Where this is not so, and where `functools` is there anyway, the modules stay as they
are.
"""

from __future__ import annotations

import sys

from oncecron.core.light_modules import light_module
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3 as sqlite3  # noqa: PLC0414 - a re-export
    from collections.abc import Callable
    from typing import Any
else:

    def _import_without_functools() -> None:
        from _functools import _lru_cache_wrapper  # noqa: PLC0415 - it may be gone

        def lru_cache(maxsize: int) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
            return lambda function: _lru_cache_wrapper(function, maxsize, False, tuple)

        functools = sys.modules["functools"] = type(sys)("functools")
        functools.lru_cache = lru_cache
        try:
            import _sqlite3  # noqa: F401, PLC0415 - keeps the function
        finally:
            del sys.modules["functools"]

    if "functools" not in sys.modules:
        try:  # noqa: SIM105 - contextlib imports functools
            _import_without_functools()
        except Exception:  # noqa: BLE001, S110 - it may need more one day
            pass
    sqlite3 = light_module(
        *("_sqlite3", "sqlite3", "connect", "Row", "Error", "OperationalError", "SQLITE_BUSY"),
        "SQLITE_ERROR",
    )

__all__ = ["sqlite3"]
