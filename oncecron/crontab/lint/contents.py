"""Findings on what a line or a variable holds: secrets, an unescaped `%`, an empty MAILTO."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from oncecron.crontab.lint.lines import Finding
from oncecron.crontab.lint.shell import parts
from oncecron.crontab.reading import split_command
from oncecron.crontab.scanner import Refused, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.crontab.lint.lines import Line, Source

_SECRET = r"(?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|mysql_pwd|credentials?)"  # noqa: S105 - names
_SECRET_NAME = re.compile(rf"(?:^|_){_SECRET}s?$|^pgpassword$", re.IGNORECASE)
_OPTION = re.compile(
    rf"--?(?:[a-z0-9]+[-_])*{_SECRET.replace('_?', '[-_]?')}(?:=(.+))?$", re.IGNORECASE
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HEADER = re.compile(r"authorization:\s*(?:bearer|basic|token)\s+(\S+)", re.IGNORECASE)
_OF_MYSQL = frozenset(("mysql", "mysqldump", "mysqladmin", "mysqlcheck", "mariadb", "mariadb-dump"))
_NOT_ITSELF = ("$", "`", "/", "./", "~", "<", "@", "-", "{")
_CURE = (
    "put it into a file of mode 600 that the program reads (~/.pgpass, ~/.my.cnf, ~/.netrc; for oncecron store_file in "
    "the configuration): cron mails its variables, and arguments are seen by everybody"
)


def check_variables(source: Source) -> Iterator[Finding]:
    """Yield the variables that hold a secret, and MAILTO where it is empty."""
    last = max((job.number for job in source.crontab.jobs()), default=0)
    for line in source.crontab.lines:
        if isinstance(line, Refused) and line.raw.strip().partition(b"=")[0].strip() == b"MAILTO":
            yield Finding(
                *(source.name, line.number, "mailto"),
                "MAILTO= without a value is no setting to Debian's cron, which refuses the whole file",
                'write MAILTO="", or better an address',
            )
        if not isinstance(line, Variable):
            continue
        name, value = (text.decode("utf-8", "surrogateescape") for text in (line.name, line.value))
        if name == "MAILTO" and not value and line.number < last:
            yield Finding(
                *(source.name, line.number, "mailto"),
                "MAILTO is empty: nobody hears of what the jobs below say when they fail",
                "name an address; oncecron prints nothing on success or on a refusal",
            )
        if _is_secret(name, value) or _in_urls(value):
            yield Finding(*(source.name, line.number, "secret"), f"{name} holds a secret", _CURE)


def check_command(line: Line) -> Iterator[Finding]:
    """Yield secrets among the arguments, and a `%` that ends the command where it was not meant to."""
    what = next((name for part in line.parts for name in _secrets(part.words)), None)
    if what:
        yield line.finding("secret", f"{what} on the line is a secret", _CURE)
    before, behind = split_command(line.job.command)
    if behind is not None and not _is_meant(before.decode("utf-8", "surrogateescape")):
        yield line.finding(
            "percent",
            "cron ends the command at the first % and makes the rest its standard input",
            r"write \% for a percent sign",
        )


def _is_meant(before: str) -> bool:
    """Return whether a `%` may be meant to end the command: not within quotes, a date's format or an address."""
    divided = parts(before)
    if divided is None:
        return False
    word = before.rpartition(" ")[2]
    return not (word.startswith("+") or "://" in word)


def _secrets(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the names of arguments that are secrets, never what they are."""
    program = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "").rpartition("/")[
        2
    ]
    for word, following in pairwise((*words, "")):
        assignment = _ASSIGNMENT.fullmatch(word)
        option = _OPTION.fullmatch(word)
        if assignment and _is_secret(assignment[1], assignment[2]):
            yield assignment[1]
        elif option and _is_literal(option[1] if option[1] is not None else following):
            yield word.partition("=")[0]
        elif _in_urls(word):
            yield "the password in an address"
        elif (header := _HEADER.search(word)) and _is_literal(header[1]):
            yield "the Authorization header"
        elif program in _OF_MYSQL and re.fullmatch(r"-p(.+)", word) and _is_literal(word[2:]):
            yield "-p"
        elif (
            program == "curl"
            and word in ("-u", "--user")
            and _is_literal(following.partition(":")[2])
        ):
            yield word


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and _is_literal(value)


def _in_urls(text: str) -> bool:
    return any(_is_literal(found) for found in _URL.findall(text))


def _is_literal(value: str) -> bool:
    """Return whether a value is the secret itself: not a variable, nor where it is found."""
    return bool(value) and not value.startswith(_NOT_ITSELF)
