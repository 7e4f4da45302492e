"""`oncecron pause`, `resume`, `drain`, `undrain`, `forget`: whether a key or a host starts jobs, or is expected to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand, moment, store_reader
from oncecron.cli.sentences import (
    author,
    known_hosts,
    known_keys,
    suggestion,
    unknown_host,
    unknown_key,
    valid_key,
    valid_text,
)
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.errors import NotFoundError, StoreError, UsageError
from oncecron.core.log_rows import ALL_KEYS
from oncecron.core.text import Clock, held_by, visible
from oncecron.host.names import host_name
from oncecron.host.stderr import complain
from oncecron.stores.address import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncecron.core.log_rows import Pause

_CLOCK = Clock(utc=False)
_LONGEST_REASON = 500

NEW = Option("new", "flag", "Accept a name that has not fired yet, for one that is to come.")


def _ending(what: str, ended_by: str) -> tuple[Option, ...]:
    """Return the options that say what is meant, when that ends, and why."""
    return (
        Option(
            "for", "duration",
            f"End the {what} after this long. Default: the {what} lasts until `oncecron {ended_by}`.", minimum=1,
        ),
        Option(
            "until", "text",
            f"End the {what} at this time: 06:00, 'tomorrow 06:00', 'Mon 06:00', or a date and a time.", "TIME",
        ),
        Option("reason", "text", "Record a reason. It is shown with your name for each skip.", "TEXT"),
        NEW,
    )  # fmt: skip


PAUSE_OPTIONS = (
    Option("all", "flag", "Pause every key, also keys that have never run."),
    *_ending("pause", "resume"),
    *STORE_OPTIONS,
)
DRAIN_OPTIONS = (*_ending("drain", "undrain"), *STORE_OPTIONS)
RESUME_OPTIONS = (
    Option("all", "flag", "End the pause of all keys, instead of the pause of KEY."),
    *STORE_OPTIONS,
)
FORGET_OPTIONS = (
    Option(
        "host", "text", "Forget a retired HOST, instead of KEY: it is not silent on the keys that it used to fire.",
        "HOST", completion="host",
    ),
    *STORE_OPTIONS,
)  # fmt: skip


def _pause(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(PAUSE_OPTIONS, given)
    key, reason, seconds = _key(settings, words), _reason(settings), _seconds(settings)
    stream = output.standard_output()
    with store_reader(settings) as store:
        if not (settings["all"] or settings["new"]):
            known = _readable(lambda: (*known_keys(store), *(each.key for each in store.pauses())))
            if known is not None and key not in known:
                raise _unknown(unknown_key(key, known), f"pause {key}")
        now, before = store.pause(key, author=author(), reason=reason, seconds=seconds)
    until = _CLOCK.seconds(now.until) if now.until else settings.command(now.end)
    output.say(f"paused {_name(key)} until {until}{_earlier('paused', before)}", stream)
    return 0


def _resume(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(RESUME_OPTIONS, given)
    key = _key(settings, words)
    stream = output.standard_output()
    with store_reader(settings) as store:
        before = store.resume(key)
        others = {pause.key: pause for pause in store.pauses() if pause.key}
    if before:
        output.say(f"resumed {_name(key)}{_earlier('paused', before)}", stream)
    elif key == ALL_KEYS:
        output.say("there is no pause of all keys to end", stream)
    else:
        output.say(f"{key} was not paused{suggestion(key, others)}", stream)
    if key == ALL_KEYS and others:
        each = settings.command(f"resume {next(iter(others))}")
        complain(f"these keys are paused one by one: {', '.join(others)}; to resume one: {each}")
    elif key != ALL_KEYS and ALL_KEYS in others:
        details, end = held_by(others[ALL_KEYS], _CLOCK), settings.command("resume --all")
        complain(f"all keys are still paused {details}; to resume them: {end}")
    return 0


def _drain(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(DRAIN_OPTIONS, given)
    host, reason, seconds = _host(words), _reason(settings), _seconds(settings)
    stream = output.standard_output()
    with store_reader(settings) as store:
        if not (settings["new"] or host == host_name()):
            known = _readable(lambda: known_hosts(store))
            if known is not None and host not in known:
                raise _unknown(unknown_host(host, known), f"drain {shell_quoted(host)}")
        now, before = store.drain(host, author=author(), reason=reason, seconds=seconds)
        shared = _readable(lambda: (row.host for row in store.key_hosts() if row.machines > 1))
    until = _CLOCK.seconds(now.until) if now.until else settings.command(now.end)
    output.say(f"drained {visible(host)} until {until}{_earlier('drained', before)}", stream)
    if shared and host in shared:
        complain(
            f"{visible(host)} is the name of two machines or more: all of them are drained; to drain one, give it a "
            "name of its own"
        )
    return 0


def _undrain(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(STORE_OPTIONS, given)
    host = _host(words)
    stream = output.standard_output()
    with store_reader(settings) as store:
        before = store.undrain(host)
        others = [] if before else [pause.host for pause in store.pauses() if pause.host]
    if before:
        output.say(f"undrained {visible(host)}{_earlier('drained', before)}", stream)
    else:
        output.say(f"{visible(host)} was not drained{suggestion(host, others)}", stream)
    return 0


def _forget(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(FORGET_OPTIONS, given)
    host = valid_text(settings["host"], "--host is empty (an unset variable?); name a host")
    if host is None and not words:
        raise UsageError("the key is missing (an unset variable?); name a key, or use --host")
    if host is not None and words:
        raise UsageError(f"--host means a host; leave out {words[0]!r} or --host")
    key = valid_key(words[0]) if words else ""
    stream = output.standard_output()
    with store_reader(settings) as store:
        if host is None:
            if not store.forget(key, author()):
                raise unknown_key(key, known_keys(store))
        elif not store.forget_host(host):
            hosts = {row.host for row in store.key_hosts()}
            raise unknown_host(host, hosts)
    if host is None:
        done = f"forgot the schedule of {key}: no run of it is expected until a host fires it"
    else:
        done = f"forgot host {visible(host)}: no firing of it is expected until it fires a key"
    output.say(done, stream)
    return 0


def _key(settings: Settings, words: list[str]) -> str:
    """Return the typed key, or `ALL_KEYS` for --all. Raises `UsageError`."""
    if settings["all"]:
        if words:
            raise UsageError(f"--all means every key; leave out {words[0]!r} or --all")
        return ALL_KEYS
    if not words or not words[0]:
        raise UsageError("the key is missing (an unset variable?); name a key, or use --all")
    return valid_key(words[0])


def _host(words: list[str]) -> str:
    """Return the typed host, or this one. Raises `UsageError`."""
    why = "the host is empty (an unset variable?); leave it out for this host"
    return valid_text(words[0] if words else None, why) or host_name()


def _reason(settings: Settings) -> str | None:
    text = settings["reason"] or ""
    reason = valid_text(settings["reason"], "--reason is empty (an unset variable?); leave it out")
    if len(text) > _LONGEST_REASON or not {"\r", "\n"}.isdisjoint(text):
        raise UsageError(
            f"--reason is too long; use one line of at most {_LONGEST_REASON} characters"
        )
    return reason


def _seconds(settings: Settings) -> float | None:
    """Return how long it lasts; None: until somebody ends it. Raises `UsageError`."""
    seconds: float | None = settings["for"]
    if settings["until"] is None:
        return seconds
    if seconds is not None:
        raise UsageError("--for and --until contradict each other; leave one out")
    now = time.time()
    end = moment(settings["until"], now, "until", utc=False, ahead=True)
    if end <= now:
        raise UsageError(f"--until: {settings['until']!r} is over; write a time to come")
    return end - now


def _name(key: str) -> str:
    return "all keys" if key == ALL_KEYS else key


def _earlier(state: str, before: Pause | None) -> str:
    if before is None:
        return ""
    subject = "they were" if before.key == ALL_KEYS else "it was"
    return f"; {subject} {state} {held_by(before, _CLOCK)}"


def _unknown(error: NotFoundError, words: str) -> NotFoundError:
    """Return the error for a name that is probably mistyped: nobody would notice that nothing was stopped."""
    return NotFoundError(f"{error}; if it is to come: `oncecron {words} --new`")


def _readable(read: Callable[[], Iterable[str | None]]) -> set[str] | None:
    """Return the names that a function reads; None: this role may not read them, so no name is unknown to it."""
    try:
        return {*filter(None, read())}
    except StoreError:
        return None


PAUSE = TableCommand(
    "pause", PAUSE_OPTIONS, _pause,
    about="Start no new runs of a key, or of all keys, on any host. A running job continues. Missed ticks do not run "
    "later. Pausing a key again replaces author, reason and end. The pause of all keys is separate from the pauses "
    "of single keys. List all pauses with `oncecron locks --pauses`.",
    examples=(
        "oncecron pause billing-nightly --for 2h --reason 'database upgrade'",
        "oncecron pause --all --until 'Mon 06:00'",
    ),
    words="KEY|--all",
)  # fmt: skip
RESUME = TableCommand(
    "resume", RESUME_OPTIONS, _resume,
    about="End the pause of a key, or of all keys. --all does not end the pauses of single keys. The next firing "
    "runs; missed ticks do not run later. If the key is not paused, say so and exit with status 0.",
    examples=("oncecron resume billing-nightly", "oncecron resume --all"),
    words="KEY|--all",
)  # fmt: skip
DRAIN = TableCommand(
    "drain", DRAIN_OPTIONS, _drain,
    about="Start no new jobs on a host: on HOST, or on this host. Running jobs continue, and the other hosts run the "
    "ticks. HOST is the name that `oncecron history` shows. The host stays drained, also after a reboot, until "
    "`oncecron undrain`, or for as long as you say. List drained hosts with `oncecron locks --pauses`.",
    examples=("oncecron drain", "oncecron drain web2 --until 06:00 --reason 'new disk'"),
    words="[HOST]",
)  # fmt: skip
UNDRAIN = TableCommand(
    "undrain", STORE_OPTIONS, _undrain,
    about="Start jobs again on a drained host: on HOST, or on this host. If the host is not drained, say so and exit "
    "with status 0.",
    examples=("oncecron undrain", "oncecron undrain web2"),
    words="[HOST]",
)  # fmt: skip
FORGET = TableCommand(
    "forget", FORGET_OPTIONS, _forget,
    about="Remove the schedule that is on record for a key, so that no command reports its ticks as missed any more. "
    "The log stays. The next firing with --schedule puts the key back. With --host, forget which keys a host fires, "
    "so that no command reports it as silent. Its next firing puts it back.",
    examples=("oncecron forget billing-nightly", "oncecron forget --host web3"),
    words="KEY|--host",
)  # fmt: skip
COMMANDS = {"pause": PAUSE, "resume": RESUME, "drain": DRAIN, "undrain": UNDRAIN, "forget": FORGET}
