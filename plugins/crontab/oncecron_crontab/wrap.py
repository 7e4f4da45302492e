"""Add prefixes to the lines of a crontab, and remove them: bytes in; bytes and notes for people out.

Each line that runs a command is handled as follows:

    it has the prefix of wrap                       unchanged; reported if a comment above it says otherwise
    it has `oncecron run` or `each` by hand         unchanged and reported, see `_reasons_unchanged`
    every host runs it                              the same
    a guard would break it                          the same, see `per_host`
    another program writes it                       the same, see `generators`
    any other line                                  the prefix is put before its command, see `prefix`

The key is the one of a directive (`directives`), else it is derived (`derived_key`). Where several lines derive the
same key, a digest of schedule, user and input is added to each, whatever their order. A line with a prefix keeps its
key. If one line cannot be wrapped, that is an error and nothing is changed: a line that silently stays without oncecron
would run on every host.
"""

from __future__ import annotations

import os
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.file import job_section
from oncecron.config.options import AUTO_KEY, KEY_RULE, OWN_SHELL, is_key
from oncecron.core.derived_key import PREFIX_VARIABLE, derived_key, digest
from oncecron.core.shell_words import canonical, is_bourne_shell
from oncecron_crontab.crons import CRONS
from oncecron_crontab.directives import DIFFERENT, Directives, read_directives
from oncecron_crontab.firing_times import (
    never_runs,
    refuse_other_readings,
    written_schedule,
    zone_of,
    zones_without_effect,
)
from oncecron_crontab.generators import CURE, generated_lines
from oncecron_crontab.guards import guard_in, is_off
from oncecron_crontab.leading_test import remaining_test
from oncecron_crontab.per_host import EACH_HOST, PINNED, objections
from oncecron_crontab.percent_sign import (
    CUT,
    CUT_CURE,
    DEBIAN,
    is_cut,
    shell_command,
    split_command,
)
from oncecron_crontab.pipes import lost_statuses
from oncecron_crontab.prefix import prefix_alone, read_prefix, with_prefix
from oncecron_crontab.scanner import (
    OWN_REASONS,
    WRITE_HERE,
    Crontab,
    Entry,
    InvalidLine,
    Problem,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.per_host import Judgement
    from oncecron_crontab.percent_sign import PercentRule
    from oncecron_crontab.prefix import Prefix

_NO_DIRECTIVES = Directives(off=False, options={})
_SCHEDULER = b"artisan schedule:run"
"""Laravel's, which starts the jobs of the minute one after the other."""


class WrapSettings(NamedTuple):
    """How lines are wrapped."""

    program: str
    """The absolute path of oncecron."""
    zone: str
    """The time zone of cron: a name of the tz database."""
    only: tuple[str, ...] = ()
    """Patterns of commands; without any all lines of a user's crontab are wrapped."""
    cron: Cron | None = CRONS["debian"]
    """The cron that reads the crontab; None if it is not known."""
    zone_given: bool = False
    """Whether a person has named the zone, with the crontab in view."""
    user: str = ""
    """Whose crontab it is, where its lines do not name a user; empty if unknown."""

    strict: bool = False
    """Whether a line that stays unchanged is an error, unless a person has decided so."""

    @property
    def percent(self) -> PercentRule:
        """What `%` means; for an unknown cron, lines for which it matters are refused."""
        return DEBIAN if self.cron is None else self.cron.percent


class Rewritten(NamedTuple):
    """A crontab, wrapped or unwrapped."""

    data: bytes
    """The original if there are errors."""
    changed: int
    """How many lines."""
    unchanged: list[Problem]
    """Lines that are unchanged, and why."""
    warnings: list[Problem]
    """Lines that are wrapped, but perhaps not as intended."""
    errors: list[Problem]
    """Lines that cannot be wrapped, and why; then nothing is changed."""


# Wrap


def wrap(crontab: Crontab, settings: WrapSettings) -> Rewritten:
    """Add a prefix to the lines that run on one host. Raises nothing."""
    directives, errors = read_directives(crontab)
    unchanged: list[Problem] = []
    for problem in _cron_problems(crontab):
        off = directives.get(problem.number, _NO_DIRECTIVES).off
        harmless = (
            crontab.cron.ignores and problem.reason not in OWN_REASONS and not settings.strict
        )
        (unchanged if off or harmless else errors).append(problem)
    errors += _options_of_bad_lines(crontab, directives)
    warnings: list[Problem] = []
    selected: list[Entry] = []
    generated = generated_lines(crontab)
    for entry in crontab.entries():
        above = directives.get(entry.number, _NO_DIRECTIVES)
        prefix = read_prefix(entry.command)
        if prefix:
            differs = above.differ_from(prefix.options)
            warnings += [Problem(entry.number, DIFFERENT)] if differs else []
            continue
        reasons = list(_reasons_unchanged(crontab, entry, above, settings))
        owner = None if above.options else generated.get(entry.number)
        if owner and not any(reason.decided for reason in reasons):
            text = f"{owner} writes it, and would overwrite it or add it again; {CURE}"
            reasons.append(_Reason(text))
        if not reasons:
            selected.append(entry)
        elif settings.strict and not any(reason.decided for reason in reasons):
            errors.append(Problem(entry.number, f"--strict: {reasons[0].text}"))
        else:
            unchanged.append(Problem(entry.number, reasons[0].text))
    numbers = {entry.number for entry in selected}
    keys = _Keys(crontab, directives, numbers, settings)
    replaced: dict[int, bytes] = {}
    for entry in crontab.entries():
        if entry.number not in numbers:
            continue
        given = directives.get(entry.number, _NO_DIRECTIVES).options
        try:
            key = given.get("key") or keys.derive(entry)
            zone = zone_of(crontab, entry, settings.cron, settings.zone, given=settings.zone_given)
            options = {**given, "key": key}
            replaced[entry.number] = _wrapped_line(entry, options, settings, zone)
            warnings += [] if "only-if" in given else _tests_inside(entry, settings)
            warnings += [] if "pipefail" in given else _pipes_inside(crontab, entry, settings)
            warnings += [] if "key" in given else _schedulers_inside(entry)
        except ValueError as error:
            errors.append(Problem(entry.number, str(error)))
    warnings += [
        Problem(entry.number, f"{CUT}; {CUT_CURE}")
        for entry in selected
        if is_cut(entry.command, settings.percent)
    ]
    warnings += crontab.doubts() + crontab.returns()
    warnings += zones_without_effect(crontab, settings.cron)
    warnings += keys.shared()
    return _rewritten(crontab, replaced, unchanged, warnings, errors)


def _options_of_bad_lines(crontab: Crontab, directives: dict[int, Directives]) -> list[Problem]:
    why = "the cron cannot read the line below this `# oncecron:` comment; correct the line, or remove the comment"
    bad = (line.number for line in crontab.lines if isinstance(line, InvalidLine))
    return [
        Problem(number, why) for number in bad if directives.get(number, _NO_DIRECTIVES).options
    ]


class _Reason(NamedTuple):
    text: str
    decided: bool = False
    """Whether a person has decided so, by the crontab or by an option."""


def _reasons_unchanged(
    crontab: Crontab, entry: Entry, above: Directives, settings: WrapSettings
) -> Iterator[_Reason]:
    environment = crontab.environment(entry)
    command = shell_command(entry.command, settings.percent)
    if guard := guard_in(command):
        yield _Reason(f"it already has `{guard}`", decided=True)
    if above.off:
        yield _Reason("`# oncecron: off` is above it", decided=True)
    if is_off(command) or environment.get(b"ONCECRON") == b"off":
        yield _Reason("ONCECRON=off is set", decided=True)
    if not command.strip():
        yield _Reason("it has no command", decided=True)
    if entry.is_reboot:
        yield _Reason(
            "@reboot runs on every host; to run it on one: `oncecron run --key NAME --no-tick -- ...`"
        )
    for found in objections(command, named=bool(above.options)):
        yield _Reason(_why_left(found))
    shell = environment.get(b"SHELL", b"/bin/sh")
    if not is_bourne_shell(shell):
        yield _Reason(_why_not_shell(shell), decided=shell.endswith(OWN_SHELL.encode()))
    if not _is_selected(command, above, settings, named=crontab.system):
        yield _Reason(
            "not selected; to select it: `--only PATTERN`, or `# oncecron: key=NAME` above it",
            decided=True,
        )
    if never_runs(entry) and "no-tick" not in above.options:
        yield _Reason(f"it never runs: {entry.schedule!r} matches no time")


def _why_left(found: Judgement) -> str:
    if found.kind == EACH_HOST:
        cure = "to run it on one: `# oncecron: key=NAME` above it"
        return f"{found.what} runs on every host, because {found.why}; {cure}"
    if found.kind == PINNED:
        return f"its test of {found.what} {found.why}; remove the test, so that any host can run it"
    return f"{found.what} {found.why}; start it in the foreground"


def _why_not_shell(shell: bytes) -> str:
    if shell.endswith(OWN_SHELL.encode()):
        return f"SHELL={OWN_SHELL} already runs it through oncecron"
    name = shell.decode(errors="replace")
    return (
        f"SHELL={name} is not a Bourne shell; to wrap it, move the command to a script and set SHELL=/bin/sh above "
        "the line"
    )


def _is_selected(command: bytes, above: Directives, settings: WrapSettings, *, named: bool) -> bool:
    if above.options or not (settings.only or named):
        return True
    text = command.decode("utf-8", "surrogateescape")
    return any(pattern in text or fnmatchcase(text, pattern) for pattern in settings.only)


class _Keys:
    def __init__(
        self,
        crontab: Crontab,
        directives: dict[int, Directives],
        selected: set[int],
        settings: WrapSettings,
    ) -> None:
        """Take `selected`: the numbers of the lines that are to be wrapped."""
        self._crontab = crontab
        self._settings = settings
        self._commands: dict[str, dict[bytes, int]] = {}
        self._derived: Counter[str] = Counter()
        for entry in crontab.entries():
            prefix = read_prefix(entry.command)
            options = (
                prefix.options if prefix else directives.get(entry.number, _NO_DIRECTIVES).options
            )
            written = prefix.command if prefix else entry.command
            command = canonical(shell_command(written, settings.percent))
            key, plain = options.get("key"), self._plain(entry, command)
            key = plain if key == AUTO_KEY else key
            if key:
                self._commands.setdefault(key, {}).setdefault(command, entry.number)
            # A line that has a key counts where that was derived: it may have got a digest since.
            self._derived[plain] += key.startswith(plain) if key else entry.number in selected

    def _plain(self, entry: Entry, command: bytes) -> str:
        prefix = self._crontab.environment(entry).get(PREFIX_VARIABLE.encode())
        user = self._settings.user if entry.user is None else entry.user.decode(errors="replace")
        return derived_key(
            command, None if prefix is None else prefix.decode(errors="replace"), lambda: user
        )

    def derive(self, entry: Entry) -> str:
        """Return a key for a line that no other line of this file has. Raises `ValueError`."""
        command = shell_command(entry.command, self._settings.percent)
        key = self._plain(entry, command)
        if not is_key(key):
            raise ValueError(f"{PREFIX_VARIABLE} gives the invalid key {key!r}; {KEY_RULE}")
        if self._derived[key] > 1 or key in self._commands:
            _, behind = split_command(entry.command, self._settings.percent)
            more = [entry.schedule.encode(), entry.user or b"", behind or b""]
            key = f"{key}.{digest(bytes(1).join(more))}"
        unique, number = key, 1
        while unique in self._commands:
            number += 1
            unique = f"{key}-{number}"
        self._commands[unique] = {canonical(command): entry.number}
        return unique

    def shared(self) -> list[Problem]:
        """Return the lines whose key another command also has."""
        return [
            Problem(
                number,
                f"key {key} is also the key of another command: only one of the two runs at a tick; give each command "
                "its own key",
            )
            for key, commands in self._commands.items()
            for number in sorted(commands.values())[1:]
        ]


def _wrapped_line(entry: Entry, named: dict[str, str], settings: WrapSettings, zone: str) -> bytes:
    """Return a line with its prefix. Raises `ValueError` if that is impossible."""
    refuse_other_readings(entry, settings.cron)
    options = {"key": named.pop("key")}
    if "no-tick" in named:
        options["no-tick"] = named.pop("no-tick")
    else:
        options |= {"schedule": written_schedule(entry, settings.cron), "tz": zone}
    options |= named
    program = settings.program.encode("utf-8", "surrogateescape")
    command = with_prefix(program, options, entry.command, settings.percent)
    if len(command) > entry.longest_command:
        _, behind = split_command(entry.command, settings.percent)
        rest = b"" if behind is None else bytes((settings.percent.mark,)) + behind
        line = (prefix_alone(program, options) + rest).decode(errors="replace")
        section = job_section(options["key"])
        raise ValueError(
            f"with oncecron the command would have {len(command)} bytes, but cron allows {entry.longest_command}; "
            f"write `command = '...'` in {section} of the configuration file, and {WRITE_HERE}{line}"
        )
    prefix = read_prefix(command)
    if prefix is None or prefix.command != entry.command:
        raise ValueError("unwrap could not restore this line; add `oncecron run` by hand")
    return _replace_command(entry, command)


def _tests_inside(entry: Entry, settings: WrapSettings) -> Iterator[Problem]:
    before, _ = split_command(entry.command, settings.percent)
    test = remaining_test(before)
    if test:
        yield Problem(
            entry.number,
            f"`{test.decode(errors='replace')}` stays in the command, so a host that fails this test uses the tick up; "
            "to test before the claim: `--only-if`, such as `# oncecron: only-if=SCRIPT` above it",
        )


def _pipes_inside(crontab: Crontab, entry: Entry, settings: WrapSettings) -> Iterator[Problem]:
    shell = os.fsdecode(crontab.environment(entry).get(b"SHELL", b""))
    for lost in lost_statuses(os.fsdecode(shell_command(entry.command, settings.percent))):
        option = "write `# oncecron: pipefail` above it"
        yield Problem(entry.number, f"{lost.why}; {lost.cure(shell, option)}")


def _schedulers_inside(entry: Entry) -> Iterator[Problem]:
    if _SCHEDULER in entry.command:
        yield Problem(
            entry.number,
            "a minute is skipped, with its jobs, while the jobs of an earlier one run; give long jobs a line of their "
            "own; where each minute is short, write `# oncecron: key=NAME` above it",
        )


def _replace_command(entry: Entry, command: bytes) -> bytes:
    return (
        entry.raw[: entry.command_start]
        + command
        + entry.raw[entry.command_start + len(entry.command) :]
    )


# Unwrap


def unwrap(crontab: Crontab) -> Rewritten:
    """Remove the prefixes that wrap has written for any cron. Raises nothing."""
    replaced: dict[int, bytes] = {}
    found: list[Problem] = []
    wrapped = _wrapped_entries(crontab)
    for number, (entry, prefix) in wrapped.items():
        replaced[number] = _replace_command(entry, prefix.command)
    for entry in crontab.entries():
        guard = guard_in(shell_command(entry.command, crontab.cron.percent))
        if guard and entry.number not in wrapped:
            found.append(Problem(entry.number, f"`{guard}` was written by hand; remove it by hand"))
    found += [problem for problem in _cron_problems(crontab) if problem.number not in wrapped]
    return _rewritten(crontab, replaced, found, [], [])


def _wrapped_entries(crontab: Crontab) -> dict[int, tuple[Entry, Prefix]]:
    found: dict[int, tuple[Entry, Prefix]] = {}
    data = b"".join(line.raw for line in crontab.lines)
    for cron in (crontab.cron, *CRONS.values()):
        for entry in scan(data, system=crontab.system, cron=cron).entries():
            prefix = read_prefix(entry.command)
            if prefix and entry.number not in found:
                found[entry.number] = entry, prefix
    return found


def _cron_problems(crontab: Crontab) -> list[Problem]:
    does = f"{crontab.cron.title} cannot read this line, and {crontab.cron.bad_line}"
    return [
        Problem(line, why if why in OWN_REASONS else f"{does}: {why}")
        for line, why in crontab.problems()
    ]


def _rewritten(
    crontab: Crontab,
    replaced: dict[int, bytes],
    unchanged: list[Problem],
    warnings: list[Problem],
    errors: list[Problem],
) -> Rewritten:
    lines = [line.raw for line in crontab.lines]
    new = [replaced.get(number, raw) for number, raw in enumerate(lines, 1)]
    if errors:
        return Rewritten(b"".join(lines), 0, sorted(unchanged), sorted(warnings), sorted(errors))
    return Rewritten(b"".join(new), len(replaced), sorted(unchanged), sorted(warnings), [])
