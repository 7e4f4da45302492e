"""The errors of oncecron: each class has an exit status, and its docstring is the default message.

A refusal is a value and a lost lease is an event; neither is an error. A firing that was refused exits with
`--skip-exit`, one whose job has lost its lease with `EX_TEMPFAIL` (`run.firing_states`). Exit statuses follow
sysexits(3), and 124, 126 and 127 follow the shell.
"""

from __future__ import annotations

import errno
import os

EX_FOUND = 1
EX_CHANGES = 2
EX_UNKNOWN = 3
EX_USAGE = 64
EX_DATAERR = 65
EX_NOINPUT = 66
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_CANTCREAT = 73
EX_IOERR = 74
EX_TEMPFAIL = 75
EX_CONFIG = 78
EX_TIMED_OUT = 124
EX_NOT_EXECUTABLE = 126
EX_NOT_FOUND = 127


class OncecronError(Exception):
    """An internal error of oncecron."""

    exit_status = EX_SOFTWARE

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class UsageError(OncecronError):
    """The command line cannot be understood."""

    exit_status = EX_USAGE


class UnknownZoneError(ValueError):
    """The tz database has no zone with this name."""


class InputError(OncecronError):
    """A file cannot be read."""

    exit_status = EX_NOINPUT


class OutputError(OncecronError):
    """The answer cannot be written."""

    exit_status = EX_IOERR


class NotFoundError(OncecronError):
    """Not found."""

    exit_status = EX_NOINPUT


class CommandError(OncecronError):
    """The job's command cannot be started on this host."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class ConfigurationError(OncecronError):
    """The configuration is wrong."""

    exit_status = EX_CONFIG


class ShortageError(OncecronError):
    """The host is short of processes, memory or descriptors."""

    exit_status = EX_TEMPFAIL


_SHORT_OF = {
    errno.EAGAIN: "no more processes or threads may be started; check `ulimit -u` and pids.max",
    errno.ENOMEM: "out of memory",
    errno.EMFILE: "this process has too many open files; check `ulimit -n`",
    errno.ENFILE: "this host has too many open files; check fs.file-max",
}


def shortage_of(error: BaseException) -> ShortageError | None:
    """Return the error of a host that is short of something, if that is the cause; else None.

    It is here because a process without descriptors could not import another module.
    """
    if isinstance(error, ShortageError):
        return error
    number = _short_of(error)
    if number not in _SHORT_OF:
        return None
    return ShortageError(f"this host is short of resources: {_SHORT_OF[number]}")


def _short_of(error: BaseException) -> int | None:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, RuntimeError):
        return errno.EAGAIN if "can't start new thread" in str(error) else None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, OSError | ImportError):  # of a library that could not be loaded
        if "failed to map segment" in str(error):  # the loader's words for ENOMEM
            return errno.ENOMEM
        return next((number for number in _SHORT_OF if os.strerror(number) in str(error)), None)
    return None


class StoreError(OncecronError):
    """The store failed."""

    exit_status = EX_UNAVAILABLE
    unanswered = False
    """Whether the request was sent and no answer came: the store may have carried it out."""


class StoreUnavailable(StoreError):  # noqa: N818 - the words of the design: the store is unavailable
    """The store cannot be reached now; a retry may help."""


class StoreRefusesError(StoreError):
    """The store cannot be used as it is; a retry does not help."""

    exit_status = EX_CONFIG


UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
    RecursionError,
)
"""What converting a value of a store raises if it is none of ours."""


_NO_FORM = "it does not have the form that oncecron writes"
_MEANINGS: tuple[tuple[type[BaseException], str, str], ...] = (
    (RecursionError, "", "it is nested too deeply"),
    (UnicodeError, "", "it is not UTF-8"),
    (OverflowError, "", "a number in it is too large"),
    (TypeError, "", _NO_FORM),
    (IndexError, "", _NO_FORM),
    (AttributeError, "", _NO_FORM),
    (ValueError, "to unpack", _NO_FORM),
    (ValueError, "zip()", _NO_FORM),
    (ValueError, "integer string conversion", "a number in it has too many digits"),
    (ValueError, "invalid literal for int", "a number in it is not a whole one"),
    (ValueError, "could not convert string to float", "a number in it is not one"),
    (ValueError, "UTF-8 BOM", "it begins with a byte order mark (BOM); write it without one"),
)
"""What the interpreter raises, a part of its words, and what they mean of a file or a row."""


def reason_of(error: BaseException) -> str:
    """Return why a file or a row cannot be read, in words that name no part of the interpreter."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    found = (
        meaning for kind, words, meaning in _MEANINGS if isinstance(error, kind) and words in text
    )
    return next(found, text)


class RecordRefusedError(StoreRefusesError):
    """The store does not take this record; it may take the next one."""


def unreadable_answer(error: BaseException) -> StoreRefusesError:
    """Return the error of a store's answer that has another form than any of ours."""
    return StoreRefusesError(
        f"the store's answer cannot be read ({reason_of(error)}); check that it is the right server; a row that is "
        "damaged is named by `oncecron locks` and `oncecron history`"
    )
