"""`oncecron locks`: the current leases, and what pauses new firings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import table
from oncecron.cli.command import ALL, QUERY_OPTIONS, TableCommand, incomplete, store_reader, writer
from oncecron.cli.sentences import known_keys, refuse_unknown_keys, valid_key
from oncecron.cli.table import Column, Kind
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.log_rows import ALL_KEYS, LeaseView, Pause, is_internal
from oncecron.core.text import ABSENT, Clock, count
from oncecron.core.units import format_duration
from oncecron.host.stderr import complain
from oncecron.log.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def _difference(later: float | None, earlier: float | None) -> str:
    if later is None or earlier is None:
        return ABSENT
    return format_duration(round(later - earlier, 1))


def _heartbeat(lease: LeaseView, _clock: Clock) -> str:
    return _difference(lease.asked_at, lease.heartbeat_at)


def _left(lease: LeaseView, _clock: Clock) -> str:
    return _difference(lease.expires_at, lease.asked_at)


def _request(lease: LeaseView, clock: Clock) -> str:
    if lease.requested_by is None:
        return ABSENT
    acknowledged = lease.request_acknowledged_at
    state = "not acknowledged"
    if acknowledged is not None:
        state = f"acknowledged {clock.near(acknowledged)}"
    return f"by {lease.requested_by}, {state}"


LEASES = Kind(
    tuple(name for name in LeaseView._fields if name != "asked_at"),
    ("acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"),
    (
        table.key(), table.tick(3), table.state("state"), table.field("host", "HOST", 1, 10),
        table.number("pid", "PID", 5), table.field("user", "USER", 6, 6), table.time("acquired_at", "SINCE", 2),
        Column("HEARTBEAT", _heartbeat, 5, right=True), Column("LEFT", _left, 2, right=True),
        table.number("fencing_token", "TOKEN", 7), table.number("backend_pid", "BACKEND", 8),
        table.field("client_address", "CLIENT", 8, 12), table.shard(4), table.progress(3),
        Column("REQUEST", _request, 2, 20),
    ),
)  # fmt: skip
PAUSES = Kind(
    Pause._fields, ("since", "until"),
    (
        table.key(), table.field("host", "HOST", 0, 12), table.time("since", "SINCE", 3),
        table.time("until", "UNTIL", 1), table.field("author", "AUTHOR", 2, 8),
        table.field("reason", "REASON", 1, 14, folds=True),
    ),
)  # fmt: skip

OPTIONS = (
    Option("pauses", "flag", "Show paused keys and drained hosts instead of leases."),
    ALL,
    *QUERY_OPTIONS,
)


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    keys = {valid_key(word) for word in words}
    answer = writer(PAUSES if settings["pauses"] else LEASES, settings)
    with store_reader(settings) as store:
        if keys:
            refuse_unknown_keys(keys, known_keys(store), store)
        if settings["pauses"]:
            wanted = (*keys, ALL_KEYS)
            answer.write(each for each in store.pauses() if not keys or each.key in wanted)
            return incomplete(store)
        found = Sources(store, store, clock.wall()).progressing()
        leases = [each for each in found if _is_wanted(each, keys, settings)]
        pauses = store.pauses() if answer.is_watched else ()
    answer.write(leases)
    if pauses:
        complain(f"{_counts(pauses)}; to list them: {settings.command('locks --pauses')}")
    return incomplete(store)


def _is_wanted(lease: LeaseView, keys: Collection[str], settings: Settings) -> bool:
    if keys:
        return lease.key in keys
    return settings["all"] or not is_internal(lease.key) or lease.state != "held"


def _counts(pauses: Iterable[Pause]) -> str:
    hosts = [pause.host is not None for pause in pauses]
    found = ((hosts.count(False), "pause"), (hosts.count(True), "drained host"))
    return ", ".join(count(many, what) for many, what in found if many)


COMMAND = TableCommand(
    "locks", OPTIONS, _show,
    about="Show the current leases, or only those of the named keys: holder, start, age of the last heartbeat, time "
    "left and fencing token. held: the holder renews the lease; stale: the lease has expired, or the holder has "
    "missed two heartbeats; orphaned: PostgreSQL has released the holder's session lock, but the lease has not "
    "expired.",
    examples=("oncecron locks", "oncecron locks billing-nightly", "oncecron locks --pauses"),
    words="[KEY...]",
)  # fmt: skip
