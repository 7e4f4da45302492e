r"""What cron makes of a command: the part for the shell, and the part that becomes its standard input.

After do_command.c of cron 3.0pl1-162. The first `%` without a backslash ends the command. Before it `\%` is `%` and
`\\` is one backslash; behind it `\%` is `%`, and every other `%` a newline.
"""

from __future__ import annotations


def split_command(command: bytes) -> tuple[bytes, bytes | None]:
    """Return what stands before the `%` that ends a command, and what stands behind; None if there is none."""
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
    """Return what cron gives to `$SHELL -c`."""
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
