"""The store on Redis and Valkey."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

# ruff: noqa: D103, PLC0415 - see `StorePackage`; a firing imports one driver, and only when it needs it


def check_address(address: Address) -> None:
    from oncecron.stores.redis.address import parse

    parse(address.target, address.options)


def check_with_driver(address: Address) -> None:
    del address  # a firing needs none


def check_namespace(namespace: str) -> None:
    from oncecron.stores.redis import address

    address.check_namespace(namespace)


def open_lease_store(address: Address, namespace: str, ttl: float) -> LeaseStore:
    from oncecron.stores.redis.address import parse
    from oncecron.stores.redis.lease_store import RedisLeaseStore

    target = parse(address.target, address.options)
    return RedisLeaseStore(target, namespace=namespace, ttl=ttl)


def open_reader(address: Address, namespace: str) -> Reader:
    from oncecron.core.errors import StoreRefusesError, shortage_of
    from oncecron.host.installation import broken
    from oncecron.stores.redis.address import parse

    try:
        from oncecron.stores.redis.reader import RedisReader
    except ImportError as error:
        raise shortage_of(error) or StoreRefusesError(str(broken(error))) from error
    return RedisReader(parse(address.target, address.options), namespace=namespace)
