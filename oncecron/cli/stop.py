"""`oncecron stop`: stop a running job, on any host. `oncecron release`: release a key that a dead host still holds.

Both find the leases of the key, ask the living holders (`stop_request`), and say for each what became of it. `release`
then releases what has ended; the store decides whether it may.
"""

from __future__ import annotations

from signal import SIGTERM, Signals
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import JSON, STORE_OPTIONS, UTC, TableCommand, store_reader
from oncecron.cli.output import Writer
from oncecron.cli.sentences import author, known_keys, local_time, unknown_key, valid_key
from oncecron.cli.stop_request import (
    DEAD_BY_THEN,
    Asking,
    Fate,
    fate_of,
    holder,
    shard_arguments,
    shard_name,
    ttl,
)
from oncecron.cli.table import Kind
from oncecron.cli.terminal import Style
from oncecron.config.options import RUN_OPTION, Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import EX_TEMPFAIL
from oncecron.core.light_modules import signal_name
from oncecron.core.model import REQUEST_SIGNALS, Request
from oncecron.core.stderr import complain
from oncecron.core.text import Clock
from oncecron.core.tick import minute_tick
from oncecron.core.timing import (
    ASSUMED_GRACE,
    HEARTBEATS_PER_TTL,
    RELEASE_MARGIN,
    STOP_MARGIN,
    TAKEOVER_WITHIN,
)
from oncecron.core.units import format_duration
from oncecron.log.job_summary import is_living

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.core.log_rows import LeaseView, Released, Unblocked
    from oncecron.stores.reader import Reader

FATES = Kind(Fate._fields, ("acknowledged_at", "lease_ends_at"))

SHARD = Option(
    "shard", "integer", "Act on this shard only, counted from 0.", "N", minimum=0,
    maximum=(RUN_OPTION["shards"].maximum or 0) - 1,
)  # fmt: skip
STOP_OPTIONS = (
    SHARD,
    Option(
        "signal", "choice", "Send this signal first, to every process of the command.", default="TERM",
        choices=REQUEST_SIGNALS,
    ),
    Option("grace", "duration", "Wait this long before KILL. Default: the --grace of the run."),
    JSON._replace(
        help="Print how each execution ended as JSON (one array) instead of sentences.",
        group="Options",
    ),
    UTC._replace(group="Options"),
    *STORE_OPTIONS,
)  # fmt: skip
RELEASE_OPTIONS = (
    SHARD,
    Option(
        "force", "flag", "Also end the PostgreSQL session, or the job's transaction, that blocks an expired lease.",
    ),
    *STORE_OPTIONS,
)  # fmt: skip
_GRACE_OF_THE_RUN = RUN_OPTION["grace"]._replace(default=f"{ASSUMED_GRACE:g}s")
"""The configuration may set it for the run that is released."""


def leases_of(
    store: Reader, key: str, shard: int | None
) -> tuple[list[LeaseView], list[LeaseView]]:
    """Return a key's active leases, and the expired ones. Raises `NotFoundError` for an unknown key."""
    now = clock.wall()
    living: list[LeaseView] = []
    expired: list[LeaseView] = []
    for lease in store.leases():
        if lease.key == key and shard in (None, lease.shard):
            dated = lease._replace(asked_at=lease.asked_at or now)
            (living if is_living(dated, now) else expired).append(dated)
    if not living and not expired and key not in (known := known_keys(store)):
        raise unknown_key(key, known)
    return living, expired


def how_it_ended(fate: Fate) -> str:
    """Return the outcome, with the exit status or the signal, to end a sentence."""
    if fate.signal is not None:
        return f"{fate.outcome}, by {signal_name(fate.signal) or f'signal {fate.signal}'}"
    status = "" if fate.exit_code is None else f", exit status {fate.exit_code}"
    return f"{fate.outcome}{status}"


# stop


def _stop(given: dict[str, str], words: list[str]) -> int:
    key = valid_key(words[0])
    settings = Settings(STOP_OPTIONS, given, key)
    stream = output.standard_output()
    times = Clock(settings["utc"])
    with store_reader(settings) as store:
        living, expired = leases_of(store, key, settings["shard"])
        fates = _stop_holders(store, living, settings)
        before = _ended_before(store, expired) if settings["json"] else []
    if settings["json"]:
        Writer(FATES, Style("json", times), stream).write([*fates, *before])
    else:
        lines = [_end_of(fate, times) for fate in fates if fate.answer != "alive"]
        lines += [_gone(lease, times, settings) for lease in expired]
        if not fates and not expired:
            part = "" if settings["shard"] is None else f" shard {settings['shard']}"
            lines = [f"{key}{part} is not running"]
        if lines:
            output.say("\n".join(lines), stream)
    alive = [fate for fate in fates if fate.answer == "alive"]
    for fate in alive:
        complain(_still_runs(fate, times))
    return EX_TEMPFAIL if alive else 0


