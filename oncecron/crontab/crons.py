"""The cron daemons that read crontabs differently, and what each makes of a line.

Where a cron is not named here, it does as Debian's. docs/crons.md tells people the same. The sources: cron 3.0pl1-162
and 3.0pl1-197 (Debian 12 and 13), cronie 1.7.2, busybox 1.35, bcron 0.11, dcron 4.6, systemd-cron 1.15.19 and 2.5.1,
supercronic 0.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.crontab.percent_sign import CRONIE, DEBIAN, LETTER, SYSTEMD, PercentRule

if TYPE_CHECKING:
    from oncecron.crontab.scanner import Crontab, Entry, Variable

CRON_TZ = b"CRON_TZ"
_EVERY_ZONE_VARIABLE = frozenset((CRON_TZ, b"TZ"))


class Cron(NamedTuple):
    """A cron daemon."""

    title: str
    """For messages."""
    percent: PercentRule = DEBIAN
    zone_variables: frozenset[bytes] = frozenset()
    """The variables of a crontab that set the time zone of its schedules; the last one counts."""
    whole_file: bool = False
    """Whether the last variable of the file counts for all of its lines; else for the lines below it."""
    own_words: bytes = b""
    """A pattern for what is not yet the command behind five fields."""
    either_day: bool = False
    """Whether a day matches by either day field also where one is a step such as `*/2`; else it must match both."""
    sets_user: bool = True
    """Whether jobs have the variable `USER`. All crons set `LOGNAME`."""


CRONS = {
    "debian": Cron("Debian's cron", sets_user=False),
    "cronie": Cron("cronie", CRONIE, frozenset((CRON_TZ,))),
    "busybox": Cron("busybox crond", LETTER, either_day=True),
    "bcron": Cron("bcron", LETTER),
    "dcron": Cron("dcron", LETTER, own_words=rb"(ID|AFTER|FREQ)=", either_day=True),
    "systemd-cron": Cron("systemd-cron", SYSTEMD, _EVERY_ZONE_VARIABLE),
    "systemd-cron-1": Cron("systemd-cron 1", LETTER),
    "supercronic": Cron(
        *("supercronic", LETTER, frozenset((CRON_TZ,))),
        whole_file=True,
        own_words=rb"[\d*][\d*,/-]*\s",
        either_day=True,
    ),
}
"""By the name that `--cron` takes."""


def zone_variable(crontab: Crontab, entry: Entry, cron: Cron | None) -> Variable | None:
    """Return the variable that sets the time zone of a line; for an unknown cron, the one that may set it."""
    if cron is None:
        cron = CRONS["supercronic"]
    found = [
        variable
        for variable in crontab.variables
        if variable.name in cron.zone_variables
        and (cron.whole_file or variable.number < entry.number)
    ]
    return found[-1] if found else None
