"""`oncecron stop`: stop a running job, on any host. `oncecron release`: release a key that a dead host still holds.

Both find the leases of the key, ask the living holders to end their commands, and wait for what becomes of each:

    asked          the request is written to the lease; the holder gets it at once, or with its next renewal
    acknowledged   the holder has renewed its lease and got the request
    silent         the holder has missed two renewals: it is stopped, or cut off. It cannot be reached, but its guard or
                   wrapper ends the command before the lease ends, so `stop` waits for this
    ended          the lease was released, and the log has the end of the command
    gone           the lease has expired and no end is on record
    alive          the lease still lives when the timeout is over

Wall times are the store's. Before the holder gets the request it may start the next attempt, and another host may take
over a lost one: such a further execution of the same tick is asked too. `release` then releases what has ended, and the
store decides whether it may.
"""

from __future__ import annotations

import select
from signal import SIGTERM, Signals
from typing import TYPE_CHECKING, Literal, NamedTuple

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, store_reader
from oncecron.cli.sentences import author, known_keys, local_time, unknown_key, valid_key
from oncecron.config.options import RUN_OPTION, Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import EX_TEMPFAIL, StoreUnavailable
from oncecron.core.light_modules import signal_name
from oncecron.core.model import REQUEST_SIGNALS, Request
from oncecron.core.retry import jittered
from oncecron.core.text import part_of, visible
from oncecron.core.tick import minute_tick
from oncecron.core.timing import ASSUMED_TTL, HEARTBEATS_PER_TTL
from oncecron.core.units import format_duration
from oncecron.host.stderr import complain
from oncecron.log.job_summary import is_living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncecron.core.log_rows import Execution, LeaseView, Unblocked
    from oncecron.stores.reader import Reader

_REQUEST_POLL = 0.5
"""Between two polls of `stop` and `release`, with jitter: commands for people get no notifications."""
_ASSUMED_GRACE = 10.0
"""`stop` assumes this grace for a job whose own --grace it does not know: the default of that option."""
_STOP_MARGIN = 10.0
"""Within this time a running holder acknowledges a stop and a poll sees it."""
_RELEASE_MARGIN = 5.0
"""Within this time a running holder acknowledges a release and a poll sees it."""
_TAKEOVER_WITHIN = 3.0
"""A standby starts within this time after a lease has ended."""

_DEAD_BY_THEN = "its command is dead unless both oncecron processes were stopped or killed"
"""What is true after the end of a lease: only these two processes end the command."""
_FOLLOWED = ("lost", "failed", "timed-out")
"""Outcomes that another attempt at the tick may follow."""


class Fate(NamedTuple):
    """What became of an execution that was asked to end."""

    lease: LeaseView
    """As it was last read."""
    answer: Literal["ended", "gone", "alive"]
    end: Execution | None = None
    """Its record, if it `ended`."""

    @property
    def outcome(self) -> str:
        """That of its record; without an end, it is lost."""
        return self.end.outcome if self.end else "lost"


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
    *STORE_OPTIONS,
)  # fmt: skip
RELEASE_OPTIONS = (
    SHARD,
    Option(
        "force", "flag", "Also end the PostgreSQL session, or the job's transaction, that blocks an expired lease.",
    ),
    *STORE_OPTIONS,
)  # fmt: skip
_GRACE_OF_THE_RUN = RUN_OPTION["grace"]._replace(default=f"{_ASSUMED_GRACE:g}s")
"""The configuration may set it for the run that is released."""


# Leases, and what became of them


def _leases_of(
    store: Reader, key: str, shard: int | None
) -> tuple[list[LeaseView], list[LeaseView]]:
    """Return a key's active leases, and the expired ones. Raises `NotFoundError` for an unknown key."""
    leases = [each for each in store.leases() if each.key == key and shard in (None, each.shard)]
    if not leases and key not in (known := known_keys(store)):
        raise unknown_key(key, known)
    living = [lease for lease in leases if is_living(lease)]
    return living, [lease for lease in leases if lease not in living]


def _execution(store: Reader, lease: LeaseView) -> Execution | None:
    return store.execution(lease.execution_id) if lease.execution_id else None


def fate_of(lease: LeaseView, execution: Execution | None) -> Fate:
    """Return what became of an execution whose lease is over, from its record."""
    if execution is None or execution.outcome == "running":
        return Fate(lease, "gone")
    if execution.outcome == "lost" and execution.duration is None:
        return Fate(lease, "gone")
    return Fate(lease, "ended", execution)


