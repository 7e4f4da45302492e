"""What a test does when the machine cannot show what it is to prove.

A skip is loud: its reason starts with `NOT PROVEN:`, and with ONCECRON_REQUIRE_ALL=1 (which
`tests/run` sets when it is root) it is a failure.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

NOT_PROVEN = "NOT PROVEN:"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def everything_required() -> bool:
    """Say whether this run must prove everything."""
    return os.environ.get("ONCECRON_REQUIRE_ALL") == "1"


def not_proven(reason: str) -> NoReturn:
    """Skip the running test loudly; the reporting hook makes it fail where all is required."""
    pytest.skip(f"{NOT_PROVEN} {reason}")


def require_root(what: str) -> None:
    """Skip loudly unless root, naming what needs it."""
    if os.geteuid() != 0:
        not_proven(f"{what} needs root")


def program(name: str) -> str:
    """Return the path of an installed program, looked up in the system's directories too."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        not_proven(f"the program {name} is not installed (tests/run installs it)")
    return found


def postgres_programs() -> Path:
    """Return the directory of initdb and postgres: ONCECRON_TEST_PG_BIN, else the newest that is installed."""
    from servers import versions

    chosen = os.environ.get("ONCECRON_TEST_PG_BIN")
    if chosen in versions.POSTGRESQL:
        return versions.postgres_programs(chosen)
    if chosen:
        return Path(chosen)
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4])
    )
    if found:
        return found[-1].parent
    return Path(program("initdb")).resolve().parent
