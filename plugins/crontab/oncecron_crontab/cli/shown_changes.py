"""What wrap and unwrap show of their changes: a difference for people and patch(1)."""

from __future__ import annotations

from oncecron.cli import output
from oncecron.cli.terminal import style_for
from oncecron.core.text import visible
from oncecron_crontab.cli.files import CrontabFile, difference

_COLOURS = {"+++": "1", "---": "1", "+": "32", "-": "31", "@": "36"}


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
