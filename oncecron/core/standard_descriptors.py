"""Fill standard descriptors that the caller has closed, before anything else of this process can take their numbers.

Otherwise a socket or a file that is opened later gets the number 0, 1 or 2, and a message for standard error goes to
the database: `oncecron stop KEY 2>&-` did that.
"""

from __future__ import annotations

import os

from oncecron.core.errors import ConfigurationError, shortage_of


def fill() -> None:
    """Open /dev/null in place of each of the descriptors 0 to 2 that is closed.

    It is closed when another program is executed, so a job finds closed what its caller had closed. Raises
    `ConfigurationError`, or `OSError` for a shortage.
    """
    try:
        while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:  # noqa: PLR2004
            pass
    except OSError as error:
        if shortage_of(error):
            raise
        raise ConfigurationError(
            f"cannot open {os.devnull}: {error.strerror}; "
            "give this host or container a /dev with null in it"
        ) from error
    os.close(descriptor)
