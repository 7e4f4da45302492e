"""Bring the files of packages into use: called when one is installed or removed, or the system's Python has changed.

    package/                     what the package manager installs, replaces and removes, file by file
    ../oncecron-web/package/     likewise of another package, which is used while its version is the same
    VERSION.NUMBER/              the same files under other names (hard links), compiled, and never changed again;
                                 what the directory before has too is compiled once for both
    current -> VERSION.NUMBER    what /usr/bin/oncecron imports

So a firing has the files of one version, at every moment of an upgrade, and a job keeps those that it began with: the
directories of the version before stay until the next upgrade. If an upgrade does not end, the version before goes on,
and the next call removes what is left of it. In whichever order packages are upgraded, each is used as soon as all that
it needs has its version.
"""

import compileall
import filecmp
import glob
import os
import shutil
import sys
import time
from importlib.util import cache_from_source

HOME = "/usr/lib/oncecron"


def main() -> None:
    """Copy, compile, switch, and remove what neither runs now nor ran before."""
    os.chdir(HOME)
    os.umask(0o022)
    before = os.readlink("current") if os.path.islink("current") else ""
    for name in directories():
        if number(name) > number(before):  # a call was killed before it switched
            shutil.rmtree(name)
    wanted = {}
    for part in [*sorted(glob.glob(f"{HOME}-*/package")), "package"]:
        if versions(part) == versions("package"):
            wanted |= files(part)
    new = before if before and are_same(files(before), wanted) else copy(wanted, before)
    compileall.compile_dir(new, quiet=2, stripdir=new, prependdir=f"{HOME}/current")
    remove_what_others_compiled(new)
    if new != before:
        switch(new)
    remove_what_is_older(version_of(new))


def directories() -> list[str]:
    """Return those with the files of one version."""
    return [
        name
        for name in os.listdir(".")
        if os.path.isdir(name) and name not in ("package", "current")
    ]


def number(name: str) -> int:
    """Return the number of such a directory: a later one has a higher one."""
    last = name.rpartition(".")[2]
    return int(last) if last.isdigit() else 0


def version_of(name: str) -> str:
    """Return the version of such a directory."""
    return name.rpartition(".")[0]


def versions(part: str) -> list[str]:
    """Return the version of a package, whose list of files is named after it; of half a one, none or two."""
    names = glob.glob("oncecron*.dist-info", root_dir=part)
    return [name.removesuffix(".dist-info").partition("-")[2] for name in names]


def files(top: str) -> dict[str, str]:
    """Return where each file of a directory is, by its name there."""
    return {
        os.path.relpath(os.path.join(where, name), top): os.path.join(where, name)
        for where, _, names in os.walk(top)
        for name in names
        if not name.endswith(".pyc")
    }


def are_same(used: dict[str, str], wanted: dict[str, str]) -> bool:
    """Tell whether nothing has changed, as in the second of two packages that are installed together."""
    return used.keys() == wanted.keys() and all(
        filecmp.cmp(used[name], path, shallow=False) for name, path in wanted.items()
    )


def copy(wanted: dict[str, str], before: str) -> str:
    """Make a directory with these files; return its name, which none has that runs."""
    [version] = versions("package")
    new = f"{version}.{max(int(time.time()), number(before) + 1)}"
    for name, path in wanted.items():
        target = os.path.join(new, name)
        link(path, target)
        if name.endswith(".py") and before and is_same(os.path.join(before, name), path):
            link(cache_from_source(os.path.join(before, name)), cache_from_source(target))
    return new


def is_same(used: str, path: str) -> bool:
    """Tell whether a file is the same, so what was compiled of one is of the other: that knows the time."""
    return (
        os.path.exists(used)
        and os.stat(used).st_mtime == os.stat(path).st_mtime
        and filecmp.cmp(used, path, shallow=False)
        and os.path.exists(cache_from_source(used))
    )


def remove_what_others_compiled(new: str) -> None:
    """Remove what a Python has compiled that the system had before."""
    for path in glob.glob(f"{new}/**/*.pyc", recursive=True):
        if not path.endswith(f".{sys.implementation.cache_tag}.pyc"):
            os.unlink(path)


def switch(new: str) -> None:
    """Use a directory from now on."""
    if os.path.lexists("current.new"):  # a call was killed before the next but one step
        os.unlink("current.new")
    os.symlink(new, "current.new")
    os.replace("current.new", "current")


def remove_what_is_older(version: str) -> None:
    """Keep the directories of a version and of the one before it: their jobs may still run."""
    others = [name for name in directories() if version_of(name) != version]
    before = version_of(max(others, key=number, default=""))
    for name in others:
        if version_of(name) != before:
            shutil.rmtree(name)


def link(source: str, target: str) -> None:
    """Give a file another name; on a file system without hard links, copy it."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


if sys.version_info < (3, 11):  # noqa: UP036 - of an older Python
    sys.exit(
        f"oncecron: Python 3.11 or newer is needed, but {sys.executable} is {sys.version.split()[0]}"
    )
main()
