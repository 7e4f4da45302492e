"""`oncecron config`: all problems of a configuration file, and where each value comes from. No store is needed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from oncecron.cli import output, table
from oncecron.cli.command import JSON, TABLE_OPTIONS, TableCommand, writer
from oncecron.cli.group import LazyGroup, Listed
from oncecron.cli.sentences import valid_key
from oncecron.cli.table import Kind
from oncecron.config.file import COMMAND_KEY, find_file, job_section
from oncecron.config.file_reader import FileProblem, of_conflict, parse, read_private
from oncecron.config.options import CONFIG, KEY_RULE, RUN_OPTIONS, STORE, is_key
from oncecron.config.rules import conflicts
from oncecron.config.settings import Settings
from oncecron.core.errors import EX_CONFIG, ConfigurationError, UnknownZoneError, UsageError
from oncecron.core.log_rows import ConfiguredValue
from oncecron.host import local_time
from oncecron.host.stderr import complain
from oncecron.plugins import brought, problems_of
from oncecron.run.program import shown_words
from oncecron.stores.address import home_directory, masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncecron.config.file import File
    from oncecron.config.options import Option

CHECK_OPTIONS = (
    JSON._replace(help="Print all fields as JSON (one array) instead of lines.", group="Options"),
)
CONFIGURED_VALUES = Kind(
    ConfiguredValue._fields,
    columns=(
        table.field("option", "OPTION", 0), table.field("value", "VALUE", 0, 20, folds=True),
        table.field("source", "SOURCE", 0, 16, folds=True),
    ),
)  # fmt: skip


def _check(given: dict[str, str], words: list[str]) -> int:
    if words == [""]:
        raise UsageError("FILE is empty (an unset variable?); leave it out to check the usual file")
    path = words[0] if words else find_file(os.environ, home_directory)
    problems = check_file(path) if path else []
    stream = output.standard_output()
    if "json" in given:
        output.write_text(output.json_text([*map(_public_fields, problems)], 1), stream)
    elif problems:
        output.say("\n".join(map(str, problems)), stream)
    else:
        output.say(f"{path}: no problems" if path else "no configuration file", stream)
    return EX_CONFIG if problems else 0


def _public_fields(problem: FileProblem) -> dict[str, Any]:
    message, _, cure = problem.shown.partition("; ")
    return {
        "file": problem.path,
        "section": problem.section or None,
        "name": problem.name or None,
        "message": message,
        "cure": cure or None,
    }


_WHAT = "configuration file"


def check_file(path: str) -> list[FileProblem]:
    """Return all problems of a file, also those that only a firing would find; none if it is well.

    No store is asked, and no variable of the environment counts.
    """
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


SHOW_OPTIONS = (*TABLE_OPTIONS, CONFIG)
_CONFIGURABLE = tuple(option for option in RUN_OPTIONS if option.config != "never")
_DEFAULT = "default"


def _show(given: dict[str, str], words: list[str]) -> int:
    key = valid_key(words[0]) if words else None
    settings = Settings((*SHOW_OPTIONS, *_CONFIGURABLE), given, key)
    answer = writer(CONFIGURED_VALUES, settings, utc=False)
    rows = list(_values(settings, key))
    if key is not None and settings.file.path and key not in settings.file.jobs:
        meant = settings.near_section(key)
        complain(f"{settings.file.path} has no section {job_section(key)}{meant}")
    answer.write(rows)
    return EX_CONFIG if _complain(settings, key) else 0


def _complain(settings: Settings, key: str | None) -> bool:
    path = settings.file.path
    problems = check_file(path) if path else []
    found = [each for each in problems if key is None or not each.keys or key in each.keys]
    for problem in found:
        complain(str(problem))
    return bool(found)


def _values(settings: Settings, key: str | None) -> Iterator[ConfiguredValue]:
    """Yield every value. Raises `ConfigurationError` for a store file that cannot be read."""
    path = settings.file.path
    source = _source(settings, CONFIG.name) or (_DEFAULT if path else None)
    yield ConfiguredValue(CONFIG.name, path, source)
    command = settings.configured_command()
    if key is not None:
        place = f"{path} {job_section(key)}" if command is not None else None
        shown = None if command is None else shown_words([command], "masked")[0]
        yield ConfiguredValue(COMMAND_KEY, shown, place)
    for option in _CONFIGURABLE:
        text = settings.store_text() if option.name == STORE.name else settings.text(option.name)
        yield value_of(settings, option, text)
    file = settings.file
    for ping in file.pings if key is None else file.pings_for(key):
        keys = f" ({', '.join(ping.keys)})" if key is None else ""
        yield ConfiguredValue("ping", f"{ping.shown}{keys}", f"{file.path} [[ping]]")
    yield from brought(lambda each: each.values(settings, key))


def value_of(settings: Settings, option: Option, text: str | None) -> ConfiguredValue:
    """Return the value of an option that is written so, without secrets."""
    if text is not None and option.kind == "text":
        text = shown_words([text], "masked")[0]
        text = masked(text) if option.group == STORE.group else text
    return ConfiguredValue(option.name, text, _source(settings, option.name))


def _source(settings: Settings, name: str) -> str | None:
    source = settings.source(name)
    if source.startswith("the default"):
        return _DEFAULT
    return source.removesuffix(f" {name}") or None


CHECK = TableCommand(
    "check", CHECK_OPTIONS, _check,
    about="Check a configuration file, by default the one that `oncecron run` would read. Print one line per "
    "problem: FILE [SECTION]: problem; cure. Exit with status 78 if there is any. No store is contacted.",
    examples=("oncecron config check", "oncecron config check web1/oncecron.toml"),
    words="[FILE]",
)  # fmt: skip
SHOW = TableCommand(
    "show", SHOW_OPTIONS, _show,
    about="Show the options of `oncecron run` that can be configured: the value that a firing on this host would "
    "use, and its source. With KEY, the section [job.KEY] counts too. Passwords are masked. The last lines are the "
    "services that are pinged, and the channels of `oncecron notify`. If `oncecron config check` finds a mistake in "
    "the file, with KEY in what concerns the key, it is printed too, and the exit status is 78. No store is "
    "contacted.",
    examples=("oncecron config show", "oncecron config show billing-nightly"),
    words="[KEY]",
)  # fmt: skip
COMMANDS = {"check": CHECK, "show": SHOW}
COMMAND = LazyGroup(
    "config",
    {
        "Commands": {
            "check": Listed("Find every mistake in the configuration file.", __name__),
            "show": Listed(
                "Show every value of the configuration, and where it comes from.", __name__
            ),
        }
    },
    "oncecron.cli",
    about="Check the configuration file, or show where each value comes from. These commands need no store.",
)
