"""The columns of the functions that a firing calls, by name, as they are received."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    Column = bytes | None


class KeyRow(NamedTuple):
    """The columns of look_v1, as they were received."""

    in_recovery: Column
    isolation: Column
    own_backend: Column
    now: Column
    stop_kind: Column
    stop_author: Column
    stop_reason: Column
    stopped_at: Column
    key_id: Column
    version: Column
    first_id: Column
    divisions: Column
    divided_until: Column
    fence: Column
    high_water: Column
    seen_until: Column
    running: Column
    execution_id: Column
    ttl: Column
    ends_in: Column
    silent_for: Column
    heartbeat: Column
    session_lock: Column
    backend_pid: Column
    newest_id: Column
    tick: Column
    tick_known: Column
    tick_attempt: Column
    outcome: Column
    retrying: Column
    requested_by: Column
    started_at: Column
    host: Column
    pid: Column
    user_name: Column
    is_own: Column
    last_execution_id: Column
    last_started_at: Column
    last_lateness: Column
    schema_version: Column
    schema_oldest: Column


class LogRow(NamedTuple):
    """The columns of look_at_log_v1, as they were received; look_at_tick_v1 has those before `own_id`."""

    last_id: Column
    last_number: Column
    last_outcome: Column
    last_retrying: Column
    last_requested_by: Column
    last_started_at: Column
    last_host: Column
    last_pid: Column
    last_user_name: Column
    attempts: Column
    forgotten: Column
    other_shards: Column
    lock: Column
    backend_start: Column
    own_id: Column = None
    own_number: Column = None
    own_outcome: Column = None
    own_retrying: Column = None
    own_requested_by: Column = None
    own_started_at: Column = None
    own_host: Column = None
    own_pid: Column = None
    own_user_name: Column = None
    own_token: Column = None
    own_cause: Column = None


class GrantRow(NamedTuple):
    """The columns of grant_v1."""

    execution_id: Column
    token: Column
    started_at: Column
    own_backend: Column
    locked: Column
    is_full: Column


class RenewRow(NamedTuple):
    """The columns of renew_v1."""

    locked: Column
    kind: Column
    author: Column
    signal: Column
    grace: Column


class RetryRow(NamedTuple):
    """The columns of retry_v1."""

    stop_kind: Column
    stop_author: Column
    stop_reason: Column
    stopped_at: Column
    execution_id: Column
    attempt: Column
    token: Column
    started_at: Column
    cause: Column
    locked: Column
