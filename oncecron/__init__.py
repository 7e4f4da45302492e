"""Run a crontab entry once cluster-wide."""

import sys

__version__ = "0.1.0"

if sys.version_info < (3, 11):  # noqa: UP036 - of an older Python, which reads this file and few others
    sys.stderr.write(
        "oncecron: Python 3.11 or newer is needed, but %s is Python %s; install oncecron with a newer one\n"  # noqa: UP031
        % (sys.executable, sys.version.split()[0])
    )
    sys.exit(78)
