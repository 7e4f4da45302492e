"""The published records: their fields, and the columns of their tables."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.cli.stop_request import Fate
from oncecron.core.light_modules import signal_name
from oncecron.core.log_rows import (
    ConfiguredValue,
    Diagnosis,
    Execution,
    LeaseView,
    Pause,
    Skip,
)
from oncecron.core.missed import MISSED_AT_MOST
from oncecron.core.text import ABSENT, part_of, visible
from oncecron.core.units import format_duration
from oncecron.each.reports import ItemRow, ListView
from oncecron.log.hosts import HostSummary
from oncecron.log.jobs import FIRST_LOOK, STREAK_AT_MOST, JobSummary
from oncecron.log.overlap import Finding
from oncecron.log.upcoming import Coming

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.core.text import Clock


class Column(NamedTuple):
    """A column of a table: its title, and the text of a record in it."""

    title: str
    text: Callable[[Any, Clock], str]
    right: bool = False
    is_optional: bool = False
    """Whether it is left out if none of the first rows has anything in it."""


class Kind(NamedTuple):
    """The published fields of a kind of record, and the columns of its table."""

    fields: tuple[str, ...]
    times: frozenset[str]
    columns: tuple[Column, ...]
    """The last one may be cut, and may contain blanks."""


def _plain(name: str) -> Callable[[Any, Clock], str]:
    def text(record: Any, _clock: Clock) -> str:
        value = getattr(record, name)
        return ABSENT if value in (None, "") else visible(str(value))

    return text


def _time(name: str) -> Callable[[Any, Clock], str]:
    return lambda record, clock: clock.seconds(getattr(record, name))


def _exit(record: Execution | JobSummary, _clock: Clock) -> str:
    if record.signal is None:
        return ABSENT if record.exit_code is None else str(record.exit_code)
    return signal_name(record.signal) or f"SIG{record.signal}"


def _duration(record: Execution, _clock: Clock) -> str:
    return ABSENT if record.duration is None else format_duration(record.duration)


def _usual(record: JobSummary, _clock: Clock) -> str:
    return ABSENT if record.usual_duration is None else format_duration(record.usual_duration)


def _streak(record: JobSummary, _clock: Clock) -> str:
    if not record.streak:
        return ABSENT
    counted = FIRST_LOOK if record.outcome == "succeeded" else STREAK_AT_MOST
    return f"{record.streak}{'+' * (record.streak >= counted)}"


def _due(record: JobSummary, _clock: Clock) -> str:
    found = [f"missed {record.missed}{'+' * (record.missed >= MISSED_AT_MOST)}"] * (
        record.missed > 0
    )
    found += ["overdue"] * (record.overdue is not None)
    found += [f"overruns {record.overruns}"] * (record.overruns > 0)
    found += ["silent"] * (record.silent_since is not None)
    return ", ".join(found) or ABSENT


def _paused(record: JobSummary, clock: Clock) -> str:
    if record.paused_by is None:
        return ABSENT
    until = (
        f" until {clock.seconds(record.paused_until)}" if record.paused_until is not None else ""
    )
    reason = f": {record.paused_reason}" if record.paused_reason else ""
    return visible(f"by {record.paused_by}{until}{reason}")


def _clock_ahead(record: HostSummary, _clock: Clock) -> str:
    return f"{record.clock_ahead:+.1f}s".replace("-0.0", "+0.0")


def _drained(record: HostSummary, _clock: Clock) -> str:
    return ABSENT if record.drained_by is None else visible(f"by {record.drained_by}")


def _diagnosis(record: Diagnosis, _clock: Clock) -> str:
    return visible("; ".join(filter(None, (record.text, record.cure))))


def _weekday(record: Coming, _clock: Clock) -> str:
    return date.fromisoformat(record.local[:10]).strftime("%a")


def _holder(record: Skip, _clock: Clock) -> str:
    if record.holder_host is None:
        return ABSENT
    return visible(f"{record.holder_host}/{record.holder_pid}")


def _since_heartbeat(record: LeaseView, _clock: Clock) -> str:
    return _difference(record.asked_at, record.heartbeat_at)


def _time_left(record: LeaseView, _clock: Clock) -> str:
    return _difference(record.expires_at, record.asked_at)


def _difference(later: float | None, earlier: float | None) -> str:
    if later is None or earlier is None:
        return ABSENT
    return format_duration(round(later - earlier, 1))


def _part(record: Any, _clock: Clock) -> str:
    return part_of(record.shard, record.shards)


def _items(record: LeaseView | JobSummary, _clock: Clock) -> str:
    if record.items_total is None:
        return ABSENT
    return f"{record.items_ended:,}/{record.items_total:,}"


def _request(record: LeaseView, clock: Clock) -> str:
    if record.requested_by is None:
        return ABSENT
    acknowledged = record.request_acknowledged_at
    state = (
        "not acknowledged"
        if acknowledged is None
        else f"acknowledged {clock.seconds(acknowledged)}"
    )
    return visible(f"by {record.requested_by}, {state}")


EXECUTIONS = Kind(
    Execution._fields,
    frozenset({"started_at", "finished_at"}),
    (
        Column("ID", _plain("execution_id"), right=True),
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("OUTCOME", _plain("outcome")),
        Column("EXIT", _exit, right=True),
        Column("STARTED", _time("started_at")),
        Column("DURATION", _duration, right=True),
        Column("HOST", _plain("host")),
        Column("ATTEMPT", _plain("attempt"), right=True),
        Column("SHARD", _part),
        Column("COMMAND", _plain("command")),
    ),
)
IN_FULL = EXECUTIONS._replace(fields=(*EXECUTIONS.fields, "output", "output_cut"))
"""For one execution, with its output."""

SKIPS = Kind(
    Skip._fields,
    frozenset({"at"}),
    (
        Column("AT", _time("at")),
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("REASON", _plain("reason")),
        Column("HOST", _plain("host")),
        Column("HOLDER", _holder),
        Column("COUNT", _plain("count"), right=True),
        Column("SHARD", _part),
        Column("DETAIL", _plain("detail")),
    ),
)
JOBS = Kind(
    JobSummary._fields,
    frozenset(
        (
            "started_at",
            "succeeded_at",
            "failed_at",
            "running_since",
            "next_at",
            "silent_since",
            "paused_until",
        )
    ),
    (
        Column("KEY", _plain("key")),
        Column("OUTCOME", _plain("outcome")),
        Column("EXIT", _exit, right=True),
        Column("SUCCESS", _time("succeeded_at")),
        Column("FAILURE", _time("failed_at")),
        Column("RUNNING", _plain("running_host")),
        Column("SINCE", _time("running_since")),
        Column("STREAK", _streak, right=True),
        Column("USUAL", _usual, right=True),
        Column("NEXT", _time("next_at")),
        Column("DUE", _due),
        Column("SCHEDULE", _plain("schedule")),
        Column("ITEMS", _items, right=True, is_optional=True),
        Column("PAUSED", _paused),
    ),
)
COMING = Kind(
    Coming._fields,
    frozenset(),
    (
        Column("TICK", _plain("tick")),
        Column("DAY", _weekday),
        Column("LOCAL", _plain("local")),
        Column("ZONE", _plain("zone")),
        Column("CHANGE", _plain("change")),
    ),
)
CONFIGURED_VALUES = Kind(
    ConfiguredValue._fields,
    frozenset(),
    tuple(Column(name.upper(), _plain(name)) for name in ConfiguredValue._fields),
)
DIAGNOSES = Kind(
    Diagnosis._fields,
    frozenset(),
    (
        Column("STATE", _plain("state")),
        Column("SUBJECT", _plain("subject")),
        Column("FINDING", _diagnosis),
    ),
)
FINDINGS = Kind(
    Finding._fields,
    frozenset({"at"}),
    (
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("LAST", _plain("last_tick")),
        Column("TICKS", _plain("count"), right=True),
        Column("FINDING", _plain("finding")),
        Column("REASON", _plain("reason")),
    ),
)
LEASES = Kind(
    tuple(name for name in LeaseView._fields if name != "asked_at"),
    frozenset({"acquired_at", "heartbeat_at", "expires_at", "request_acknowledged_at"}),
    (
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("STATE", _plain("state")),
        Column("HOST", _plain("host")),
        Column("PID", _plain("pid"), right=True),
        Column("USER", _plain("user")),
        Column("SINCE", _time("acquired_at")),
        Column("HEARTBEAT", _since_heartbeat, right=True),
        Column("LEFT", _time_left, right=True),
        Column("TOKEN", _plain("fencing_token"), right=True),
        Column("BACKEND", _plain("backend_pid"), right=True),
        Column("CLIENT", _plain("client_address")),
        Column("SHARD", _part),
        Column("ITEMS", _items, right=True, is_optional=True),
        Column("REQUEST", _request),
    ),
)
PAUSES = Kind(
    Pause._fields,
    frozenset({"since", "until"}),
    (
        *(Column(name.upper(), _plain(name)) for name in ("key", "host")),
        *(Column(name.upper(), _time(name)) for name in ("since", "until")),
        *(Column(name.upper(), _plain(name)) for name in ("author", "reason")),
    ),
)
ITEMS = Kind(
    ItemRow._fields,
    frozenset({"since", "not_before"}),
    (
        Column("POSITION", _plain("position"), right=True),
        Column("STATE", _plain("state")),
        Column("ATTEMPTS", _plain("attempts"), right=True),
        Column("EXECUTION", _plain("execution_id"), right=True),
        Column("SINCE", _time("since")),
        Column("RETRY", _time("not_before")),
        Column("ITEM", _plain("item")),
        Column("REASON", _plain("reason")),
    ),
)
LISTS = Kind(
    ListView._fields,
    frozenset({"loaded_at"}),
    (
        Column("KEY", _plain("key")),
        Column("TICK", _plain("tick")),
        Column("LOADED", _time("loaded_at")),
        *(
            Column(name.upper(), _plain(name), right=True)
            for name in ("total", "queued", "taken", "done", "failed", "lost", "dead")
        ),
    ),
)
HOSTS = Kind(
    HostSummary._fields,
    frozenset({"seen_at"}),
    (
        Column("HOST", _plain("host")),
        Column("SEEN", _time("seen_at")),
        Column("VERSION", _plain("version")),
        Column("CLOCK", _clock_ahead, right=True),
        Column("KEYS", _plain("keys"), right=True),
        Column("WINS", _plain("wins"), right=True),
        Column("SKIPS", _plain("skips"), right=True),
        Column("DRAINED", _drained),
        Column("SILENT ON", _plain("silent_on")),
        Column("MACHINES", _plain("machines"), right=True),
    ),
)
FATES = Kind(Fate._fields, frozenset({"acknowledged_at", "lease_ends_at"}), ())
