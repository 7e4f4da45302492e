"""CPython of each version that oncecron supports: the machine's own, or Debian's. Standard library only.

python3 tests/pythons.py                     prints the versions
python3 tests/pythons.py VERSION DIRECTORY   prints the path of its interpreter, which may be unpacked in the directory;
                                             exit status 69 and the reason if there is none
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import debian

RELEASES = {"3.11": "bookworm", "3.12": "", "3.13": "trixie", "3.14": "sid", "3.15": "sid"}
"""The oldest to the newest, and the release of Debian that has it. None has 3.12: it must be installed."""
TRIAL = (
    "import ensurepip, sqlite3, ssl, venv, sys; assert sys.version.startswith(sys.argv[1] + '.')"
)


def interpreter(version: str, directory: Path) -> Path:
    """Return the interpreter of a version. Raises `OSError` with the reason if it is not to be had."""
    for path in _candidates(version):
        tried = subprocess.run([path, "-c", TRIAL, version], capture_output=True, check=False)
        if not tried.returncode:
            return path
    if not RELEASES.get(version):
        raise OSError("it is not installed, neither by pyenv, and no release of Debian has it")
    python = directory / version / "root/usr/bin" / f"python{version}"
    debian.once(directory / version, lambda: _fetch(version, directory / version, python))
    return python


def _candidates(version: str) -> Iterator[Path]:
    found = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
    if found:
        yield Path(found)
    yield from (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python{version}")


def _fetch(version: str, directory: Path, python: Path) -> None:
    """Unpack it, and let it find its own libraries and the wheel of pip."""
    packages = (f"python{version}-venv", "patchelf")
    root = debian.unpack(directory, [RELEASES[version]], packages, debian.WITH_DEPENDENCIES)
    [loader, *_] = patchelf = debian.by_its_own_library(root, "usr/bin/patchelf")
    for change in (  # in this order, because patchelf 0.18 breaks the program in the other
        ("--force-rpath", "--set-rpath", Path(loader).parent),
        ("--set-interpreter", loader),
    ):
        subprocess.run([*patchelf, *change, python], check=True)
    wheels = "/usr/share/python-wheels/"
    for path in root.glob("usr/lib/python*/_sysconfig*"):
        path.write_text(
            path.read_text()
            .replace(f'"{wheels}"', f'"{root}{wheels}"')
            .replace(f"'{wheels}'", f"'{root}{wheels}'")
        )
    subprocess.run([python, "-c", TRIAL, version], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(*RELEASES)
    else:
        try:
            print(interpreter(sys.argv[1], Path(sys.argv[2]).resolve()))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"CPython {sys.argv[1]} cannot be had: {error}", file=sys.stderr)
            sys.exit(69)
