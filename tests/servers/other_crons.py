"""Other cron daemons than Debian's own, from Debian's packages: fetched and unpacked, not installed.

Debian's packages of crons conflict with each other. So they are unpacked into a directory beside the test
environment, once. The C library of the newer release is used by those that need it, and by nothing else.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import debian
from debian import by_its_own_library

from servers.cron import CronHost
from servers.require import not_proven

RELEASE, OLDER = "trixie", "bookworm"  # the first with a package of cronie, and the one before
PACKAGES = ("cronie", "busybox-static", "systemd-cron", "libstdc++6", "libgcc-s1", "libc6")
_VENV = os.environ.get("ONCECRON_TEST_VENV", Path(__file__).parents[2] / ".venv-test")
DIRECTORY = Path(_VENV).resolve() / "crons"


class Daemon(NamedTuple):
    command: list[str]
    variables: dict[str, str]
    """What its environment has besides PATH."""


def unpacked() -> Path:
    """Return the directory with the unpacked packages; a skip that names the reason where they cannot be had."""
    debian.once(DIRECTORY, lambda: fetch_packages(DIRECTORY, PACKAGES))
    return DIRECTORY / "root"


def fetch_packages(directory: Path, packages: Sequence[str]) -> None:
    """Fetch Debian's packages and unpack them into `root` of a directory."""
    try:
        debian.unpack(directory, (RELEASE, OLDER), packages)
    except OSError as error:
        not_proven(str(error))


def daemons() -> dict[str, Daemon]:
    """Return the daemons by the name that `--cron` takes."""
    root = unpacked()
    spool = "/var/spool/cron/crontabs"
    return {
        "cronie": Daemon([*by_its_own_library(root, "usr/sbin/crond"), "-n"], {}),
        # busybox passes on its own environment, and reads no variables of a crontab but two.
        "busybox": Daemon(
            [str(root / "usr/bin/busybox"), "crond", "-f", "-L", "/dev/null", "-c", spool],
            {"XDG_STATE_HOME": "/run"},
        ),
    }


def generator() -> list[str]:
    name = "usr/lib/systemd/system-generators/systemd-crontab-generator"
    return by_its_own_library(unpacked(), name)


class OtherCronHost(CronHost):
    """A host with another daemon."""

    def __init__(self, name: str, crontab: str, daemon: Daemon) -> None:
        super().__init__(name, crontab)
        self.daemon = daemon.command
        self.environment |= daemon.variables
