"""A crontab, line by line, with every byte kept: what Debian's cron accepts, what it rejects and why.

Follows load_env and load_entry of cron 3.0pl1-162, which read a line as follows:

    only blanks; or `#` after blanks                        blank, comment
    NAME = VALUE, quoted or not                             variable, for the lines below it
    five fields or @nickname, [user], the rest              entry; a `%` ends the command, see `percent_sign`
    anything else                                           invalid: cron rejects the whole file

`NAME =` without a value is a variable too, as for Debian 13 and cronie; Debian 12 rejects such a file, see `doubts`.
A carriage return is not a blank: it is part of the command, or makes a line invalid that has nothing else. A system
crontab (/etc/crontab, /etc/cron.d) has the user's name before the command. For a user's crontab `crontab -n FILE` gives
the same answer as this module. Whether a user exists is not checked, because the file may be for another host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.crontab.fields import NAMES, NICKNAMES, Field, read_field

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_COMMAND = 998
"""Bytes of a command, including the text after `%`."""
_LONGEST_VARIABLE = 998
_MOST_LINES = 10_000
_HEADER_LINES = (
    3  # cron allows this many more for the header that crontab(1) writes, even without one
)
_BLANKS = b" \t"
_SPACES = b" \t\n\v\f\r"
_NO_USER = frozenset(b"/:*,;&|<>()'\"\\$`%\n\r")
NUL = "cron ends the line at a NUL byte and reads the rest as another line; remove the byte"
"""Why we reject a line that cron may accept: for cron it is two lines."""
NO_VALUE = "Debian 12's cron rejects a file with a variable that has no value; write two quotes behind the ="
"""Debian 13 and cronie read it as an empty value."""


class Blank(NamedTuple):
    """An empty line, or a line of blanks."""

    number: int
    """Of the line, from 1."""
    raw: bytes
    """The whole line with its newline, if it has one; all lines joined are the file."""


class Comment(NamedTuple):
    """A line whose first letter is `#`."""

    number: int
    raw: bytes

    @property
    def text(self) -> bytes:
        """The text after the first `#`."""
        return self.raw.partition(b"#")[2].rstrip(b"\n")


class Variable(NamedTuple):
    """A setting of the environment, for the lines below it."""

    number: int
    raw: bytes
    name: bytes
    value: bytes
    """Without quotes."""

    @property
    def has_no_value(self) -> bool:
        """Whether nothing is behind the `=`, not even empty quotes."""
        return not self.value and self.raw.rstrip(_SPACES).endswith(b"=")


class Entry(NamedTuple):
    """A line that runs a command: what crontab(5) calls a cron command."""

    number: int
    raw: bytes
    schedule: str
    """As it is written, with single blanks: five fields, or `@daily` and the like, or `@reboot`."""
    fields: tuple[Field, ...]
    """The five fields; none for a nickname."""
    user: bytes | None
    """In a system crontab."""
    command: bytes
    """As it is written, without leading blanks and newline; for what the shell gets see `percent_sign`."""
    command_start: int
    """Where the command begins in `raw`."""
    longest_command: int
    """How many bytes it may have: after a user, cron also counts the blanks before the command."""

    @property
    def is_reboot(self) -> bool:
        """Whether it runs when the host boots, without a schedule."""
        return self.schedule == "@reboot"


class InvalidLine(NamedTuple):
    """A line because of which cron rejects the whole file."""

    number: int
    raw: bytes
    reason: str
    """In cron's own words: `bad minute`, `command too long`; or `NUL`."""


CrontabLine = Blank | Comment | Variable | Entry | InvalidLine


WRITE_HERE = "write here: "
"""In a problem's reason: the text after it, up to the end, is to be copied."""


class Problem(NamedTuple):
    """A problem with a line, or the reason why it is unchanged."""

    number: int
    """Of the line."""
    reason: str
    """The problem, then `; ` and the cure where it has one."""


class Crontab(NamedTuple):
    """A file, read line by line."""

    lines: tuple[CrontabLine, ...]
    system: bool
    """Whether lines name a user."""
    variables: tuple[Variable, ...]
    """Those among the lines."""

    def entries(self) -> Iterator[Entry]:
        """Yield the lines that run commands."""
        return (line for line in self.lines if isinstance(line, Entry))

    def environment(self, entry: Entry) -> dict[bytes, bytes]:
        """Return the variables that the lines above an entry set; the last one of a name counts."""
        return {line.name: line.value for line in self.variables if line.number < entry.number}

    def problems(self) -> list[Problem]:
        """Return why cron rejects this file; empty if it accepts it."""
        found = [
            Problem(line.number, line.reason)
            for line in self.lines
            if isinstance(line, InvalidLine)
        ]
        last = self.lines[-1] if self.lines else None
        if isinstance(last, Variable | Entry | InvalidLine) and not last.raw.endswith(b"\n"):
            found.append(Problem(last.number, "no newline at the end of the file"))
        most = _MOST_LINES + (_HEADER_LINES if self.system else 0)
        if sum(line.raw.endswith(b"\n") for line in self.lines) > most:
            found.append(Problem(most + 1, f"more than {most} lines"))
        return found

    def doubts(self) -> list[Problem]:
        """Return why some versions of cron reject this file, which others accept."""
        return [Problem(line.number, NO_VALUE) for line in self.variables if line.has_no_value]


