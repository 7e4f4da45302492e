"""The errors of oncecron: one tree, the exit status on the class, the docstring the message.

A refusal (somebody else runs the job) is a value and a lost lease is an event; neither is an error.
Exit statuses follow sysexits(3) where it has one, and the shell's 124, 126 and 127.
"""

from __future__ import annotations

EX_USAGE = 64
EX_NOINPUT = 66
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
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

    exit_status = 1


class NotFoundError(OncecronError):
    """What was asked for is not there."""

    exit_status = 1


class CommandError(OncecronError):
    """The job's command cannot be started on this host."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class ConfigurationError(OncecronError):
    """The configuration is wrong."""

    exit_status = EX_CONFIG


class StoreError(OncecronError):
    """The store failed."""

    exit_status = EX_UNAVAILABLE
    unanswered = False
    """Whether it was asked and did not answer: it may have done what it was asked for."""


class StoreUnavailable(StoreError):  # noqa: N818 - the words of the design: the store is unavailable
    """The store cannot be reached now; asking again may help."""


class StoreRefusesError(StoreError):
    """The store answers, but not as this program needs it; asking again does not help."""

    exit_status = EX_CONFIG
