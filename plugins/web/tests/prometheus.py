"""Debian's promtool, which checks rules and metrics as Prometheus reads them: fetched and unpacked, not installed."""

import subprocess

import debian
from servers.other_crons import DIRECTORY as CRONS
from servers.other_crons import OLDER, fetch_packages

DIRECTORY = CRONS.with_name("prometheus")


def promtool(*words: str, text: bytes = b"") -> None:
    """Run it; fail with what it says. A skip names the reason where it cannot be had."""
    done = subprocess.run(
        [_unpacked(), *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()


def _unpacked() -> str:
    # The newer release has no promtool in this package.
    debian.once(DIRECTORY, lambda: fetch_packages(DIRECTORY, [f"prometheus/{OLDER}"]))
    return str(DIRECTORY / "root/usr/bin/promtool")
