"""Debian's promtool, which checks rules and metrics as Prometheus reads them: fetched and unpacked, not installed."""

import fcntl
import os
import subprocess
from pathlib import Path

from servers.require import not_proven, program

_VENV = os.environ.get("ONCECRON_TEST_VENV", Path(__file__).parents[2] / ".venv-test")
DIRECTORY = Path(_VENV).resolve() / "prometheus"


def promtool(*words: str, text: bytes = b"") -> None:
    """Run it; fail with what it says. A skip names the reason where it cannot be had."""
    done = subprocess.run(
        [_unpacked(), *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()


def _unpacked() -> str:
    path = DIRECTORY / "root" / "usr" / "bin" / "promtool"
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (DIRECTORY / "complete").exists():
            _fetch()
            (DIRECTORY / "complete").touch()
    return str(path)


def _fetch() -> None:
    done = subprocess.run(
        [program("apt-get"), "-q", "download", "prometheus"],
        cwd=DIRECTORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        not_proven(f"Debian's package prometheus cannot be fetched: {done.stderr.strip()}")
    [archive] = DIRECTORY.glob("*.deb")
    subprocess.run([program("dpkg-deb"), "-x", str(archive), str(DIRECTORY / "root")], check=True)
    archive.unlink()
