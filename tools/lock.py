"""Write the lock files: every package with its version, and the hashes of all its files for every platform.

    requirements.txt                what the wheel of a host needs to run
    plugins/NAME/requirements.txt   what a plugin with a wheel of its own needs besides
    tests/requirements.txt          all of these, and what the tests, the site and the build need: tests/environment.sh
                                    installs it
    tools/requirements.txt          what tools/packages needs, which installs it

Run it in an environment with uv, after the requirements in a pyproject.toml have changed, or to take newer versions.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMPILE = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--upgrade", "--no-annotate", "--custom-compile-command", "python tools/lock.py"),
)  # fmt: skip


def main() -> None:
    """Write all of them."""
    project = _read(ROOT)
    extras = project["project"]["optional-dependencies"]
    build = project["build-system"]["requires"]
    plugins = {path.parent: _needed(path.parent) for path in ROOT.glob("plugins/*/pyproject.toml")}
    runs = [*_needed(ROOT), *(each for needed in plugins.values() for each in needed)]
    _write(ROOT, _needed(ROOT))
    for plugin, needed in plugins.items():
        _write(plugin, needed)
    _write(ROOT / "tests", [*runs, *extras["test"], *extras["docs"], *build])
    _write(ROOT / "tools", [*build, *(each for each in extras["test"] if each.startswith("nfpm"))])


def _read(directory: Path) -> dict[str, dict[str, Any]]:
    return tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))


def _needed(directory: Path) -> list[str]:
    """Return what a distribution needs that is not of this repository."""
    needed = _read(directory)["project"]["dependencies"]
    return [each for each in needed if not each.startswith("oncecron==")]


def _write(directory: Path, requirements: list[str]) -> None:
    command = [*COMPILE, "-", "--output-file", directory / "requirements.txt"]
    text = "\n".join(requirements)
    subprocess.run(command, cwd=ROOT, input=text, text=True, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
