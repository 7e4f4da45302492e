"""What people type that oncecron does not have, and what they meant: one table, and no guesses.

Names that are nearly right are `core.suggestion`'s.
"""

from __future__ import annotations

import contextlib
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from oncecron.core.errors import UsageError
from oncecron.core.model import REFUSAL_REASONS
from oncecron.core.suggestion import not_one_of
from oncecron.core.units import parse_duration
from oncecron.log.time_span import is_time_of_day, read_time

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from oncecron.config.options import Option

_AGAIN = (
    "`oncecron again KEY` (the line of the crontab), or `oncecron run --key KEY --again -- JOB`"
)
_DID_YOU_MEAN = {
    # Commands
    "wrap": "`oncecron crontab wrap`",
    "unwrap": "`oncecron crontab unwrap`",
    "lint": "`oncecron crontab lint`",
    "backup": "the backup of the database itself, such as pg_dump, or `oncecron history --limit 0 --json`",
    "delete, remove, rm": "`oncecron forget` (a retired key) or `oncecron prune` (old records)",
    "disable": "`oncecron pause`",
    "edit": "`crontab -e`",
    "enable, unpause": "`oncecron resume`",
    "exec": "`oncecron run`",
    "info": "`oncecron why`",
    "kill": "`oncecron stop`",
    "log, logs": "`oncecron history`",
    "man": "`oncecron COMMAND --help` or `man oncecron-COMMAND`",
    "migrate, upgrade": "`oncecron init`",
    "output": "`oncecron why` (the end of it) or `oncecron history --id ID` (all that was captured)",
    "reset":
        "`oncecron release` (what a dead host holds), `oncecron forget` (a retired key) or `oncecron resume` (a pause)",
    "restart": f"`oncecron stop KEY`, and then {_AGAIN}",
    "setup": "`oncecron init` (the store) or `oncecron crontab wrap --install`",
    "start": f"`oncecron resume` (after a pause), or {_AGAIN}",
    "status, list, ls, ps, show, top":
        "`oncecron jobs` (every key), `oncecron locks` (what runs now) or `oncecron history`",
    "tail": "`oncecron history --follow` or `oncecron why` (the end of the output)",
    "trigger, rerun": _AGAIN,
    "unlock": "`oncecron release`",
    "version": "`oncecron --version`",
    "crontab check": "`oncecron crontab lint`",
    "crontab install": "`oncecron crontab wrap --install`",
    "crontab list, crontab show": "`crontab -l`, or `oncecron crontab wrap --diff` (what would change)",
    "crontab restore": "`oncecron crontab unwrap --install`, or the line that `oncecron crontab wrap --install` gave",
    "crontab undo, crontab remove": "`oncecron crontab unwrap`",
    # Options
    "crontab wrap --dry-run, crontab unwrap --dry-run": "--diff, or --check (exit status 2 if anything would change)",
    "history --sort, hosts --sort, items --sort, locks --sort": "--format csv, for a program that sorts",
    "jobs --sort": "--next (the soonest tick first) or --wrong (only what is wrong)",
    "metrics --output": "--textfile FILE",
    "metrics --port, web --port": "--listen [HOST:]PORT",
    "prune --older-than": "--executions AGE or --skips AGE",
    "report --output": "--html FILE",
    "run --job, run --name": "--key KEY",
    "run --retry, each --retry": "--retries N",
    "run --timezone, run --zone": "--tz ZONE",
}  # fmt: skip
_OF_OUTCOMES = {"error": "failed", "errors": "failed", "ok": "succeeded", "success": "succeeded"}
MEANT = {
    **{
        f"oncecron {typed}": f"did you mean {meant}?"
        for every, meant in _DID_YOU_MEAN.items()
        for typed in every.split(", ")
    },
    **{f"--outcome {typed}": f"did you mean {meant}?" for typed, meant in _OF_OUTCOMES.items()},
    "oncecron crontab unwrap --all": "it unwraps all lines without an option",
    "oncecron doctor WORD": "doctor looks at the host on which it runs; to see another one: `oncecron hosts {word}`",
    "oncecron next WORD": "a schedule needs quotes, such as '0 2 * * *'",
    "oncecron notify WORD": "--test goes to every channel of the configuration file",
    "--outcome missed": "ticks that nobody started are in `oncecron audit` and `oncecron timeline`",
}
"""By what was typed, with its command: what to do."""

_TIMES = ("since", "until", "tick")
"""The options that take a time."""
_BEHIND = {
    "drain": ("for", "until"),
    "history": ("since",),
    "pause": ("for", "until"),
    "why": ("tick",),
}
"""By command: the option that a word behind the key or host stands for."""


def unexpected(command: str, metavar: str, word: str) -> str:
    """Return the sentence for a word too many. `metavar`: what the command takes."""
    cure = MEANT.get(f"{command} WORD", "").format(word=word)
    one, *others = metavar.strip("[]").split("|")
    if not cure and one in ("KEY", "HOST") and others in ([], ["--all"]):
        cure = f"`{command}` takes one {one} at a time"
    return f"unexpected argument {word!r}; {cure}" if cure else ""


def option_of(command: str, word: str, options: Collection[Option]) -> Option | None:
    """Return the option whose value a word behind the key or host is, as in `pause KEY 5m`; None: of none."""
    known = {option.name: option for option in options}
    wanted = (known[name] for name in _BEHIND.get(command, ()) if name in known)
    return next((option for option in wanted if _fits(option, word)), None)


def _fits(option: Option, word: str) -> bool:
    if word.isdecimal():  # it may be an ID, or seconds
        return False
    if option.kind != "duration":
        return _is_time(word, ahead=option.name == "until")
    with contextlib.suppress(ValueError):
        return parse_duration(word) > 0
    return False


def _is_time(text: str, *, ahead: bool = False) -> bool:
    with contextlib.suppress(ValueError):
        return read_time(text, time.time(), ahead=ahead) > 0
    return False


def refuse_times(
    args: Sequence[str], words: Collection[str], table: Collection[Option], typed: Mapping[str, str]
) -> None:
    """Raise `UsageError` for `02:00` among the words: in --since 2026-11-28 02:00, the shell parts it from its day."""
    times = [option.name for option in table if option.name in _TIMES]
    for before, word in pairwise(["", *args]) if times else ():
        if word in words and is_time_of_day(word):
            day = before.rpartition("=")[2]
            option = next((name for name in times if day and typed.get(name) == day), "")
            both = f"{day} {word}"
            meant = f"'{both}'" if option or (before in words and _is_time(both)) else word
            raise UsageError(f"{word} is not a KEY; did you mean --{option or times[0]} {meant}?")


def wanted_outcomes(text: str | None, known: Collection[str]) -> list[str] | None:
    """Return the words of --outcome, several joined by commas. Raises `UsageError` for an unknown one."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            meant = MEANT.get(f"--outcome {word}") if "succeeded" in known else None
            why = f"{word!r} is not an outcome; {meant}" if meant else not_one_of(word, known)
            hint = "; this is a reason: add --skips" if word in REFUSAL_REASONS else ""
            raise UsageError(f"--outcome: {why}{hint}")
    return words
