"""One of several first firings: finds no schema, and runs a tick all the same."""

from collections.abc import Callable

from contract_stores import SQLiteKind
from hosts import Host, minute


def prepare(path: str, key: str) -> Callable[[], object]:
    """Return the run of a key on a store in the file at `path`."""
    host = Host(SQLiteKind.connect(path), key)
    return lambda: host.run(minute(1), key=key)
