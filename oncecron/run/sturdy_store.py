"""A store whose calls fail as if it could not be reached where this host, or an old address, is the cause.

Then a firing retries them, and spools what it cannot record.

- This host is short of memory or descriptors. A driver may lack one anywhere: for its socket, for a file of SQL, for a
  module.
- The address has changed since it was read: a password was rotated, or the store has moved to another host. So the
  address is read again after each failed call, and never before: a firing that reaches its store pays nothing. Without
  a right address, for example while somebody edits the file, the old one stays. Another kind of store is never taken:
  it does not have the lease.

libpq reads its own files (~/.pgpass, a service) for each connection, and so do TLS contexts.
"""

from __future__ import annotations

from oncecron.core.errors import (
    OncecronError,
    RecordRefusedError,
    StoreError,
    StoreUnavailable,
    shortage_of,
)
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oncecron.stores.address import Address


class SturdyStore:
    """The methods of a store of a firing, wrapped."""

    def __init__(
        self, store: Any, address: Address, reread: Callable[[], Address | None] | None
    ) -> None:
        """`reread` returns the address as it is configured now; it may raise."""
        self._store = store
        self._address = address
        self._reread = reread

    def __getattr__(self, name: str) -> Any:
        """Return what the store has, its methods wrapped."""
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def call(*values: Any, **named: Any) -> Any:
            try:
                return value(*values, **named)
            except StoreError as error:
                if isinstance(error, RecordRefusedError) or not self._has_moved():
                    raise
                unavailable = StoreUnavailable(str(error))
                unavailable.unanswered = error.unanswered
                raise unavailable from error
            except (OSError, MemoryError, ImportError, RuntimeError) as error:
                shortage = shortage_of(error)
                if shortage is None:
                    raise
                unavailable = StoreUnavailable(str(shortage))
                unavailable.unanswered = True  # what failed may have come after the request
                raise unavailable from error

        setattr(self, name, call)
        return call

    def _has_moved(self) -> bool:
        """Read the address again; return whether the next call goes to another one."""
        if self._reread is None or self._address.kind == "sqlite":
            return False
        try:
            address = self._reread()
            if address is None or address == self._address or address.kind != self._address.kind:
                return False
            self._store.close()
            self._store.readdress(address)
        except (OncecronError, OSError, MemoryError, ImportError):
            return False
        self._address = address
        return True
