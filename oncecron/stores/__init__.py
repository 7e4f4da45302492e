"""The stores: one package each, one driver each, never each other. Here the one that is asked for is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.store import FiringStore, PeopleStore
    from oncecron.stores.address import Address

# ruff: noqa: PLC0415 - a firing imports one driver, and only when it needs it


def open_firing_store(address: Address, namespace: str, ttl: float) -> FiringStore:
    """Return what a firing needs of the store; it connects at the first call. `ttl` in seconds."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.firing import SQLiteFiringStore

        return SQLiteFiringStore(address.target, namespace=namespace)
    from oncecron.stores.postgres.firing import PostgresFiringStore

    return PostgresFiringStore(address.target, namespace=namespace, ttl=ttl)


def open_people_store(address: Address, namespace: str) -> PeopleStore:
    """Return what people ask of the store. Raises `StoreError`."""
    if address.kind == "sqlite":
        from oncecron.stores.sqlite.people import SQLitePeopleStore

        return SQLitePeopleStore(address.target, namespace=namespace)
    from oncecron.stores.postgres.people import PostgresPeopleStore

    return PostgresPeopleStore(address.target, namespace=namespace)
