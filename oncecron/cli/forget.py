"""`oncecron forget`: expect no further runs of a retired key."""

from __future__ import annotations

import click

from oncecron.cli.command import KEYS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.pause import named_key, near

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = STORE_OPTIONS


def _forget(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.errors import NotFoundError

    settings = Settings(OPTIONS, given)
    key = named_key(words[0])
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
    short="Expect no further runs of a retired key.",
    about="Remove the schedule that is on record for a key, so that no command reports its ticks as missed any more. "
    "The log stays. The next firing with --schedule puts the key back.",
    examples=("oncecron forget billing-nightly",),
    words=click.Argument(["words"], metavar="KEY", shell_complete=KEYS),
)
