"""The program of a command: the file that is executed, and the words as messages and records show them."""

from __future__ import annotations

import errno
import os

from oncecron.config.options import BOURNE_SHELL, KEY_LETTERS, OWN_SHELL
from oncecron.core.errors import EX_NOT_EXECUTABLE, EX_NOT_FOUND, CommandError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.masking import MASK, masked_words, valid
from oncecron.stores.address import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Answer = TypeVar("Answer")

_PIPEFAIL = ("-o", "pipefail")
_LONGEST_RECORDED = 16_000
"""Characters of a command on record: a letter has at most four bytes, and the stores take 64 KiB (`core.bounds`)."""


def shell() -> str:
    """Return $SHELL, with which cron runs its lines, else /bin/sh; never oncecron's own shell."""
    named = os.environ.get("SHELL", "")
    return BOURNE_SHELL if named.rpartition("/")[2] in ("", OWN_SHELL) else named


def pipefail_shell() -> list[str]:
    """Return $SHELL with `-o pipefail`, which not every sh has, else bash as a sh; `look_up` tells if there is none."""
    from oncecron.core.shell_words import is_bourne_shell  # noqa: PLC0415 - of --pipefail alone

    named = shell()
    if is_bourne_shell(os.fsencode(named)) and _succeeds([named, *_PIPEFAIL, "-c", ":"]):
        return [named, *_PIPEFAIL]
    return ["bash", "--posix", *_PIPEFAIL]


def _succeeds(words: list[str]) -> bool:
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    try:
        child = os.posix_spawnp(words[0], words, os.environ, file_actions=quiet)
    except OSError:
        return False
    return os.waitpid(child, 0)[1] == 0


def look_up(program: str, shown: str, line: str = "") -> str:
    """Return the path that will be executed; `shown`: the program in messages, `line`: the command.

    Raises `CommandError` like a shell: 127, or 126.
    """
    if not program:
        raise CommandError("the command is empty", EX_NOT_FOUND)
    if "/" in program:
        candidates = [program]
    else:
        path = os.environ.get("PATH", os.defpath)
        candidates = [os.path.join(directory or ".", program) for directory in path.split(":")]
    found = [candidate for candidate in candidates if os.path.exists(candidate)]
    for candidate in found:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            _refuse_missing_interpreter(candidate)
            return candidate
    if why := _why_shell(program, shown):
        cure = f"to have a shell run it, use --shell {_string(program, line or shown)}"
        raise CommandError(f"{why}; {cure}", EX_NOT_FOUND)
    if found:
        cure = f"not executable; run `chmod +x {shell_quoted(found[0])}`"
        kind = "a directory; name a program" if os.path.isdir(found[0]) else cure
        raise CommandError(f"{found[0]} is {kind}", EX_NOT_EXECUTABLE)
    if "/" in program:
        raise CommandError(f"{shown} was not found", EX_NOT_FOUND)
    path = os.environ.get("PATH", os.defpath)
    cure = "write its absolute path"
    if " -o pipefail " in line:
        cure = "install it: --pipefail needs a shell that has pipefail"
    elif " -- " in line:
        cure = f"the command begins with it; if it begins behind the `--`, leave {shown} out"
    raise CommandError(f"{shown} was not found in PATH={path}; {cure}", EX_NOT_FOUND)


def as_execvp(
    execute: Callable[[str, list[Any]], Answer], program: str, words: Sequence[Any]
) -> Answer:
    """Execute a program with words; what the kernel does not recognize is a script for /bin/sh.

    execvp(3), with which shells, env(1) and nice(1) start programs, does this too, so a script without a `#!` line runs
    under cron. Raises `OSError`, also for a file with a NUL in its first line: a program of another kind of machine.
    """
    try:
        return execute(program, [*words])
    except OSError as error:
        if error.errno != errno.ENOEXEC or _is_binary(program):
            raise
    return execute(BOURNE_SHELL, [BOURNE_SHELL, program, *words[1:]])


def _is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"\0" in file.read(128).partition(b"\n")[0]
    except OSError:  # the shell says why it cannot read it
        return False


def _why_shell(program: str, shown: str) -> str | None:
    from oncecron.core.shell_words import SHELL_BUILTINS  # noqa: PLC0415 - for an error message alone

    if any(letter in " \t\n|&;<>$`()" for letter in program):  # a whole line as one word
        return f"{shown!r} was not found as a program"
    if os.fsencode(program) in SHELL_BUILTINS or program in ("{", "!"):
        return f"{shown} is a command of the shell, not a program"
    if program.partition("=")[0].isidentifier() and "=" in program:
        return f"{shown} sets a variable, which a shell does"
    return f"{shown} was not found, and only a shell expands ~" if program[0] == "~" else None


def _string(program: str, line: str) -> str:
    from oncecron.core.shell_words import PREPARING_BUILTINS  # noqa: PLC0415 - as above

    alone = os.fsencode(program) in PREPARING_BUILTINS
    return shell_quoted(f"{line} && COMMAND" if alone else line)


def _refuse_missing_interpreter(path: str) -> None:
    """Raise `CommandError` if a script's `#!` line names a program that is not there (execve(2): ENOENT)."""
    try:
        with open(path, "rb") as file:
            first = file.read(256).partition(b"\n")[0]
    except OSError:  # executable and not readable: a binary
        return
    words = first[2:].split() if first.startswith(b"#!") else []
    if len(words) == 1 and first.endswith(b"\r"):  # the kernel takes the CR for a part of the name
        cure = f"run `sed -i 's/\\r$//' {shell_quoted(path)}`"
        raise CommandError(
            f"{path}: its lines end with CR LF, so its interpreter is not found; {cure}",
            EX_NOT_EXECUTABLE,
        )
    if words and not os.path.exists(words[0]):
        interpreter = os.fsdecode(words[0])
        raise CommandError(
            f"{path}: its interpreter {interpreter} was not found; install it, or correct the first line",
            EX_NOT_EXECUTABLE,
        )


def shown_words(command: list[str], how: str) -> list[str]:
    """Return the words of a command as they are recorded; `how`: the value of --record-command."""
    words = list(map(valid, command))
    if how == "program":
        first = " ".join(words[0].split()[:1])  # a whole line as one word
        words = [first] if words == [first] else [first, "..."]
    return words if how == "full" else masked_words(words)


def quoted_line(words: list[str]) -> str:
    """Return words as one shell-quoted line."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    plain = word.replace("=", "").replace("%", "").replace("+", "").replace(MASK, "")
    if word and KEY_LETTERS.issuperset(plain):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def recorded_line(words: list[str]) -> str:
    """Return words as they are recorded: `quoted_line`, cut if it is so long that the stores refuse it."""
    command = quoted_line(words)
    if len(command) <= _LONGEST_RECORDED:
        return command
    return f"{command[:_LONGEST_RECORDED]}... ({len(command)} characters)"
