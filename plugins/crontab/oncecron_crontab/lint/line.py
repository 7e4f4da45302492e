"""The input of lint: the lines of each file, their commands, and which commands run through oncecron.

A guard on a line is read as `oncecron run` reads its arguments, so far as the line shows them: why it would reject them
at every firing is a part of it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.config.file import COMMAND_KEY
from oncecron.config.options import AUTO_KEY, KEY_RULE, OWN_SHELL, is_key, values_of
from oncecron.config.rules import tick_rules
from oncecron.config.run_parser import parse_run
from oncecron.core import shell_words as words
from oncecron.core import tick
from oncecron.core.derived_key import PREFIX_VARIABLE, command_of, derived_key
from oncecron.core.masking import masked_line
from oncecron.core.shell_words import quoted
from oncecron.host import local_time
from oncecron.plugins import RUN, job_command
from oncecron_crontab.directives import read_directives
from oncecron_crontab.generators import generated_lines
from oncecron_crontab.guards import guard_in, is_guard, is_off, per_host_program
from oncecron_crontab.per_host import BACKGROUND, EACH_HOST, PINNED, objections
from oncecron_crontab.percent_sign import shell_command, split_command
from oncecron_crontab.scanner import Entry, Variable
from oncecron_crontab.simple_commands import (
    SHELLS,
    STRING_FOLLOWS,
    SimpleCommand,
    simple_commands,
    to_bytes,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from oncecron.config.run_parser import ParsedRun
    from oncecron.plugins import JobCommand
    from oncecron_crontab.crons import Cron
    from oncecron_crontab.directives import Directives
    from oncecron_crontab.scanner import Crontab

FINDINGS = (
    *("unguarded", "rest", "truncate", "pipe", "shared-key", "split-key", "missing"),
    *("schedule", "zone", "shards", "random-sleep", "frequent", "never", "field", "duplicate"),
    *(PINNED, BACKGROUND, EACH_HOST),
    *("key", "tick", "items", "store", "sudo", "percent", "quote"),
    *("options", "invalid", "newline", "return", "not-read", "directive", "variable", "section"),
)
"""The kinds of findings: all that makes a line run twice, nowhere, at another time than it says, or fail unseen."""
STANDARD_INPUT = "-"
"""The value of --items for the lines of standard input."""
_LONGEST_SHOWN = 60


class Diagnostic(NamedTuple):
    """A finding on a line, in the order of its published fields."""

    file: str
    line: int
    finding: str
    """Its kind, one of `FINDINGS`."""
    message: str
    cure: str


class LintedCrontab(NamedTuple):
    """A crontab and where it is from."""

    name: str
    crontab: Crontab
    user: str | None = None
    """The owner; None where the lines name a user, or where the owner is unknown."""
    not_read: str | None = None
    """Why cron does not read this file, then `; ` and the cure; None if it does."""


class Invocation(NamedTuple):
    """One `oncecron run` or `oncecron each` on a line, or oncecron-shell in its place."""

    key: str | None
    """None where it cannot be read."""
    options: Mapping[str, str]
    """As typed; other options as in [job.KEY] of the configuration."""
    command: str
    """The command that it runs, in canonical form; empty where it is not on the line."""
    position: int | None
    """Which simple command of the line it is; None: the whole line."""
    program: str
    subcommand: str = "run"
    """`run` or `each`."""
    usage_error: str = ""
    """Why the subcommand rejects its arguments; empty if it accepts them."""

    @property
    def job_command(self) -> JobCommand:
        """What its subcommand takes."""
        return job_command(self.subcommand) or RUN._replace(name=self.subcommand)

    @property
    def work(self) -> str:
        """What runs once per tick: the command, of `each` with the command of --items before it, as in a pipe."""
        source = self.options.get("items", STANDARD_INPUT)
        if self.subcommand != "each" or source == STANDARD_INPUT or not self.command:
            return self.command
        return f"{canonical(source)} | {self.command}"

    @property
    def is_shell(self) -> bool:
        """Whether it is oncecron-shell (SHELL=): options come from the configuration alone."""
        return self.program.rpartition("/")[2] == OWN_SHELL

    @property
    def names_the_tick(self) -> bool:
        """Whether an option names the tick, instead of the host's minute."""
        return any(name in self.options for name in ("schedule", "tick", "no-tick"))