def _ended(lease: LeaseView, end: Execution) -> str:
    how = "" if end.exit_code is None else f", exit status {end.exit_code}"
    if end.signal is not None:
        how = f", by {signal_name(end.signal) or f'signal {end.signal}'}"
    return f"execution {lease.execution_id} on {_holder(lease)} has ended: {end.outcome}{how}"


def _holder(of: LeaseView) -> str:
    return f"{visible(of.host or '-')} (pid {of.pid})"


def _name(of: LeaseView) -> str:
    return of.key if of.shards == 1 else f"{of.key} shard {part_of(of.shard, of.shards)}"


def _arguments(of: LeaseView) -> str:
    """Return the arguments of a command that name a key, or its shard alone."""
    return of.key if of.shards == 1 else f"{of.key} --shard {of.shard}"


def _ttl(lease: LeaseView) -> float:
    if lease.expires_at is None or lease.heartbeat_at is None:
        return ASSUMED_TTL
    return lease.expires_at - lease.heartbeat_at


def _resumes(fate: Fate, lease: LeaseView) -> bool:
    """Return whether an active lease is of a further attempt; without a tick another firing is none."""
    before = fate.lease
    if lease.tick != before.tick or lease.execution_id == before.execution_id:
        return False
    same_holder = (lease.host, lease.pid) == (before.host, before.pid)
    # In a container that was started again the pid is the same.
    retried = same_holder and (lease.attempt or 0) > (before.attempt or 0)
    follows = lease.tick is not None or fate.outcome == "lost" or retried
    return follows and fate.outcome in _FOLLOWED and is_living(lease)


# Asking the holders


class _Asked:
    """One execution that was asked to end, and what was said about it."""

    def __init__(self, lease: LeaseView) -> None:
        self.lease = lease
        self.since = _now()
        self.over_since: float | None = None
        self._said: set[str] = set()

    def is_silent(self) -> bool:
        """Return whether the holder has missed two heartbeats."""
        lease = self.lease
        if lease.heartbeat_at is None:
            return lease.state == "stale"
        return lease.asked_at - lease.heartbeat_at > 2 * _ttl(lease) / HEARTBEATS_PER_TTL

    def report(self) -> None:
        """Say once that the holder got the request, or that it is silent."""
        lease, host = self.lease, visible(self.lease.host or "-")
        if lease.request_acknowledged_at is not None:
            self._say_once(f"acknowledged by {host}")
        elif self.is_silent():
            since, ends = local_time(lease.heartbeat_at), local_time(lease.expires_at)
            self._say_once(
                f"{host} has not renewed its lease since {since}; the lease ends at {ends}, and by then {_DEAD_BY_THEN}"
            )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            complain(text)


class _Asking:
    """The executions of one key that are asked to end, with one line per event on standard error."""

    def __init__(
        self, store: Reader, request: Request, timeout: Callable[[LeaseView, bool], float]
    ) -> None:
        """`timeout`: seconds to wait for a holder, or a silent one."""
        self._store = store
        self._request = request
        self._timeout = timeout
        self._waiting: list[_Asked] = []
        self._fates: list[Fate] = []
        self._away: StoreUnavailable | None = None

    def fates(self, leases: Sequence[LeaseView]) -> list[Fate]:
        """Write the request to active leases, and wait until all have ended or timed out.

        Raises `StoreError` if the store is unreachable at the timeout, `KeyboardInterrupt`.
        """
        try:
            for lease in leases:
                self._ask(lease)
            while self._waiting:
                select.select((), (), (), jittered(_REQUEST_POLL))  # not time.sleep: libfaketime
                self._look_at_all()
                self._give_up()
        except KeyboardInterrupt:
            if leases:
                complain(
                    "no longer waiting; the request stays, and each holder obeys it at its next heartbeat"
                )
            raise
        return self._fates

    def _ask(self, lease: LeaseView) -> None:
        self._waiting.append(_Asked(lease))
        self._send(lease)
        complain(f"asked {_holder(lease)} to {self._request.kind} {_name(lease)}")

    def _send(self, lease: LeaseView) -> None:
        """Write the request to a lease. Where it has ended, the next look finds out why."""
        assert lease.execution_id is not None  # noqa: S101 - only executions are asked
        self._store.request(lease.key, lease.shard, lease.execution_id, self._request)

    def _look_at_all(self) -> None:
        try:
            leases = {
                (each.key, each.shard): each for each in self._store.leases() if each.execution_id
            }
            for asked in list(self._waiting):
                self._look(asked, leases.get((asked.lease.key, asked.lease.shard)))
            self._away = None
        except StoreUnavailable as error:
            if self._away is None:
                complain(f"{error}; retrying")
            self._away = error

    def _look(self, asked: _Asked, found: LeaseView | None) -> None:
        """Look at an execution with the lease of its shard."""
        is_same = found is not None and found.execution_id == asked.lease.execution_id
        if found and is_same and is_living(found):
            asked.lease, asked.over_since = found, None
            asked.report()
            if found.requested_by is None:  # another attempt, or a store that forgot the request
                self._send(found)
            return
        fate = fate_of(asked.lease, _execution(self._store, asked.lease))
        successor = found if found and _resumes(fate, found) else None
        if fate.answer == "gone" and successor is None:  # a standby may take over
            asked.over_since = asked.over_since or _now()
            if _now() - asked.over_since < _TAKEOVER_WITHIN:
                return
        self._end(asked, fate)
        if successor:
            complain(f"{_holder(successor)} has started attempt {successor.attempt}")
            self._ask(successor)

    def _end(self, asked: _Asked, fate: Fate) -> None:
        self._waiting.remove(asked)
        self._fates.append(fate)
        if fate.answer != "alive":
            lease = fate.lease
            complain(f"{_name(lease)} on {visible(lease.host or '-')} ended: {fate.outcome}")

    def _give_up(self) -> None:
        for asked in list(self._waiting):
            if _now() - asked.since < self._timeout(asked.lease, asked.is_silent()):
                continue
            if self._away:
                raise self._away
            if asked.over_since is None:
                self._end(asked, Fate(asked.lease, "alive"))


