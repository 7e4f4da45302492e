"""Which lines of a crontab another program writes: it would overwrite a guarded line, or add its own again.

Programs mark their lines by comments: a header above the first line of a file, the two ends of a block, or one above a
line (variables may stand between). django-crontab has one behind the command. These are the marks of whenever 1.0,
Magento 2 (`cron:install`), Ansible's `cron` and `blockinfile`, Puppet's and Chef's `cron`, Salt's `cron.present` and
django-crontab 0.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncecron_crontab.scanner import Comment, Entry

if TYPE_CHECKING:
    from oncecron_crontab.scanner import Crontab

CURE = "put `oncecron run` where that program takes the line from"
_HEADER = re.compile(
    r"\b(?:(?:managed|generated) (?:by|with) (ansible|puppet|chef|salt)(?:stack)?|(ansible) managed)\b",
    re.IGNORECASE,
)
_BEGIN = re.compile(
    r" Begin (Whenever) generated tasks|~ (MAGENTO) START| BEGIN (ANSIBLE) MANAGED BLOCK|"
    " Lines below here are managed by (Salt)"
)
_END = re.compile(r" End Whenever generated tasks|~ MAGENTO END| END ANSIBLE MANAGED BLOCK")
_ABOVE = re.compile(r"(Ansible): | (Puppet) Name: | (Chef) Name: ")
_IN_COMMAND = b"# django-cronjobs for "


def generated_lines(crontab: Crontab) -> dict[int, str]:
    """Return the lines that run a command and that another program writes: its name by their numbers."""
    found: dict[int, str] = {}
    whole = block = above = ""
    is_header = True
    for line in crontab.lines:
        if isinstance(line, Comment):
            text = line.text.decode("utf-8", "replace")
            block = "" if _END.match(text) else _name(_BEGIN.match(text)) or block
            above = _name(_ABOVE.match(text)) or above
            whole = whole or (_name(_HEADER.search(text)) if is_header else "")
        elif isinstance(line, Entry):
            django = "Django-crontab" if _IN_COMMAND in line.command else ""
            if owner := above or block or django or whole:
                found[line.number] = owner
            above, is_header = "", False
    return found


def _name(match: re.Match[str] | None) -> str:
    return next(filter(None, match.groups()), "").capitalize() if match else ""
