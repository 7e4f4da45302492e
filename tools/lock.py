"""Write the lock files: every package with its version, and the hashes of all its files for every platform.

    requirements.txt         what oncecron needs to run
    tests/requirements.txt   the same, and what the tests, the site and the build need: tests/environment.sh installs it
    tools/requirements.txt   what tools/packages needs, which installs it

Run it in an environment with uv, after the requirements in pyproject.toml have changed, or to take newer versions.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILE = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--upgrade", "--no-annotate", "--custom-compile-command", "python tools/lock.py"),
)  # fmt: skip


def main() -> None:
    """Write both."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = "\n".join(project["build-system"]["requires"])
    tools = [
        each
        for each in project["project"]["optional-dependencies"]["test"]
        if each.startswith("nfpm")
    ]
    _write("requirements.txt", "pyproject.toml")
    _write("tests/requirements.txt", "pyproject.toml", "--all-extras", "-", more=build)
    _write("tools/requirements.txt", "-", more="\n".join([build, *tools]))


def _write(path: str, *arguments: str, more: str = "") -> None:
    command = [*COMPILE, *arguments, "--output-file", path]
    subprocess.run(command, cwd=ROOT, input=more, text=True, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
