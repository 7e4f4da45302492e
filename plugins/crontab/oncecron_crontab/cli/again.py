"""`oncecron again`: run the line of a key by hand, as cron would, with `--again`.

The line is looked for in the crontabs of this host. Its environment, directory, shell and standard input are those
that cron gives it, and its store is its own: so its job does what it does at night. The tick is named, or is the one
that the line would have now. Then this process becomes the shell of the line.
"""

from __future__ import annotations

import os
import pwd
import signal
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from oncecron.cli.command import STORE_OPTIONS, TableCommand, spools, store_and_log
from oncecron.cli.sentences import valid_key
from oncecron.config.options import NAMESPACE, Option
from oncecron.config.rules import tick_rules
from oncecron.config.settings import Settings, naming
from oncecron.core.errors import (
    EX_CONFIG,
    EX_NOT_FOUND,
    CommandError,
    ConfigurationError,
    InputError,
    NotFoundError,
    OncecronError,
    StoreError,
    UsageError,
)
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.masking import masked_line, valid
from oncecron.core.suggestion import unknown_key
from oncecron.core.text import Clock, listed, visible
from oncecron.core.tick import instant_of
from oncecron.host.names import user_name
from oncecron.host.stderr import complain
from oncecron.log.sources import sources_of
from oncecron.log.tick_history import spooled_of
from oncecron.log.which_tick import Ticks, wanted_tick
from oncecron.run.spec import tick_of
from oncecron.stores.address import DEFAULT_NAMESPACE, again_words, masked, shell_quoted
from oncecron_crontab.again import with_options
from oncecron_crontab.cli import user_crontab
from oncecron_crontab.cli.installed import crontabs_of_host
from oncecron_crontab.cron_environment import UMASK, cron_environment
from oncecron_crontab.crons import CRONS
from oncecron_crontab.installed_cron import installed_cron
from oncecron_crontab.lint.line import linted_entries
from oncecron_crontab.percent_sign import standard_input
from oncecron_crontab.shell import run_line
from oncecron_crontab.simple_commands import to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron.config.run_parser import ParsedRun
    from oncecron_crontab.lint.line import Invocation, LintedEntry

OPTIONS = (
    Option(
        "tick", "text", "Run this tick: as `oncecron history` shows it, or by its time: 02:00, 'yesterday 02:00'. "
        "Default: the one that the line has now.", "TICK",
    ),
    Option(
        "line", "text", "Where several lines have the key: run line N of your crontab, or of this FILE.", "[FILE:]N",
    ),
    Option("dry-run", "flag", "Say what would be started now, or why nothing would. Start and record nothing."),
    *STORE_OPTIONS,
)  # fmt: skip
_WAITING = ("failover", "wait", "spread")
"""The options of a line by which it waits, and starts its job after another run has ended well."""
_OF_THE_TICK = ("schedule", "tz", "tick", "no-tick", "min-gap", "starting-deadline", "catch-up")
"""The options of a line that do not go with another tick than its own."""


class Found(NamedTuple):
    """The line of a key."""

    line: LintedEntry
    invocation: Invocation

    @property
    def name(self) -> str:
        """The value of --line for it, typed by its user."""
        number, of_system = self.line.entry.number, self.line.entry.user is not None
        return f"{self.line.source.name}:{number}" if of_system else f"{number}"

    @property
    def place(self) -> str:
        """Where it is, for people."""
        of_user = self.name.isdecimal()
        return visible(f"{self.line.source.name}, line {self.name}" if of_user else self.name)

    @property
    def shown(self) -> str:
        """Where and what it is."""
        text = self.line.entry.raw.decode(errors="backslashreplace").strip()
        return f"{self.place}: {visible(masked_line(text))}"


