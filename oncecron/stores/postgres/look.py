"""What a claim looks at on PostgreSQL: the facts that the rows of `look.sql` tell.

Most claims are decided by the key's row alone. The log is read as well (`closely`) for what the row does not tell: an
execution of this owner that an earlier claim may have been granted, the attempts of an older tick or of one that only a
name tells, the execution that a standby waits for, and the session lock. A first claim of a name asks the log about
its tick alone.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing
    from oncecron.stores.postgres.libpq import Column

# The columns of the functions that a firing calls, in their order.
_NEWEST = (
    *("newest_execution_id", "newest_attempt", "newest_outcome", "newest_retrying"),
    *("newest_requested_by", "newest_started_at", "newest_host", "newest_pid", "newest_user"),
)
LOOK = (
    *("in_recovery", "isolation", "own_backend", "now"),
    *("stop_kind", "stop_author", "stop_reason", "stop_since"),
    *("key_id", "version", "first_id", "divisions", "divided_until"),
    *("fence", "high_water", "seen_until", "running"),
    *("lease_execution_id", "lease_ttl", "lease_expires_at", "lease_heartbeat_at"),
    *("lease_has_session", "lease_backend_pid", "tick", "tick_known", *_NEWEST, "is_own"),
    *("last_execution_id", "last_start", "last_lateness", "schema_version", "schema_oldest"),
)
LOOK_AT_TICK = (*_NEWEST, *("attempts", "forgotten", "other_shards", "lock", "lease_backend_start"))
LOOK_AT_LOG = (
    *LOOK_AT_TICK,
    *("own_execution_id", "own_attempt", "own_outcome", "own_retrying", "own_requested_by"),
    *("own_started_at", "own_host", "own_pid", "own_user", "own_fencing_token", "own_cause"),
    "own_has_lease",
)
GRANT = ("execution_id", "fencing_token", "started_at", "own_backend", "locked", "is_full")
LOST = (
    *("execution_id", "owner_digest", "tick", "attempt", "cause", "outcome", "exit_code", "signal"),
    *(
        "lost_reason",
        "requested_by",
        "host",
        "pid",
        "user",
        "started_at",
        "duration",
        "note",
        "shards",
    ),
)
RENEW = ("locked", "request", "requested_by", "request_signal", "request_grace")
RETRY = (
    *("stop_kind", "stop_author", "stop_reason", "stop_since", "execution_id", "attempt"),
    *("fencing_token", "started_at", "cause", "locked"),
)


def dictionary(names: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """Return the columns that are not null by their names."""
    return {
        name: column.decode("utf-8", "replace")
        for name, column in zip(names, columns, strict=True)
        if column is not None
    }


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


def facts_of(
    row: dict[str, str], log: dict[str, str] | None, firing: Firing, host_now: float
) -> Facts:
    """Return the facts; `host_now` is when the rows were asked for, by the host's clock.

    The key's row has the newest start of any tick, which is also the holder of the lease, and often the last start.
    """
    compared = (int(row.get("key_id", 0)), int(row.get("version", 0)), row.get("divisions"))
    facts = {**row, "version": compared, "host_now": host_now}
    facts["lock"] = "unknown" if "own_backend" in row else "none"
    newest = {name: row.get("newest_" + name) for name in ("host", "pid", "user", "started_at")}
    if "lease_execution_id" in row:
        facts["lease_tick"] = row.get("tick")
        facts |= {"lease_" + name: value for name, value in newest.items()}
    if "newest_execution_id" in row and row.get("last_execution_id") == row["newest_execution_id"]:
        facts |= {"last_" + name: value for name, value in newest.items()}
    if log is None and _is_newest(row, firing):
        return {**facts, "attempts": row.get("newest_attempt")}
    return {**facts, **dict.fromkeys(_NEWEST), **(log or {})}


def _is_newest(row: dict[str, str], firing: Firing) -> bool:
    known = "tick_known" in row and row.get("newest_outcome", "not-started") != "not-started"
    return known and firing.tick.text is not None and row.get("tick") == firing.tick.text


def _is_after(instant: float | None, until: str | None) -> bool:
    return instant is not None and (until is None or instant > float(until))