class LintedEntry(NamedTuple):
    """A line that runs a command."""

    source: LintedCrontab
    cron: Cron
    """The cron that reads it."""
    entry: Entry
    environment: Mapping[str, str]
    command: str
    """As the shell gets it."""
    commands: tuple[SimpleCommand, ...]
    """Empty where a quote or a substitution is not closed."""
    invocations: tuple[Invocation, ...]
    off: bool
    """Whether the crontab says that it runs on every host."""
    named: bool
    """Whether a `# oncecron:` comment above gives it a key or options."""
    generator: str | None
    """The program that writes the line; None if people do."""
    per_host: str | None
    """The program, or `@reboot`, because of which it runs on every host; None if it runs on one."""

    @property
    def user(self) -> str | None:
        """The user who runs it; None if unknown."""
        named = self.entry.user
        return self.source.user if named is None else named.decode("utf-8", "backslashreplace")

    @property
    def behind(self) -> bytes | None:
        """The text after the `%` that ends the command, None without one."""
        return split_command(self.entry.command, self.cron.percent)[1]

    @property
    def without_guard(self) -> str:
        """Its command without oncecron, in canonical form."""
        work = [invocation.work for invocation in self.invocations if invocation.command]
        return work[0] if len(work) == 1 else canonical(self.command)

    def diagnostic(self, kind: str, message: str, cure: str) -> Diagnostic:
        """Return a finding on this line; `kind` is one of `FINDINGS`."""
        return Diagnostic(self.source.name, self.entry.number, kind, message, cure)


def linted_entries(
    source: LintedCrontab, jobs: Mapping[str, Mapping[str, str]], cron: Cron
) -> list[LintedEntry]:
    """Return the lines of a crontab that run commands, as `cron` reads them.

    `jobs` are the [job.KEY] sections of the configuration.
    """
    directives, _ = read_directives(source.crontab)
    generated = generated_lines(source.crontab)
    environment: dict[str, str] = {}
    found = []
    for line in source.crontab.lines:
        if isinstance(line, Variable):
            environment = {**environment, to_text(line.name): to_text(line.value)}
        elif isinstance(line, Entry):
            above, writer = directives.get(line.number), generated.get(line.number)
            found.append(_line(source, cron, line, environment, jobs, above, writer))
    return found


def _line(
    source: LintedCrontab,
    cron: Cron,
    entry: Entry,
    environment: Mapping[str, str],
    jobs: Mapping[str, Mapping[str, str]],
    above: Directives | None,
    generator: str | None,
) -> LintedEntry:
    raw = shell_command(entry.command, cron.percent)
    command = to_text(raw)
    commands = tuple(with_inner_commands(simple_commands(command) or ()))
    off = (above is not None and above.off) or is_off(raw) or environment.get("ONCECRON") == "off"
    named = above is not None and bool(above.options)
    user = source.user or "" if entry.user is None else to_text(entry.user)
    invocations = tuple(_find_invocations(raw, commands, {} if off else environment, jobs, user))
    return LintedEntry(
        *(source, cron, entry, environment, command, commands, invocations),
        off=off,
        named=named,
        generator=None if named else generator,
        per_host="@reboot"
        if entry.is_reboot
        else None
        if invocations
        else _of_each_host(raw, named),
    )


def _of_each_host(raw: bytes, named: bool) -> str | None:
    found = (each.what for each in objections(raw, named=named) if each.kind == EACH_HOST)
    return next(found, None)


def _find_invocations(
    raw: bytes,
    commands: tuple[SimpleCommand, ...],
    environment: Mapping[str, str],
    jobs: Mapping[str, Mapping[str, str]],
    user: str,
) -> Iterator[Invocation]:
    def derive(command: bytes) -> str:
        return derived_key(command, environment.get(PREFIX_VARIABLE), lambda: user)

    by_hand = guard_in(raw)
    shell = environment.get("SHELL", "")
    if shell.rpartition("/")[2] == OWN_SHELL and not (by_hand or per_host_program(raw)):
        key = derive(raw)
        yield Invocation(key, jobs.get(key, {}), canonical(to_text(raw)), None, shell)
        return
    invocations = [
        invocation_of(simple.words, number, jobs, derive) for number, simple in enumerate(commands)
    ]
    found = [invocation for invocation in invocations if invocation]
    if by_hand and not found:
        found = [Invocation(None, {}, "", None, *by_hand.split())]
    yield from found


def with_inner_commands(commands: Iterable[SimpleCommand]) -> Iterator[SimpleCommand]:
    """Yield simple commands; for `sh -c STRING` with oncecron in the string, those of the string, in brackets."""
    for simple in commands:
        within = list(with_inner_commands(simple_commands(_inner_string(simple.words)) or ()))
        if not within:
            yield simple
            continue
        first, *rest = within
        keywords = (*simple.keywords, "(", *first.keywords)
        yield first._replace(joined_by=simple.joined_by, keywords=keywords)
        yield from rest
        yield SimpleCommand(";", (), (), simple.redirections, (")",))


