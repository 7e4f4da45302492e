"""What wrap and unwrap show of their changes: a difference for people and patch(1), or records for programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.terminal import style_for
from oncecron.core.masking import valid
from oncecron.core.text import visible
from oncecron_crontab.cli.files import CrontabFile, difference
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import Entry, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron_crontab.cli.files import Plan

_COLOURS = {"+++": "1", "---": "1", "+": "32", "-": "31", "@": "36"}
_ALREADY = "it is already wrapped"
_NOT_WRAPPED = "it is not wrapped"
_OTHERS = "another line has errors, so nothing is changed"


def give_difference(source: CrontabFile, new: bytes) -> None:
    """Write the changes to standard output: for patch(1), on a terminal in colour and without control characters."""
    stream = output.standard_output()
    changes = difference(source, new)
    colour = style_for(stream, "table", utc=False).colour
    if not (colour or stream.isatty()):
        output.give(changes)
    elif changes:
        lines = changes.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        output.write_text("\n".join(_shown(line, colour=colour) for line in lines), stream)


def _shown(line: str, *, colour: bool) -> str:
    text = visible(line.expandtabs())
    code = next((code for sign, code in _COLOURS.items() if line.startswith(sign)), None)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def give_records(plans: Sequence[Plan], command: str) -> None:
    """Write one array with a record for each line that runs a command, and for each line with an error."""
    records = [record for plan in plans for record in _records(plan, command)]
    output.write_text(output.json_text(records, 1), output.standard_output())


def _records(plan: Plan, command: str) -> Iterator[dict[str, object]]:
    source, crontab, rewritten = plan
    refused = {problem.number: problem.reason for problem in rewritten.errors}
    reasons = {problem.number: problem.reason for problem in rewritten.warnings}
    left = {problem.number: problem.reason for problem in rewritten.unchanged}
    new = scan(rewritten.data, system=crontab.system, cron=crontab.cron).lines
    for line, after in zip(crontab.lines, new, strict=True):
        number = line.number
        if number in refused:
            action, reason = "refuse", refused[number]
        elif not isinstance(line, Entry):
            if number not in left:
                continue
            action, reason = "leave", left[number]
        elif line.raw != after.raw:
            action, reason = command, reasons.get(number, "")
        else:
            action, reason = (
                "leave",
                reasons.get(number)
                or left.get(number)
                or _why_left(line, command, errors=bool(refused)),
            )
        prefix = isinstance(after, Entry) and read_prefix(after.command)
        key = prefix.options.get("key") if prefix else None
        user = source.owner or (
            os.fsdecode(line.user) if isinstance(line, Entry) and line.user else None
        )
        yield {
            "file": None if source.user else valid(source.path),
            "user": valid(user) if user else None,
            "line": number,
            "action": action,
            "key": key,
            "reason": valid(reason) or None,
        }


def _why_left(entry: Entry, command: str, *, errors: bool) -> str:
    wrapped = read_prefix(entry.command) is not None
    if wrapped == (command == "wrap"):
        return _ALREADY if wrapped else _NOT_WRAPPED
    return _OTHERS if errors else ""
