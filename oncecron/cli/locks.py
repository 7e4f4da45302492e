"""`oncecron locks`: the current leases, and what pauses new firings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import ALL, QUERY_OPTIONS, TableCommand, incomplete, store_reader, writer
from oncecron.cli.output import Column, Kind
from oncecron.cli.sentences import count, known_keys, refuse_unknown_keys, valid_key
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.log_rows import ALL_KEYS, LeaseView, Pause, is_internal
from oncecron.core.stderr import complain
from oncecron.core.text import ABSENT, Clock
from oncecron.core.units import format_duration
from oncecron.each.reports import item_lists, with_items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def _difference(later: float | None, earlier: float | None) -> str:
    if later is None or earlier is None:
        return ABSENT
    return format_duration(round(later - earlier, 1))


def _request(lease: LeaseView, clock: Clock) -> str:
    if lease.requested_by is None:
        return ABSENT
    acknowledged = lease.request_acknowledged_at
    state = "not acknowledged"
    if acknowledged is not None:
        state = f"acknowledged {clock.seconds(acknowledged)}"
    return f"by {lease.requested_by}, {state}"


LEASES = Kind(
    tuple(name for name in LeaseView._fields if name != "asked_at"),
    ("acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"),
    (
        *output.fields("key", "tick", "state", "host"),
        output.number("pid"),
        output.field("user"),
        output.time("acquired_at", "SINCE"),
        Column(
            "HEARTBEAT",
            lambda lease, _: _difference(lease.asked_at, lease.heartbeat_at),
            right=True,
        ),
        Column("LEFT", lambda lease, _: _difference(lease.expires_at, lease.asked_at), right=True),
        output.number("fencing_token", "TOKEN"),
        output.number("backend_pid", "BACKEND"),
        output.field("client_address", "CLIENT"),
        output.SHARD,
        output.ITEMS,
        Column("REQUEST", _request),
    ),
)
PAUSES = Kind(
    Pause._fields, ("since", "until"),
    (
        *output.fields("key", "host"), output.time("since"), output.time("until"),
        *output.fields("author", "reason"),
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
            refuse_unknown_keys(keys, known_keys(store))
        if settings["pauses"]:
            found = store.pauses()
            answer.write(each for each in found if not keys or each.key in (*keys, ALL_KEYS))
            return incomplete(store)
        leases = [each for each in store.leases() if _is_wanted(each, keys, settings)]
        lists = item_lists(store) if leases else ()
        pauses = store.pauses() if answer.is_watched else ()
    now = clock.wall()  # SQLite has no clock of its own
    views = with_items(leases, lists)
    answer.write(view._replace(asked_at=view.asked_at or now) for view in views)
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