def _run_again(given: dict[str, str], words: list[str]) -> int:
    key = valid_key(words[0])
    text = valid(wanted_tick(given["tick"])) if "tick" in given else None
    found = _line_of(key, text, given)
    _refuse_unsafe(found)
    _refuse_half_a_dry_run(found, given)
    _become_cron(found.line)
    try:
        settings = _settings_of(key, found, given)
        rule = next(iter(tick_rules(settings.__getitem__, settings.is_typed)), "")
        tick = None if rule == "tick" else tick_of(settings, time.time())[0].text
    except UsageError as error:  # an option of the line: whoever types `again` has not typed it
        raise UsageError(f"{found.place}: {error}") from error
    if text is not None:
        tick = _named(key, text, settings, rule)
    options = ["--again", "-v", *([f"--tick={tick}"] if tick else [])]
    options += _passed_on(found, given, settings)
    words = _words(found, options, (*_WAITING, *(_OF_THE_TICK if tick else ())))
    which = f"tick {tick}" if tick else "the tick that it names" if rule == "tick" else "no tick"
    complain(found.shown)
    what = "what would happen" if "dry-run" in given else "running it by hand"
    complain(f"{what} for {which}, as user {user_name()} in {os.getcwd()}")
    _become(words)


# Which line


def _line_of(key: str, text: str | None, given: Mapping[str, str]) -> Found:
    """Return the line with a key. Raises `UsageError` for several, or one of another user; `_nowhere` for none."""
    if not given.get("line", "1").rpartition(":")[2].isdecimal():
        unset = "" if given["line"] else " (an unset variable?)"
        raise UsageError(f"--line {given['line']!r} is not a number, or FILE:N{unset}")
    cron, me = installed_cron(), user_crontab.own_name()
    guarded = [
        Found(line, invocation)
        for source in crontabs_of_host(cron)
        for line in linted_entries(source, {}, cron or CRONS["debian"])
        for invocation in line.invocations
    ]
    every = [each for each in guarded if each.invocation.key == key]
    if not every:
        raise _nowhere(key, text, given, [each for each in guarded if not each.invocation.key])
    named = [each for each in every if each.name == given.get("line", each.name)]
    mine = [each for each in named if each.line.user == me]
    if len(mine) == 1:
        return mine[0]
    if named and not mine:  # no user becomes another one here
        place, user = named[0].place, named[0].line.user or ""
        by = _by(user or "USER", key, given)
        raise UsageError(f"{place} is run by user {visible(user)}: {by}")
    for each in every:
        complain(each.shown)
    first = {**given, "line": (mine or every)[0].name}
    again = f"`oncecron again {key}{_typed(first)}`"
    if not mine:
        raise UsageError(
            f"--line {given['line']}: this line does not have key {key}, but those above do: {again}"
        )
    raise UsageError(f"{len(mine)} lines have key {key}; choose one of them: {again}")


def _nowhere(
    key: str, text: str | None, given: Mapping[str, str], unread: Sequence[Found]
) -> OncecronError:
    """Return the error of a key without a line on this host: which hosts fire it, and what they run.

    `unread`: the lines whose key is not plain to see.
    """
    where = f"no crontab of this host that {user_name()} may read has a line with key {key}"
    if unread:
        where += f", unless it is {unread[0].place}, whose key is not plain to see"
    settings = Settings(OPTIONS, given, key)
    try:
        with store_and_log(settings) as (store, log):
            rows = [row for row in store.key_hosts() if row.key == key]
            newest = next(log.history(HistoryQuery(key=key, limit=1)), None)
            if not (rows or newest):
                keys = {part.key for part in store.job_keys()}
                return NotFoundError(f"{where}, and {unknown_key(key, keys)}")
    except (ConfigurationError, StoreError) as error:
        is_typed = any(option.name in given for option in STORE_OPTIONS)
        is_wrong = is_typed and error.exit_status == EX_CONFIG
        kind = ConfigurationError if is_wrong else NotFoundError
        return kind(f"{where}; which hosts fire it is not known: {error}")
    seen = {row.host: Clock(utc=False).logged(row.seen_at) for row in rows}
    hosts = [f"{visible(host)} (last at {at})" for host, at in sorted(seen.items())]
    there = f"; run it where it has one: it is fired by {listed(hosts)}" if hosts else ""
    if newest is None:
        return NotFoundError(f"{where}{there}")
    tick = newest.tick if text is None else _named(key, text, settings)
    line = again_words(key, tick, newest.command, newest.shards)
    if newest.user != user_name():
        there = f"; user {visible(newest.user)} ran it: {_by(newest.user, key, given)}{there}"
    return NotFoundError(
        f"{where}{there}; or run its command as it is on record: `oncecron {visible(line)}`"
    )


