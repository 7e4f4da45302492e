"""What a claim looks at on PostgreSQL: the `State` that the rows of `look.sql` mean.

Most claims are decided by the key's row alone. The log is read as well (`closely`) for what the row does not tell: an
execution of this owner that an earlier claim may have been granted, the attempts of an older tick or of one that only a
name tells, the execution that a standby waits for, and the session lock. A first claim of a name asks the log about
its tick alone.
"""

from __future__ import annotations

from oncecron.core.claim import Attempt, HeldLease, State, Stop
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Holder

if TYPE_CHECKING:
    from oncecron.core.claim import Lock
    from oncecron.core.model import Cause, Firing, Outcome
    from oncecron.stores.postgres.rows import Column, KeyRow, LogRow, RetryRow


class Version(NamedTuple):
    """What a grant compares."""

    key_id: int
    number: int
    """The version of the key's row."""
    divisions: str | None
    """The lines "SHARDS TICK" of shard 0's row."""


def registered(row: KeyRow, key_id: Column) -> KeyRow:
    """Return what a look would tell about a key that was not known and has just been registered."""
    return row._replace(key_id=key_id, version=b"0", first_id=row.first_id or key_id)


def suffices(row: KeyRow, firing: Firing, awaited: int | None) -> bool:
    """Return whether the key's row alone tells all that the log could tell, if the owner was never granted anything."""
    if _true(row.is_own):
        return False
    if firing.tick.text is None:
        return awaited is None
    is_untouched = row.version == b"0"  # no execution has ever been recorded
    is_new = is_untouched or _is_after(firing.tick.instant, row.seen_until)
    is_divided = _divisions(row, firing) == [firing.shards]
    is_first = _is_after(firing.tick.instant, row.divided_until)
    is_first = is_first or (is_untouched and row.first_id == row.key_id)
    return (is_new or _is_newest(row, firing)) and (is_divided or is_first)


def state_of(row: KeyRow, log: LogRow | None, firing: Firing, host_now: float) -> State:
    """Return what the rows mean; `host_now` is when they were asked for, by the host's clock."""
    now = _number(row.now)
    pause, drain = stop_of(row)
    is_last = row.last_execution_id is not None and row.last_execution_id == row.newest_id
    state = State(
        version=Version(int(row.key_id or 0), int(row.version or 0), _maybe_text(row.divisions)),
        now=now,
        host_ahead=host_now - now,
        pause=pause,
        drain=drain,
        lease=_lease(row, log),
        newest=_newest(row) if _is_newest(row, firing) else None,
        high_water=_maybe_number(row.high_water),
        last_start=_maybe_number(row.last_started_at),
        last_lateness=_maybe_number(row.last_lateness),
        last_holder=_holder(row.host, row.pid, row.user_name) if is_last else None,
        running=row.running is not None,
        attempts=int(row.tick_attempt or 0) if _is_newest(row, firing) else 0,
        fence=int(row.fence or 0),
        lock="unknown" if _true(row.own_backend) else "none",
    )
    return state if log is None else _with_log(state, row, log)


def stop_of(row: KeyRow | RetryRow) -> tuple[Stop | None, Stop | None]:
    """Return the pause or the drain that a row tells about."""
    if row.stop_kind is None:
        return None, None
    stop = Stop(_text(row.stop_author), _maybe_text(row.stop_reason), _number(row.stopped_at))
    return (stop, None) if row.stop_kind == b"key" else (None, stop)


def _with_log(state: State, row: KeyRow, log: LogRow) -> State:
    own = _attempt(
        *(log.own_id, log.own_number, log.own_outcome, log.own_retrying, log.own_requested_by),
        *(log.own_started_at, log.own_host, log.own_pid, log.own_user_name),
    )
    newest = _attempt(
        *(log.last_id, log.last_number, log.last_outcome, log.last_retrying),
        *(log.last_requested_by, log.last_started_at),
        *(log.last_host, log.last_pid, log.last_user_name),
    )
    return state._replace(
        own=own and own._replace(token=int(log.own_token or 0), cause=cause_of(log.own_cause)),
        own_has_lease=log.own_id is not None and log.own_id == row.execution_id,
        newest=newest,
        attempts=int(log.attempts or 0),
        forgotten=_true(log.forgotten),
        other_shards=int(log.other_shards or 0) or None,
        lock=state.lock if log.lock is None else _lock(log.lock),
    )


def _newest(row: KeyRow) -> Attempt | None:
    return _attempt(
        *(row.newest_id, row.tick_attempt, row.outcome, row.retrying, row.requested_by),
        *(row.started_at, row.host, row.pid, row.user_name),
    )


def _attempt(  # the order of the columns in look.sql
    execution_id: Column,
    number: Column,
    outcome: Column,
    retrying: Column,
    requested_by: Column,
    started_at: Column,
    host: Column,
    pid: Column,
    user_name: Column,
) -> Attempt | None:
    if execution_id is None:
        return None
    return Attempt(
        int(execution_id),
        int(number or 0),
        _outcome(outcome),
        _true(retrying),
        _maybe_text(requested_by),
        _number(started_at),
        _holder(host, pid, user_name),
    )


def _lease(row: KeyRow, log: LogRow | None) -> HeldLease | None:
    if row.execution_id is None:
        return None
    return HeldLease(
        execution_id=int(row.execution_id),
        tick=_maybe_text(row.tick),
        holder=_holder(row.host, row.pid, row.user_name),
        started_at=_number(row.started_at),
        ttl=_number(row.ttl),
        ends_in=_number(row.ends_in),
        silent_for=_number(row.silent_for),
        heartbeat=_number(row.heartbeat),
        has_session=_true(row.session_lock),
        backend_pid=int(row.backend_pid or 0) or None,
        backend_start=None if log is None else _maybe_int(log.backend_start),
    )


def _is_newest(row: KeyRow, firing: Firing) -> bool:
    """Return whether the newest start is the last attempt of the firing's tick, and may have started."""
    tick = firing.tick.text
    known = _true(row.tick_known) and row.outcome not in (None, b"not-started")
    return known and tick is not None and _maybe_text(row.tick) == tick


def _is_after(instant: float | None, until: Column) -> bool:
    return instant is not None and (until is None or instant > float(until))


def _divisions(row: KeyRow, firing: Firing) -> list[int]:
    """Return the numbers of shards with which shard 0's row has the firing's tick."""
    parts = (line.partition(" ") for line in _lines(row.divisions))
    return [int(shards) for shards, _, tick in parts if tick == firing.tick.text]


def _lines(divisions: Column) -> list[str]:
    return [] if divisions is None else _text(divisions).split("\n")


def _true(value: Column) -> bool:
    return value == b"t"


def _text(value: Column) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _maybe_text(value: Column) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: Column) -> float:
    return float(value or 0)


def _maybe_int(value: Column) -> int | None:
    return None if value is None else int(value)


def _maybe_number(value: Column) -> float | None:
    return None if value is None else float(value)


def _holder(host: Column, pid: Column, user_name: Column) -> Holder:
    return Holder(_text(host), int(pid or 0), _text(user_name))


def _outcome(value: Column) -> Outcome:
    return _text(value)  # type: ignore[return-value]


def cause_of(value: Column) -> Cause:
    """Return why an execution started."""
    return _text(value)  # type: ignore[return-value]


def _lock(value: Column) -> Lock:
    return _text(value)  # type: ignore[return-value]
