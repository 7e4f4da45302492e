"""Build the tarball that brings its own Python, for hosts whose Python is too old: tools/packages --with-python.

Python is built in the oldest Debian that debootstrap makes, whose glibc is then enough (packaging/standalone/build).
That is done once, into build/standalone, from Debian's newest sources: another day may give other bytes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import contents
import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = packages.ROOT / "packaging" / "standalone"
BUILD = packages.ROOT / "build" / "standalone"
RELEASE = "bullseye"
PYTHON = "3.13"
LICENCES = {
    "libffi": "MIT",
    "openssl": "Apache-2.0",
    "python": "Python-2.0.1",
    "sqlite": "blessing",
    "zlib": "Zlib",
}
"""Of what is built from Debian's sources, or taken from Debian."""


def main() -> None:
    """Add the tarball, and the list of what is inside, to a directory with packages."""
    out = Path(sys.argv[1])
    version, date = packages.the_version(), packages.the_date()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        top = Path(name) / f"oncecron-{version}-linux-{platform.machine()}"
        lay_out(top, out)
        pack(top, out / f"{top.name}.tar.xz", date)
        spdx = contents.spdx({"oncecron": top / "lib" / "modules"}, version, date, [*versions(top)])
        (out / f"{top.name}.spdx.json").write_text(spdx)
        needed = glibc(top)
    packages.checksums(out)
    print(f"{top.name}.tar.xz needs glibc {needed} or newer")


def lay_out(top: Path, wheels: Path) -> None:
    """Lay the files out as they are unpacked: those of all distributions."""
    shutil.copytree(python(), top / "lib" / "python", symlinks=True)
    documents = top / "share" / "doc"
    documents.parent.mkdir()
    shutil.move(top / "lib" / "python" / "licences", documents)
    launcher = (top / "lib" / "python" / "launcher").read_bytes()
    (top / "lib" / "python" / "launcher").unlink()
    modules = top / "lib" / "modules"
    with tempfile.TemporaryDirectory() as name:
        for package in ("oncecron", *packages.PLUGINS):
            wheel = packages.wheel_of(package, wheels)
            packages.bundle(Path(name), modules, package, wheel)
        binary = packages.locked("oncecron", "psycopg-binary")
        packages.install(Path(name), modules, binary, PYTHON)
    for program, module in packages.PROGRAMS.items():
        packages.write(top / "bin" / program, launcher, 0o755)
        text = (SOURCES / "program").read_text()
        packages.write(top / "lib" / program, text.format(program=program, module=module))
    packages.write(documents / "oncecron", contents.copyright_file(modules))
    for shell, name in (("bash", "oncecron.bash"), ("fish", "oncecron.fish"), ("zsh", "_oncecron")):
        packages.write(top / "share" / "completions" / name, packages.completion(modules, shell))
    for page in (packages.ROOT / "man").iterdir():
        target = top / "share" / "man" / f"man{page.suffix[1:]}" / page.name
        packages.write(target, page.read_bytes())
    # For good: whoever cannot write there would compile them at each start.
    command = [top / "lib" / "python" / "bin" / "python3", "-IS", "-m", "compileall", "-q"]
    command += ["--invalidation-mode", "unchecked-hash", "-s", top]
    packages.run(*command, modules, top / "lib" / "python" / "lib")


def python() -> Path:
    """Return the directory with Python and its libraries; build it if it is not there, or was built otherwise."""
    digest = hashlib.sha256()
    for name in ("build", "launcher.c"):
        digest.update((SOURCES / name).read_bytes())
    made = BUILD / f"python-{digest.hexdigest()[:16]}"
    if made.exists():
        return made
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit(
            "the tarball with its own Python needs root and debootstrap: run `apt-get install debootstrap`, "
            "and `tools/packages --with-python` as root"
        )
    root = BUILD / RELEASE
    shutil.rmtree(root, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    packages.run("debootstrap", "--variant=buildd", RELEASE, root, "http://deb.debian.org/debian")
    shutil.copy("/etc/resolv.conf", root / "etc")
    for name in ("build", "launcher.c"):
        shutil.copy(SOURCES / name, root / "root")
    packages.run("chroot", root, "/root/build")
    shutil.move(root / "root" / "python", made)
    shutil.rmtree(root)
    return made


def pack(top: Path, target: Path, date: int) -> None:
    """Write the tarball of a directory, without whom and when it was laid out by."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = date
        return member

    with tarfile.open(target, "w:xz", preset=6) as archive:
        archive.add(top, top.name, filter=plain)


def versions(top: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and licence of what is no package of Python's, as that Python itself says."""
    told = (
        "import sqlite3, ssl, sys, zlib; "
        "print(sys.version.split()[0], ssl.OPENSSL_VERSION.split()[1], sqlite3.sqlite_version, zlib.ZLIB_VERSION)"
    )
    command = [top / "lib" / "python" / "bin" / "python3", "-ISc", told]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(zip(("python", "openssl", "sqlite", "zlib"), done.stdout.split(), strict=True))
    for name, licence in LICENCES.items():
        yield name, found.get(name, "NOASSERTION"), licence


def glibc(top: Path) -> str:
    """Return the oldest glibc that has all that the files below a directory ask of it."""
    wanted = set()
    for path in top.rglob("*"):
        if path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            done = subprocess.run(
                ["objdump", "-T", path], capture_output=True, text=True, check=True
            )
            wanted |= set(re.findall(r"GLIBC_(\d+)\.(\d+)", done.stdout))
    return ".".join(max(wanted, key=lambda found: tuple(map(int, found))))


if __name__ == "__main__":
    main()
