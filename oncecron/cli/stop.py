"""`oncecron stop KEY`: stop a running job on any host and report how it ended; and parts that `release` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import JSON, KEYS, STORE_OPTIONS, UTC, TableCommand, store_inspector
from oncecron.cli.pause import author, named_key, near
from oncecron.config.options import RUN_OPTION, Option
from oncecron.core.model import REQUEST_SIGNALS
from oncecron.core.timing import ASSUMED_GRACE, STOP_MARGIN, TAKEOVER_WITHIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.cli.stop_request import Fate
    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import LeaseView
    from oncecron.core.model import Request
    from oncecron.core.text import Clock
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

SHARD = Option(
    "shard",
    "integer",
    "Act on this shard only, counted from 0.",
    "N",
    minimum=0,
    maximum=(RUN_OPTION["shards"].maximum or 0) - 1,
)
OPTIONS = (
    SHARD,
    Option(
        "signal",
        "choice",
        "Send this signal first, to every process of the command.",
        "|".join(REQUEST_SIGNALS),
        default="TERM",
        choices=REQUEST_SIGNALS,
    ),
    Option(
        "grace",
        "duration",
        "Wait this long before KILL. Default: the --grace of the run.",
        "DURATION",
    ),
    JSON._replace(
        help="Print how each execution ended as JSON (one array) instead of sentences.",
        group="Options",
    ),
    UTC._replace(group="Options"),
    *STORE_OPTIONS,
)


def _stop(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.text import Clock, visible

    key = named_key(words[0])
    settings = Settings(OPTIONS, given, key)
    stream = output.standard_output()
    clock = Clock(settings["utc"])
    with store_inspector(settings) as store:
        living, over = found(store, key, settings["shard"])
        fates = _stopped(store, living, settings)
        before = _ended_before(store, over) if settings["json"] else []
    if settings["json"]:
        from oncecron.cli import tables

        output.Writer(tables.FATES, output.Style("json", clock), stream).write([*fates, *before])
    else:
        lines = [_sentence(fate, clock) for fate in fates if fate.answer != "alive"]
        lines += [_gone(lease, clock, settings) for lease in over]
        if lines or not fates:
            lines = lines or [nothing_runs(key, settings["shard"])]
            output.say("\n".join(map(visible, lines)), stream)
    return _complain_of([fate for fate in fates if fate.answer == "alive"], clock)


def _ended_before(store: Inspector, over: Sequence[LeaseView]) -> list[Fate]:
    """Return the fates of executions that were over before the stop."""
    from oncecron.cli.stop_request import fate_of

    numbers = ((lease, lease.execution_id) for lease in over)
    return [
        fate_of(lease, store.execution(number) if number else None) for lease, number in numbers
    ]


def found(store: Inspector, key: str, shard: int | None) -> tuple[list[LeaseView], list[LeaseView]]:
    """Return a key's active leases, and the expired ones. Raises `NotFoundError` for an unknown key."""
    from oncecron.core import clock
    from oncecron.core.errors import NotFoundError
    from oncecron.core.job_summary import is_living

    now = clock.wall()
    leases = [
        lease._replace(asked_at=lease.asked_at or now)
        for lease in store.leases()
        if lease.key == key and shard in (None, lease.shard)
    ]
    if not leases:
        known = {part.key for part in store.job_keys()}
        if key not in known:
            raise NotFoundError(f"no host has fired key {key}{near(key, known)}")
    living = [lease for lease in leases if is_living(lease, now)]
    return living, [lease for lease in leases if not is_living(lease, now)]


def nothing_runs(key: str, shard: int | None) -> str:
    """Return the sentence for a key without a lease."""
    return f"{key}{'' if shard is None else f' shard {shard}'} is not running"


def _stopped(store: Inspector, living: Sequence[LeaseView], settings: Settings) -> list[Fate]:
    """Ask the holders and wait until all have ended. Raises `KeyboardInterrupt`, `StoreError`."""
    from signal import Signals

    from oncecron.cli.stop_request import ttl_of
    from oncecron.core.model import Request

    grace = settings["grace"] if settings.typed("grace") else None
    request = Request("stop", author(), int(Signals[f"SIG{settings['signal']}"]), grace)
    waited = ASSUMED_GRACE if settings["grace"] is None else settings["grace"]
    return asked(
        store,
        living,
        request,
        timeout=lambda lease, _silent: waited + ttl_of(lease) + STOP_MARGIN,
        linger=TAKEOVER_WITHIN,
    )


