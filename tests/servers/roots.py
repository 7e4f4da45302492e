"""Hosts with a root file system of their own: a bare Debian, or a copy of the machine's that costs nothing.

Whatever is installed or removed there is in memory alone (overlayfs), and is gone with the host.
"""

import os
import subprocess
from pathlib import Path

import debian

from servers.namespaces import Machine
from servers.process import public_directory, remove_directory
from servers.require import not_proven, program, require_root

MACHINE = "machine"
RELEASES = {"12": "bookworm", "13": "trixie"}
WITHOUT_PYTHON = {"11": "bullseye"}
"""Whose Python is too old; a bare one has none."""
_VENV = os.environ.get("ONCECRON_TEST_VENV", Path(__file__).parents[2] / ".venv-test")
ROOTS = Path(_VENV).resolve() / "roots"
FETCHED = ("python3", "libpq5", "cron", "tzdata", "ca-certificates", "rpm")
"""What tests install there: fetched once, as apt keeps it."""
SETUP = """\
mount -t tmpfs -o mode=755 tmpfs {directory}
cd {directory}
mkdir changes work root
mount -t overlay -o lowerdir={base},upperdir={directory}/changes,workdir={directory}/work overlay root
for name in proc sys dev; do mount --rbind /$name root/$name; done
mount -t tmpfs -o mode=1777 tmpfs root/tmp
mount -t tmpfs -o mode=755 tmpfs root/run
mkdir root/run/changes
mount --bind changes root/run/changes
mkdir -p root{shared}
mount --bind {shared} root{shared}
cp -L /etc/resolv.conf root/etc/resolv.conf
printf '#!/bin/sh\\nexit 101\\n' >root/usr/sbin/policy-rc.d
chmod 755 root/usr/sbin/policy-rc.d
rm -rf root/etc/cron* root/var/spool/cron/crontabs/* root/var/lib/oncecron root/etc/oncecron*
rm -f root/usr/local/bin/oncecron*
mkdir -p root/etc/cron.d root/var/spool/cron
exec chroot root /bin/sh -ec 'echo ready; exec sleep infinity'
"""
ENVIRONMENT = (
    "/usr/bin/env", "-i", "--chdir=/", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root", "USER=root", "LOGNAME=root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
)  # fmt: skip
_NOT_OF_A_PACKAGE = (
    *("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/var/spool/cron"),
    "/etc/ld.so.cache",
)


class Root(Machine):
    """A host whose root file system is that of a release of Debian, or the machine's; `shared` is the tests' own."""

    def __init__(self, name: str, release: str, shared: Path) -> None:
        require_root("a root file system of its own")
        suites = RELEASES | WITHOUT_PYTHON
        self.base = Path("/") if release == MACHINE else bare(suites[release])
        self.directory = public_directory("root")
        super().__init__(
            name,
            ["mount", "uts"],
            setup=SETUP.format(directory=self.directory, base=self.base, shared=shared),
        )

    def __call__(self, *command: object) -> str:
        """Run a command as root, in a root's environment, and return what it prints."""
        return self.run([*ENVIRONMENT, *map(str, command)])

    def start(self, *command: object) -> "subprocess.Popen[bytes]":
        words = [*ENVIRONMENT, *map(str, command)]
        return self.popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def changes(self) -> set[str]:
        """Return what is new or other than in the base, but for what the package manager notes for itself."""
        found = self("find", "/run/changes", "!", "-type", "c", "-printf", "%y/%P\\n")
        kinds = {line[1:]: line[0] for line in found.splitlines()}
        return {
            path
            for path, kind in kinds.items()
            if not path.startswith(_NOT_OF_A_PACKAGE) and not path.endswith((".pyc", "__pycache__"))
            if kind != "d" or not (self.base / path[1:]).is_dir()
        }

    def remove(self) -> None:
        """Kill everything here; the file system goes with its last process."""
        super().remove()
        remove_directory(self.directory)


def bare(suite: str) -> Path:
    """Return the root of a bare Debian, which nobody may change: made by debootstrap once for all runs."""
    root = ROOTS / suite / "root"
    try:
        debian.once(root.parent, lambda: _bootstrap(root, suite))
    except subprocess.CalledProcessError as error:
        not_proven(f"a bare Debian {suite} cannot be had: {error.stderr or error.stdout}")
    return root


def _bootstrap(root: Path, suite: str) -> None:
    chroot = [program("chroot"), root, *ENVIRONMENT, "apt-get", "-q"]
    for command in (
        [program("debootstrap"), "--variant=minbase", suite, root, "http://deb.debian.org/debian"],
        [*chroot, "install", "-y", "--download-only", *FETCHED],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)
