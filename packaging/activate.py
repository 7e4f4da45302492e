"""Bring the files of the package into use: called when it is installed, and when the system's Python has changed.

    package/                     what the package manager installs, replaces and removes, file by file
    VERSION.TIME/                the same files under other names (hard links), compiled, and never changed again
    current -> VERSION.TIME      what /usr/bin/oncecron imports

So a firing has the files of one version, at every moment of an upgrade, and a job keeps those that it began with: the
directory of the version before stays until the next upgrade. If an upgrade does not end, the version before goes on,
and the next call removes what is left of it.
"""

import compileall
import itertools
import os
import shutil
import sys
import time

HOME = "/usr/lib/oncecron"


def main() -> None:
    """Copy, compile, switch, and remove what neither runs now nor ran before."""
    os.chdir(HOME)
    os.umask(0o022)
    names = (f"{version()}.{number}" for number in itertools.count(int(time.time())))
    new = next(name for name in names if not os.path.lexists(name))  # never one that runs
    shutil.copytree("package", new, copy_function=link)
    compileall.compile_dir(new, quiet=2)
    before = os.readlink("current") if os.path.islink("current") else None
    if os.path.lexists("current.new"):  # a call was killed before the next but one step
        os.unlink("current.new")
    os.symlink(new, "current.new")
    os.replace("current.new", "current")
    for name in os.listdir("."):
        if os.path.isdir(name) and name not in ("package", "current", new, before):
            shutil.rmtree(name)


def version() -> str:
    """Return the version of the package, whose list of files is named after it."""
    [name] = [name for name in os.listdir("package") if name.startswith("oncecron-")]
    return name.removeprefix("oncecron-").removesuffix(".dist-info")


def link(source: str, target: str) -> None:
    """Give a file another name; on a file system without hard links, copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


if sys.version_info < (3, 11):  # noqa: UP036 - of an older Python
    sys.exit(
        f"oncecron: Python 3.11 or newer is needed, but {sys.executable} is {sys.version.split()[0]}"
    )
main()
