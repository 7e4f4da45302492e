"""What `each` brings to people's commands: how far its lists are, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli.config import value_of
from oncecron.config.settings import Settings
from oncecron.log.protocol import Breach
from oncecron.plugins import JobCommand, Plugin
from oncecron.watch.findings import CRITICAL, WARNING, Kind, finding
from oncecron_each.item_rules import each_conflicts, problems
from oncecron_each.options import EACH_OPTIONS, ITEM_OPTIONS, ONLY_IN_RUN
from oncecron_each.reports import Lists, item_lists, items_in_doubt, items_left, newest_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.config.file import File
    from oncecron.core.log_rows import ConfiguredValue
    from oncecron.log.audit import Question
    from oncecron.log.sources import Sources
    from oncecron.watch.findings import Finding


def _findings(sources: Sources, _file: File) -> Iterator[Finding]:
    lists = sources.once(item_lists)
    for view, text in items_in_doubt(newest_lists(lists).values()):
        yield finding("in-doubt", view.key, view.lost, text, tick=view.tick)
    for view, left, text in items_left(lists):
        yield finding("left", view.key, left, text, tick=view.tick)


def _audited(question: Question) -> Iterator[Breach]:
    for view, text in items_in_doubt(item_lists(question.store)):
        key, at = view.key, view.loaded_at
        if question.asks_for(key) and question.oldest <= at < question.until:
            yield Breach("in-doubt", key, 0, view.tick, None, 1, at, None, None, text)


def _values(settings: Settings, key: str | None) -> Iterator[ConfiguredValue]:
    file = settings.file
    if any(name.startswith("each.") for name in file.jobs.get(key or "", ())):
        options = [option for option in ITEM_OPTIONS if option.config != "never"]
        found = Settings(options, {}, key, of=file)
        yield from (value_of(found, option, found.text(option.name)) for option in options)


PLUGIN = Plugin(
    problems=problems,
    values=_values,
    job_command=JobCommand(
        *("each", {option.name: option for option in EACH_OPTIONS}, ONLY_IN_RUN, each_conflicts),
        example="oncecron each --key NAME --items LIST -- COMMAND",
    ),
    work=lambda sources: Lists(sources.once(item_lists)),
    kinds={
        "in-doubt": Kind(
            CRITICAL, "Items of the newest list that are in doubt.", "{key} has items in doubt", "items_in_doubt",
            has_count=True, over="has no items in doubt in its newest list",
        ),
        "left": Kind(
            WARNING, "Items of older ticks that no newer tick runs.", "{key} has items left", "items_left",
            has_count=True, over="has no items left of older ticks",
        ),
    },
    findings=_findings,
    audited=_audited,
)  # fmt: skip
