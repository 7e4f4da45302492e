"""`oncecron forget`: expect no further runs of a retired key, or no firings of a retired host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import KEYS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.pause import named_key, near
from oncecron.config.options import Option

if TYPE_CHECKING:
    from oncecron.config.settings import Settings

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option(
        "host",
        "text",
        "Forget a retired HOST, instead of KEY: it is not silent on the keys that it used to fire.",
        "HOST",
        completion="host",
    ),
    *STORE_OPTIONS,
)


def _forget(given: dict[str, str], words: list[str]) -> int:
    from oncecron.config.settings import Settings
    from oncecron.core.errors import UsageError

    settings = Settings(OPTIONS, given)
    host = settings["host"]
    if host is None:
        if not words:
            raise UsageError("the key is missing (an unset variable?); name a key, or use --host")
        return _forget_key(settings, named_key(words[0]))
    if not host.strip():
        raise UsageError("--host is empty (an unset variable?); name a host")
    if words:
        raise UsageError(f"--host means a host; leave out {words[0]!r} or --host")
    return _forget_host(settings, host)


def _forget_host(settings: Settings, host: str) -> int:
    from oncecron.cli import output
    from oncecron.core.errors import NotFoundError
    from oncecron.core.stderr import valid
    from oncecron.core.text import visible

    stream = output.standard_output()
    with store_inspector(settings) as store:
        known = store.forget_host(valid(host))
        hosts = () if known else {row.host for row in store.key_hosts()}
    if not known:
        raise NotFoundError(f"host {visible(host)} has fired no key{near(host, hosts)}")
    output.say(
        f"forgot host {visible(host)}: no firing of it is expected until it fires a key", stream
    )
    return 0


def _forget_key(settings: Settings, key: str) -> int:
    from oncecron.cli import output
    from oncecron.core.errors import NotFoundError

    stream = output.standard_output()
    with store_inspector(settings) as store:
        known = store.forget(key)
        keys = () if known else {part.key for part in store.job_keys()}
    if not known:
        raise NotFoundError(f"no host has fired key {key}{near(key, keys)}")
    output.say(
        f"forgot the schedule of {key}: no run of it is expected until a host fires it", stream
    )
    return 0


COMMAND = TableCommand(
    "forget",
    OPTIONS,
    _forget,
    short="Expect no further runs of a retired key, or of a retired host.",
    about="Remove the schedule that is on record for a key, so that no command reports its ticks as missed any more. "
    "The log stays. The next firing with --schedule puts the key back. With --host, forget which keys a host fires, so "
    "that no command reports it as silent. Its next firing puts it back.",
    examples=("oncecron forget billing-nightly", "oncecron forget --host web3"),
    words=click.Argument(["words"], metavar="KEY|--host", required=False, shell_complete=KEYS),
)
