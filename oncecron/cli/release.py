"""`oncecron release KEY`: release a key that a dead host still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import KEYS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.pause import author, named_key
from oncecron.cli.stop import SHARD, asked, found, how_it_ended
from oncecron.config.options import Option
from oncecron.core.timing import ASSUMED_GRACE, RELEASE_MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.cli.stop_request import Fate
    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import LeaseView, Released, Unblocked
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    SHARD,
    Option(
        "force",
        "flag",
        "Also end the PostgreSQL session, or the job's transaction, that blocks an expired lease.",
    ),
    *STORE_OPTIONS,
)


def _release(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.errors import EX_TEMPFAIL
    from oncecron.core.stderr import complain

    key = named_key(words[0])
    settings = Settings((*OPTIONS, _grace()), given, key)
    stream = output.standard_output()
    refused = False
    with store_inspector(settings) as store:
        for freed, text in _Release(store, settings).answers(key):
            if freed:
                output.say(text, stream)
            else:
                refused = True
                complain(text)
    return EX_TEMPFAIL if refused else 0


def _grace() -> Option:
    """Return the option of `run`: the configuration may set it for the run that is released."""
    from oncecron.config.options import RUN_OPTION

    return RUN_OPTION["grace"]._replace(default=f"{ASSUMED_GRACE:g}s")


class _Release:
    """One release: what it does to each lease of the key, and what it says."""

    def __init__(self, store: Inspector, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._force: bool = settings["force"]

    def answers(self, key: str) -> Iterator[tuple[bool, str]]:
        """Yield for each shard whether it is free, and the sentence about it."""
        living, over = found(self._store, key, self._settings["shard"])
        unblocked = self._store.unblock(key, self._settings["shard"])
        for each in unblocked:
            yield True, _unblocked(key, each)
        if not living and not over and not unblocked:
            yield self._nothing_held(key)
        if self._force:
            yield from map(_not_by_force, living)
        else:
            for lease, fate in zip(living, self._let_go(living), strict=True):
                yield self._freed(lease, fate)
        for lease in over:
            yield self._freed(lease, None)

    def _let_go(self, living: Sequence[LeaseView]) -> list[Fate]:
        """Ask the holders, wait as long as they could answer; return the fates in the same order."""
        from signal import SIGTERM

        from oncecron.cli.stop_request import ttl_of
        from oncecron.core.model import Request
        from oncecron.core.timing import HEARTBEATS_PER_TTL

        def timeout(lease: LeaseView, silent: bool) -> float:
            acknowledged_within = 2 * ttl_of(lease) / HEARTBEATS_PER_TTL
            if silent:
                return acknowledged_within
            grace: float = self._settings["grace"]
            return acknowledged_within + grace + RELEASE_MARGIN

        request = Request("release", author(), int(SIGTERM), None)
        fates = asked(self._store, living, request, timeout=timeout, linger=0.0)
        return [next(fate for fate in fates[::-1] if fate.shard == lease.shard) for lease in living]

    def _freed(self, lease: LeaseView, fate: Fate | None) -> tuple[bool, str]:
        """Release a shard whose execution, or lease, has ended."""
        from oncecron.cli.stop_request import name_of

        name = name_of(lease)
        if fate is not None and fate.answer == "alive":
            return False, _still_alive(name, fate)
        if fate is not None:  # it may be a later attempt
            lease = lease._replace(execution_id=fate.execution_id, host=fate.host, pid=fate.pid)
        part = (lease.key, lease.shard, lease.execution_id)
        answer = self._store.release(*part, author=author(), force=self._force)
        if answer.answer == "free":
            return (
                True,
                f"released {name}: {_what_became(lease, fate)}; its fencing token has risen",
            )
        if answer.answer == "other":
            where = self._settings.command("locks")
            return True, f"{name} was released and is running again; to see where: {where}"
        return False, self._why_not(name, lease, answer)

    def _why_not(self, name: str, lease: LeaseView, answer: Released) -> str:
        from oncecron.cli.stop_request import typed_name

        if answer.answer == "alive":
            return f"{name} is not released: its lease was renewed and {_lasts(answer.ends_in)}"
        backend = "" if answer.backend_pid is None else f", backend pid {answer.backend_pid},"
        lease_is = "it has no lease" if lease.execution_id is None else "its lease has expired"
        return (
            f"{name} is not released: {lease_is}, but a PostgreSQL session{backend} still holds its lock or its "
            f"fence; to end that session: {self._settings.command(f'release --force {typed_name(lease)}')}"
        )

    def _nothing_held(self, key: str) -> tuple[bool, str]:
        """Ask the store anyway: a job's transaction may hold the fence of a lease that is gone."""
        shard: int | None = self._settings["shard"]
        answer = self._store.release(key, shard or 0, None, author=author(), force=self._force)
        if answer.answer == "locked":
            typed = key if shard is None else f"{key} --shard {shard}"
            return False, (
                f"{key} has no lease, but PostgreSQL backend pid {answer.backend_pid} holds its lock or its fence; "
                f"to end that session: {self._settings.command(f'release --force {typed}')}"
            )
        return True, f"nothing to release: no host holds {key}"


