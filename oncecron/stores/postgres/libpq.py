"""The part of libpq that a firing needs, with ctypes: a connection, statements that never block, and their rows.

Importing psycopg takes two thirds of a firing's time, on every host and every minute, mostly for features that a firing
never uses. Only the commands for people import it. The library is the one in psycopg's wheel, else the system's. ctypes
releases the interpreter's lock during every call, so a slow name server does not block the other threads.

Function by function: https://www.postgresql.org/docs/current/libpq.html
"""

from __future__ import annotations

import os
import sys

from oncecron.core.errors import StoreRefusesError, shortage_of
from oncecron.core.light_modules import (
    CDLL,
    CFUNCTYPE,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_void_p,
    sizeof,
)
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.stores.postgres import address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ctypes import Array

Column = bytes | None
Row = tuple[Column, ...]

_CONNECTION_OK = 0
POLLING_FAILED, POLLING_READING, POLLING_OK = 0, 1, 3
"""Of PGresPollingStatusType; anything else: wait until the socket is writable."""
_DEFAULT, _VERBOSE = 1, 2
_COMMAND_OK, _TUPLES_OK = 1, 2
_SQLSTATE, _PRIMARY = ord("C"), ord("M")
_SYSTEM_LIBRARY = "libpq.so.5"

_SIGNATURES: dict[str, tuple[object, ...]] = {
    # name: (result, arguments...)
    "PQlibVersion": (c_int,),
    "PQconnectStartParams": (c_void_p, c_void_p, c_void_p, c_int),
    "PQconnectPoll": (c_int, c_void_p),
    "PQsetErrorVerbosity": (c_int, c_void_p, c_int),
    "PQconninfo": (c_void_p, c_void_p),
    "PQconninfoParse": (c_void_p, c_char_p, c_void_p),
    "PQconninfoFree": (None, c_void_p),
    "PQfreemem": (None, c_void_p),
    "PQstatus": (c_int, c_void_p),
    "PQerrorMessage": (c_char_p, c_void_p),
    "PQbackendPID": (c_int, c_void_p),
    "PQparameterStatus": (c_char_p, c_void_p, c_char_p),
    "PQsocket": (c_int, c_void_p),
    "PQsetnonblocking": (c_int, c_void_p, c_int),
    "PQsetNoticeProcessor": (c_void_p, c_void_p, c_void_p, c_void_p),
    "PQsendQuery": (c_int, c_void_p, c_char_p),
    "PQsendQueryParams": (
        *(c_int, c_void_p, c_char_p, c_int, c_void_p, c_void_p),
        *(c_void_p, c_void_p, c_int),
    ),
    "PQflush": (c_int, c_void_p),
    "PQisBusy": (c_int, c_void_p),
    "PQconsumeInput": (c_int, c_void_p),
    "PQgetResult": (c_void_p, c_void_p),
    "PQresultStatus": (c_int, c_void_p),
    "PQresultErrorField": (c_char_p, c_void_p, c_int),
    "PQresultErrorMessage": (c_char_p, c_void_p),
    "PQntuples": (c_int, c_void_p),
    "PQnfields": (c_int, c_void_p),
    "PQfname": (c_char_p, c_void_p, c_int),
    "PQgetisnull": (c_int, c_void_p, c_int, c_int),
    "PQgetvalue": (c_char_p, c_void_p, c_int, c_int),
    "PQclear": (None, c_void_p),
    "PQnotifies": (c_void_p, c_void_p),
    "PQfinish": (None, c_void_p),
}


class LibpqError(Exception):
    """The connection was lost; the message is libpq's."""


class BrokenConninfoError(LibpqError):
    """The connection string cannot be read."""


class _Notification(Structure):
    _fields_ = (("channel", c_char_p), ("backend_pid", c_int), ("payload", c_char_p))


class _Option(Structure):
    _fields_ = (
        *(
            (name, c_char_p)
            for name in ("keyword", "envvar", "compiled", "val", "label", "dispchar")
        ),
        ("dispsize", c_int),
    )


class Result(NamedTuple):
    """The answer to one statement."""

    rows: list[Row]
    sqlstate: str | None
    """None: it succeeded."""
    message: str
    names: tuple[str, ...] = ()
    """Of the columns."""