def scan(data: bytes, *, system: bool = False) -> Crontab:
    """Read a crontab; `system`: a user's name is before each command. Raises nothing."""
    raws = data.split(b"\n")
    raws = [raw + b"\n" for raw in raws[:-1]] + ([raws[-1]] if raws[-1] else [])
    lines = tuple(_scan_line(number, raw, system=system) for number, raw in enumerate(raws, 1))
    return Crontab(lines, system, tuple(line for line in lines if isinstance(line, Variable)))


def _scan_line(number: int, raw: bytes, *, system: bool) -> CrontabLine:
    text = raw.lstrip(_BLANKS).removesuffix(b"\n")
    if not text:
        return Blank(number, raw)
    if text.startswith(b"#"):
        return Comment(number, raw)
    if b"\0" in text:
        return InvalidLine(number, raw, NUL)
    variable = read_variable(text)
    if variable:
        return Variable(number, raw, *variable)
    return _scan_job(number, raw, system=system)


# Variables


def read_variable(text: bytes) -> tuple[bytes, bytes] | None:
    """Return name and value of a variable (`load_env`), None if the line is not one."""
    text = text[:_LONGEST_VARIABLE]  # cron silently cuts off the rest
    name, rest = _read_name(text)
    if name is None or not rest.startswith(b"="):
        return None
    return _read_value(name, rest[1:].lstrip(_SPACES))


def _read_name(text: bytes) -> tuple[bytes | None, bytes]:
    """Return the name, None if there is none, and the text after it and its blanks."""
    if text[:1] in (b"'", b'"'):
        name, closing, rest = text[1:].partition(text[:1])
        return (name if closing and b"=" not in name else None), rest.lstrip(_SPACES)
    # An unquoted name is everything up to a blank or `=`.
    length = next((at for at, byte in enumerate(text) if byte in b"=" + _SPACES), len(text))
    return text[:length], text[length:].lstrip(_SPACES)


def _read_value(name: bytes, text: bytes) -> tuple[bytes, bytes] | None:
    if text[:1] in (b"'", b'"'):
        value, closing, rest = text[1:].partition(text[:1])
        if not closing or rest.strip(_SPACES):
            return None
    else:
        value = text
    value = value.rstrip(_SPACES)
    if len(value) > 1 and value[:1] in (b"'", b'"') and value[:1] == value[-1:]:
        value = value[1:-1]  # quotes within quotes are removed too
    return name, value


# Jobs


def _scan_job(number: int, raw: bytes, *, system: bool) -> Entry | InvalidLine:
    at = len(raw) - len(raw.lstrip(_BLANKS))
    nickname = raw[at : at + 1] == b"@"
    words: list[str] = []
    fields: list[Field] = []
    for position in range(1 if nickname else len(NAMES)):
        end = _end_of_word(raw, at)
        word = raw[at:end]
        field = None if nickname else read_field(position, word)
        if field is None and not (nickname and _is_nickname(word)):
            reason = "bad time specifier" if nickname else f"bad {NAMES[position]}"
            return InvalidLine(number, raw, reason)
        fields += [field] if field else []
        words.append(field.written if field else word.decode())
        at = _skip_blanks(raw, end)
    if not nickname and raw[at : at + 1] == b"\xff":
        return InvalidLine(number, raw, f"bad {NAMES[-1]}")  # see `fields`
    user, at, counted = _read_user(raw, at) if system else (None, at, at)
    command = raw[at:].removesuffix(b"\n")
    if system and user is None:
        return InvalidLine(number, raw, "bad username")
    if not system and command.startswith(b"*"):
        return InvalidLine(number, raw, "bad command")
    longest_command = LONGEST_COMMAND - (at - counted)
    if len(command) > longest_command:
        return InvalidLine(number, raw, "command too long")
    return Entry(number, raw, " ".join(words), tuple(fields), user, command, at, longest_command)


def _is_nickname(word: bytes) -> bool:
    return word == b"@reboot" or word[1:].decode("latin-1") in NICKNAMES


def _read_user(raw: bytes, at: int) -> tuple[bytes | None, int, int]:
    """Return the user (None if invalid), where the command begins, and from where cron counts its length."""
    end = _end_of_word(raw, at)
    user = raw[at:end]
    if not user or raw[end : end + 1] not in (b" ", b"\t") or _NO_USER.intersection(user):
        return None, at, at
    return user, _skip_blanks(raw, end), end + 1


def _end_of_word(raw: bytes, at: int) -> int:
    return next((end for end in range(at, len(raw)) if raw[end] in b" \t\n"), len(raw))


def _skip_blanks(raw: bytes, at: int) -> int:
    return next((end for end in range(at, len(raw)) if raw[end] not in _BLANKS), len(raw))
