"""Debian's packages, fetched by apt-get and unpacked into a directory, not installed. Standard library only."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT = """\
Dir::Etc::SourceList "{directory}/sources.list";
Dir::Etc::SourceParts "{directory}/none";
Dir::State::Lists "{directory}/lists";
Dir::State::Status "{directory}/status";
Dir::Cache "{directory}/cache";
APT::Sandbox::User "";
"""
DOWNLOAD = ("download",)
WITH_DEPENDENCIES = ("install", "--yes", "--no-install-recommends", "--download-only")


def once(directory: Path, fetch: Callable[[], object]) -> None:
    """Fill a directory unless that was done before; one process at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            fetch()
            (directory / "complete").touch()


def unpack(
    directory: Path, releases: Sequence[str], packages: Sequence[str], how: Sequence[str] = DOWNLOAD
) -> Path:
    """Unpack packages of these releases into `root` of a directory, and return it. Raises `OSError` with the reason."""
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "sources.list").write_text(
        "".join(
            f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {release} main\n"
            for release in releases
        )
    )
    (directory / "status").touch()  # nothing is installed
    config = directory / "apt.conf"
    config.write_text(APT.format(directory=directory))
    environment = {**os.environ, "APT_CONFIG": str(config)}
    for command in (["update"], [*how, *packages]):
        done = subprocess.run(
            ["apt-get", "-q", *command],
            cwd=directory, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"{packages[0]} cannot be fetched from Debian: {done.stderr.strip()}")
    for archive in [*directory.glob("*.deb"), *directory.glob("cache/archives/*.deb")]:
        subprocess.run(["dpkg-deb", "-x", archive, directory / "root"], check=True)
        archive.unlink()
    return directory / "root"


def by_its_own_library(root: Path, path: str) -> list[str]:
    """Return a command that starts an unpacked program with the C library of its release."""
    [loader] = root.glob("usr/lib/*/ld-linux-*.so.*")
    return [str(loader), "--library-path", f"{loader.parent}:{root}/usr/lib", str(root / path)]
