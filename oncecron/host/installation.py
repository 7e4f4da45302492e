"""How this oncecron is installed: how it starts itself, whether its files belong together, and what it lacks.

For `notify`, `doctor` and error messages: no firing that goes well needs it.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import os
import sys

from oncecron import __version__
from oncecron.core.errors import ConfigurationError

_REQUIREMENTS = {
    "click": "click",
    "jinja2": "jinja2",
    "prometheus_client": "prometheus-client",
    "psycopg": "'psycopg[binary]'",
    "redis": "redis",
    "waitress": "waitress",
}
"""What `pip` installs, by the package that is imported."""
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The directory that has the package `oncecron`."""
PRIVATE = "/usr/lib/oncecron/"
"""Below it are the modules of the distribution's package."""
_PACKAGES = {
    "/var/lib/dpkg/info/oncecron.list": "apt-get install ./{}_{}-1_all.deb",
    f"{PRIVATE}python": "dnf install ./{}-{}-1.noarch.rpm",
    "/lib/apk/db/installed": "apk add --allow-untrusted ./{}_{}-r1_noarch.apk",
    "/var/lib/pacman/local": "pacman -U {}-{}-1-any.pkg.tar.zst",
}
"""How another package is installed, by a file that is there where the distribution's package came this way."""
_LIST = ".dist-info"
_DISTRIBUTIONS = ("oncecron", "oncecron_drill", "oncecron_web")
"""Those of our repository, of one version."""
_OURS = ("oncecron/", "oncecron_")
"""How the names of our files begin in it: those of the core, and those of the plugins."""


def version() -> str:
    """Return the version, and the commit of a build that is not a release (tools/hatch/build_hook.py)."""
    try:
        with open(f"{HOME}/oncecron/commit", encoding="ascii") as file:
            return f"{__version__} (commit {file.read().strip()})"
    except OSError:
        return __version__


def own_command() -> list[str]:
    """Return the words that start this oncecron again, as it was started: by its script, or by `-m oncecron`."""
    words = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return [sys.executable or words[0], *words[1:]]


def broken(error: ImportError) -> ConfigurationError:
    """Return the error of an installation that lacks something, or has it in a version that is too old."""
    package = (error.name or "").partition(".")[0]
    python = sys.executable or "python3"
    if package in _REQUIREMENTS:
        cure = (
            "call the oncecron of its own virtual environment, such as /opt/oncecron/bin/oncecron, or run "
            f"`{python} -m pip install --upgrade {_REQUIREMENTS[package]}`"
        )
        return ConfigurationError(
            f"{package} cannot be loaded: {error}; {_reinstall() if _is_private() else cure}"
        )
    if package.partition("_")[0] == __name__.partition(".")[0]:
        return mixed() or ConfigurationError(
            f"a part of oncecron is missing: {error}; {_reinstall()}"
        )
    return ConfigurationError(
        f"{python} cannot load what oncecron needs: {error}; use the python3 of the distribution"
    )


def how_to_install(distribution: str) -> str:
    """Return the cure where another distribution of ours is missing: a line that installs it as this was installed."""
    if distribution == "oncecron":
        return _reinstall()
    if _is_private():
        lines = (line for mark, line in _PACKAGES.items() if os.path.exists(mark))
        line = next(lines, "").format(distribution, __version__)
        return f"install it: `{line}`" if line else f"install the package {distribution}"
    if f"{os.path.dirname(sys.prefix)}/modules" == HOME:  # of the tarball, which has all
        return f"unpack the tarball again in {os.path.dirname(os.path.dirname(sys.prefix))}"
    return f"install it: `{_by_pip(f'{distribution}=={__version__}')}`"


def _by_pip(what: str) -> str:
    from importlib.util import find_spec  # noqa: PLC0415 - of no command that is installed
    from shlex import quote  # noqa: PLC0415 - likewise

    if os.path.exists(f"{sys.prefix}/pipx_metadata.json"):
        environments, name = os.path.split(sys.prefix)
        usual = environments.startswith(f"{os.path.expanduser('~')}/")
        home = "" if usual else f"PIPX_HOME={quote(os.path.dirname(environments))} "
        return f"{home}pipx inject {quote(name)} {what}"
    python = quote(sys.executable or "python3")
    if find_spec("pip") is None:  # as uv leaves it
        return f"uv pip install --python {python} {what}"
    return f"{python} -m pip install {what}"


def mixed() -> ConfigurationError | None:
    """Return the error of files of two versions, as an upgrade leaves them that did not end; None if they are of one.

    Every installer keeps a list of the files with their digests. Without one nothing is known, as in a clone.
    """
    lists = _lists(HOME)
    which = ""
    if len({name.partition("-")[2] for name in lists}) > 1:
        which = " and ".join(lists)
    else:
        for name in lists:
            if strange := _strange_file(f"{HOME}/{name}/RECORD"):
                which = f"{strange} is not that of {name}"
    if not which:
        return None
    return ConfigurationError(
        f"an upgrade did not end, {HOME} has files of two versions: {which}; {_reinstall()}"
    )


def waiting() -> str | None:
    """Return what a package of the distribution has brought that is not in use.

    Its installation did not end, or it has another version than the package oncecron.
    """
    if not _is_private():
        return None
    brought = _lists(f"{PRIVATE[:-1]}*/package")
    return next((name.removesuffix(_LIST) for name in brought if name not in _lists(HOME)), None)


def _lists(directory: str) -> list[str]:
    names = sorted(map(os.path.basename, glob.glob(f"{directory}/oncecron*{_LIST}")))
    return [name for name in names if name.partition("-")[0] in _DISTRIBUTIONS]


def _strange_file(record: str) -> str | None:
    """Return a file of the package that is not as it was installed (PEP 376: path, digest, size)."""
    try:
        with open(record, encoding="utf-8", newline="") as file:
            rows = [(name, digest) for name, digest, *_ in csv.reader(file)]
    except OSError:
        return None
    for name, digest in rows:
        algorithm, _, value = digest.partition("=")
        if name.startswith(_OURS) and algorithm == "sha256" and _digest(name) != value:
            return name
    return None


def _digest(name: str) -> str | None:
    try:
        with open(f"{HOME}/{name}", "rb") as file:
            digest = hashlib.sha256(file.read()).digest()
    except OSError:
        return None
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _is_private() -> bool:
    return HOME.startswith(PRIVATE)


def _reinstall() -> str:
    where = "the package oncecron again" if _is_private() else f"oncecron again in {sys.prefix}"
    return f"install {where}"
