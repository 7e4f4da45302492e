"""`oncecron pause`: skip new firings of a key, or of all keys, on every host; and sentences about pauses."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import KEYS, STORE_OPTIONS, TableCommand, store_inspector
from oncecron.config.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Pause

# ruff: noqa: PLC0415 - --help imports as little as it can

_LONGEST_REASON = 500
OPTIONS = (
    Option("all", "flag", "Pause every key, also keys that have never run."),
    Option(
        "for",
        "duration",
        "End the pause after this long. Default: the pause lasts until `oncecron resume`.",
        "DURATION",
        minimum=1,
    ),
    Option("reason", "text", "Record a reason. It is shown with your name for each skip.", "TEXT"),
    *STORE_OPTIONS,
)


def _pause(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.stderr import complain

    settings = Settings(OPTIONS, given)
    key, reason = wanted_key(settings, words), _reason(settings)
    stream = output.standard_output()
    with store_inspector(settings) as store:
        now, before = store.pause(key, author=author(), reason=reason, seconds=settings["for"])
        known = {key} if settings["all"] else {part.key for part in store.job_keys()}
    resume = settings.command(f"resume {'--all' if settings['all'] else key}")
    until = f"until {time_of(now.until)}" if now.until else f"until {resume}"
    output.say(f"paused {name_of(key)} {until}{was('paused', before, pronoun(key))}", stream)
    if key not in known:
        complain(f"key {key} is paused, but no host has fired it yet{near(key, known)}")
    return 0


def wanted_key(settings: Settings, words: list[str]) -> str:
    """Return the typed key, or `ALL_KEYS` for --all. Raises `UsageError`."""
    from oncecron.core.errors import UsageError
    from oncecron.core.log_rows import ALL_KEYS

    if settings["all"]:
        if words:
            raise UsageError(f"--all means every key; leave out {words[0]!r} or --all")
        return ALL_KEYS
    if not words or not words[0]:
        raise UsageError("the key is missing (an unset variable?); name a key, or use --all")
    return named_key(words[0])


def named_key(word: str) -> str:
    """Return a typed key after checking it. Raises `UsageError`."""
    from oncecron.config.options import KEY_RULE, is_key
    from oncecron.core.errors import UsageError

    if not word:
        raise UsageError("the key is empty (an unset variable?)")
    if not is_key(word):
        raise UsageError(f"{word!r} is not a valid key; {KEY_RULE}")
    return word


def _reason(settings: Settings) -> str | None:
    from oncecron.core.errors import UsageError
    from oncecron.core.stderr import valid

    text: str | None = settings["reason"]
    if text is None:
        return None
    if not text.strip():
        raise UsageError("--reason is empty (an unset variable?); leave it out")
    if len(text) > _LONGEST_REASON or any(letter in text for letter in "\r\n"):
        raise UsageError(
            f"--reason is too long; use one line of at most {_LONGEST_REASON} characters"
        )
    return valid(text)


def author() -> str:
    """Return the user of this command: USER@HOST."""
    from oncecron.core.host import host_name, user_name

    return f"{user_name()}@{host_name()}"


def name_of(key: str) -> str:
    """Return the name of a key in a sentence."""
    from oncecron.core.log_rows import ALL_KEYS

    return "all keys" if key == ALL_KEYS else key


def time_of(time: float | None) -> str:
    """Return a time in this host's zone."""
    from oncecron.core.text import Clock

    return Clock(utc=False).seconds(time)


def by(pause: Pause) -> str:
    """Return who paused or drained, when, how long and why."""
    from oncecron.core.text import visible

    until = f" until {time_of(pause.until)}" if pause.until else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return visible(f"by {pause.author} since {time_of(pause.since)}{until}{reason}")


def was(what: str, before: Pause | None, subject: str = "it was") -> str:
    """Return the end of a sentence: the state before."""
    return f"; {subject} {what} {by(before)}" if before else ""


def pronoun(key: str) -> str:
    """Return the subject and the verb of a sentence about a key, or about all keys."""
    from oncecron.core.log_rows import ALL_KEYS

    return "they were" if key == ALL_KEYS else "it was"


def near(name: str, known: Iterable[str]) -> str:
    """Return a question for similar known names, to end a sentence."""
    from oncecron.core.text import visible

    found = difflib.get_close_matches(name, sorted(known), 3)
    return f"; did you mean {' or '.join(map(visible, found))}?" if found else ""


COMMAND = TableCommand(
    "pause",
    OPTIONS,
    _pause,
    short="Start no new runs of a key, on any host.",
    about="Start no new runs of a key, or of all keys, on any host. A running job continues. Missed ticks do not run "
    "later. Pausing a key again replaces author, reason and end. The pause of all keys is separate from the pauses "
    "of single keys. List all pauses with `oncecron locks --pauses`.",
    examples=(
        "oncecron pause billing-nightly --for 2h --reason 'database upgrade'",
        "oncecron pause --all",
    ),
    words=click.Argument(["words"], metavar="KEY|--all", required=False, shell_complete=KEYS),
)