def asked(
    store: Inspector, living: Sequence[LeaseView], request: Request, **how: object
) -> list[Fate]:
    """Ask the holders, with one line per event on standard error; return the fates of their executions."""
    from oncecron.cli.stop_request import Asking
    from oncecron.core.stderr import complain

    asking = Asking(store, request, tell=complain, **how)  # type: ignore[arg-type]
    try:
        asking.ask(living)
        return asking.wait()
    except KeyboardInterrupt:
        if living:
            complain(
                "no longer waiting; the request stays, and each holder obeys it at its next heartbeat"
            )
        raise


def _sentence(fate: Fate, clock: Clock) -> str:
    from oncecron.cli.stop_request import name_of
    from oncecron.core.text import visible

    who = f"{name_of(fate)}: execution {fate.execution_id} on {visible(fate.host or '-')} (pid {fate.pid})"
    if fate.answer == "gone":
        return f"{who} is lost: its lease expired at {clock.seconds(fate.lease_ends_at)}, and its end is not on record"
    return f"{who} has ended: {fate.outcome}{how_it_ended(fate)}"


def how_it_ended(fate: Fate) -> str:
    """Return the exit status or the signal, to end a sentence."""
    from oncecron.core.light_modules import signal_name

    if fate.signal is not None:
        return f", by {signal_name(fate.signal) or f'signal {fate.signal}'}"
    return "" if fate.exit_code is None else f", exit status {fate.exit_code}"


def _gone(lease: LeaseView, clock: Clock, settings: Settings) -> str:
    """Return the sentence for a lease that had already expired, or for a session lock without a lease."""
    from oncecron.cli.stop_request import DEAD_BY_THEN, name_of, typed_name
    from oncecron.core.text import visible

    name = typed_name(lease)
    if lease.execution_id is None:
        return (
            f"{name_of(lease)} is not running, but PostgreSQL backend pid {lease.backend_pid} holds its session lock; "
            f"to end that session: {settings.command(f'release --force {name}')}"
        )
    return (
        f"{name_of(lease)}: {visible(lease.host or '-')} (pid {lease.pid}) is gone: its lease expired at "
        f"{clock.seconds(lease.expires_at)}, and {DEAD_BY_THEN}; the next firing takes over; to release it now: "
        f"{settings.command(f'release {name}')}"
    )


def _complain_of(alive: Sequence[Fate], clock: Clock) -> int:
    """Report what is still running; return the exit status."""
    from oncecron.cli.stop_request import name_of
    from oncecron.core.errors import EX_TEMPFAIL
    from oncecron.core.stderr import complain
    from oncecron.core.text import visible

    for fate in alive:
        progress = (
            f"acknowledged the request at {clock.seconds(fate.acknowledged_at)}"
            if fate.acknowledged_at
            else "has not acknowledged the request"
        )
        complain(
            f"{name_of(fate)} has not ended: {visible(fate.host or '-')} (pid {fate.pid}) {progress}; its lease lasts "
            f"until {clock.seconds(fate.lease_ends_at)} at least, and the request stays"
        )
    return EX_TEMPFAIL if alive else 0


COMMAND = TableCommand(
    "stop",
    OPTIONS,
    _stop,
    short="Stop a running job, on any host.",
    about="Stop the running job of a key, on any host, and wait until it has ended. The log shows it as stopped, with "
    "your name, and no host runs the tick again. The next tick runs as usual; to prevent that, use `oncecron pause` "
    "first. If the job has not ended after --grace and --ttl, exit with status 75. If the key is not running, exit "
    "with status 0.",
    examples=(
        "oncecron stop billing-nightly",
        "oncecron stop billing-nightly --signal INT --grace 1m",
    ),
    words=click.Argument(["words"], metavar="KEY", shell_complete=KEYS),
)
