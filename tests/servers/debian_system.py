"""Bare Debian systems, as debootstrap makes them: hosts with a file system, a hostname and users of their own.

A host lays a directory of its own over the system of its release, so each begins bare, and nothing that is installed on
one is on another, or on this machine.
"""

import subprocess
from pathlib import Path

from servers.namespaces import Host, Machine
from servers.process import public_directory, remove_directory
from servers.roots import bare

RELEASES = ("bookworm", "trixie")
SOURCES = Path(__file__).parents[2]
NOT_SOURCES = (".git", ".venv*", ".try", ".*_cache", ".hypothesis", "__pycache__", "dist")
"""What lies in a clone and is not of it."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_SETUP = """\
mount -t overlay overlay -o lowerdir={system},upperdir={directory}/upper,workdir={directory}/work {root}
mount -t proc proc {root}/proc
mount --rbind /dev {root}/dev
mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm
mount -t tmpfs -o mode=755 tmpfs {root}/run
mkdir -p {root}/run/lock
chmod 1777 {root}/run/lock
cp -L /etc/resolv.conf {root}/etc/resolv.conf
if [ -e {certificates} ]; then # of the machine's own way to the index
  cp -L {certificates} {root}/run/certificates.crt
  printf '[global]\\ncert = /run/certificates.crt\\n' >{root}/etc/pip.conf
fi
printf '127.0.0.1 localhost %s\\n' {name} >{root}/etc/hosts
echo {name} >{root}/etc/hostname
exec chroot {root} /bin/sh -ec 'echo ready; exec sleep infinity'
"""


class DebianSystem(Machine):
    """A host with a bare Debian; `release`: its name; what is written there is removed with it."""

    def __init__(self, release: str, name: str = "bare") -> None:
        self.directory = public_directory("debian")
        self.root = self.directory / "root"
        for each in ("upper", "work", "root"):
            (self.directory / each).mkdir()
        (self.directory / "upper").chmod(0o755)
        setup = _SETUP.format(
            system=bare(release), directory=self.directory, root=self.root,
            certificates=CERTIFICATES, name=name,
        )  # fmt: skip
        super().__init__(name, ["uts", "mount"], setup=setup)
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        }

    def command(self, text: str, user: str = "root", directory: str = "~") -> list[str]:
        """Return the command that runs a text by the shell of a user, in a directory; to be started here."""
        home = "/root" if user == "root" else f"/home/{user}"
        variables = {**self.environment, "HOME": home, "USER": user, "LOGNAME": user}
        words = [f"{name}={value}" for name, value in variables.items()]
        place = directory.replace("~", home)
        as_user = [] if user == "root" else ["/usr/sbin/runuser", "-u", user, "--"]
        return [*as_user, "/usr/bin/env", "-i", "-C", place, *words, "/bin/sh", "-ec", text]

    def sh(
        self, text: str, user: str = "root", directory: str = "~", timeout: float = 600
    ) -> "subprocess.CompletedProcess[str]":
        """Run a text as `command` does, without a terminal; standard error is part of the output."""
        return subprocess.run(
            [*self.prefix, *self.command(text, user, directory)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=timeout,
        )  # fmt: skip

    def do(self, text: str, user: str = "root", directory: str = "~") -> str:
        """Do what `sh` does, which must succeed, and return its output."""
        done = self.sh(text, user, directory)
        assert done.returncode == 0, f"{self.name}$ {text}\n{done.stdout}"
        return done.stdout

    def install(self, *packages: str) -> None:
        """Install Debian packages, without what they recommend and without starting their services."""
        self.do(
            "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d\n"
            "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update\n"
            f"apt-get -qq install -y --no-install-recommends {' '.join(packages)}"
        )

    def join(self, host: Host) -> None:
        """Put it on a network, in the place of a host there. Until then it reaches what this machine reaches."""
        net = f"--net=/proc/{host.holder.pid}/ns/net"
        self.prefix = [net if word == "--net" else word for word in self.prefix]

    def add_user(self, name: str) -> None:
        self.do(f"useradd --create-home --shell /bin/sh {name}")

    def clone(self, path: str, user: str = "root") -> None:
        """Lay a clone of this checkout, as it is now, which belongs to a user."""
        tar = ["tar", "-c", *(f"--exclude={each}" for each in NOT_SOURCES), "-C", SOURCES, "."]
        packed = subprocess.run(tar, capture_output=True, check=True).stdout
        unpack = f'mkdir -p "{path}"; tar -x -C "{path}"; chown -R {user}: "{path}"'
        subprocess.run(
            [*self.prefix, *self.command(unpack, directory="/")], input=packed, check=True
        )

    def files(self) -> set[str]:
        """Return what has been written to this system since it was bare, but for devices and /run."""
        upper = self.directory / "upper"
        return {f"/{path.relative_to(upper)}" for path in upper.rglob("*")}

    def remove(self) -> None:
        super().remove()
        remove_directory(self.directory)
