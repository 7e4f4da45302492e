"""What of the options of `each` excludes each other, and what is wrong with its tables in the configuration file."""

from __future__ import annotations

from oncecron.config.file import COMMAND_KEY, job_section, table_section
from oncecron.config.options import convert
from oncecron.config.rules import Conflict, conflicts
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron_each.options import EACH_OPTIONS, ITEM_OPTIONS, ONLY_IN_RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from oncecron.config.file import File
    from oncecron.config.file_reader import FileProblem

# ruff: noqa: PLC0415 - few firings have a file, and of those few a wrong one

_IN_TABLE = {option.place: option for option in ITEM_OPTIONS if option.config != "never"}


def each_conflicts(
    value: Callable[[str], Any], is_typed: Callable[[str], bool], words: Sequence[str] = ()
) -> Iterator[Conflict]:
    """Yield the conflicts among the options of `each`."""
    yield from conflicts(value, is_typed, words)
    yield from _among_items(value)


def _among_items(value: Callable[[str], Any]) -> Iterator[Conflict]:
    if value("null") and value("json"):
        yield Conflict(("null", "json"), "JSON items are lines; leave one of them out")
    if value("items") is not None and not value("items").strip():
        yield Conflict(("items",), "the command is empty (an unset variable?)")
    if value("jobs") is not None and value("jobs") > value("slots"):
        yield Conflict(
            ("jobs", "slots"),
            "a host cannot run more commands than all hosts together; raise --slots",
        )


def problems(file: File) -> Iterator[FileProblem]:
    """Yield what is wrong with the tables [job.KEY.each], and what stands in [job.KEY] but belongs there."""
    for problem in file.problems:
        if problem.keys and f"each.{problem.name.replace('_', '-')}" in _IN_TABLE:
            place = table_section(problem.keys[0], "each")
            if problem.section == job_section(problem.keys[0]):
                text = f"{problem.name} is for `oncecron each`; write it in {place}"
                yield problem._replace(text=text)
    for key, section in file.jobs.items():
        if any(name.startswith("each.") for name in section):
            yield from meaningless(file, key)
            yield from _of_values(file, key)


def meaningless(file: File, key: str) -> Iterator[FileProblem]:
    """Yield what the section of a key sets that has no meaning for `each`."""
    known = {COMMAND_KEY, *_IN_TABLE}.union(
        option.name for option in EACH_OPTIONS if not option.table
    )
    for place in file.jobs.get(key, ()):
        if place not in known:
            table, _, option = place.rpartition(".")
            name = option.replace("-", "_")
            text = f"{name} has no meaning for `each`; remove it"
            yield _place(file, key, table)._replace(text=text, name=name)


def _of_values(file: File, key: str) -> Iterator[FileProblem]:
    from oncecron.config.file_reader import of_conflict
    from oncecron.config.settings import Settings

    place, section, wrong = _place(file, key, "each"), file.jobs[key], False
    for option in _IN_TABLE.values():
        if option.place in section:
            try:
                convert(option, section[option.place])
            except ValueError as error:
                wrong, name = True, option.name.replace("-", "_")
                yield place._replace(text=f"{name}: {error}", name=name)
    if not wrong:
        settings = Settings((*EACH_OPTIONS, *ONLY_IN_RUN), {}, key, of=file)
        for conflict in _among_items(settings.__getitem__):
            yield of_conflict(place, conflict)


def _place(file: File, key: str, table: str) -> FileProblem:
    from oncecron.config.file_reader import FileProblem

    return FileProblem(str(file.path), "", table_section(key, table), "", (key,))
