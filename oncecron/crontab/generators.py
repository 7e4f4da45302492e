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

from oncecron.crontab.scanner import Comment, Entry

if TYPE_CHECKING:
    from oncecron.crontab.scanner import Crontab


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

_BLOCKS = (
    (" Begin Whenever generated tasks for:", " End Whenever generated tasks for:", _WHENEVER),
    ("~ MAGENTO START", "~ MAGENTO END", _MAGENTO),
    (" BEGIN ANSIBLE MANAGED BLOCK", " END ANSIBLE MANAGED BLOCK", _ANSIBLE),
    (" Lines below here are managed by Salt, do not edit", None, _SALT),
)
_ABOVE = (
    ("Ansible: ", _ANSIBLE),
    (" Puppet Name: ", _PUPPET),
    (" Chef Name: ", _CHEF),
)
_IN_COMMAND = ((b"# django-cronjobs for ", _DJANGO),)
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
    whole = _of_whole_file(crontab)
    block: tuple[str | None, Generator] | None = None
    above: Generator | None = None
    for line in crontab.lines:
        if isinstance(line, Comment):
            text = line.text.decode("utf-8", "replace")
            block = _block_after(text, block)
            above = next((owner for sign, owner in _ABOVE if text.startswith(sign)), above)
        elif isinstance(line, Entry):
            owner = above or (block and block[1]) or _of_command(line) or whole
            if owner:
                found[line.number] = owner
            above = None
    return found


def _block_after(
    text: str, block: tuple[str | None, Generator] | None
) -> tuple[str | None, Generator] | None:
    """Return the block that holds below a comment: its last comment and its owner; None outside."""
    if block and block[0] and text.startswith(block[0]):
        return None
    begun = next(((last, owner) for first, last, owner in _BLOCKS if text.startswith(first)), None)
    return begun or block


def _of_command(entry: Entry) -> Generator | None:
    return next((owner for sign, owner in _IN_COMMAND if sign in entry.command), None)


def _of_whole_file(crontab: Crontab) -> Generator | None:
    """Return the generator that a comment above the first line names."""
    for line in crontab.lines:
        if isinstance(line, Entry):
            return None
        if isinstance(line, Comment):
            for match in _HEADER.finditer(line.text.decode("utf-8", "replace")):
                owner = _OF_HEADER.get((match[1] or match[2]).lower())
                if owner and not _marks_a_part(line):
                    return owner
    return None


def _marks_a_part(comment: Comment) -> bool:
    """Return whether a comment begins a block, or is the header of Puppet, which marks each of its lines as well."""
    text = comment.text.decode("utf-8", "replace")
    return text.startswith((" HEADER: ", *(first for first, _, _ in _BLOCKS)))
