"""`oncecron prune`: remove all old records now."""

from __future__ import annotations

import operator

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, all_readers, with_names
from oncecron.cli.progress_bar import progress_bar
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.model import Retention
from oncecron.core.text import count
from oncecron.core.units import typed_duration
from oncecron.host.stderr import complain
from oncecron.plugins import brought

OPTIONS = (
    *(
        Option(
            what, "duration",
            f"Remove {what} older than this. Default: [retention] in the configuration file, else {usual}.", "AGE",
        )
        for what, usual in zip(Retention._fields, map(typed_duration, Retention()), strict=True)
    ),
    Option("dry-run", "flag", "Say how many records would be removed, and remove none."),
    *STORE_OPTIONS,
)  # fmt: skip


def _prune(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    wanted = {
        name: settings[name] for name in ("executions", "skips") if settings[name] is not None
    }
    retention = settings.file.retention._replace(**wanted)
    stream = output.standard_output()
    dry = settings["dry-run"]
    removed = "would remove" if dry else "removed"
    with all_readers(settings) as stores:
        pruned = {}
        for name, store in stores.items():
            with progress_bar(f"records of the {name}") as progress:
                pruned[name] = store.prune(retention, dry_run=dry, progress=progress)
        more = [*brought(lambda each: each.prune(settings, stores["store"], dry))]
        least = {name: store.least_retention() for name, store in stores.items()}
    done = {name: f"{removed} {_counts(*counts)}" for name, counts in pruned.items()}
    output.say(with_names(done), stream)
    for what in more:
        output.say(f"{removed} {what}", stream)
    for name, longer in least.items():
        if any(map(operator.lt, retention, longer)):
            complain(_kept(settings, name, retention, longer))
    return 0


def _kept(settings: Settings, store: str, wanted: Retention, least: Retention) -> str:
    ages, options = [], ""
    for what, shorter, longer in zip(wanted._fields, wanted, least, strict=True):
        if shorter < longer:
            ages.append(f"{what} at least {typed_duration(longer)}")
            options += f" --keep-{what} {typed_duration(shorter)}"
    command = settings.command(f"init{options}")
    return f"the {store} keeps {' and '.join(ages)}; to remove younger ones, have its owner run {command}"


def _counts(executions: int, skips: int) -> str:
    return f"{count(executions, 'execution')} and {count(skips, 'skip')}"


COMMAND = TableCommand(
    "prune", OPTIONS, _prune,
    about="Remove all records older than the retention, from the store and from the log. Each firing already removes "
    "a few. Running executions stay, and so do the newest 1000 tick names of each key, so that no named tick runs "
    "again.",
    examples=("oncecron prune", "oncecron prune --executions 90d --skips 1d --dry-run"),
)  # fmt: skip
