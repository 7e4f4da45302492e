"""The input of lint: the lines of each file, their commands, and which commands run through oncecron."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.job_commands import JOB_COMMAND
from oncecron.config.options import AUTO_KEY, OWN_SHELL
from oncecron.config.run_parser import parse_run
from oncecron.core import shell_words as words
from oncecron.core.derived_key import PREFIX_VARIABLE, command_of, derived_key
from oncecron.core.leading_test import leading_test, whole_command
from oncecron.core.masking import masked_line
from oncecron.core.shell_words import guard_in, is_guard, is_off, per_host_program, quoted
from oncecron.crontab.directives import read_directives
from oncecron.crontab.generators import generated_lines
from oncecron.crontab.lint.run_arguments import usage_error_of
from oncecron.crontab.per_host import BACKGROUND, EACH_HOST, PINNED, objections
from oncecron.crontab.percent_sign import shell_command, split_command
from oncecron.crontab.programs import SHELLS, STRING_FOLLOWS
from oncecron.crontab.scanner import Entry, Variable
from oncecron.crontab.simple_commands import SimpleCommand, simple_commands, to_bytes, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from oncecron.config.job_commands import JobCommand
    from oncecron.crontab.crons import Cron
    from oncecron.crontab.directives import Directives
    from oncecron.crontab.generators import Generator
    from oncecron.crontab.scanner import Crontab

FINDINGS = (
    *("unguarded", "rest", "truncate", "shared-key", "split-key", "missing"),
    *("schedule", "zone", "shards", "random-sleep", "frequent", "systemd", "never", "field"),
    *("every-minute", "duplicate", "days"),
    *(PINNED, BACKGROUND, EACH_HOST),
    *("key", "tick", "items", "store", "path", "sudo", "secret", "percent"),
    *("quote", "redirection", "bashism", "continued", "comment", "user"),
    *(
        "expansion",
        "unset",
        "shell",
        "mailto",
        "options",
        "invalid",
        "crlf",
        "newline",
        "not-read",
        "directive",
        "section",
    ),
)
"""The kinds of findings."""
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
        return JOB_COMMAND[self.subcommand]

    @property
    def work(self) -> str:
        """What runs once per tick: the command, of `each` with the command of --items before it, as in a pipe."""
        source = self.options.get("items", STANDARD_INPUT)
        if self.subcommand != "each" or source == STANDARD_INPUT or not self.command:
            return self.command
        return f"{canonical(source)} | {self.command}"

    @property
    def strings(self) -> Iterator[str]:
        """The strings on the line that a shell reads."""
        for name in () if self.is_shell else ("shell", "items"):
            yield self.options.get(name, "")

    @property
    def whole(self) -> str:
        """What runs, with the test of `--only-if` where it was before wrap moved it."""
        test = self.options.get("only-if", "")
        if " " not in test:
            return self.work
        return to_text(whole_command(to_bytes(test), to_bytes(self.work)))

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
    generator: Generator | None
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
        whole = [invocation.whole for invocation in self.invocations if invocation.command]
        return whole[0] if len(whole) == 1 else canonical(self.command)

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
            above = directives.get(line.number)
            linted = _line(source, cron, line, environment, jobs, above)
            generator = None if linted.named else generated.get(line.number)
            found.append(linted._replace(generator=generator))
    return found


def _line(
    source: LintedCrontab,
    cron: Cron,
    entry: Entry,
    environment: Mapping[str, str],
    jobs: Mapping[str, Mapping[str, str]],
    above: Directives | None,
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
        generator=None,
        per_host="@reboot"
        if entry.is_reboot
        else None
        if invocations
        else _of_each_host(raw, named),
    )


def _of_each_host(raw: bytes, named: bool) -> str | None:
    """Return the program because of which each host runs a command, None if there is none."""
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
    """Return the string that a simple command gives to a shell, if only that string has a guard in it."""
    shell = False
    for word, following in pairwise((*words, "")):
        if is_guard(to_bytes(word), to_bytes(following)):
            break
        if shell and STRING_FOLLOWS.fullmatch(word) and guard_in(to_bytes(following)):
            return following
        shell = shell or _is_named(word, SHELLS)
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


def _is_named(program: str, names: Container[str]) -> bool:
    return program.rpartition("/")[2] in names


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
    section = jobs.get(key or "", {})
    unread = unread._replace(
        usage_error=usage_error_of(unread.job_command, arguments, parsed, section)
    )
    if parsed is None or key is None:
        return unread
    string = parsed.given.get("shell")
    if string is None and parsed.command[1:2] == ["-c"] and len(parsed.command) == 3:  # noqa: PLR2004 - sh -c STRING
        string = parsed.command[2]
    command = canonical(_joined(parsed.command) if string is None else string)
    return unread._replace(key=key, options={**section, **parsed.given}, command=command)


def _joined(words: Iterable[str]) -> str:
    """Return words as a command."""
    return to_text(b" ".join(quoted(to_bytes(word)) for word in words))


def canonical(command: str) -> str:
    """Return a command in canonical form: equal commands give equal texts, whatever their quotes and blanks."""
    there = leading_test(to_bytes(command.strip()))
    if there and there.rest is not None:
        rest = to_bytes(canonical(to_text(there.rest)))
        return to_text(whole_command(there.test, rest))
    return to_text(words.canonical(to_bytes(command)))


def shown(text: str) -> str:
    """Return a command as a message shows it: short, without secrets."""
    text = " ".join(masked_line(text).split())
    return f"`{text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + '...'}`"