_loaded: list[CDLL] = []
_silenced: list[bool] = []


def _load() -> CDLL:
    """Return the library, loaded once per process: an upgrade may replace its file while a job runs."""
    if not _loaded:
        library = _open()
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        silence_stdio()
        _loaded.append(library)
    return _loaded[0]


def _open() -> CDLL:
    """Return psycopg's library, else the system's. Raises `StoreRefusesError`; `OSError` for a shortage."""
    for directory in sys.path:
        wheel = os.path.join(directory, "psycopg_binary.libs")
        try:
            names = os.listdir(wheel)
        except OSError as error:
            if shortage_of(error):
                raise
            continue
        for name in names:
            if name.startswith("libpq-"):
                return CDLL(os.path.join(wheel, name))
    try:
        return CDLL(_SYSTEM_LIBRARY)
    except OSError as error:
        if shortage_of(error):
            raise
        raise StoreRefusesError(
            f"{_SYSTEM_LIBRARY} not found; install psycopg[binary], or your distribution's libpq5"
        ) from error


def silence_stdio() -> None:
    """Discard what C prints to its `stderr`: notices while libpq connects, before a notice processor can be set.

    `login_files` says what libpq warns of. Python and the job use descriptor 2, not this stream. It can be replaced
    only in glibc; it is `const` in musl.
    """
    library = CDLL(None)
    if _silenced or not hasattr(library, "gnu_get_libc_version"):
        return
    _silenced.append(True)
    library.fopen.restype, library.fopen.argtypes = c_void_p, (c_char_p, c_char_p)
    nowhere = library.fopen(os.fsencode(os.devnull), b"we")
    if nowhere:
        c_void_p.in_dll(library, "stderr").value = nowhere


# libpq would print notices to standard error, which cron would mail.
_ignore_notice = CFUNCTYPE(None, c_void_p, c_char_p)(lambda _argument, _message: None)


def check(url: str) -> None:
    """Raise `BrokenConninfoError` for a connection string that libpq cannot read."""
    pq = _load()
    message = c_void_p()
    options = pq.PQconninfoParse(os.fsencode(url), byref(message))
    if options:
        pq.PQconninfoFree(options)
        return
    text = (c_char_p(message.value).value or b"").decode("utf-8", "replace")
    pq.PQfreemem(message)
    raise BrokenConninfoError(text)


def settings(url: str) -> dict[str, str | None]:
    """Return what libpq would use for a URL, with service file, environment and defaults, without connecting.

    Every parameter that this libpq knows is a key.
    """
    pq = _load()
    keywords, values = ["dbname", *address.NO_CONNECTION], [url, *address.NO_CONNECTION.values()]
    conn = pq.PQconnectStartParams(_texts(keywords), _texts(values), 1)
    first = pq.PQconninfo(conn)
    found: dict[str, str | None] = {}
    place = first or 0
    while place and (option := _Option.from_address(place)).keyword:
        value = option.val
        found[option.keyword.decode()] = None if value is None else os.fsdecode(value)
        place += sizeof(_Option)
    pq.PQconninfoFree(first)
    pq.PQfinish(conn)
    return found


def tell_codes(connection: int | None, version: int) -> None:
    """Let libpq put the SQLSTATE into the message of a failed login, which has no other place for it.

    `connection`: a PGconn, which libpq of this version made: psycopg may have another one, and then it stays as it is.
    """
    pq = _load()
    if connection and version == pq.PQlibVersion():
        pq.PQsetErrorVerbosity(connection, _VERBOSE)


