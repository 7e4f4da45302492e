"""Why `oncecron run` rejects its arguments at every firing, as far as the line shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from oncecron.config.convert import run_values
from oncecron.config.options import KEY_RULE, is_key
from oncecron.config.rules import conflicts, tick_rules
from oncecron.core import tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron.config.run_parser import ParsedRun

_SIGNS = "$`"


def is_literal(text: str) -> bool:
    """Return whether a shell leaves a text as it is: no variable and no substitution in it."""
    return not any(sign in text for sign in _SIGNS)


def usage_error_of(
    arguments: Sequence[str], parsed: ParsedRun | None, configured: Mapping[str, str]
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
        and not {"shell", "command"} & {*parsed.given, *configured}
    ):
        return "no command after --"
    try:
        values = run_values({**configured, **known_ones})
        if {*parsed.given} - {*known_ones, "shell", "key"}:
            return ""
        conflict = next(conflicts(values.get, parsed.given.__contains__, parsed.command), None)
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