def _refuse_unsafe(found: Found) -> None:
    """Raise `InputError` for a system crontab that others than root may change: no cron runs it."""
    if found.line.entry.user is None:
        return
    path = found.line.source.name
    status = os.stat(path)
    if status.st_uid or status.st_mode & 0o022:
        path = visible(path)
        raise InputError(
            f"{path} must be owned by root, and writable for nobody else, or cron does not run its lines: "
            f"`chown root {path} && chmod go-w {path}`"
        )


def _refuse_half_a_dry_run(found: Found, given: Mapping[str, str]) -> None:
    """Raise `UsageError` for --dry-run of a line that does more than its guard, which would be done."""
    if "dry-run" not in given:
        return
    if "dry-run" not in found.invocation.job_command.options:
        raise UsageError(f"{found.invocation.job_command.shown} has no --dry-run")
    if found.invocation.is_shell:  # which guards the whole line
        return
    if not _is_alone(found) or found.line.commands[0].redirections:
        raise UsageError(
            f"--dry-run: {found.place} does more than `oncecron run`, which would be done; leave it out"
        )


def _is_alone(found: Found) -> bool:
    """Return whether a line is its guard, and nothing else."""
    first, *others = found.line.commands
    return not (others or first.keywords) and first.words[0] == found.invocation.program


def _by(user: str, key: str, given: Mapping[str, str]) -> str:
    command = naming(f"`oncecron again {key}{_typed(given)}`", given)
    return command.replace("`oncecron", f"`sudo -u {shell_quoted(visible(user))} oncecron", 1)


def _typed(given: Mapping[str, str]) -> str:
    names = [name for name in ("tick", "line") if name in given]
    typed = "".join(f" --{name} {shell_quoted(given[name])}" for name in names)
    return typed + " --dry-run" * ("dry-run" in given)


# As cron starts it


def _become_cron(line: LintedEntry) -> None:
    """Take the environment, the directory and the standard input that cron gives a line. Raises `InputError`."""
    who = pwd.getpwuid(os.getuid())
    environment = cron_environment(line.environment, who.pw_name, who.pw_dir, line.cron)
    os.environ.clear()
    os.environ.update(environment)
    home = os.environ["HOME"]
    try:
        os.chdir(home)
    except OSError as error:
        raise InputError(f"cron starts the line in {home}: {error.strerror}") from error
    os.umask(UMASK)
    given = standard_input(line.entry.command, line.cron.percent)
    descriptor = os.memfd_create("standard input") if given else os.open(os.devnull, os.O_RDONLY)
    if given:
        os.write(descriptor, given)
        os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)


