"""`oncecron release KEY`: free a key whose holder cannot give it back."""

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

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import LeaseView, Released
    from oncecron.reports.stop_request import Fate
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    SHARD,
    Option(
        "force",
        "flag",
        "Also end what still holds an expired lease: a session of PostgreSQL that is dead, a job's own transaction.",
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
        for freed, text in _answers(store, key, settings):
            if freed:
                output.say(text, stream)
            else:
                refused = True
                complain(text)
    return EX_TEMPFAIL if refused else 0


def _grace() -> Option:
    """Return the option of `run`, of which the configuration may tell what a run here would have."""
    from oncecron.config.options import RUN_OPTION

    return RUN_OPTION["grace"]._replace(default=f"{ASSUMED_GRACE:g}s")


def _answers(store: Inspector, key: str, settings: Settings) -> Iterator[tuple[bool, str]]:
    """Yield of each part whether it is free, and what is said of it."""
    living, over = found(store, key, settings["shard"])
    if not living and not over:
        yield _nothing_held(store, key, settings["shard"], force=settings["force"])
    if settings["force"]:
        yield from map(_not_by_force, living)
    else:
        for lease, fate in zip(living, _let_go(store, living, settings), strict=True):
            yield _freed(store, lease, fate, force=False)
    for lease in over:
        yield _freed(store, lease, None, force=settings["force"])


def _let_go(store: Inspector, living: Sequence[LeaseView], settings: Settings) -> list[Fate]:
    """Ask the holders and wait as long as they could answer; return what became of each, in their order."""
    from signal import SIGTERM

    from oncecron.core.model import Request
    from oncecron.core.timing import HEARTBEATS_PER_TTL
    from oncecron.reports.stop_request import ttl_of

    def timeout(lease: LeaseView, silent: bool) -> float:
        acknowledged_within = 2 * ttl_of(lease) / HEARTBEATS_PER_TTL
        return (
            acknowledged_within
            if silent
            else acknowledged_within + settings["grace"] + RELEASE_MARGIN
        )

    request = Request("release", author(), int(SIGTERM), None)
    fates = asked(store, living, request, timeout=timeout, linger=0.0)
    return [next(fate for fate in fates[::-1] if fate.shard == lease.shard) for lease in living]


def _freed(
    store: Inspector, lease: LeaseView, fate: Fate | None, *, force: bool
) -> tuple[bool, str]:
    """Free a part whose execution has ended, or whose lease has; return whether it is free, and what is said."""
    from oncecron.reports.stop_request import name_of

    name = name_of(lease)
    if fate is not None and fate.answer == "alive":
        return False, _still_alive(name, fate)
    if fate is not None:  # of the last attempt
        lease = lease._replace(execution_id=fate.execution_id, host=fate.host, pid=fate.pid)
    answer = store.release(lease.key, lease.shard, lease.execution_id, author=author(), force=force)
    if answer.answer == "free":
        return True, f"released {name}: {_what_became(lease, fate)}; its fencing token has risen"
    if answer.answer == "other":
        return True, f"{name} has been let go, and runs again: oncecron locks shows where"
    return False, _why_not(name, lease, answer)


def _what_became(lease: LeaseView, fate: Fate | None) -> str:
    from oncecron.core.text import visible

    who = f"execution {lease.execution_id} of {visible(lease.host or '-')} (pid {lease.pid})"
    if fate is not None and fate.answer == "ended":
        return f"{who} has ended: {fate.outcome}{how_it_ended(fate)}"
    if lease.execution_id is None:
        return f"backend pid {lease.backend_pid} held its session lock without a lease"
    return f"{who} is declared lost by {author()}"


def _why_not(name: str, lease: LeaseView, answer: Released) -> str:
    from oncecron.reports.stop_request import typed_name

    if answer.answer == "alive":
        return f"{name} is not released: its lease was renewed and {_lives(answer.ends_in)}"
    backend = "" if answer.backend_pid is None else f" of backend pid {answer.backend_pid}"
    lease_is = "it has no lease" if lease.execution_id is None else "its lease has ended"
    return (
        f"{name} is not released: {lease_is}, but a session{backend} still holds its lock, or a job's "
        f"transaction its fence; oncecron release --force {typed_name(lease)} ends that session"
    )


def _still_alive(name: str, fate: Fate) -> str:
    from oncecron.cli.pause import time_of
    from oncecron.core.text import visible

    host = visible(fate.host or "-")
    progress = (
        f"{host} (pid {fate.pid}) has acknowledged it and has not ended yet"
        if fate.acknowledged_at
        else f"{host} (pid {fate.pid}) has not answered"
    )
    return (
        f"{name} is not released: {progress}, and its lease lives until {time_of(fate.lease_ends_at)} at least; "
        "try again then"
    )


def _not_by_force(lease: LeaseView) -> tuple[bool, str]:
    from oncecron.core.text import visible
    from oncecron.reports.stop_request import name_of

    left = (lease.expires_at or 0.0) - (lease.asked_at or 0.0)
    return False, (
        f"{name_of(lease)} is not released: {visible(lease.host or '-')} (pid {lease.pid}) may be running it; its "
        f"lease {_lives(left)}, and --force works on one that has ended. Without --force the holder is asked"
    )


def _lives(seconds: float) -> str:
    from oncecron.core.units import format_duration

    return f"lives for {format_duration(max(1, round(seconds)))} more if nobody renews it"


def _nothing_held(
    store: Inspector, key: str, shard: int | None, *, force: bool
) -> tuple[bool, str]:
    """Ask the store all the same: a job's transaction may hold the fence of a lease that was taken away."""
    answer = store.release(key, shard or 0, None, author=author(), force=force)
    if answer.answer == "locked":
        typed = key if shard is None else f"{key} --shard {shard}"
        return False, (
            f"{key} has no lease, but backend pid {answer.backend_pid} holds its lock or its fence; "
            f"oncecron release --force {typed} ends that session"
        )
    return True, f"nothing held {key}"


COMMAND = TableCommand(
    "release",
    OPTIONS,
    _release,
    short="Free a key whose holder cannot give it back.",
    about="Free a key, or one shard, safely: the holder is asked to end its command and waited for as long as it "
    "could answer. If it does not, and its lease lives, the key is not freed (exit status 75): only after the lease "
    "its command is dead (unless both processes of oncecron were stopped or killed), and then this declares the "
    "execution lost and raises the fencing token. The next firing after the end of a lease does the same by itself. "
    "--force works only after that end too: it ends the session of PostgreSQL that still holds the lock, or the fence. "
    "A key that nothing holds is no fault (exit status 0).",
    words=click.Argument(["words"], metavar="KEY", shell_complete=KEYS),
)