def _stop_holders(store: Reader, living: Sequence[LeaseView], settings: Settings) -> list[Fate]:
    """Ask the holders and wait until all have ended. Raises `KeyboardInterrupt`, `StoreError`."""
    grace = settings["grace"] if settings.is_typed("grace") else None
    patience = ASSUMED_GRACE if settings["grace"] is None else settings["grace"]
    request = Request("stop", author(), int(Signals[f"SIG{settings['signal']}"]), grace)
    return Asking(
        store,
        request,
        timeout=lambda lease, _silent: patience + ttl(lease) + STOP_MARGIN,
        linger=TAKEOVER_WITHIN,
    ).fates(living)


def _ended_before(store: Reader, expired: Sequence[LeaseView]) -> list[Fate]:
    numbers = ((lease, lease.execution_id) for lease in expired)
    return [
        fate_of(lease, store.execution(number) if number else None) for lease, number in numbers
    ]


def _end_of(fate: Fate, times: Clock) -> str:
    who = f"{shard_name(fate)}: execution {fate.execution_id} on {holder(fate)}"
    if fate.answer == "gone":
        return f"{who} is lost: its lease expired at {times.seconds(fate.lease_ends_at)}, and its end is not on record"
    return f"{who} has ended: {how_it_ended(fate)}"


def _gone(lease: LeaseView, times: Clock, settings: Settings) -> str:
    arguments = shard_arguments(lease)
    if lease.execution_id is None:
        return (
            f"{shard_name(lease)} is not running, but PostgreSQL backend pid {lease.backend_pid} holds its session "
            f"lock; to end that session: {settings.command(f'release --force {arguments}')}"
        )
    return (
        f"{shard_name(lease)}: {holder(lease)} is gone: its lease expired at {times.seconds(lease.expires_at)}, and "
        f"{DEAD_BY_THEN}; the next firing takes over; to release it now: {settings.command(f'release {arguments}')}"
    )


def _still_runs(fate: Fate, times: Clock) -> str:
    progress = "has not acknowledged the request"
    if fate.acknowledged_at:
        progress = f"acknowledged the request at {times.seconds(fate.acknowledged_at)}"
    return (
        f"{shard_name(fate)} has not ended: {holder(fate)} {progress}; its lease lasts until "
        f"{times.seconds(fate.lease_ends_at)} at least, and the request stays"
    )


# release


def _release(given: dict[str, str], words: list[str]) -> int:
    key = valid_key(words[0])
    settings = Settings((*RELEASE_OPTIONS, _GRACE_OF_THE_RUN), given, key)
    stream = output.standard_output()
    status = 0
    with store_reader(settings) as store:
        for is_free, text in Release(store, settings).answers(key):
            if is_free:
                output.say(text, stream)
            else:
                status = EX_TEMPFAIL
                complain(text)
    return status


