"""Convert what is stored on Redis to the columns of plain rows (`oncecron.stores.api.Views`).

Rows are JSON of texts, hashes, and members of sets. All functions raise `core.errors.UNREADABLE` for one that cannot be
read.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from oncecron.core.errors import UNREADABLE
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import PACKED_OUTCOMES, Execution
from oncecron.core.model import owner_digest, recordable_values
from oncecron.core.tick import minute_tick
from oncecron.core.timing import HEARTBEATS_PER_TTL
from oncecron.stores.reader import PackedSkips
from oncecron.stores.redis.scripts import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Columns = tuple[Any, ...]

_INTEGERS = {
    *("shard", "attempt", "exit_code", "signal", "pid", "fencing_token", "holder_pid", "count"),
    *("execution_id", "shards", "expected_shards"),
}
_FLOATS = {
    *("started_at", "finished_at", "duration", "acquired_at", "heartbeat_at", "expires_at"),
    *("fired_at", "tick_instant", "lost_at", "at", "until", "ttl", "request_acknowledged_at"),
    *("starting_deadline", "expected_since", "high_water"),
    *("last_start", "forgotten_at"),
}
_KINDS = {**dict.fromkeys(_INTEGERS, int), **dict.fromkeys(_FLOATS, float)}
KEY = (
    *("schedule", "zone", "expected_shards", "starting_deadline", "expected_since"),
    *("high_water", "last_start", "forgotten_at", "forgotten_by"),
)
"""The fields of the hash of a shard that people see."""


def _with_kinds(*names: str) -> tuple[tuple[str, Callable[..., Any] | None], ...]:
    return tuple((name, _KINDS.get(name)) for name in names)


_EXECUTION = _with_kinds(*Execution._fields, "tick_instant", "fired_at", "lost_at")


class Shard(NamedTuple):
    """A shard of a key; the Lua files call it a part."""

    key: str
    number: int
    name: str
    """KEY#SHARD."""


class StoredExecution(NamedTuple):
    """An execution, with what only the store itself needs."""

    columns: tuple[Any, ...]
    execution_id: int
    shard_name: str
    tick: str | None
    outcome: str
    started_at: float
    owner: str
    late: str | None
    """Whether it was inserted after later starts."""


_decode = json.JSONDecoder().raw_decode
"""Without a search for blanks around the value, which takes longer than the rest."""


def json_of(text: bytes) -> dict[str, str]:
    """Return a row as texts."""
    decoded_text = text.decode("utf-8", "replace")
    fields: dict[str, str]
    fields, end = _decode(decoded_text)
    if end != len(decoded_text):
        fields = json.loads(decoded_text)  # blanks, or an error
    # Only an escape makes a value of a printable row unprintable, but not `\/`. Reports read tens of thousands of rows.
    plain = decoded_text.isprintable() and decoded_text.count("\\") == decoded_text.count("\\/")
    return fields if plain else recordable_values(fields)


def _converted(fields: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: kind(value) if (kind := _KINDS.get(name)) else value for name, value in fields.items()
    }


def _columns(
    fields: Mapping[str, Any], kinds: Iterable[tuple[str, Callable[..., Any] | None]]
) -> tuple[Any, ...]:
    """Return some fields of a row; None for each that is missing. Reports read tens of thousands of rows."""
    get = fields.get
    return tuple(
        [value if (value := get(name)) is None or not kind else kind(value) for name, kind in kinds]
    )


def _row_of(text: bytes) -> dict[str, Any]:
    return _converted(json_of(text))


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in fields.items()}


def shard_named(member: bytes) -> Shard:
    """Return a shard by its name. Raises `ValueError`: oncecron uses no other names."""
    name = member.decode("ascii")
    key, _, number = name.rpartition("#")
    if not key or not number.isdigit():
        raise ValueError("the name is not KEY#SHARD")
    return Shard(key, int(number), name)


def stored_execution(text: bytes, execution_id: int | str) -> StoredExecution:
    """Return an execution from its row."""
    fields: dict[str, Any] = {"shards": 1, **json_of(text), "execution_id": execution_id}
    owner = fields["owner"]
    fields["owner"] = owner_digest(owner)
    columns = _columns(fields, _EXECUTION)
    known = Execution._make(columns[: len(Execution._fields)])
    shard_name = shard_of(known.key, known.shard)
    places = known.execution_id, shard_name, known.tick, known.outcome, known.started_at
    return StoredExecution(columns, *places, owner, fields.get("late"))


_PACKED = re.compile(
    rb'"(key|host|outcome|attempt|shards|tick|tick_instant|started_at|late)":"([^"]*)"'
)


