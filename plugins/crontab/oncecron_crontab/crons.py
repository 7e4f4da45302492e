"""The cron daemons that read crontabs differently, and what each makes of a line: one table.

Where a cron is not named here, it does as Debian's. docs/crons.md tells people the same. An entry of the table is what
the source of that cron does, in the file that is named above it. Tests compare it with the daemons that Debian has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron_crontab.fields import FIVE, LONG, NOTHING, THREE, Rules
from oncecron_crontab.percent_sign import CRONIE, DEBIAN, HASH, LETTER, SYSTEMD, PercentRule

if TYPE_CHECKING:
    from collections.abc import Mapping

CRON_TZ = b"CRON_TZ"
_EVERY_ZONE_VARIABLE = frozenset((CRON_TZ, b"TZ"))
_SECOND, _YEAR = 5, 6
_LONGEST_ARGUMENT = 131_000
"""Nearly MAX_ARG_STRLEN of Linux, which ends `sh -c COMMAND` for every cron."""
_HOURLY = {b"@hourly": "0 * * * *"}
_DAILY = {b"@daily": "0 0 * * *"}
_SELDOM = {
    b"@weekly": "0 0 * * 0",
    b"@monthly": "0 0 1 * *",
    b"@yearly": "0 0 1 1 *",
    b"@annually": "0 0 1 1 *",
}
_REBOOT = {b"@reboot": ""}
_NICKNAMES = {**_HOURLY, **_DAILY, b"@midnight": "0 0 * * *", **_SELDOM, **_REBOOT}
_HALF_YEARLY = (b"@semi-annually", b"@semiannually", b"@bi-annually", b"@biannually")
_OF_SYSTEMD = {  # systemd.time(7) has another weekly
    **_NICKNAMES,
    b"@weekly": "0 0 * * 1",
    b"@minutely": "* * * * *",
    b"@quarterly": "0 0 1 1,4,7,10 *",
    b"@anually": "0 0 1 1 *",
    **dict.fromkeys(_HALF_YEARLY, "0 0 1 1,7 *"),
    b"@boot": "",
}


class Cron(NamedTuple):
    """A cron daemon."""

    title: str
    """For messages."""
    percent: PercentRule = DEBIAN
    zone_variables: frozenset[bytes] = frozenset()
    """The variables of a crontab that set the time zone of its schedules; the last one counts."""
    whole_file: bool = False
    """Whether the last variable of the file counts for all of its lines; else for the lines below it."""
    rules: Rules | None = None
    """What a field may hold; None: as Debian's cron reads it."""
    fields: tuple[tuple[int, ...], ...] = (FIVE,)
    """The fields that a line may have, by their positions in `NAMES`; the first that fits counts."""
    days: str = "either"
    """When both day fields leave out days: a day must match `either` or `both`."""
    nicknames: Mapping[bytes, str] = _NICKNAMES
    """The five fields that each means, empty for the start of the host."""
    any_case: bool = False
    """Whether nicknames may have capitals."""
    moves_nicknames: frozenset[bytes] = frozenset()
    """Variables that move the time of a nickname."""
    dash: bool = False
    """Whether a line may begin with `-`, which is not a part of its first field."""
    no_command: bytes = rb"\Z"
    """A pattern for what cannot be behind the fields."""
    own_words: bytes = NOTHING
    """A pattern for what is behind the fields and is not yet the command."""
    joins: bool = False
    """Whether a backslash at the end of a line joins it with the next one."""
    trimmed: bytes = b""
    """The characters at the end of a line that do not belong to the command."""
    longest_command: int = _LONGEST_ARGUMENT
    """In bytes."""
    bad_line: str = "ignores it"
    """What it does with a line that it cannot read."""
    ignores: bool = True
    """Whether it never runs a line that it cannot read, and runs the others."""
    needs_newline: bool = False
    """Whether it cannot read a last line without a newline."""


_BLANKS = b" \t\r\v\f"
_BEGUN = rb"(?:%b)[^-,/~]*" % THREE[1]
_SEVERAL_COMMAS = (rb",*", rb",+", rb",*")
_OF_BUSYBOX = Rules(  # ParseField counts days from 0, so `*/2` is 2, 4, 6, ...
    firsts=(0, 0, 0, 1, 0, 0, 0),
    lasts=(59, 23, 31, 12, 6, 0, 0),
    step=rb"\d*",
    number_with_step="number",
    falling="round",
    every_day="all",
)
CRONS = {
    # cron 3.0pl1-162 and 3.0pl1-197 (Debian 12 and 13): entry.c, env.c
    "debian": Cron(
        "Debian's cron", no_command=rb"\*", longest_command=998, bad_line="rejects the file", ignores=False,
        needs_newline=True,
    ),
    # cronie 1.7.2: src/entry.c (get_range), src/user.c
    "cronie": Cron(
        *("cronie", CRONIE, frozenset((CRON_TZ,))),
        rules=Rules(
            falling="empty", to_sunday=rb"0+|sun", foreign=(rb"[^,/]*~[^,/]*(?:/\d+)?",) * 5
        ),
        dash=True, no_command=rb"\Z|\*|-(?!n[ \t])", own_words=rb"-n", needs_newline=True,
    ),
    # busybox 1.37: miscutils/crond.c (ParseField, FixDayDow, load_crontab), libbb/parse_config.c
    "busybox": Cron(
        *("busybox crond", HASH), rules=_OF_BUSYBOX, joins=True, trimmed=b" \t",
        bad_line="runs it at other times than it says", ignores=False,
    ),
    # systemd-cron 2.5.1: src/bin/systemd-crontab-generator.cpp (parse_time_unit, parse_period, dow_map)
    "systemd-cron": Cron(
        *("systemd-cron", SYSTEMD, _EVERY_ZONE_VARIABLE),
        rules=Rules(
            names=(NOTHING, _BEGUN),  # month_map refuses the names that the manual has
            commas=_SEVERAL_COMMAS,
            number_with_step="number",
            to_sunday=rb"sun.*",
            lone_sunday=rb"sun.*",  # dow_map takes the end of `sun-sun` for 7
            cuts=True,
            foreign=(rb"[^,/]*~[^,/]*",) * 2
            + (rb"L|[^,/]*~[^,/]*",)
            + (rb"[^,/]*~[^,/]*",)
            + (rb".L|[^,/]*~[^,/]*",),
        ),
        days="both",
        nicknames=_OF_SYSTEMD,
        any_case=True,
        moves_nicknames=frozenset((b"DELAY", b"START_HOURS_RANGE")),
        trimmed=_BLANKS,
    ),
    # supercronic 0.2.34: crontab/crontab.go, cronexpr/cronexpr_parse.go
    "supercronic": Cron(
        *("supercronic", LETTER, frozenset((CRON_TZ,))), whole_file=True,
        rules=Rules(
            lasts=(59, 23, 31, 12, 6, 59, 2099), names=LONG, stars=rb"[*?](?![^,/])", commas=_SEVERAL_COMMAS,
            number_with_step="rest", seven_is_zero=True, small_steps=True, every_day="bare",
            foreign=(NOTHING, NOTHING, rb"l|lw|\d+w", NOTHING, rb"\w+l|\w+#[1-5]|0\d[^,]*", NOTHING, NOTHING),
        ),
        fields=((_SECOND, *FIVE, _YEAR), (*FIVE, _YEAR), FIVE), nicknames={**_HOURLY, **_DAILY, **_SELDOM},
        trimmed=b"\r", bad_line="rejects the file", ignores=False,
    ),
}  # fmt: skip
"""By the name that `--cron` takes."""
