"""Put prefixes on the lines of a crontab, and take them off: bytes in; bytes, and what to report, out.

For each line that runs a command:

    wrapped already                        as it is, and named where a comment above it says otherwise
    guarded by hand, or of each host       as it is, and named: see `_reasons_to_leave`
    else                                   the prefix is put before its command, see `guards`

Its key is the one that a directive names (`remarks`), else the one derived from its command (`naming`). Where several
lines have that, a digest of schedule, user and input is added to the key of each, whatever their order; a line that is
wrapped already keeps its key. One line that cannot be wrapped is an error, and then nothing is changed: a crontab of
which one line was silently left unguarded would be worse than none.
"""

from __future__ import annotations

import time
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.file import job_section
from oncecron.config.options import KEY_RULE, OWN_SHELL, is_key
from oncecron.core import tick
from oncecron.crontab.directives import Directives, read_directives
from oncecron.crontab.naming import PREFIX_VARIABLE, derived_key, digest
from oncecron.crontab.prefix import prefix_alone, read_prefix, with_prefix
from oncecron.crontab.reading import shell_command, split_command
from oncecron.crontab.scanner import LONGEST_COMMAND, NUL, WRITE_HERE, Crontab, Job, Problem
from oncecron.crontab.words import calls_oncecron_run, is_bourne_shell, is_off, per_host_program

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_DIRECTIVES = Directives(off=False, options={})
_DIFFERENT = "its guard is not what the comment above it says: unwrap, then wrap"


class WrapSettings(NamedTuple):
    """How lines are to be wrapped."""

    program: str
    """The absolute path of oncecron."""
    zone: str
    """In which cron reads the schedules: a name of the tz database."""
    only: tuple[str, ...] = ()
    """Patterns of commands; none: all, in a user's crontab."""


class Rewritten(NamedTuple):
    """A crontab, wrapped or unwrapped."""

    data: bytes
    """The original where anything was refused."""
    changed: int
    """How many lines."""
    left: list[Problem]
    """Lines that are as they were, and why."""
    doubtful: list[Problem]
    """Lines that are guarded, but perhaps not as they should be."""
    refused: list[Problem]
    """What could not be done, and why."""


# Wrap


def wrap(crontab: Crontab, settings: WrapSettings) -> Rewritten:
    """Guard the lines that are to run on one host. Raises nothing."""
    directives, refused = read_directives(crontab)
    refused += _cron_problems(crontab)
    left: list[Problem] = []
    doubtful: list[Problem] = []
    meant: list[Job] = []
    for job in crontab.jobs():
        above = directives.get(job.number, _NO_DIRECTIVES)
        prefix = read_prefix(job.command)
        if prefix:
            differs = above.differ_from(prefix.options)
            doubtful += [Problem(job.number, _DIFFERENT)] if differs else []
            continue
        why = next(_reasons_to_leave(crontab, job, above, settings), None)
        if why:
            left.append(Problem(job.number, why))
        else:
            meant.append(job)
    keys = _Keys(crontab, directives, {job.number for job in meant})
    replaced: dict[int, bytes] = {}
    for job in meant:
        asked = directives.get(job.number, _NO_DIRECTIVES).options
        try:
            key = asked.get("key") or keys.derive(job)
            replaced[job.number] = _wrapped_line(job, {**asked, "key": key}, settings)
        except ValueError as error:
            refused.append(Problem(job.number, str(error)))
    return _rewritten(crontab, replaced, left, doubtful + keys.shared(), refused)


def _reasons_to_leave(
    crontab: Crontab, job: Job, above: Directives, settings: WrapSettings
) -> Iterator[str]:
    """Yield why a line stays as it is."""
    environment = crontab.environment(job)
    command = shell_command(job.command)
    if calls_oncecron_run(command):
        yield "it has been guarded by hand"
    if above.off:
        yield "`# oncecron: off` stands above it"
    if is_off(command) or environment.get(b"ONCECRON") == b"off":
        yield "ONCECRON=off"
    if not command.strip():
        yield "it has no command"
    if job.at_reboot:
        yield "@reboot is of each host; oncecron run --key NAME --no-tick in front of it guards it"
    if not above.options and (program := per_host_program(command)):
        yield f"{program} is of each host; `# oncecron: key=NAME` above it guards it all the same"
    if not is_bourne_shell(environment.get(b"SHELL", b"/bin/sh")):
        yield _why_not_shell(environment[b"SHELL"])
    if not _is_selected(command, above, settings, named=crontab.system):
        yield "neither --only nor a comment `# oncecron: key=NAME` above it names it"
    if _never_runs(job):
        yield f"it never runs: no time is {job.schedule!r}"


def _why_not_shell(shell: bytes) -> str:
    if shell.endswith(OWN_SHELL.encode()):
        return f"SHELL={OWN_SHELL} guards it already"
    name = shell.decode(errors="replace")
    return f"SHELL={name} is none whose quotes are known: put the command into a script"


def _is_selected(command: bytes, above: Directives, settings: WrapSettings, *, named: bool) -> bool:
    """Return whether a line is among those that are to be guarded; `named`: none unless it is named."""
    if above.options or not (settings.only or named):
        return True
    text = command.decode("utf-8", "surrogateescape")
    return any(pattern in text or fnmatchcase(text, pattern) for pattern in settings.only)