class Release:
    """One release: what it does to each lease of the key, and what it says."""

    def __init__(self, store: Reader, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._force: bool = settings["force"]

    def answers(self, key: str) -> Iterator[tuple[bool, str]]:
        """Yield for each shard whether it is free, and the sentence about it."""
        living, expired = leases_of(self._store, key, self._settings["shard"])
        unblocked = self._store.unblock(key, self._settings["shard"])
        for each in unblocked:
            yield True, _marks_ahead(key, each)
        if not living and not expired and not unblocked:
            yield self.without_lease(key)
        if self._force:
            yield from map(_not_by_force, living)
        else:
            for lease, fate in zip(living, self._fates(living), strict=True):
                yield self.with_lease(lease, fate)
        for lease in expired:
            yield self.with_lease(lease, None)

    def _fates(self, living: Sequence[LeaseView]) -> list[Fate]:
        """Ask the holders, wait as long as they could answer; return the fates in the same order."""

        def timeout(lease: LeaseView, silent: bool) -> float:
            acknowledged_within = 2 * ttl(lease) / HEARTBEATS_PER_TTL
            grace: float = self._settings["grace"]
            return acknowledged_within + (0.0 if silent else grace + RELEASE_MARGIN)

        request = Request("release", author(), int(SIGTERM), None)
        fates = Asking(self._store, request, timeout=timeout, linger=0.0).fates(living)
        last = {fate.shard: fate for fate in fates}
        return [last[lease.shard] for lease in living]

    def with_lease(self, lease: LeaseView, fate: Fate | None) -> tuple[bool, str]:
        """Release a shard whose execution, or lease, has ended."""
        name = shard_name(lease)
        if fate is not None and fate.answer == "alive":
            state = (
                "has acknowledged the request but still runs"
                if fate.acknowledged_at
                else "has not answered"
            )
            return False, (
                f"{name} is not released: {holder(fate)} {state}; its lease lasts until "
                f"{local_time(fate.lease_ends_at)} at least: retry after that"
            )
        if fate is not None:  # it may be a later attempt
            lease = lease._replace(execution_id=fate.execution_id, host=fate.host, pid=fate.pid)
        part = (lease.key, lease.shard, lease.execution_id)
        answer = self._store.release(*part, author=author(), force=self._force)
        if answer.answer == "free":
            self._ping(lease)
            end = _end_before_release(lease, fate)
            return True, f"released {name}: {end}; its fencing token has risen"
        if answer.answer == "other":
            where = self._settings.command("locks")
            return True, f"{name} was released and is running again; to see where: {where}"
        return False, self._why_not(name, lease, answer)

    def _ping(self, lease: LeaseView) -> None:
        """Report the end of the run that this release has declared lost: no firing does."""
        pings = self._settings.file.pings_for(lease.key)
        run = self._store.execution(lease.execution_id) if pings and lease.execution_id else None
        if run is not None and run.lost_reason == "released":
            from oncecron.watch.pings import report_end  # noqa: PLC0415 - of a key that is pinged

            record = {**run._asdict(), "owner_digest": run.owner, "output": None}
            report_end(pings, record, verbose=1)

    def _why_not(self, name: str, lease: LeaseView, answer: Released) -> str:
        if answer.answer == "alive":
            return f"{name} is not released: its lease was renewed and {_lasts(answer.ends_in)}"
        backend = "" if answer.backend_pid is None else f", backend pid {answer.backend_pid},"
        lease_is = "it has no lease" if lease.execution_id is None else "its lease has expired"
        return (
            f"{name} is not released: {lease_is}, but a PostgreSQL session{backend} still holds its lock or its "
            f"fence; to end that session: {self._settings.command(f'release --force {shard_arguments(lease)}')}"
        )

    def without_lease(self, key: str) -> tuple[bool, str]:
        """Ask the store anyway: a job's transaction may hold the fence of a lease that is gone."""
        shard: int | None = self._settings["shard"]
        answer = self._store.release(key, shard or 0, None, author=author(), force=self._force)
        if answer.answer == "locked":
            arguments = key if shard is None else f"{key} --shard {shard}"
            return False, (
                f"{key} has no lease, but PostgreSQL backend pid {answer.backend_pid} holds its lock or its fence; "
                f"to end that session: {self._settings.command(f'release --force {arguments}')}"
            )
        return True, f"nothing to release: no host holds {key}"


def _marks_ahead(key: str, marks: Unblocked) -> str:
    name = f"shard {marks.shard} of {key}" if marks.shard else key
    found = []
    if marks.high_water is not None:
        found.append(f"its newest tick {minute_tick(marks.high_water).text}")
    if marks.last_start is not None:
        found.append(f"its last start at {local_time(marks.last_start)}")
    were, count = ("was", "it counts") if len(found) == 1 else ("were", "they count")
    return (
        f"released {name}: {' and '.join(found)} {were} ahead of the store's clock; {count} as now"
    )


def _end_before_release(lease: LeaseView, fate: Fate | None) -> str:
    who = f"execution {lease.execution_id} on {holder(lease)}"
    if fate is not None and fate.answer == "ended":
        return f"{who} has ended: {how_it_ended(fate)}"
    if lease.execution_id is None:
        return f"backend pid {lease.backend_pid} held its session lock without a lease"
    return f"{who} is recorded as lost by {author()}"


def _not_by_force(lease: LeaseView) -> tuple[bool, str]:
    left = (lease.expires_at or 0.0) - (lease.asked_at or 0.0)
    return False, (
        f"{shard_name(lease)} is not released: {holder(lease)} may be running it, and its lease {_lasts(left)}; "
        "--force needs an expired lease: leave --force out to ask the holder"
    )


def _lasts(seconds: float) -> str:
    return f"lasts {format_duration(max(1, round(seconds)))} more unless it is renewed"


STOP = TableCommand(
    "stop", STOP_OPTIONS, _stop,
    about="Stop the running job of a key, on any host, and wait until it has ended. The log shows it as stopped, "
    "with your name, and no host runs the tick again. The next tick runs as usual; to prevent that, use `oncecron "
    "pause` first. If the job has not ended after --grace and --ttl, exit with status 75. If the key is not running, "
    "exit with status 0.",
    examples=(
        "oncecron stop billing-nightly",
        "oncecron stop billing-nightly --signal INT --grace 1m",
    ),
    words="KEY",
)  # fmt: skip
RELEASE = TableCommand(
    "release", RELEASE_OPTIONS, _release,
    about="Release a key, or one shard. First ask the holder to stop, and wait for its answer. If it does not answer "
    "and its lease has not expired, exit with status 75 and release nothing: the job may still run. Once the lease "
    "has expired, record the execution as lost and raise the fencing token. The next firing would do the same. If no "
    "host holds the key, exit with status 0.",
    examples=("oncecron release billing-nightly", "oncecron release billing-nightly --force"),
    words="KEY",
)  # fmt: skip
COMMANDS = {"stop": STOP, "release": RELEASE}
