r"""How cron divides a command: the text for the shell, and the text that becomes its standard input.

Follows do_command.c of cron 3.0pl1-162. The first `%` without a backslash ends the command. Before it, `\%` is `%` and
`\\` is one backslash. After it, `\%` is `%`, and every other `%` is a newline.
"""

from __future__ import annotations


def split_command(command: bytes) -> tuple[bytes, bytes | None]:
    """Return the text before and the text after the `%` that ends a command; None for the second without a `%`."""
    escaped = False
    for at, byte in enumerate(command):
        if escaped:
            escaped = False
        elif byte == ord("%"):
            return command[:at], command[at + 1 :]
        else:
            escaped = byte == ord("\\")
    return command, None


def shell_command(command: bytes) -> bytes:
    """Return the command that cron passes to `$SHELL -c`."""
    before, _ = split_command(command)
    found = bytearray()
    escaped = False
    for byte in before:
        if escaped and byte in b"%\\":
            found[-1] = byte
            escaped = False
            continue
        escaped = not escaped and byte == ord("\\")
        found.append(byte)
    return bytes(found)