def _inner_string(words: tuple[str, ...]) -> str:
    shell = False
    for word, following in pairwise((*words, "")):
        if is_guard(to_bytes(word), to_bytes(following)):
            break
        if shell and STRING_FOLLOWS.fullmatch(word) and guard_in(to_bytes(following)):
            return following
        shell = shell or word.rpartition("/")[2] in SHELLS
    return ""


def invocation_of(
    words: tuple[str, ...],
    position: int | None,
    jobs: Mapping[str, Mapping[str, str]],
    derive: Callable[[bytes], str] = derived_key,
) -> Invocation | None:
    """Return the guard of a simple command, None if it has none; `derive` gives the key for `--key auto`."""
    for at, (word, following) in enumerate(pairwise(words)):
        if is_guard(to_bytes(word), to_bytes(following)):
            unread = Invocation(None, {}, "", position, word, following)
            return _read(unread, list(words[at + 2 :]), jobs, derive)
    return None


def _read(
    unread: Invocation,
    arguments: list[str],
    jobs: Mapping[str, Mapping[str, str]],
    derive: Callable[[bytes], str],
) -> Invocation:
    parsed = parse_run(arguments, unread.job_command.options)
    key = parsed.given.get("key") if parsed else None
    if parsed and key == AUTO_KEY:
        key = derive(command_of(parsed.given, parsed.command))
    section = dict(_section_for(unread.subcommand, jobs.get(key or "", {})))
    unread = unread._replace(
        usage_error=_usage_error(unread.job_command, arguments, parsed, section)
    )
    if parsed is None or key is None:
        return unread
    string = parsed.given.get("shell")
    if string is None and parsed.command[1:2] == ["-c"] and len(parsed.command) == 3:  # noqa: PLR2004 - sh -c STRING
        string = parsed.command[2]
    if string is None:
        string = to_text(b" ".join(quoted(to_bytes(word)) for word in parsed.command))
    return unread._replace(key=key, options={**section, **parsed.given}, command=canonical(string))


def _section_for(subcommand: str, section: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for place, text in section.items():
        table, _, name = place.rpartition(".")
        if table in ("", subcommand):
            yield name, text


def canonical(command: str) -> str:
    """Return a command in canonical form: equal commands give equal texts, whatever their quotes and blanks."""
    return to_text(words.canonical(to_bytes(command)))


def excerpt(text: str) -> str:
    """Return a command as a message shows it: short, without secrets."""
    text = " ".join(masked_line(text).split())
    return f"`{text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + '...'}`"


# Arguments of a guard


def is_literal(text: str) -> bool:
    """Return whether a shell leaves a text as it is: no variable and no substitution in it."""
    return not any(sign in text for sign in "$`")


def _usage_error(
    job_command: JobCommand,
    arguments: Sequence[str],
    parsed: ParsedRun | None,
    configured: Mapping[str, str],
) -> str:
    if parsed is None or "key" not in parsed.given:
        known = all(map(is_literal, arguments))
        return (
            ("--key is missing" if parsed else "an option is unknown, incomplete or given twice")
            if known
            else ""
        )
    known_ones = {name: text for name, text in parsed.given.items() if is_literal(text)}
    if "key" in known_ones and not is_key(known_ones["key"]):
        return f"--key {known_ones['key']!r}: {KEY_RULE}"
    if (
        arguments[-1] == "--"
        and not parsed.command
        and not {"shell", COMMAND_KEY} & {*parsed.given, *configured}
    ):
        return "no command after --"
    others = {name: configured[name] for name in configured if name not in parsed.given}
    values = {**others, **known_ones}
    return _wrong_section(job_command, configured) or _wrong_values(job_command, parsed, values)


def _wrong_section(job_command: JobCommand, configured: Mapping[str, str]) -> str:
    others = set(configured).difference(job_command.options, (COMMAND_KEY,))
    if not others:
        return ""
    name = min(others).replace("-", "_")
    return f"{name} in its section of the configuration file has no meaning for {job_command.shown}"


def _wrong_values(job_command: JobCommand, parsed: ParsedRun, texts: Mapping[str, str]) -> str:
    try:
        values = values_of(texts, (*job_command.options.values(), *job_command.defaults))
        if {*parsed.given} - {*texts, "shell", "key"}:
            return ""
        found = job_command.conflicts(values.get, parsed.given.__contains__, parsed.command)
        conflict = next(found, None)
        _check_tick(values, parsed)
    except ValueError as error:
        return str(error)
    return str(conflict or "")


def _check_tick(values: Mapping[str, Any], parsed: ParsedRun) -> None:
    """Raise `ValueError` if a schedule, its zone, or the name of a tick is invalid."""
    for rule in tick_rules(values.get, parsed.given.__contains__):
        if rule == "schedule":
            local_time.scheduled_tick(values["schedule"], values["tz"] or "UTC", time.time())
        elif rule == "tick":
            tick.named_tick(values["tick"])
