"""`oncecron resume`: end a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import KEYS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.cli.pause import by, name_of, near, pronoun, wanted_key, was
from oncecron.config.options import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Pause

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option("all", "flag", "End the pause of all keys, instead of the pause of KEY."),
    *STORE_OPTIONS,
)


def _resume(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.stderr import complain

    settings = Settings(OPTIONS, given)
    key = wanted_key(settings, words)
    stream = output.standard_output()
    with store_inspector(settings) as store:
        before = store.resume(key)
        others = [pause for pause in store.pauses() if pause.key is not None]
    if before:
        output.say(f"resumed {name_of(key)}{was('paused', before, pronoun(key))}", stream)
    else:
        keys = [pause.key for pause in others if pause.key]
        output.say(f"{_was_not(key)}{near(key, keys)}", stream)
    if note := _still_paused(key, others, settings):
        complain(note)
    return 0


def _was_not(key: str) -> str:
    from oncecron.core.log_rows import ALL_KEYS

    return "all keys were not paused" if key == ALL_KEYS else f"{key} was not paused"


def _still_paused(key: str, others: Sequence[Pause], settings: Settings) -> str:
    """Return which other pause still applies, and the command that ends it."""
    from oncecron.core.log_rows import ALL_KEYS

    if key == ALL_KEYS:
        keys = [pause.key for pause in others if pause.key]
        return f"these keys are still paused: {', '.join(keys)}" if keys else ""
    of_all = [pause for pause in others if pause.key == ALL_KEYS]
    return (
        f"all keys are still paused {by(of_all[0])}; to resume them: {settings.command('resume --all')}"
        if of_all
        else ""
    )


COMMAND = TableCommand(
    "resume",
    OPTIONS,
    _resume,
    short="End a pause.",
    about="End the pause of a key, or of all keys. --all does not end the pauses of single keys. The next firing runs; "
    "missed ticks do not run later. If the key is not paused, say so and exit with status 0.",
    examples=("oncecron resume billing-nightly", "oncecron resume --all"),
    words=click.Argument(["words"], metavar="KEY|--all", required=False, shell_complete=KEYS),
)
