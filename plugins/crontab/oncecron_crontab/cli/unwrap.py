"""`oncecron crontab unwrap`: remove what `oncecron crontab wrap` has added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli.command import TableCommand
from oncecron_crontab.cli.rewriting import CRONTABS, REWRITING_OPTIONS, rewrite
from oncecron_crontab.installed_cron import installed_cron
from oncecron_crontab.wrap import unwrap

if TYPE_CHECKING:
    from oncecron_crontab.cli.files import CrontabFile
    from oncecron_crontab.scanner import Crontab
    from oncecron_crontab.wrap import Rewritten

OPTIONS = REWRITING_OPTIONS


def _unwrap(given: dict[str, str], words: list[str]) -> int:
    def unwrapped(crontab: Crontab, _source: CrontabFile) -> Rewritten:
        return unwrap(crontab)

    done = "no longer run by oncecron"
    return rewrite(given, words, unwrapped, cron=installed_cron(), command="unwrap", done=done)


COMMAND = TableCommand(
    "unwrap", OPTIONS, _unwrap,
    about="Remove what `oncecron crontab wrap` has added, and restore the original crontab, byte for byte. --install "
    "changes your crontab; without it, the original is written to standard output. Lines where you wrote `oncecron "
    "run` by hand stay unchanged and are reported.",
    examples=(
        "oncecron crontab unwrap --install",
        "oncecron crontab unwrap --user-field --diff /etc/cron.d/app",
    ),
    words=CRONTABS,
)  # fmt: skip