def _never_runs(job: Job) -> bool:
    try:
        tick.scheduled_tick(schedule_of(job), "UTC", time.time())
    except ValueError:
        return True
    return False


def schedule_of(job: Job) -> str:
    """Return the schedule as `tick` reads it, which means the same as what cron makes of the line; empty: never."""
    texts = [field.text for field in job.fields]
    return " ".join(texts) if all(texts) and texts else "" if texts else job.schedule


class _Keys:
    """The keys of a file: the same command under one key, and no other command."""

    def __init__(
        self, crontab: Crontab, directives: dict[int, Directives], meant: set[int]
    ) -> None:
        """`meant`: the numbers of the lines that are to be guarded."""
        self._crontab = crontab
        self._commands: dict[str, dict[bytes, int]] = {}
        self._derived: Counter[str] = Counter()
        for job in crontab.jobs():
            prefix = read_prefix(job.command)
            options = (
                prefix.options if prefix else directives.get(job.number, _NO_DIRECTIVES).options
            )
            command = shell_command(prefix.command if prefix else job.command).strip()
            key, plain = options.get("key"), self._plain(job, command)
            if key:
                self._commands.setdefault(key, {}).setdefault(command, job.number)
            self._derived[plain] += key.startswith(plain) if key else job.number in meant

    def _plain(self, job: Job, command: bytes) -> str:
        """Return the key that is made of the command alone."""
        prefix = self._crontab.environment(job).get(PREFIX_VARIABLE.encode(), b"")
        return derived_key(command, prefix.decode(errors="replace"))

    def derive(self, job: Job) -> str:
        """Return a key for a job, not yet taken in this file. Raises `ValueError`."""
        command = shell_command(job.command)
        key = self._plain(job, command)
        if not is_key(key):
            raise ValueError(f"{PREFIX_VARIABLE}: the key would be {key!r}; {KEY_RULE}")
        if self._derived[key] > 1 or key in self._commands:
            _, behind = split_command(job.command)
            more = [job.schedule.encode(), job.user or b"", behind or b""]
            key = f"{key}.{digest(bytes(1).join(more))}"
        unique, number = key, 1
        while unique in self._commands:
            number += 1
            unique = f"{key}-{number}"
        self._commands[unique] = {command.strip(): job.number}
        return unique

    def shared(self) -> list[Problem]:
        """Return the lines whose key another command has too."""
        return [
            Problem(
                number, f"its key {key} is another command's too: only one of them runs at a tick"
            )
            for key, commands in self._commands.items()
            for number in sorted(commands.values())[1:]
        ]


def _wrapped_line(job: Job, named: dict[str, str], settings: WrapSettings) -> bytes:
    """Return a line with its prefix. Raises `ValueError` if that is impossible."""
    options = {"key": named.pop("key")}
    if "no-tick" in named:
        options["no-tick"] = named.pop("no-tick")
    else:
        options |= {"schedule": schedule_of(job), "tz": settings.zone}
    options |= named
    program = settings.program.encode("utf-8", "surrogateescape")
    command = with_prefix(program, options, job.command)
    if len(command) > job.room:
        _, behind = split_command(job.command)
        rest = b"" if behind is None else b"%" + behind
        line = (prefix_alone(program, options) + rest).decode(errors="replace")
        raise ValueError(
            f"its command would have {len(command)} bytes with its guard, and cron takes {LONGEST_COMMAND}: put the "
            f"command as `command = '...'` below {job_section(options['key'])} into the configuration file, and "
            f"{WRITE_HERE}{line}"
        )
    prefix = read_prefix(command)
    if prefix is None or prefix.command != job.command:
        raise ValueError("it could not be unwrapped again; guard it by hand")
    return _line_with(job, command)


def _line_with(job: Job, command: bytes) -> bytes:
    return job.raw[: job.start] + command + job.raw[job.start + len(job.command) :]


# Unwrap


def unwrap(crontab: Crontab) -> Rewritten:
    """Take off the prefixes that wrap has written. Raises nothing."""
    replaced: dict[int, bytes] = {}
    left = _cron_problems(crontab)
    for job in crontab.jobs():
        prefix = read_prefix(job.command)
        if prefix:
            replaced[job.number] = _line_with(job, prefix.command)
        elif calls_oncecron_run(shell_command(job.command)):
            left.append(Problem(job.number, "oncecron stands there as wrap does not write it"))
    return _rewritten(crontab, replaced, left, [], [])


def _cron_problems(crontab: Crontab) -> list[Problem]:
    """Return the lines that cron refuses, or reads otherwise than we do."""
    return [
        Problem(line, why if why == NUL else f"cron refuses this file: {why}")
        for line, why in crontab.problems()
    ]


def _rewritten(
    crontab: Crontab,
    replaced: dict[int, bytes],
    left: list[Problem],
    doubtful: list[Problem],
    refused: list[Problem],
) -> Rewritten:
    """Return the new file, or the old one if anything was refused."""
    lines = [line.raw for line in crontab.lines]
    new = [replaced.get(number, raw) for number, raw in enumerate(lines, 1)]
    if refused:
        return Rewritten(b"".join(lines), 0, sorted(left), sorted(doubtful), sorted(refused))
    return Rewritten(b"".join(new), len(replaced), sorted(left), sorted(doubtful), [])
