"""The stores: one package each, one driver each, never each other. Here the one that is asked for is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.store import FiringStore, PeopleStore
    from oncecron.stores.address import Address

# ruff: noqa: PLC0415 - a firing imports one driver, and only when it needs it


def check_address(address: Address, namespace: str) -> None:
    """Raise `ConfigurationError` for what is known to be wrong before anything is connected."""
    if address.kind == "redis":
        from oncecron.stores.redis.address import check_namespace, parse

        parse(address.target, address.options)
        check_namespace(namespace)


def check_with_driver(address: Address) -> None:
    """Raise `StoreRefusesError` for what only the driver knows to be wrong; nothing is connected."""
    if address.kind == "postgres":
        from oncecron.stores.postgres.wire import check

        check(address.target)


def open_firing_store(address: Address, namespace: str, ttl: float) -> FiringStore:
    """Return what a firing needs of the store; it connects at the first call. `ttl` in seconds."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.firing import SQLiteFiringStore

        return SQLiteFiringStore(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse
        from oncecron.stores.redis.firing import RedisFiringStore

        target = parse(address.target, address.options)
        return RedisFiringStore(target, namespace=namespace, ttl=ttl)
    from oncecron.stores.postgres.firing import PostgresFiringStore

    return PostgresFiringStore(address.target, namespace=namespace, ttl=ttl)


def open_people_store(address: Address, namespace: str) -> PeopleStore:
    """Return what people ask of the store. Raises `StoreError`."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.people import SQLitePeopleStore

        return SQLitePeopleStore(address.target, namespace=namespace)
    if address.kind == "redis":
        from oncecron.stores.redis.address import parse
        from oncecron.stores.redis.people import RedisPeopleStore

        return RedisPeopleStore(parse(address.target, address.options), namespace=namespace)
    from oncecron.stores.postgres.people import PostgresPeopleStore

    return PostgresPeopleStore(address.target, namespace=namespace)