def packed_run(text: bytes) -> tuple[tuple[str, str, str, bool], int, float, bool] | None:
    """Return a row in half the time that decoding takes; None if it has to be decoded, or is not packed.

    The fields of `PackedRuns`; the minute, the start, and whether it was inserted after later starts. A name with its
    quotes is in no value: there, a quote has a backslash before it.
    """
    row = dict(_PACKED.findall(text))
    if row.get(b"attempt") != b"1" or row.get(b"shards", b"1") != b"1":
        return None
    try:
        key, host, outcome = _plain(row[b"key"]), _plain(row[b"host"]), _plain(row[b"outcome"])
        started_at, has_tick = float(row[b"started_at"]), b"tick" in row
        minute = int(float(row[b"tick_instant"]) if has_tick else started_at) // 60
    except UNREADABLE:
        return None
    if outcome not in PACKED_OUTCOMES:
        return None
    return (key, host, outcome, has_tick), minute, started_at, b"late" in row


_STARTED = re.compile(rb'"started_at":"([0-9]+(?:\.[0-9]+)?)"')


def started_before(text: bytes, since: float) -> bool:
    """Return whether a row surely started before a time; it is not decoded."""
    started = _STARTED.search(text)
    return started is not None and float(started[1]) < since


@lru_cache(4096)
def _plain(value: bytes) -> str:
    """Return a text of which the row has each letter as it is. Raises `ValueError`."""
    text = value.decode("ascii")
    if not text.isprintable() or "\\" in text:
        raise ValueError(text)
    return text


def output(text: bytes) -> Columns:
    """Return captured output."""
    cut, _, captured = text.decode("utf-8", "replace").partition(":")
    return captured, int(cut)


def skip(shard: Shard, member: str, at: float, text: bytes) -> Columns:
    """Return a skip from its member of the set, its score, and its row."""
    tick, host, reason = json.loads(member)
    row = _row_of(text)
    return (
        *(shard.key, shard.number, tick or None, reason, row.get("holder_host")),
        *(row.get("holder_pid"), host, row["pid"], at, row["count"], row.get("detail")),
        row.get("fired_at"),
    )


def reason(shard: Shard, member: str) -> Columns:
    """Return why a tick was skipped, from the member of the set alone."""
    tick, host, reason = json.loads(member)
    return shard.key, tick, host, reason, shard.number


def beginnings(minutes: Sequence[int]) -> frozenset[bytes]:
    """Return how the members of the skips of some ticks begin."""
    return frozenset(f'["{minute_tick(60 * each).text}"'.encode() for each in minutes)


def beginning(member: bytes) -> bytes:
    """Return what may be one of `beginnings`."""
    return member[: len('["2026-11-20T02:00Z"')]


def window_of(member: bytes) -> int:
    """Return the window of the plain skips that a member of their set names; 0 for a member that is none."""
    window = member.partition(b" ")[0]
    return int(window) if window.isdigit() else 0


def packed_skips(shard: Shard, member: str, text: bytes) -> PackedSkips:
    """Return the plain skips of a host in a window."""
    window, _, host = member.partition(" ")
    return PackedSkips(shard.key, shard.number, host, int(window), text.decode("ascii"))


def key(shard: Shard, values: Sequence[bytes | None]) -> Columns:
    """Return a shard of a key from the values of `KEY`."""
    found = zip(KEY, values, strict=True)
    row = _converted(
        {name: value.decode("utf-8", "replace") for name, value in found if value is not None}
    )
    return shard.key, shard.number, *map(row.get, KEY)


def key_host(shard: Shard, host: str, text: bytes) -> Columns:
    """Return a host of a key."""
    seen_at, _, presence = text.decode("utf-8", "replace").partition(" ")
    return shard.key, shard.number, host, float(seen_at), presence


def lease(
    shard: Shard,
    fields: Mapping[bytes, bytes],
    executions: Mapping[int, StoredExecution],
    now: float,
) -> Columns:
    """Return a lease from its hash and its execution, at a time by the server's clock."""
    held = _converted(_texts(fields))
    stored = executions.get(held["execution_id"])
    row = dict(zip(Execution._fields, stored.columns, strict=False)) if stored else {}
    silent = now - held["heartbeat_at"] > 2 * held["ttl"] / HEARTBEATS_PER_TTL
    return (
        *(shard.key, shard.number, row.get("tick"), held["execution_id"], row.get("attempt")),
        "stale" if silent or held["expires_at"] <= now else "held",
        *(row.get("host"), row.get("pid"), row.get("user")),
        *(held["acquired_at"], held["heartbeat_at"], held["expires_at"]),
        *(row.get("fencing_token"), None, None, row.get("shards", 1)),
        *(held.get("requested_by"), held.get("request_acknowledged_at"), now),
    )


def pause(key: str | None, host: str | None, text: bytes) -> Columns:
    """Return a pause or a drain."""
    row = _row_of(text)
    return key, host, row["author"], row.get("reason"), row["at"], row.get("until")
