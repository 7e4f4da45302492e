"""`oncecron drain`: start no new jobs on a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import HOSTS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.pause import author, near, was

if TYPE_CHECKING:
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = STORE_OPTIONS


def _drain(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.host import host_name
    from oncecron.core.stderr import complain
    from oncecron.core.text import visible

    settings = Settings(OPTIONS, given)
    host = wanted_host(words)
    stream = output.standard_output()
    with store_inspector(settings) as store:
        _, before = store.drain(host, author=author())
        known = set() if before or host == host_name() else _recent_hosts(store)
        shared = _has_two_machines(store, host)
    output.say(f"drained {visible(host)}{was('drained', before)}", stream)
    if shared:
        complain(
            f"{visible(host)} is the name of two machines or more: all of them are drained; to drain one, give it a "
            "name of its own"
        )
    if known and host not in known:
        complain(
            f"host {visible(host)} is drained, but it has fired nothing recently{near(host, known)}"
        )
    return 0


def _recent_hosts(store: Inspector) -> set[str]:
    """Return the hosts that have fired recently; none if this role may not read that."""
    from oncecron.cli.completion import recent_hosts
    from oncecron.core.errors import StoreError

    try:
        return set(recent_hosts(store))
    except StoreError:
        return set()


def _has_two_machines(store: Inspector, host: str) -> bool:
    """Return whether two machines fire under this name; False if this role may not read that."""
    from oncecron.core.errors import StoreError

    try:
        return any(row.machines > 1 for row in store.host_ticks() if row.host == host)
    except StoreError:
        return False


def wanted_host(words: list[str]) -> str:
    """Return the typed host, or this one. Raises `UsageError`."""
    from oncecron.core.errors import UsageError
    from oncecron.core.host import host_name
    from oncecron.core.stderr import valid

    if words and not words[0].strip():
        raise UsageError("the host is empty (an unset variable?); leave it out for this host")
    return valid(words[0]) if words else host_name()


COMMAND = TableCommand(
    "drain",
    OPTIONS,
    _drain,
    short="Start no new jobs on a host.",
    about="Start no new jobs on a host: on HOST, or on this host. Running jobs continue, and the other hosts run the "
    "ticks. HOST is the name that `oncecron history` shows. The host stays drained, also after a reboot, until "
    "`oncecron undrain`. List drained hosts with `oncecron locks --pauses`.",
    examples=("oncecron drain", "oncecron drain web2"),
    words=click.Argument(["words"], metavar="[HOST]", required=False, shell_complete=HOSTS),
)
