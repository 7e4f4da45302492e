"""What `oncecron notify` changes on SQLite: what channels were notified of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from oncecron.stores.sqlite.connection import Connection


def put_notice(store: Connection, channel: str, version: int, most: int, **values: Any) -> Any:
    """Write the next version of a document."""
    if not version and _others(store, [channel]) >= most:
        return None
    statement = "change_notice" if version else "make_notice"
    return store.execute(statement, channel=channel, version=version, **values).rowcount


def remove_other_notices(store: Connection, channels: Collection[str], **_: Any) -> int:
    """Remove all others; return how many there were."""
    return store.execute("remove_other_notices", channels=json.dumps(channels)).rowcount


def _others(store: Connection, channels: Collection[str]) -> int:
    return int(store.one("other_notices", channels=json.dumps(channels))[0])
