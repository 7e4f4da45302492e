"""`oncecron config show`: the value of each option of `run`, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oncecron.cli.command import FORMAT, JSON, KEYS, TableCommand, output_format
from oncecron.cli.pause import named_key, near
from oncecron.config.each_options import ITEM_OPTIONS
from oncecron.config.options import CONFIG, RUN_OPTIONS, STORE
from oncecron.core.errors import EX_CONFIG
from oncecron.core.log_rows import ConfiguredValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.config.settings import Settings

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (FORMAT, JSON, CONFIG)
_CONFIGURABLE = tuple(option for option in RUN_OPTIONS if option.config != "never")
_OF_ITEMS = tuple(option for option in ITEM_OPTIONS if option.config != "never")
"""Options of `each`: shown where the section of the key sets one of them."""
_DEFAULT = "default"


def _show(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output, tables
    from oncecron.config.settings import Settings

    key = named_key(words[0]) if words else None
    settings = Settings((*OPTIONS, *_CONFIGURABLE, *_OF_ITEMS), given, key)
    stream = output.standard_output()
    style = output.style_for(stream, output_format(settings), utc=False)
    rows = list(_values(settings, key))
    if key is not None and settings.file.path and key not in settings.file.jobs:
        _note_missing_section(settings, key)
    output.Writer(tables.CONFIGURED_VALUES, style, stream).write(rows)
    return EX_CONFIG if _complain(settings, key) else 0


def _complain(settings: Settings, key: str | None) -> bool:
    """Print what `config check` finds, of the other sections only without a key; return whether there is any."""
    from oncecron.config.check import check_file
    from oncecron.core.stderr import complain

    path = settings.file.path
    problems = check_file(path) if path else []
    found = [each for each in problems if key is None or not each.keys or key in each.keys]
    for problem in found:
        complain(str(problem))
    return bool(found)


def _note_missing_section(settings: Settings, key: str) -> None:
    from oncecron.config.file import job_section
    from oncecron.core.stderr import complain

    question = near(key, settings.file.jobs)
    complain(f"{settings.file.path} has no section {job_section(key)}{question}")


def _values(settings: Settings, key: str | None) -> Iterator[ConfiguredValue]:
    """Yield every value. Raises `ConfigurationError` for a store file that cannot be read."""
    from oncecron.config.file import COMMAND_KEY, job_section
    from oncecron.run.program import shown_words
    from oncecron.stores.address import masked

    path = settings.file.path
    source = _source(settings, CONFIG.name) or (_DEFAULT if path else None)
    yield ConfiguredValue(CONFIG.name, path, source)
    command = settings.configured_command()
    if key is not None:
        place = f"{path} {job_section(key)}" if command is not None else None
        shown = None if command is None else shown_words([command], "masked")[0]
        yield ConfiguredValue(COMMAND_KEY, shown, place)
    section = settings.file.jobs.get(key or "", {})
    has_items = any(option.name in section for option in _OF_ITEMS)
    for option in (*_CONFIGURABLE, *(_OF_ITEMS if has_items else ())):
        text = settings.store_text() if option is STORE else settings.text(option.name)
        if text is not None and option.kind == "text":
            text = shown_words([text], "masked")[0]
            text = masked(text) if option.group == STORE.group else text
        yield ConfiguredValue(option.name, text, _source(settings, option.name))
    file = settings.file
    for ping in file.pings if key is None else file.pings_for(key):
        keys = f" ({', '.join(ping.keys)})" if key is None else ""
        yield ConfiguredValue("ping", f"{ping.shown}{keys}", f"{file.path} [[ping]]")
    yield from _channels(settings, key)


def _channels(settings: Settings, key: str | None) -> Iterator[ConfiguredValue]:
    """Yield where `oncecron notify` sends what it finds, about a key or at all."""
    from oncecron.alerts.settings import channel_section, parsed_notify
    from oncecron.run.program import shown_words

    for channel in parsed_notify(settings.file)[0].channels:
        if channel.is_for(key):
            shown = shown_words([channel.shown], "masked")[0]
            keys = f" ({', '.join(channel.keys)})" if key is None else ""
            place = f"{settings.file.path} {channel_section(channel.name)}"
            yield ConfiguredValue("channel", f"{shown}{keys}", place)


def _source(settings: Settings, name: str) -> str | None:
    """Return the variable, the file and section, or the option that sets a value; None for no value."""
    source = settings.source(name)
    if source.startswith("the default"):
        return _DEFAULT
    return source.removesuffix(f" {name}") or None


COMMAND = TableCommand(
    "show",
    OPTIONS,
    _show,
    short="Show every value of the configuration, and where it comes from.",
    about="Show the options of `oncecron run` that can be configured: the value that a firing on this host would use, "
    "and its source. With KEY, the section [job.KEY] counts too. Passwords are masked. The last lines are the services "
    "that are pinged, and the channels of `oncecron notify`. If `oncecron config check` finds a mistake in the file, "
    "with KEY in what concerns the key, it is printed too, and the exit status is 78. No store is contacted.",
    examples=("oncecron config show", "oncecron config show billing-nightly"),
    words=click.Argument(["words"], metavar="[KEY]", nargs=1, required=False, shell_complete=KEYS),
)