def _words(found: Found, options: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return what cron would execute, with more options for the guard of the line. Raises `UsageError`."""
    line, invocation = found
    if invocation.is_shell:
        program = os.path.join(os.path.dirname(invocation.program), "oncecron")
        return [program, "run", *options, *_words_of(line.command)]
    added = [to_bytes(word) for word in options]
    command = with_options(to_bytes(line.command), added, without, invocation.job_command.options)
    if command is None or len(line.invocations) > 1:
        raise UsageError(
            f"{found.place} has oncecron several times, or within quotes or a substitution; run it by hand, with "
            f"{' '.join(map(shell_quoted, options))} behind the right `oncecron {invocation.subcommand}`"
        )
    # Ctrl-C, which a shell hears too, must not end it before the job.
    command = b"exec " + command if _is_alone(found) else command
    return [os.environ["SHELL"], "-c", os.fsdecode(command)]


def _words_of(command: str) -> list[str]:
    """Return the options of `oncecron run` by which oncecron-shell runs a line, with its words."""
    found: list[ParsedRun] = []

    def keep(parsed: ParsedRun) -> int:
        found.append(parsed)
        return 0

    run_line(["-c", command], keep)
    [parsed] = found
    given = [f"--{name}={text}" for name, text in parsed.given.items()]
    return [*given, *(["--", *parsed.command] if parsed.command else [])]


def _become(words: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(words[0], words)  # noqa: S606 - the shell of the line
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}", EX_NOT_FOUND) from error


# Its tick and its store


def _settings_of(key: str, found: Found, given: Mapping[str, str]) -> Settings:
    """Return the options of the line, in its environment; its own store takes the place of one that is typed."""
    invocation = found.invocation
    typed = {name: os.path.expandvars(text) for name, text in invocation.options.items()}
    table = (*invocation.job_command.options.values(), *invocation.job_command.defaults)
    settings = Settings(table, typed, key)
    passed = {option.name: given[option.name] for option in STORE_OPTIONS if option.name in given}
    other = Settings(table, {**typed, **passed}, key) if passed else settings
    if not settings.has_store():
        return other
    if _where(other) != _where(settings):
        own, namespace = masked(settings.store_text() or ""), settings[NAMESPACE.name]
        shown = own if namespace == DEFAULT_NAMESPACE else f"{own} (namespace {namespace})"
        complain(
            f"{found.place} has a store of its own, {shown}, which is used instead of the one that is typed"
        )
    return settings


def _where(settings: Settings) -> tuple[object, ...]:
    return (*settings.address()[:2], settings[NAMESPACE.name])


def _passed_on(found: Found, given: Mapping[str, str], settings: Settings) -> list[str]:
    """Return the options that the line gets as they were typed: the store, too, where it has none of its own."""
    names = [option.name for option in STORE_OPTIONS if option.name in given]
    own = found.invocation.options
    words = [
        f"--{each}={given[each]}" for each in names if settings.is_typed(each) and each not in own
    ]
    return words + ["--dry-run"] * ("dry-run" in given)


def _named(key: str, text: str, settings: Settings, rule: str = "") -> str | None:
    """Return the tick that a text means, as `oncecron why` reads it. Raises `NotFoundError`, `UsageError`.

    What `why` may take for the tick that was meant, a person has to name before it runs. An instant that a line by
    `--schedule` never has, in another zone perhaps, would be one more run of the job.
    """
    instant = instant_of(text)
    if instant is not None:
        due = tick_of(settings, instant)[0].text if rule == "schedule" else text
        if due == text:
            return text
    with store_and_log(settings) as (store, log):
        sources = sources_of(settings, store, log)
        spooled = spooled_of(sources, key, spools(settings))
        ticks = Ticks(sources, key, spooled, Clock(utc=False))
        if instant is not None and not ticks.is_on_record(text):
            schedule = " ".join(filter(None, (settings["schedule"], settings["tz"])))
            before = f"`oncecron again {key} --tick {due}`"
            raise UsageError(
                f"{text} is no tick of the line, whose schedule is {schedule}; to run the one before it: {before}"
            )
        choice = ticks.named(text)
    tick = choice.which.tick
    if choice.note and tick:
        run = f"`oncecron again {key} --tick {shell_quoted(tick)}`"
        raise UsageError(
            f"{choice.note[:1].lower()}{choice.note[1:]} tick {tick}; to run it: {run}"
        )
    return tick


COMMAND = TableCommand(
    "again", OPTIONS, _run_again,
    about="Run a tick of a key by hand, as cron would: find the line of the key in your crontab, in /etc/crontab or "
    "/etc/cron.d, show it, and run it with `--again` in the environment that cron gives it. Its output goes to the "
    "terminal. The exit status is that of the line.",
    examples=(
        "oncecron again billing-nightly",
        "oncecron again billing-nightly --tick 'yesterday 02:00'",
    ),
    words="KEY",
)  # fmt: skip
