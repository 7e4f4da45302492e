"""The crontabs of Debian's packages, which nobody of this project wrote: fetched from the archive, not installed.

One of them is kept beside the tests; ONCECRON_TEST_PACKAGES names packages whose files are fetched.
"""

import os
import subprocess
from pathlib import Path

PACKAGES = os.environ.get("ONCECRON_TEST_PACKAGES", "").split()
KEPT = Path(__file__).parent / "debian" / "php-common" / "php"


def files_in_cron_d(directory: Path) -> list[Path]:
    """Fetch the packages into a directory; return the files of all in /etc/cron.d."""
    if PACKAGES:
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=directory, check=True)
    for archive in directory.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, directory / archive.stem], check=True)
    found = [file for file in directory.glob("*/etc/cron.d/*") if file.name[0] != "."]
    assert len({file.parents[2] for file in found}) == len(PACKAGES)
    return [KEPT, *sorted(found)]
