"""Open a store. Each store is a package with its own driver, and no store imports another."""

from __future__ import annotations

from oncecron.core.errors import (
    OncecronError,
    RecordRefusedError,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
    shortage_of,
)
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oncecron.stores.address import Address
    from oncecron.stores.api import Inspector, ItemStore, LeaseStore

# ruff: noqa: PLC0415 - a firing imports one driver, and only when it needs it


def check_address(address: Address) -> None:
    """Raise `ConfigurationError` for a wrong address, without connecting."""
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse

        parse(address.target, address.options)


def check_namespace(address: Address, namespace: str) -> None:
    """Raise `ConfigurationError` for a namespace that the store of this address cannot have."""
    if address.kind == "redis":
        from oncecron.stores.redis import address as redis_address

        redis_address.check_namespace(namespace)


def check_with_driver(address: Address) -> None:
    """Raise `StoreRefusesError` for an address that the driver refuses, without connecting."""
    if address.kind == "postgres":
        from oncecron.stores.postgres.client import check

        check(address.target)


def open_lease_store(address: Address, namespace: str, ttl: float) -> LeaseStore:
    """Return the store of a firing; it connects at the first call. `ttl` is in seconds."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.lease_store import SQLiteLeaseStore

        return SQLiteLeaseStore(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse
        from oncecron.stores.redis.lease_store import RedisLeaseStore

        target = parse(address.target, address.options)
        return RedisLeaseStore(target, namespace=namespace, ttl=ttl)
    from oncecron.stores.postgres.lease_store import PostgresLeaseStore

    return PostgresLeaseStore(address.target, namespace=namespace, ttl=ttl, hold=address.hold)


def open_item_store(address: Address, namespace: str, ttl: float) -> ItemStore:
    """Return the items of a firing; it connects at the first call. `ttl` is in seconds."""
    if address.kind == "sqlite":
        from oncecron.each.sqlite_store import SQLiteItemStore

        return SQLiteItemStore(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.each.redis_store import RedisItemStore
        from oncecron.stores.redis.address import parse

        target = parse(address.target, address.options)
        return RedisItemStore(target, namespace=namespace, ttl=ttl)
    from oncecron.each.postgres_store import PostgresItemStore

    return PostgresItemStore(address.target, namespace=namespace, ttl=ttl)


def open_inspector(address: Address, namespace: str) -> Inspector:
    """Return the store of the commands for people. Raises `StoreError`."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.inspector import SQLiteInspector

        return SQLiteInspector(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse

        try:
            from oncecron.stores.redis.inspector import RedisInspector
        except ImportError as error:
            raise shortage_of(error) or StoreRefusesError(
                f"redis-py cannot be loaded: {error}; install redis"
            ) from error
        return RedisInspector(parse(address.target, address.options), namespace=namespace)
    try:
        from oncecron.stores.postgres.inspector import PostgresInspector
    except ImportError as error:
        if shortage := shortage_of(error):
            raise shortage from error
        raise StoreRefusesError(
            f"psycopg cannot be loaded: {error}; install psycopg[binary], or your distribution's libpq5"
        ) from error

    return PostgresInspector(address.target, namespace=namespace, hold=address.hold)


class SturdyStore:
    """A store of a firing: its calls fail as if it were away where this host, or an old address, is the cause.

    Then the firing retries them, and spools what it cannot record.

    - This host is short of memory or descriptors. A driver may lack one anywhere: for its socket, for a file of SQL,
      for a module.
    - The address has changed since it was read: a password was rotated, or the store has moved to another host. So the
      address is read again after each failed call, and never before: a firing that reaches its store pays nothing.
      Without a right address, for example while somebody edits the file, the old one stays. Another kind of store is
      never taken: it does not have the lease.

    libpq reads its own files (~/.pgpass, a service) for each connection, and so do TLS contexts.
    """

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
