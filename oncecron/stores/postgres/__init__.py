"""The PostgreSQL store: a lease row, and a session advisory lock as a second safeguard."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

# ruff: noqa: D103, PLC0415 - see `StorePackage`; a firing imports one driver, and only when it needs it


def check_address(address: Address) -> None:
    del address  # libpq alone can say


def check_with_driver(address: Address) -> None:
    from oncecron.stores.postgres.client import check

    check(address.target)


def check_namespace(namespace: str) -> None:
    del namespace  # the schema's name is checked where it is used


def open_lease_store(address: Address, namespace: str, ttl: float) -> LeaseStore:
    from oncecron.stores.postgres.lease_store import PostgresLeaseStore

    return PostgresLeaseStore(address.target, namespace=namespace, ttl=ttl, hold=address.hold)


def open_reader(address: Address, namespace: str) -> Reader:
    from oncecron.core.errors import StoreRefusesError, shortage_of

    try:
        from oncecron.stores.postgres.reader import PostgresReader
    except ImportError as error:
        if shortage := shortage_of(error):
            raise shortage from error
        raise StoreRefusesError(
            f"psycopg cannot be loaded: {error}; install psycopg[binary], or your distribution's libpq5"
        ) from error

    return PostgresReader(address.target, namespace=namespace, hold=address.hold)
