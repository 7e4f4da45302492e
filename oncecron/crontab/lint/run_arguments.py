"""Why `oncecron run` or `each` rejects its arguments at every firing, as far as the line shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from oncecron.config.file import COMMAND_KEY
from oncecron.config.options import KEY_RULE, is_key, values_of
from oncecron.config.rules import tick_rules
from oncecron.core import tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron.config.job_commands import JobCommand
    from oncecron.config.run_parser import ParsedRun

_SIGNS = "$`"


def is_literal(text: str) -> bool:
    """Return whether a shell leaves a text as it is: no variable and no substitution in it."""
    return not any(sign in text for sign in _SIGNS)


def usage_error_of(
    job_command: JobCommand,
    arguments: Sequence[str],
    parsed: ParsedRun | None,
    configured: Mapping[str, str],
) -> str:
    """Return the error, empty if there is none; `configured`: the [job.KEY] section."""
    if parsed is None or "key" not in parsed.given:
        known = all(map(is_literal, arguments))
        return (
            ("--key is missing" if parsed else "an option is unknown, incomplete or given twice")
            if known
            else ""
        )
    known_ones = {name: text for name, text in parsed.given.items() if is_literal(text)}
    if "key" in known_ones and not is_key(known_ones["key"]):
        return f"--key {known_ones['key']!r}: {KEY_RULE}"
    if (
        arguments[-1] == "--"
        and not parsed.command
        and not {"shell", COMMAND_KEY} & {*parsed.given, *configured}
    ):
        return "no command after --"
    others = {name: configured[name] for name in configured if name not in parsed.given}
    values = {**others, **known_ones}
    return _wrong_section(job_command, configured) or _wrong_values(job_command, parsed, values)


def _wrong_section(job_command: JobCommand, configured: Mapping[str, str]) -> str:
    """Return what the section sets that the command does not have, as an error; empty if nothing."""
    others = set(configured).difference(job_command.options, (COMMAND_KEY,))
    if not others:
        return ""
    name = min(others).replace("-", "_")
    return f"{name} in its section of the configuration file has no meaning for {job_command.shown}"


def _wrong_values(job_command: JobCommand, parsed: ParsedRun, texts: Mapping[str, str]) -> str:
    """Return the first error of values, of options that exclude each other, and of the tick; empty if none."""
    try:
        values = values_of(texts, (*job_command.options.values(), *job_command.defaults))
        if {*parsed.given} - {*texts, "shell", "key"}:
            return ""
        found = job_command.conflicts(values.get, parsed.given.__contains__, parsed.command)
        conflict = next(found, None)
        _check_tick(values, parsed)
    except ValueError as error:
        return str(error)
    return str(conflict or "")


def _check_tick(values: Mapping[str, Any], parsed: ParsedRun) -> None:
    """Raise `ValueError` if a schedule, its zone, or the name of a tick is invalid."""
    for rule in tick_rules(values.get, parsed.given.__contains__):
        if rule == "schedule":
            tick.scheduled_tick(values["schedule"], values["tz"] or "UTC", time.time())
        elif rule == "tick":
            tick.named_tick(values["tick"])
