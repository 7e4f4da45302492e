"""What a claim looks at on PostgreSQL: the facts that the rows of `look.sql` tell.

Most claims are decided by the key's row alone. The log is read as well (`closely`) for what the row does not tell: an
execution of this owner that an earlier claim may have been granted, the attempts of an older tick or of one that only a
name tells, the execution that a standby waits for, and the session lock. A first claim of a name asks the log about
its tick alone.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing


def new_row(row: dict[str, str], key_id: str) -> dict[str, str]:
    """Return what a look would tell about a key that was not known and has just been registered."""
    return row | {"key_id": key_id, "version": "0", "first_id": row.get("first_id", key_id)}


def suffices(row: dict[str, str], firing: Firing, awaited: int | None) -> bool:
    """Return whether the key's row alone tells all that the log could tell, if the owner was never granted anything."""
    if "is_own" in row:
        return False
    tick = firing.tick
    if tick.text is None:
        return awaited is None
    is_untouched = row.get("version") == "0"  # no execution has ever been recorded
    is_new = is_untouched or _is_after(tick.instant, row.get("seen_until"))
    lines = row["divisions"].split("\n") if "divisions" in row else ()
    parts = (line.partition(" ") for line in lines)
    numbers = [int(shards) for shards, _, divided in parts if divided == tick.text]
    is_first = _is_after(tick.instant, row.get("divided_until"))
    is_first = is_first or (is_untouched and row.get("first_id") == row.get("key_id"))
    return (is_new or _is_newest(row, firing)) and (numbers == [firing.shards] or is_first)


def facts_of(row: dict[str, str], firing: Firing, host_now: float, *, closely: bool) -> Facts:
    """Return the facts; `host_now` is when the row was asked for, by the host's clock; `closely`: with the log.

    The key's row has the newest start of any tick, which is also the holder of the lease, and often the last start.
    """
    compared = (int(row.get("key_id", 0)), int(row.get("version", 0)), row.get("divisions"))
    facts = {**row, "version": compared, "host_now": host_now}
    facts.setdefault("lock", "unknown" if "own_backend" in row else "none")
    start = {name[6:]: value for name, value in row.items() if name.startswith("start_")}
    holder = {name: start.get(name) for name in ("host", "pid", "user", "started_at")}
    if "lease_execution_id" in row:
        facts["lease_tick"] = row.get("tick")
        facts |= {f"lease_{name}": value for name, value in holder.items()}
    if "execution_id" in start and row.get("last_execution_id") == start["execution_id"]:
        facts |= {f"last_{name}": value for name, value in holder.items()}
    if not closely and _is_newest(row, firing):
        facts |= {f"newest_{name}": value for name, value in start.items()}
        facts["attempts"] = start.get("attempt")
    return facts


def _is_newest(row: dict[str, str], firing: Firing) -> bool:
    known = "tick_known" in row and row.get("start_outcome", "not-started") != "not-started"
    return known and firing.tick.text is not None and row.get("tick") == firing.tick.text


def _is_after(instant: float | None, until: str | None) -> bool:
    return instant is not None and (until is None or instant > float(until))
