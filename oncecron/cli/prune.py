"""`oncecron prune`: remove all old records now."""

from __future__ import annotations

from oncecron.cli.command import STORE_OPTIONS, TableCommand, all_inspectors, labelled
from oncecron.config.options import Option

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option(
        "executions",
        "duration",
        "Remove executions older than this. Default: [retention] in the configuration file, else 400d.",
        "AGE",
    ),
    Option(
        "skips",
        "duration",
        "Remove skips older than this. Default: [retention] in the configuration file, else 7d.",
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
    return f"removed {executions} execution{'s' * (executions != 1)} and {skips} skip{'s' * (skips != 1)}"


COMMAND = TableCommand(
    "prune",
    OPTIONS,
    _prune,
    short="Remove old records now.",
    about="Remove all records older than the retention, from the store and from the log. Each firing already removes "
    "a few. Running executions stay, and so do the newest 1000 tick names of each key, so that no named tick runs "
    "again.",
    examples=("oncecron prune", "oncecron prune --executions 90d --skips 1d"),
)
