"""A plugin: `oncecron disk`, and a finding of `check` when the disk of this host is almost full."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import TableCommand
from oncecron.cli.group import Listed
from oncecron.plugins import Plugin
from oncecron.watch.findings import WARNING, Finding, Kind, finding

if TYPE_CHECKING:
    from oncecron.config.file import File
    from oncecron.log.sources import Sources

ABOUT = "Show how full the disk of this host is."
FULL = Kind(WARNING, "The disk of a host is almost full.", "a disk is almost full")


def _used() -> int:
    disk = shutil.disk_usage("/")
    return 100 * disk.used // disk.total


def _show(_given: dict[str, str], _words: list[str]) -> int:
    output.say(f"{_used()} % of / is used", output.standard_output())
    return 0


def _findings(_sources: Sources, file: File) -> list[Finding]:
    limit = file.plugin.get("disk", {}).get("full", 90)  # of [plugin.disk]
    reason = f"{_used()} % of / is used"
    return [finding("disk", None, 1, reason)] if _used() >= limit else []


COMMAND = TableCommand("disk", (), _show, about=ABOUT)
PLUGIN = Plugin({"disk": Listed(ABOUT, __name__)}, kinds={"disk": FULL}, findings=_findings)
