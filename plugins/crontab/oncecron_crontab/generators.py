"""Which lines of a crontab another program writes: it would overwrite a guarded line, or add its own again.

Each generator marks its lines in one of these ways:

    a block      from one comment to another, or to the end of the file
    a comment    above a line; variables may stand between
    the command  ends with a comment
    a header     a comment above the first line of the file: the whole file

The markers are those that the generators write themselves: whenever 1.0, Magento 2 (`cron:install`), Ansible's modules
`cron` and `blockinfile`, Puppet's and Chef's `cron` resources, Salt's `cron.present`, django-crontab 0.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from oncecron_crontab.scanner import Comment, Entry

if TYPE_CHECKING:
    from oncecron_crontab.scanner import Crontab


_ONE_LINE, _END_OF_FILE = "\n", ""


class Generator(NamedTuple):
    """A program that writes lines of a crontab."""

    name: str
    cure: str
    """Where `oncecron run` belongs instead."""


_ANSIBLE = Generator("Ansible", "put `oncecron run` into the `job` or the template of the playbook")
_PUPPET = Generator("Puppet", "put `oncecron run` into the `command` of the cron resource")
_CHEF = Generator("Chef", "put `oncecron run` into the `command` of the cron resource")
_SALT = Generator("Salt", "put `oncecron run` into the `name` of the cron state")
_WHENEVER = Generator("whenever", "put `oncecron run` into `job_template` of config/schedule.rb")
_MAGENTO = Generator(
    "Magento", "remove its block with `bin/magento cron:remove`, and write the line by hand"
)
_DJANGO = Generator(
    "django-crontab",
    "set SHELL to the path of oncecron-shell above the lines, which runs them once",
)

_MARKS = (  # how a comment begins, how the one begins that ends its block, and who writes it
    (" Begin Whenever generated tasks for:", " End Whenever generated tasks for:", _WHENEVER),
    ("~ MAGENTO START", "~ MAGENTO END", _MAGENTO),
    (" BEGIN ANSIBLE MANAGED BLOCK", " END ANSIBLE MANAGED BLOCK", _ANSIBLE),
    (" Lines below here are managed by Salt, do not edit", _END_OF_FILE, _SALT),
    ("Ansible: ", _ONE_LINE, _ANSIBLE),
    (" Puppet Name: ", _ONE_LINE, _PUPPET),
    (" Chef Name: ", _ONE_LINE, _CHEF),
)
_IN_COMMAND = b"# django-cronjobs for "
_HEADER = re.compile(
    r"\b(?:(?:managed|generated) (?:by|with) (\w+)|(ansible) managed)\b", re.IGNORECASE
)
_OF_HEADER = {
    "ansible": _ANSIBLE,
    "puppet": _PUPPET,
    "chef": _CHEF,
    "salt": _SALT,
    "saltstack": _SALT,
}


def generated_lines(crontab: Crontab) -> dict[int, Generator]:
    """Return the lines that run a command and belong to a generator, by their numbers."""
    found: dict[int, Generator] = {}
    whole: Generator | None = None
    owner: Generator | None = None
    end = _END_OF_FILE
    is_header = True
    for line in crontab.lines:
        if isinstance(line, Comment):
            text = line.text.decode("utf-8", "replace")
            mark = next((mark for mark in _MARKS if text.startswith(mark[0])), None)
            if mark:
                _, end, owner = mark
            elif end and text.startswith(end):
                owner = None
            elif is_header:
                whole = whole or _named_in(text)
        elif isinstance(line, Entry):
            is_header = False
            of_line = owner or (_DJANGO if _IN_COMMAND in line.command else whole)
            if of_line:
                found[line.number] = of_line
            owner = None if end == _ONE_LINE else owner
    return found


def _named_in(text: str) -> Generator | None:
    names = (match[1] or match[2] for match in _HEADER.finditer(text))
    return next((_OF_HEADER[name.lower()] for name in names if name.lower() in _OF_HEADER), None)