def _now() -> float:
    return clock.lease_time(clock.MONOTONIC)


# stop


def _stop(given: dict[str, str], words: list[str]) -> int:
    key = valid_key(words[0])
    settings = Settings(STOP_OPTIONS, given, key)
    stream = output.standard_output()
    with store_reader(settings) as store:
        living, expired = _leases_of(store, key, settings["shard"])
        fates = _stop_holders(store, living, settings)
    lines = [_end_of(fate) for fate in fates if fate.answer != "alive"]
    lines += [_gone(lease, settings) for lease in expired]
    if not fates and not expired:
        part = "" if settings["shard"] is None else f" shard {settings['shard']}"
        lines = [f"{key}{part} is not running"]
    if lines:
        output.say("\n".join(lines), stream)
    alive = [fate.lease for fate in fates if fate.answer == "alive"]
    for lease in alive:
        complain(_still_runs(lease))
    return EX_TEMPFAIL if alive else 0


def _stop_holders(store: Reader, living: Sequence[LeaseView], settings: Settings) -> list[Fate]:
    """Ask the holders and wait until all have ended. Raises `KeyboardInterrupt`, `StoreError`."""
    # None: that of the run. The file of this host only says how long to wait for it.
    grace = settings["grace"] if settings.is_typed("grace") else None
    patience = _ASSUMED_GRACE if settings["grace"] is None else settings["grace"]
    request = Request("stop", author(), int(Signals[f"SIG{settings['signal']}"]), grace)
    asking = _Asking(store, request, lambda lease, _silent: patience + _ttl(lease) + _STOP_MARGIN)
    return asking.fates(living)


def _end_of(fate: Fate) -> str:
    lease = fate.lease
    if fate.end:
        return f"{_name(lease)}: {_ended(lease, fate.end)}"
    return (
        f"{_name(lease)}: execution {lease.execution_id} on {_holder(lease)} is lost: its lease expired at "
        f"{local_time(lease.expires_at)}, and its end is not on record"
    )


def _gone(lease: LeaseView, settings: Settings) -> str:
    """Return the sentence for a lease that had already expired, or for a session lock without a lease."""
    if lease.execution_id is None:
        return (
            f"{_name(lease)} is not running, but PostgreSQL backend pid {lease.backend_pid} holds its session lock; to "
            f"end that session: {settings.command(f'release --force {_arguments(lease)}')}"
        )
    return (
        f"{_name(lease)}: {_holder(lease)} is gone: its lease expired at {local_time(lease.expires_at)}, and "
        f"{_DEAD_BY_THEN}; the next firing takes over; to release it now: "
        f"{settings.command(f'release {_arguments(lease)}')}"
    )


