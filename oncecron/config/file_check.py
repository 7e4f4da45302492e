"""Every problem of a configuration file: those of its text, and those that only a firing would find.

No store is asked, and no variable of the environment counts.
"""

from __future__ import annotations

import time

from oncecron.config.file import COMMAND_KEY, job_section
from oncecron.config.file_reader import FileProblem, of_conflict, parse, read_private
from oncecron.config.options import KEY_RULE, RUN_OPTIONS, is_key
from oncecron.config.rules import conflicts
from oncecron.config.settings import Settings
from oncecron.core.errors import ConfigurationError, UnknownZoneError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.host import local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from oncecron.config.file import File

_WHAT = "configuration file"


def check_file(
    path: str, problems_of: Callable[[File], Iterable[FileProblem]] = lambda file: file.problems
) -> list[FileProblem]:
    """Return all problems of a file; none if it is well. `problems_of`: those of its tables, also of plugins."""
    found: list[FileProblem] = []
    try:
        file = parse(path, *_read(path, found))
    except ConfigurationError as error:
        return list(dict.fromkeys([*found, FileProblem(path, _reason(error, path))]))
    found += problems_of(file)
    found += _of_addresses(file, FileProblem(path, ""), None)
    for key, section in file.jobs.items():
        place = FileProblem(path, "", job_section(key), keys=(key,))
        if not section and not any(key in problem.keys for problem in found):
            found.append(place._replace(text="the section is empty; remove it, or set an option"))
        found += _of_section(file, key, place)
    return list(dict.fromkeys(found))


def _read(path: str, found: list[FileProblem]) -> tuple[str, int]:
    """Read a file, also one that other users can write, which is noted. Raises `ConfigurationError`."""
    try:
        return read_private(path, _WHAT)
    except ConfigurationError as error:
        found.append(FileProblem(path, _reason(error, path)))
        return read_private(path, _WHAT, trusting=True)


def _reason(error: ConfigurationError, place: str) -> str:
    text = str(error).removeprefix(f"{_WHAT} ").removeprefix(place)
    return text.removeprefix(":").lstrip()


def _of_section(file: File, key: str, place: FileProblem) -> Iterator[FileProblem]:
    section = file.jobs[key]
    if not is_key(key):
        yield place._replace(text=f"no job can have this key; {KEY_RULE}")
    if not {"store", "log", "namespace"}.isdisjoint(section):
        yield from _of_addresses(file, place, key)
    yield from _of_schedule(section, place)
    settings = Settings(RUN_OPTIONS, {}, key, of=file)

    def value(name: str) -> object:
        return section.get(COMMAND_KEY) if name == "shell" else settings[name]

    for conflict in conflicts(value, settings.is_typed):
        yield of_conflict(place, conflict)


def _of_schedule(section: Mapping[str, str], place: FileProblem) -> Iterator[FileProblem]:
    if {"schedule", "tz"}.isdisjoint(section):
        return
    try:
        local_time.scheduled_tick(section.get("schedule", "@daily"), section.get("tz"), time.time())
    except ValueError as error:
        wrong_zone = isinstance(error, UnknownZoneError) and "tz" in section
        name = "tz" if wrong_zone else "schedule"
        yield place._replace(text=f"{name}: {error}", name=name)


def _of_addresses(file: File, place: FileProblem, key: str | None) -> Iterator[FileProblem]:
    settings = Settings(RUN_OPTIONS, {}, key, of=file)
    if not settings.has_store():
        return
    for name, find in (("store", settings.address), ("log", settings.log)):
        try:
            find()
        except ConfigurationError as error:
            named = name if settings[name] is not None or name == "log" else "store_file"
            reason = _reason(error, place.path).removeprefix(place.section).lstrip()
            text = reason if reason.startswith(f"{named}: ") else f"{named}: {reason}"
            yield place._replace(text=text, name=named)
            return
