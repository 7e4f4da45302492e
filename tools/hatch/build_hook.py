"""What hatchling asks while it builds a distribution: the commit that it is of, and where its repository is.

`oncecron --version` names the commit of a build that is not a release: that is one whose commit has no tag of its
version, in a clone, unless $ONCECRON_BUILD_RELEASE says otherwise. $ONCECRON_BUILD_REPOSITORY is the address of the
repository: the only place where badges and links come from. Without it there are none, and an index shows README.md as
it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMMIT = "oncecron/commit"
PLACES = {
    "Documentation": "/tree/v{version}/docs",
    "Changelog": "/blob/v{version}/CHANGELOG.md",
    "Issues": "/issues",
    "Source": "",
}
"""What an index links to, below the address of the repository."""
BADGE = "[![tests]({repository}/actions/workflows/tests.yml/badge.svg)]({repository}/actions/workflows/tests.yml)"
RELATIVE = re.compile(r"(!?\[[^\]]*\])\((?!\w+:|#)([^)]+)\)")
"""A link of a page to a file beside it, or a picture."""


class CustomMetadataHook(MetadataHookInterface):
    """The description and the links of a distribution; of those that a source distribution has, nothing changes."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what is not there."""
        repository = os.environ.get("ONCECRON_BUILD_REPOSITORY", "").rstrip("/")
        version = metadata["version"]
        links = {name: repository + place.format(version=version) for name, place in PLACES.items()}
        metadata.setdefault("urls", links if repository else {})
        if "readme" not in metadata:
            text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
            if repository:
                text = with_links(text, repository, version)
            metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_links(text: str, repository: str, version: str) -> str:
    """Return a page that reads well elsewhere: with badges below its title, and links that lead to the repository."""

    def absolute(link: re.Match[str]) -> str:
        what, path = link.groups()
        kind = "raw" if what.startswith("!") else "blob"
        return f"{what}({repository}/{kind}/v{version}/{path})"

    title, rest = text.split("\n", 1)
    badge = BADGE.format(repository=repository)
    return f"{title}\n\n{badge}\n{RELATIVE.sub(absolute, rest)}"


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the file `commit` beside the modules, of a build that is not a release."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name it before the files are collected: that of a source distribution, or a new one."""
        path, self.written = f"{self.root}/{COMMIT}", ""
        if not os.path.exists(path):
            found = commit(Path(self.root), self.metadata.version)
            if version == "editable" or not found:
                return
            descriptor, path = tempfile.mkstemp()
            self.written = path
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(f"{found}\n")
        build_data["force_include"][path] = COMMIT

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written."""
        del version, build_data, artifact_path
        if self.written:
            os.unlink(self.written)


def commit(root: Path, version: str) -> str:
    """Return the commit of what is not a release, and whether there are changes; empty for a release, or no clone."""
    is_clone = (root / ".git").exists() and shutil.which("git")
    if os.environ.get("ONCECRON_BUILD_RELEASE") or not is_clone:
        return ""
    changed = bool(_git(root, "status", "--porcelain"))
    if f"v{version}" in _git(root, "tag", "--points-at", "HEAD").split() and not changed:
        return ""
    found = _git(root, "rev-parse", "HEAD")[:12]
    return found + " with changes" * (changed and bool(found))


def _git(root: Path, *words: str) -> str:
    command = ["git", "-c", f"safe.directory={root}", "-C", root, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
