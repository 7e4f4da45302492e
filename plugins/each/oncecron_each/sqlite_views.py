"""What people change in the lists of items on SQLite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oncecron_each.sqlite_store import doubt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oncecron.stores.sqlite.connection import Connection


def mend_items(
    store: Connection,
    key: str,
    tick: str,
    identities: Sequence[str] | None,
    states: Sequence[str],
    state: str,
    reason: str,
    **now: Any,
) -> int:
    """Queue items again, or mark them as done; return how many. `now`: `moment`."""
    found = store.one("find_list", key=key, tick=tick)
    if found is None:
        return 0
    named = None if identities is None else json.dumps(identities)
    in_list = {"list_id": found["list_id"], "identities": named, **now}
    dead = store.execute("dead_slots", **in_list).fetchall() if "lost" in states else ()
    for slot in dead:
        doubt(store, slot, "lost", now["now"])
    marked = store.execute("marked_items", **in_list).fetchall()
    places = [row["position"] for row in marked if row["state"] in states]
    for place in places:
        mended = {"position": place, "state": state, "reason": reason}
        store.execute("mend_item", **in_list, **mended)
    return len(places)
