"""Open a store. Each store is a package with its own driver, and no store imports another."""

from __future__ import annotations

from oncecron.core.errors import StoreRefusesError, shortage_of
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        from oncecron.stores.sqlite.items import SQLiteItemStore

        return SQLiteItemStore(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse
        from oncecron.stores.redis.items import RedisItemStore

        target = parse(address.target, address.options)
        return RedisItemStore(target, namespace=namespace, ttl=ttl)
    from oncecron.stores.postgres.items import PostgresItemStore

    return PostgresItemStore(address.target, namespace=namespace, ttl=ttl)


def open_inspector(address: Address, namespace: str) -> Inspector:
    """Return the store of the commands for people. Raises `StoreError`."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.inspector import SQLiteInspector

        return SQLiteInspector(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse
        from oncecron.stores.redis.inspector import RedisInspector

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