def _unblocked(key: str, marks: Unblocked) -> str:
    from oncecron.cli.pause import time_of
    from oncecron.core.tick import minute_tick

    name = f"shard {marks.shard} of {key}" if marks.shard else key
    found = []
    if marks.high_water is not None:
        found.append(f"its newest tick {minute_tick(marks.high_water).text}")
    if marks.last_start is not None:
        found.append(f"its last start at {time_of(marks.last_start)}")
    was, counts = ("was", "it counts") if len(found) == 1 else ("were", "they count")
    return (
        f"released {name}: {' and '.join(found)} {was} ahead of the store's clock; {counts} as now"
    )


def _what_became(lease: LeaseView, fate: Fate | None) -> str:
    from oncecron.core.text import visible

    who = f"execution {lease.execution_id} on {visible(lease.host or '-')} (pid {lease.pid})"
    if fate is not None and fate.answer == "ended":
        return f"{who} has ended: {fate.outcome}{how_it_ended(fate)}"
    if lease.execution_id is None:
        return f"backend pid {lease.backend_pid} held its session lock without a lease"
    return f"{who} is recorded as lost by {author()}"


def _still_alive(name: str, fate: Fate) -> str:
    from oncecron.cli.pause import time_of
    from oncecron.core.text import visible

    host = visible(fate.host or "-")
    progress = (
        f"{host} (pid {fate.pid}) has acknowledged the request but still runs"
        if fate.acknowledged_at
        else f"{host} (pid {fate.pid}) has not answered"
    )
    return (
        f"{name} is not released: {progress}; its lease lasts until {time_of(fate.lease_ends_at)} at least: "
        "retry after that"
    )


def _not_by_force(lease: LeaseView) -> tuple[bool, str]:
    from oncecron.cli.stop_request import name_of
    from oncecron.core.text import visible

    left = (lease.expires_at or 0.0) - (lease.asked_at or 0.0)
    return False, (
        f"{name_of(lease)} is not released: {visible(lease.host or '-')} (pid {lease.pid}) may be running it, and its "
        f"lease {_lasts(left)}; --force needs an expired lease: leave --force out to ask the holder"
    )


def _lasts(seconds: float) -> str:
    from oncecron.core.units import format_duration

    return f"lasts {format_duration(max(1, round(seconds)))} more unless it is renewed"


COMMAND = TableCommand(
    "release",
    OPTIONS,
    _release,
    short="Release a key that a dead host still holds.",
    about="Release a key, or one shard. First ask the holder to stop, and wait for its answer. If it does not answer "
    "and its lease has not expired, exit with status 75 and release nothing: the job may still run. Once the lease "
    "has expired, record the execution as lost and raise the fencing token. The next firing would do the same. If no "
    "host holds the key, exit with status 0.",
    examples=("oncecron release billing-nightly", "oncecron release billing-nightly --force"),
    words=click.Argument(["words"], metavar="KEY", shell_complete=KEYS),
)
