"""Other cron daemons than Debian's own, from Debian's packages: fetched and unpacked, not installed.

Debian's packages of crons conflict with each other. So they are unpacked into a directory beside the test
environment, once. The C library of the newer release is used by those that need it, and by nothing else.
"""

import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from servers.cron import CronHost
from servers.require import not_proven, program

RELEASE, OLDER = "trixie", "bookworm"  # the first with a package of cronie, and the one before
PACKAGES = (
    "cronie",
    "busybox-static",
    f"bcron/{OLDER}",  # its programs start each other, so they must run with the library of this machine
    f"libbg2/{OLDER}",
    "systemd-cron",
    "libstdc++6",
    "libgcc-s1",
    "libc6",
)
_VENV = os.environ.get("ONCECRON_TEST_VENV", Path(__file__).parents[2] / ".venv-test")
DIRECTORY = Path(_VENV).resolve() / "crons"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = "".join(
    f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {release} main\n"
    for release in (RELEASE, OLDER)
)
APT = """\
Dir::Etc::SourceList "{directory}/sources.list";
Dir::Etc::SourceParts "{directory}/none";
Dir::State::Lists "{directory}/lists";
Dir::Cache "{directory}/cache";
APT::Sandbox::User "";
"""


class Daemon(NamedTuple):
    """How a daemon is started."""

    command: list[str]
    variables: dict[str, str]
    """What its environment has besides PATH."""


def unpacked() -> Path:
    """Return the directory with the unpacked packages; a skip that names the reason where they cannot be had."""
    root = DIRECTORY / "root"
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (DIRECTORY / "complete").exists():
            fetch_packages(DIRECTORY, PACKAGES)
            (DIRECTORY / "complete").touch()
    return root


def fetch_packages(directory: Path, packages: Sequence[str]) -> None:
    """Fetch Debian's packages and unpack them into `root` of a directory."""
    for name in ("lists/partial", "cache/archives/partial"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "sources.list").write_text(SOURCES)
    config = directory / "apt.conf"
    config.write_text(APT.format(directory=directory))
    environment = {**os.environ, "APT_CONFIG": str(config)}
    for command in (["update"], ["download", *packages]):
        done = subprocess.run(
            [program("apt-get"), "-q", *command],
            cwd=directory, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            not_proven(
                f"Debian's packages {packages[0]}, ... cannot be fetched: {done.stderr.strip()}"
            )
    for archive in directory.glob("*.deb"):
        subprocess.run(
            [program("dpkg-deb"), "-x", str(archive), str(directory / "root")], check=True
        )


def by_its_own_library(root: Path, path: str) -> list[str]:
    """Return a command that starts a program of the release with the C library of that release."""
    [loader] = root.glob("usr/lib/*/ld-linux-*.so.*")
    return [str(loader), "--library-path", f"{loader.parent}:{root}/usr/lib", str(root / path)]


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
        "bcron": Daemon(
            [str(root / "usr/sbin/bcron-start")],
            {
                "LD_LIBRARY_PATH": str(root / "usr/lib"),
                "BCRON_USER": "root",
                "PATH": f"{root}/usr/sbin:/usr/bin:/bin",
            },
        ),
    }


def generator() -> list[str]:
    """Return the command of systemd-cron's generator."""
    name = "usr/lib/systemd/system-generators/systemd-crontab-generator"
    return by_its_own_library(unpacked(), name)


class OtherCronHost(CronHost):
    """A host with another daemon."""

    def __init__(self, name: str, crontab: str, daemon: Daemon) -> None:
        super().__init__(name, crontab)
        self.daemon = daemon.command
        self.environment |= daemon.variables
