"""`oncecron prune`: retention now, for all that is due."""

from __future__ import annotations

from oncecron.cli.command import STORE_OPTIONS, TableCommand, all_inspectors, labelled
from oncecron.config.options import Option

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option(
        "executions",
        "duration",
        "Remove executions older than this; else [retention] of the configuration file, or 400d.",
        "AGE",
    ),
    Option(
        "skips",
        "duration",
        "Remove skips older than this; else [retention] of the configuration file, or 7d.",
        "AGE",
    ),
    *STORE_OPTIONS,
)


def _prune(given: dict[str, str], _words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings

    settings = Settings(OPTIONS, given)
    wanted = {
        name: settings[name] for name in ("executions", "skips") if settings[name] is not None
    }
    retention = settings.file.retention._replace(**wanted)
    stream = output.standard_output()
    with all_inspectors(settings) as stores:
        removed = {name: _removed(*store.prune(retention)) for name, store in stores.items()}
    output.say(labelled(removed), stream)
    return 0


def _removed(executions: int, skips: int) -> str:
    return f"removed {executions} execution{'s' * (executions != 1)} and {skips} refusal{'s' * (skips != 1)}"


COMMAND = TableCommand(
    "prune",
    OPTIONS,
    _prune,
    short="Remove old records now.",
    about="Remove what is older than the retention, all of it, from the store and from the log beside it; every firing "
    "removes a little by itself. What runs is never removed, and of each key the newest 1000 names of ticks are "
    "kept, so that none runs again.",
)
