"""The store of one machine: a SQLite file, nothing to install."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

# ruff: noqa: D103, PLC0415 - see `StorePackage`; a firing imports one driver, and only when it needs it


def check_address(address: Address) -> None:
    del address  # `parse_address` has


check_with_driver = check_address


def check_namespace(namespace: str) -> None:
    del namespace  # any is part of a file's name


def open_lease_store(address: Address, namespace: str, ttl: float) -> LeaseStore:
    from oncecron.stores.sqlite.lease_store import SQLiteLeaseStore

    del ttl
    return SQLiteLeaseStore(address.target, namespace=namespace)


def open_reader(address: Address, namespace: str) -> Reader:
    from oncecron.core.errors import StoreRefusesError, shortage_of
    from oncecron.host.installation import broken

    try:
        from oncecron.stores.sqlite.reader import SQLiteReader
    except ImportError as error:  # a Python that was built without SQLite
        raise shortage_of(error) or StoreRefusesError(str(broken(error))) from error
    return SQLiteReader(address.target, namespace=namespace)
