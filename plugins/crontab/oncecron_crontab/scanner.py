"""A crontab, line by line, with every byte kept: what a cron accepts, what it rejects and why.

Follows load_env and load_entry of cron 3.0pl1-162, which read a line as follows:

    only blanks; or `#` after blanks                        blank, comment
    NAME = VALUE, quoted or not                             variable, for the lines below it
    fields or @nickname, [user], the rest                   entry; a `%` ends the command, see `percent_sign`
    anything else                                           invalid: cron rejects the whole file

Other crons have other fields and nicknames, and treat a line otherwise that they cannot read: see the table in `crons`.
`NAME =` without a value is a variable too, as for Debian 13 and cronie; Debian 12 rejects such a file, see `doubts`.
A carriage return is not a blank: it is part of the command, or makes a line invalid that has nothing else. A system
crontab (/etc/crontab, /etc/cron.d) has the user's name before the command. For a user's crontab `crontab -n FILE` gives
the same answer as this module. Whether a user exists is not checked, because the file may be for another host.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from oncecron_crontab.crons import CRONS, Cron
from oncecron_crontab.fields import FIVE, NAMES, Field, either_day, read_field

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_VARIABLE = 998
_MOST_LINES = 10_000
# Cron allows this many more for the header that crontab(1) writes, even without one.
_HEADER_LINES = 3
_BLANKS = b" \t"
_SPACES = b" \t\n\v\f\r"
_NO_USER = frozenset(b"/:*,;&|<>()'\"\\$`%\n\r")
NUL = "cron ends the line at a NUL byte and reads the rest as another line; remove the byte"
"""Why we reject a line that cron may accept: for cron it is two lines."""
MARK = (
    "the file begins with a byte order mark (BOM), which every cron takes for a part of the first line; remove it, "
    r"such as with `sed -i '1s/^\xEF\xBB\xBF//' FILE`"
)
"""Why we reject a first line that cron may accept: as another variable, or as a comment that is none."""
WIDE = (
    "the file is UTF-16, which no cron reads; convert it, such as with `iconv -f UTF-16 -t UTF-8`"
)
JOINED = (
    "cron joins a line that ends with a backslash and the line below it; write them as one line"
)
OWN_REASONS = (NUL, MARK, WIDE, JOINED)
"""The reasons that are not those of a cron."""
_RETURNS = re.compile(rb"\r\Z|(?<!\\)(?:\\\\)*\\r\Z")
_MARKS = {b"\xef\xbb\xbf": MARK, b"\xff\xfe": WIDE, b"\xfe\xff": WIDE}
RETURN = "the line ends with CR LF, and the CR is a part of the command; remove it, such as with `dos2unix`"
RETURN_SHOWN = r"the line ends with \r, which a shell reads as r, and as which `crontab -l` may show a CR; remove it"
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
    either_day: bool = True
    """Whether a day that matches one of the two day fields is enough."""

    @property
    def is_reboot(self) -> bool:
        """Whether it runs when the host boots, without a schedule."""
        return self.schedule.startswith("@") and self.schedule.lower() in ("@reboot", "@boot")


class InvalidLine(NamedTuple):
    """A line that cron cannot read; Debian's then rejects the whole file."""

    number: int
    raw: bytes
    reason: str
    """In cron's own words: `bad minute`, `command too long`; or one of `OWN_REASONS`."""


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
    cron: Cron = CRONS["debian"]
    """The cron as which it was read."""

    def entries(self) -> Iterator[Entry]:
        """Yield the lines that run commands."""
        return (line for line in self.lines if isinstance(line, Entry))

    def environment(self, entry: Entry) -> dict[bytes, bytes]:
        """Return the variables that the lines above an entry set; the last one of a name counts."""
        return {line.name: line.value for line in self.variables if line.number < entry.number}

    def problems(self) -> list[Problem]:
        """Return the lines that cron cannot read, and why; empty if it accepts the file."""
        found = [
            Problem(line.number, line.reason)
            for line in self.lines
            if isinstance(line, InvalidLine)
        ]
        if found and found[0].reason == WIDE:
            return found[:1]  # all other lines have NUL bytes
        last = self.lines[-1] if self.lines else None
        ended = not self.cron.needs_newline or not last or last.raw.endswith(b"\n")
        if not ended and isinstance(last, Variable | Entry | InvalidLine):
            found.append(Problem(last.number, "no newline at the end of the file"))
        if self.cron != CRONS["debian"]:
            return found
        most = _MOST_LINES + (_HEADER_LINES if self.system else 0)
        if sum(line.raw.endswith(b"\n") for line in self.lines) > most:
            found.append(Problem(most + 1, f"more than {most} lines"))
        return found

    def doubts(self) -> list[Problem]:
        """Return why some versions of cron reject this file, which others accept."""
        if self.cron.rules:
            return []
        return [Problem(line.number, NO_VALUE) for line in self.variables if line.has_no_value]

    def returns(self) -> list[Problem]:
        """Return the first line that ends with CR LF, if cron passes the CR on, or with the letters for it."""
        found = (
            Problem(each.number, RETURN if each.command.endswith(b"\r") else RETURN_SHOWN)
            for each in self.entries()
            if _RETURNS.search(each.command)
        )
        return [*found][:1]


