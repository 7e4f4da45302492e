"""Open a store, and make a firing's calls to it steady.

Each store is a package of its kind's name with its own driver, and no store imports another.
The package itself has the functions of `StorePackage`, which import what they need. A new kind of store is a new
package, with its addresses in `address.py`. Plugins that keep something in stores (`each`), or break them (`drill`),
have a module for each kind as well.
"""

from __future__ import annotations

from oncecron.core.errors import (
    UNREADABLE,
    OncecronError,
    RecordRefusedError,
    StoreError,
    StoreUnavailable,
    shortage_of,
    unreadable_answer,
)
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

    class StorePackage(Protocol):
        """How a kind of store is checked and opened."""

        def check_address(self, address: Address) -> None:
            """Raise `ConfigurationError` for a wrong address, without connecting."""

        def check_with_driver(self, address: Address) -> None:
            """Raise `StoreRefusesError` for an address that the driver refuses, without connecting."""

        def check_namespace(self, namespace: str) -> None:
            """Raise `ConfigurationError` for a namespace that the store cannot have."""

        def open_lease_store(self, address: Address, namespace: str, ttl: float) -> LeaseStore:
            """Return the store of a firing; it connects at the first call. `ttl` is in seconds."""

        def open_reader(self, address: Address, namespace: str) -> Reader:
            """Return the store of the commands for people. Raises `StoreError`."""

    class Steadied(Protocol):
        """A store of a firing whose calls can be made steady."""

        steadiness: Steadiness | None

        def close(self) -> None:
            """See `LeaseStore.close`."""

        def readdress(self, address: Address) -> None:
            """See `LeaseStore.readdress`."""

    Call = TypeVar("Call", bound=Callable[..., Any])
    Store = TypeVar("Store", bound=Steadied)


def package(kind: str) -> StorePackage:
    """Return the package of a kind of store."""
    found: StorePackage = __import__(f"oncecron.stores.{kind}", fromlist=("open_lease_store",))
    return found


def check_address(address: Address) -> None:
    """Raise `ConfigurationError` for a wrong address, without connecting."""
    package(address.kind).check_address(address)


def check_namespace(address: Address, namespace: str) -> None:
    """Raise `ConfigurationError` for a namespace that the store of this address cannot have."""
    package(address.kind).check_namespace(namespace)


def check_with_driver(address: Address) -> None:
    """Raise `StoreRefusesError` for an address that the driver refuses, without connecting."""
    package(address.kind).check_with_driver(address)


def open_lease_store(address: Address, namespace: str, ttl: float) -> LeaseStore:
    """Return the store of a firing; it connects at the first call. `ttl` is in seconds."""
    return package(address.kind).open_lease_store(address, namespace, ttl)


def open_reader(address: Address, namespace: str) -> Reader:
    """Return the store of the commands for people. Raises `StoreError`."""
    return package(address.kind).open_reader(address, namespace)


def steady(store: Store, address: Address, reread: Callable[[], Address | None] | None) -> Store:
    """Return the store of a firing with steady calls. `reread` returns the address as it is configured now."""
    store.steadiness = Steadiness(store, address, reread)
    return store


def steadied(call: Call) -> Call:
    """Decorate a call of a firing's store that can be made steady."""

    def steadied_call(store: Steadied, *values: Any, **named: Any) -> Any:
        steadiness = store.steadiness
        if steadiness is None:
            return call(store, *values, **named)
        return steadiness.ask(call, *values, **named)

    return steadied_call  # type: ignore[return-value]


class Steadiness:
    """Makes the calls of a store fail as if it were away where this host, or an old address, is the cause.

    Then the firing retries them, and spools what it cannot record.

    - This host is short of memory or descriptors. A driver may lack one anywhere: for its socket, for a file of SQL,
      for a module.
    - The address has changed since it was read: a password was rotated, or the store has moved to another host. So the
      address is read again after each failed call, and never before: a firing that reaches its store pays nothing.
      Without a right address, for example while somebody edits the file, the old one stays. Another kind of store is
      never taken: it does not have the lease. Nor is another file of SQLite, which has no login.

    libpq reads its own files (~/.pgpass, a service) for each connection, and so do TLS contexts.

    An answer that cannot be read is a refusal: whoever has written it, it is no fault of the firing.

    A call that fails leaves nothing behind (`_let_go`).
    """

    def __init__(
        self, store: Steadied, address: Address, reread: Callable[[], Address | None] | None
    ) -> None:
        """`reread` may raise."""
        self._store = store
        self._address = address
        self._reread = reread

    def ask(self, call: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Return what the call of the store answers. Raises `StoreError`."""
        try:
            return call(self._store, *values, **named)
        except StoreError as error:
            _let_go(error)
            if isinstance(error, RecordRefusedError) or not self._has_moved():
                raise
            raise _unavailable(error, unanswered=error.unanswered) from error
        except UNREADABLE as error:
            _let_go(error)
            refused = unreadable_answer(error)
            refused.unanswered = True  # what cannot be read may have been a lease
            raise refused from error
        except (OSError, MemoryError, ImportError, RuntimeError) as error:
            shortage = shortage_of(error)
            if shortage is None:
                raise
            # What failed may have come after the request.
            raise _unavailable(shortage, unanswered=True) from error

    def _has_moved(self) -> bool:
        if self._reread is None or self._address.kind == "sqlite":
            return False
        try:
            address = self._reread()
            if address is None or address == self._address or address.kind != self._address.kind:
                return False
            self._store.close()
            self._store.readdress(address)
        except Exception:  # noqa: BLE001 - an upgrade may have replaced what reads a file that is new
            return False
        self._address = address
        return True


def _let_go(error: BaseException) -> None:
    """Forget where an error and its causes were raised.

    A frame that has raised an error often refers to it, and the error to the frame: a cycle, with all that the frame
    refers to, such as a TLS context of 0.8 MB. A firing collects no cycles (`gc` is off), and while its store is away
    it tries again every few seconds, for days. Only tracebacks of bugs are ever shown.
    """
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__context__


def _unavailable(error: OncecronError, *, unanswered: bool) -> StoreUnavailable:
    unavailable = StoreUnavailable(str(error))
    unavailable.unanswered = unanswered
    return unavailable
