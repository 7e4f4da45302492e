"""`oncecron undrain`: start jobs on a drained host again."""

from __future__ import annotations

import click

from oncecron.cli.command import HOSTS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.drain import wanted_host
from oncecron.cli.pause import near, was

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = STORE_OPTIONS


def _undrain(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.text import visible

    settings = Settings(OPTIONS, given)
    host = wanted_host(words)
    stream = output.standard_output()
    with store_inspector(settings) as store:
        before = store.undrain(host)
        others = [] if before else [pause.host for pause in store.pauses() if pause.host]
    done = f"undrained {visible(host)}{was('drained', before)}"
    output.say(done if before else f"{visible(host)} was not drained{near(host, others)}", stream)
    return 0


COMMAND = TableCommand(
    "undrain",
    OPTIONS,
    _undrain,
    short="Start jobs on a drained host again.",
    about="Start jobs again on a drained host: on HOST, or on this host. If the host is not drained, say so and exit "
    "with status 0.",
    examples=("oncecron undrain", "oncecron undrain web2"),
    words=click.Argument(["words"], metavar="[HOST]", required=False, shell_complete=HOSTS),
)
