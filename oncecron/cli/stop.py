"""`oncecron stop KEY`: end what runs, wherever it runs, and tell what became of it; and what `release` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import JSON, KEYS, STORE_OPTIONS, UTC, TableCommand, store_inspector
from oncecron.cli.pause import author, named_key, near
from oncecron.config.options import RUN_OPTION, Option
from oncecron.core.timing import ASSUMED_GRACE, STOP_MARGIN, TAKEOVER_WITHIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import LeaseView
    from oncecron.core.model import Request
    from oncecron.core.text import Clock
    from oncecron.reports.stop_request import Fate
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

_SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")

SHARD = Option(
    "shard",
    "integer",
    "Only this shard of a key that is divided, from 0.",
    "N",
    minimum=0,
    maximum=(RUN_OPTION["shards"].maximum or 0) - 1,
)
OPTIONS = (
    SHARD,
    Option(
        "signal",
        "choice",
        "What every process of the command gets first.",
        "|".join(_SIGNALS),
        default="TERM",
        choices=_SIGNALS,
    ),
    Option(
        "grace",
        "duration",
        "From that signal to KILL; the run's own --grace when not given.",
        "DURATION",
    ),
    JSON._replace(
        help="What became of each execution as JSON (one array), instead of sentences.",
        group="Options",
    ),
    UTC._replace(group="Options"),
    *STORE_OPTIONS,
)


def _stop(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.text import Clock

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
        told = [_sentence(fate, clock) for fate in fates if fate.answer != "alive"]
        told += [_gone(lease, clock) for lease in over]
        if told or not fates:
            output.say("\n".join(told or [nothing_runs(key, settings["shard"])]), stream)
    return _complain_of([fate for fate in fates if fate.answer == "alive"], clock)


def _ended_before(store: Inspector, over: Sequence[LeaseView]) -> list[Fate]:
    """Return what had become of executions before anybody was asked."""
    from oncecron.reports.stop_request import fate_of

    numbers = ((lease, lease.execution_id) for lease in over)
    return [
        fate_of(lease, store.execution(number) if number else None) for lease, number in numbers
    ]


def found(store: Inspector, key: str, shard: int | None) -> tuple[list[LeaseView], list[LeaseView]]:
    """Return the leases of a key that live, and the others. Raises `NotFoundError` for an unknown key."""
    from oncecron.core import clock
    from oncecron.core.errors import NotFoundError
    from oncecron.reports.jobs import is_living

    now = clock.wall()
    leases = [
        lease._replace(asked_at=lease.asked_at or now)
        for lease in store.leases()
        if lease.key == key and shard in (None, lease.shard)
    ]
    if not leases:
        known = {part.key for part in store.job_keys()}
        if key not in known:
            raise NotFoundError(
                f"nothing is known of key {key}: no host ever fired it{near(key, known)}"
            )
    living = [lease for lease in leases if is_living(lease, now)]
    return living, [lease for lease in leases if not is_living(lease, now)]


def nothing_runs(key: str, shard: int | None) -> str:
    """Return what is said where there is no lease."""
    return f"{key}{'' if shard is None else f' part {shard}'} is not running"


def _stopped(store: Inspector, living: Sequence[LeaseView], settings: Settings) -> list[Fate]:
    """Ask the holders and wait until everything has ended. Raises `KeyboardInterrupt`, `StoreError`."""
    from signal import Signals

    from oncecron.core.model import Request
    from oncecron.reports.stop_request import ttl_of

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
    """Ask holders, one line an event on standard error; return what became of their executions."""
    from oncecron.core.stderr import complain
    from oncecron.reports.stop_request import Asking

    asking = Asking(store, request, tell=complain, **how)  # type: ignore[arg-type]
    try:
        asking.ask(living)
        return asking.wait()
    except KeyboardInterrupt:
        if living:
            complain(
                "no longer waiting; what was asked for stays, and each holder obeys it as soon as it hears"
            )
        raise


def _sentence(fate: Fate, clock: Clock) -> str:
    from oncecron.core.text import visible
    from oncecron.reports.stop_request import name_of

    who = f"{name_of(fate)}: execution {fate.execution_id} on {visible(fate.host or '-')} (pid {fate.pid})"
    if fate.answer == "gone":
        return (
            f"{who} is lost: its lease ended at {clock.seconds(fate.lease_ends_at)}, and nothing tells how its command "
            "ended"
        )
    return f"{who} has ended: {fate.outcome}{how_it_ended(fate)}"


def how_it_ended(fate: Fate) -> str:
    """Return exit status or signal, as the end of a sentence."""
    from oncecron.core.text import signal_name

    if fate.signal is not None:
        return f", by {signal_name(fate.signal) or f'signal {fate.signal}'}"
    return "" if fate.exit_code is None else f", exit status {fate.exit_code}"


def _gone(lease: LeaseView, clock: Clock) -> str:
    """Return what is said of a lease that had ended before anybody could be asked, and of a lock without one."""
    from oncecron.core.text import visible
    from oncecron.reports.stop_request import DEAD_BY_THEN, name_of, typed_name

    name = typed_name(lease)
    if lease.execution_id is None:
        return (
            f"{name_of(lease)} is not running; backend pid {lease.backend_pid} holds its session lock: "
            f"oncecron release --force {name} ends that session"
        )
    return (
        f"{name_of(lease)}: {visible(lease.host or '-')} (pid {lease.pid}) has gone: its lease ended at "
        f"{clock.seconds(lease.expires_at)}, and {DEAD_BY_THEN}; the next firing goes on, or oncecron release "
        f"{name} frees it"
    )


def _complain_of(alive: Sequence[Fate], clock: Clock) -> int:
    """Tell what still runs; return the exit status."""
    from oncecron.core.errors import EX_TEMPFAIL
    from oncecron.core.stderr import complain
    from oncecron.core.text import visible
    from oncecron.reports.stop_request import name_of

    for fate in alive:
        progress = (
            f"acknowledged it at {clock.seconds(fate.acknowledged_at)}"
            if fate.acknowledged_at
            else "has not acknowledged it"
        )
        complain(
            f"{name_of(fate)} has not ended: {visible(fate.host or '-')} (pid {fate.pid}) {progress}, and its lease "
            f"lives until {clock.seconds(fate.lease_ends_at)} at least; what was asked for stays"
        )
    return EX_TEMPFAIL if alive else 0


COMMAND = TableCommand(
    "stop",
    OPTIONS,
    _stop,
    short="Stop what runs, wherever it runs.",
    about="Ask the holder of a key, or of each of its shards, on whatever host, to end its command, and wait until it "
    "has ended. That is final for the tick: it is recorded as stopped with your name, or stays failed where it "
    "waited for a further attempt, and is neither retried nor taken over. Standard error tells who was asked, who "
    "has acknowledged it, and who cannot be reached: then the end of the lease is waited for, after which the "
    "command is dead unless both processes of oncecron were stopped or killed. Exit status 75 if something has "
    "not ended within the grace and the ttl; the grace is --grace, else what is configured here, else 10s: one "
    "that was typed at run is not known. A key that is not running is no fault (exit status 0). The next tick "
    "runs: oncecron pause keeps it from that.",
    words=click.Argument(["words"], metavar="KEY", shell_complete=KEYS),
)