def scan(data: bytes, *, system: bool = False, cron: Cron = CRONS["debian"]) -> Crontab:
    """Read a crontab as a cron does; `system`: a user's name is before each command. Raises nothing."""
    raws = data.split(b"\n")
    raws = [raw + b"\n" for raw in raws[:-1]] + ([raws[-1]] if raws[-1] else [])
    lines = tuple(
        _scan_line(number, raw, system=system, cron=cron) for number, raw in enumerate(raws, 1)
    )
    if cron.joins:
        lines = _without_joined(lines)
    return Crontab(lines, system, tuple(line for line in lines if isinstance(line, Variable)), cron)


def _without_joined(lines: tuple[CrontabLine, ...]) -> tuple[CrontabLine, ...]:
    ends = {line.number for line in lines if line.raw.endswith(b"\\\n")}
    return tuple(
        InvalidLine(line.number, line.raw, JOINED)
        if ends.intersection((line.number, line.number - 1))
        else line
        for line in lines
    )


def _scan_line(number: int, raw: bytes, *, system: bool, cron: Cron) -> CrontabLine:
    mark = next((mark for mark in _MARKS if number == 1 and raw.startswith(mark)), None)
    if mark:
        return InvalidLine(number, raw, _MARKS[mark])
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
    return _scan_job(number, raw, system=system, cron=cron)


# Variables


def read_variable(text: bytes) -> tuple[bytes, bytes] | None:
    """Return name and value of a variable (`load_env`), None if the line is not one."""
    text = text[:_LONGEST_VARIABLE]  # cron silently cuts off the rest
    name, rest = _read_name(text)
    if name is None or not rest.startswith(b"="):
        return None
    return _read_value(name, rest[1:].lstrip(_SPACES))


def _read_name(text: bytes) -> tuple[bytes | None, bytes]:
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


def _scan_job(number: int, raw: bytes, *, system: bool, cron: Cron) -> Entry | InvalidLine:
    at = len(raw) - len(raw.lstrip(_BLANKS))
    at += cron.dash and raw[at : at + 1] == b"-"
    if raw[at : at + 1] == b"@":
        return _scan_nickname(number, raw, at, system=system, cron=cron)
    entry: Entry | InvalidLine
    for positions in cron.fields:
        words: list[str] = []
        fields: dict[int, Field] = {}
        entry, start = InvalidLine(number, raw, ""), at
        for position in positions:
            end = _end_of_word(raw, start)
            field = read_field(position, raw[start:end], cron.rules)
            if field is None:
                entry = InvalidLine(number, raw, f"bad {NAMES[position]}")
                break
            fields[position] = field
            words.append(field.written)
            start = _skip_blanks(raw, end)
        else:
            if cron.rules is None and raw[start : start + 1] == b"\xff":
                return InvalidLine(number, raw, f"bad {NAMES[4]}")  # see `fields`
            entry = _scan_command(number, raw, start, system=system, cron=cron)
            if isinstance(entry, Entry):
                five = _five(fields)
                either = cron.days != "both" and either_day(five[2], five[4])
                return entry._replace(schedule=" ".join(words), fields=five, either_day=either)
    return entry


def _five(fields: dict[int, Field]) -> tuple[Field, ...]:
    five = [fields[position] for position in FIVE]
    second, year = fields.get(5), fields.get(6)
    other = (
        second if second and second.values != {0} else year if year and not year.has_star else None
    )
    if other:
        five[0] = five[0]._replace(foreign=other.written)
    return tuple(five)


def _scan_nickname(
    number: int, raw: bytes, at: int, *, system: bool, cron: Cron
) -> Entry | InvalidLine:
    end = _end_of_word(raw, at)
    word = raw[at:end].lower() if cron.any_case else raw[at:end]
    meant = cron.nicknames.get(word)
    if meant is None:
        return InvalidLine(number, raw, "bad time specifier")
    start = _skip_blanks(raw, end)
    entry = _scan_command(number, raw, start, system=system, cron=cron)
    if isinstance(entry, InvalidLine):
        return entry
    entry = entry._replace(schedule=word.decode())
    if meant == CRONS["debian"].nicknames.get(word, ""):
        return entry
    fields = tuple(
        read_field(position, field) for position, field in enumerate(meant.encode().split())
    )
    five = tuple(field for field in fields if field)
    return entry._replace(fields=five, either_day=either_day(five[2], five[4]))


def _scan_command(
    number: int, raw: bytes, at: int, *, system: bool, cron: Cron
) -> Entry | InvalidLine:
    user, at, counted = _read_user(raw, at) if system else (None, at, at)
    command = raw[at:].removesuffix(b"\n").rstrip(cron.trimmed)
    if system and user is None:
        return InvalidLine(number, raw, "bad username")
    if re.match(cron.no_command, command) and not (system and command):
        return InvalidLine(number, raw, "bad command")
    longest_command = cron.longest_command - (at - counted)
    if len(command) > longest_command:
        return InvalidLine(number, raw, "command too long")
    return Entry(number, raw, "", (), user, command, at, longest_command)


def _read_user(raw: bytes, at: int) -> tuple[bytes | None, int, int]:
    end = _end_of_word(raw, at)
    user = raw[at:end]
    if not user or raw[end : end + 1] not in (b" ", b"\t") or _NO_USER.intersection(user):
        return None, at, at
    return user, _skip_blanks(raw, end), end + 1


def _end_of_word(raw: bytes, at: int) -> int:
    return next((end for end in range(at, len(raw)) if raw[end] in b" \t\n"), len(raw))


def _skip_blanks(raw: bytes, at: int) -> int:
    return next((end for end in range(at, len(raw)) if raw[end] not in _BLANKS), len(raw))