class PgConn:
    """One PGconn, which is logged in once `poll` has returned POLLING_OK. Nothing blocks."""

    def __init__(
        self, url: str, parameters: Mapping[str, str], place: Mapping[str, str] | None = None
    ) -> None:
        """Begin to log in. What a checked URL has takes precedence over the parameters, and a place over the URL."""
        self._pq = _load()
        keywords = [*parameters, "dbname", *(place or ())]
        values = [*parameters.values(), url, *(place or {}).values()]
        self._conn: int | None = self._pq.PQconnectStartParams(_texts(keywords), _texts(values), 1)
        tell_codes(self._conn, self._pq.PQlibVersion())
        self._pq.PQsetNoticeProcessor(self._conn, _ignore_notice, None)

    def poll(self) -> int:
        """Carry the login on."""
        status = int(self._pq.PQconnectPoll(self._conn))
        if status == POLLING_OK:
            self._pq.PQsetErrorVerbosity(self._conn, _DEFAULT)
            self._pq.PQsetnonblocking(self._conn, 1)
        return status

    def error(self) -> str:
        """Return libpq's last message."""
        return (self._pq.PQerrorMessage(self._conn) or b"").decode("utf-8", "replace")

    @property
    def alive(self) -> bool:
        """Whether libpq considers the connection alive."""
        return int(self._pq.PQstatus(self._conn)) == _CONNECTION_OK

    @property
    def socket(self) -> int:
        """The descriptor of the connection."""
        return int(self._pq.PQsocket(self._conn))

    @property
    def backend_pid(self) -> int:
        """The backend pid that the server, or a pooler in front of it, sent at the start."""
        return int(self._pq.PQbackendPID(self._conn))

    def parameter(self, name: str) -> str | None:
        """Return a setting that the server sent at the start; None if it, or a proxy in front of it, did not."""
        value = self._pq.PQparameterStatus(self._conn, name.encode())
        return value.decode("ascii", "replace") if value else None

    def send(self, statement: bytes, values: Sequence[bytes | None]) -> None:
        """Begin to send a statement. Raises `LibpqError`, like the methods below."""
        texts = (c_char_p * len(values))(*values)
        self._succeed(
            self._pq.PQsendQueryParams(
                self._conn, statement, len(values), None, texts, None, None, 0
            )
        )

    def send_script(self, statements: bytes) -> None:
        """Begin to send several statements."""
        self._succeed(self._pq.PQsendQuery(self._conn, statements))

    def flush(self) -> bool:
        """Send what can be sent without blocking; return whether anything is left."""
        left = int(self._pq.PQflush(self._conn))
        self._succeed(left >= 0)
        return left == 1

    def consume(self) -> None:
        """Read what has arrived."""
        self._succeed(self._pq.PQconsumeInput(self._conn))

    def busy(self) -> bool:
        """Return whether `result` would block."""
        return bool(self._pq.PQisBusy(self._conn))

    def result(self) -> Result | None:
        """Return the next result, or None after the last."""
        result = self._pq.PQgetResult(self._conn)
        if not result:
            return None
        try:
            return self._read(result)
        finally:
            self._pq.PQclear(result)

    def _read(self, result: int) -> Result:
        pq = self._pq
        if pq.PQresultStatus(result) in (_COMMAND_OK, _TUPLES_OK):
            columns = range(pq.PQnfields(result))
            rows = [
                tuple(
                    None
                    if pq.PQgetisnull(result, row, column)
                    else pq.PQgetvalue(result, row, column)
                    for column in columns
                )
                for row in range(pq.PQntuples(result))
            ]
            names = (pq.PQfname(result, column).decode("ascii", "replace") for column in columns)
            return Result(rows, None, "", tuple(names))
        sqlstate = pq.PQresultErrorField(result, _SQLSTATE) or b""
        message = pq.PQresultErrorField(result, _PRIMARY) or pq.PQresultErrorMessage(result) or b""
        return Result([], sqlstate.decode("ascii", "replace"), message.decode("utf-8", "replace"))

    def notified(self) -> bool:
        """Discard the notifications that were read; return whether any came from another session."""
        others = False
        while found := self._pq.PQnotifies(self._conn):
            others |= _Notification.from_address(found).backend_pid != self.backend_pid
            self._pq.PQfreemem(found)
        return others

    def _succeed(self, succeeded: object) -> None:
        if not succeeded:
            raise LibpqError(self.error())

    def finish(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        if conn:
            self._pq.PQfinish(conn)


def _texts(texts: Sequence[str]) -> Array[c_char_p]:
    """Return a NULL-terminated array of C strings."""
    return (c_char_p * (len(texts) + 1))(*(os.fsencode(text) for text in texts), None)