def _still_runs(lease: LeaseView, what: str = "has not ended") -> str:
    progress = "has not acknowledged the request"
    if lease.request_acknowledged_at:
        progress = f"acknowledged the request at {local_time(lease.request_acknowledged_at)}"
    return (
        f"{_name(lease)} {what}: {_holder(lease)} {progress}; its lease lasts until "
        f"{local_time(lease.expires_at)} at least, and the request stays: retry after that"
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
        self._shard: int | None = settings["shard"]
        self._force: bool = settings["force"]

    def answers(self, key: str) -> Iterator[tuple[bool, str]]:
        """Yield for each shard whether it is free, and the sentence about it."""
        living, expired = _leases_of(self._store, key, self._shard)
        unblocked = self._store.unblock(key, self._shard)
        yield from ((True, _marks_ahead(key, each)) for each in unblocked)
        if not living and not expired and not unblocked:
            yield self.without_lease(key)
        if self._force:
            yield from ((False, _not_by_force(lease)) for lease in living)
        else:
            request = Request("release", author(), int(SIGTERM), None)
            fates = _Asking(self._store, request, self._timeout).fates(living)
            last = {fate.lease.shard: fate for fate in fates}  # it may be of a later attempt
            yield from (
                self.with_lease(last[lease.shard].lease, last[lease.shard]) for lease in living
            )
        yield from (self.with_lease(lease, None) for lease in expired)

    def _timeout(self, lease: LeaseView, silent: bool) -> float:
        grace: float = self._settings["grace"]
        acknowledged_within = 2 * _ttl(lease) / HEARTBEATS_PER_TTL
        return acknowledged_within + (0.0 if silent else grace + _RELEASE_MARGIN)

    def with_lease(self, lease: LeaseView, fate: Fate | None) -> tuple[bool, str]:
        """Release a shard whose execution, or lease, has ended."""
        name = _name(lease)
        if fate is not None and fate.answer == "alive":
            return False, _still_runs(lease, "is not released")
        part = (lease.key, lease.shard, lease.execution_id)
        answer = self._store.release(*part, author=author(), force=self._force)
        if answer.answer == "free":
            self._ping(lease)
            end = _end_before_release(lease, fate.end if fate else None)
            return True, f"released {name}: {end}; its fencing token has risen"
        if answer.answer == "other":
            where = self._settings.command("locks")
            return True, f"{name} was released and is running again; to see where: {where}"
        if answer.answer == "alive":
            return (
                False,
                f"{name} is not released: its lease was renewed and {_lasts(answer.ends_in)}",
            )
        lease_is = "it has no lease" if lease.execution_id is None else "its lease has expired"
        return False, self._locked(name, lease_is, answer.backend_pid, _arguments(lease))

    def without_lease(self, key: str) -> tuple[bool, str]:
        """Ask the store anyway: a job's transaction may hold the fence of a lease that is gone."""
        part = (key, self._shard or 0, None)
        answer = self._store.release(*part, author=author(), force=self._force)
        if answer.answer == "locked":
            which = key if self._shard is None else f"{key} --shard {self._shard}"
            return False, self._locked(key, "it has no lease", answer.backend_pid, which)
        return True, f"nothing to release: no host holds {key}"

    def _locked(self, name: str, lease_is: str, pid: int | None, which: str) -> str:
        backend = "" if pid is None else f", backend pid {pid},"
        return (
            f"{name} is not released: {lease_is}, but a PostgreSQL session{backend} still holds its lock or its "
            f"fence; to end that session: {self._settings.command(f'release --force {which}')}"
        )

    def _ping(self, lease: LeaseView) -> None:
        """Report the end of the run that this release has declared lost: no firing does."""
        pings = self._settings.file.pings_for(lease.key)
        run = _execution(self._store, lease) if pings else None
        if run is not None and run.lost_reason == "released":
            from oncecron.watch.pings import report_end  # noqa: PLC0415 - of a key that is pinged

            record = {**run._asdict(), "owner_digest": run.owner, "output": None}
            report_end(pings, record, verbose=1)


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


def _end_before_release(lease: LeaseView, end: Execution | None) -> str:
    if end is not None:
        return _ended(lease, end)
    if lease.execution_id is None:
        return f"backend pid {lease.backend_pid} held its session lock without a lease"
    return f"execution {lease.execution_id} on {_holder(lease)} is recorded as lost by {author()}"


def _not_by_force(lease: LeaseView) -> str:
    left = (lease.expires_at or 0.0) - lease.asked_at
    return (
        f"{_name(lease)} is not released: {_holder(lease)} may be running it, and its lease {_lasts(left)}; "
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
