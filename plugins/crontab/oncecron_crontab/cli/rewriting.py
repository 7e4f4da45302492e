"""Shared by wrap and unwrap: read crontabs, rewrite them, report unchanged and wrong lines, and write the results.

All crontabs are read and rewritten first. If one line of one of them is wrong, none is written.

`crontab -` installs any input, also an empty one. So once a crontab has been read, one is always written to standard
output if it belongs there: after an error, the original.
"""

from __future__ import annotations

import os
import pwd
import shutil
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.terminal import style_for
from oncecron.config.options import Option
from oncecron.core.errors import EX_CHANGES, OncecronError, UsageError
from oncecron.core.masking import masked_line
from oncecron.core.text import visible
from oncecron.host.stderr import complain
from oncecron_crontab.cli import files, user_crontab, warnings
from oncecron_crontab.crons import CRONS
from oncecron_crontab.scanner import WRITE_HERE, scan
from oncecron_crontab.system_files import named_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncecron_crontab.crons import Cron
    from oncecron_crontab.scanner import Crontab, Problem
    from oncecron_crontab.wrap import Rewritten

USER_FIELD = Option(
    "user-field", "flag", "Expect a user name before each command, as in /etc/crontab and /etc/cron.d.",
)  # fmt: skip
_INSTALL = Option(
    "install", "flag",
    "Change your crontab by crontab(1): show the changes, save the old crontab, install and verify the new one.",
)  # fmt: skip
USER = Option(
    "user", "text", "With --install: change the crontab of this user instead of your own. Repeatable.", "USER",
    repeatable=True, short="u",
)  # fmt: skip
_IN_PLACE = Option(
    "in-place", "flag",
    "Replace FILE in one step. Keep owner and mode, and save the old file as .FILE.TIME~ beside it.",
)  # fmt: skip
_CHECK = Option(
    "check", "flag", "Change nothing. Exit with status 2 if there is something to change."
)
_DIFF = Option("diff", "flag", "Show the changes as a unified diff instead of the new crontab.")
REWRITING_OPTIONS = (USER_FIELD, _INSTALL, USER, _IN_PLACE, _CHECK, _DIFF)
CRONTABS = "[FILE|DIRECTORY|-]..."
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WITHOUT_OUTPUT = ("install", "in-place", "check", "diff")
"""With one of these options, the new crontab is not written to standard output."""
_EXCLUSIVE = (("install", "in-place"), ("install", "user-field"), ("user", "user-field"))
_COLOURS = {"+++": "1", "---": "1", "+": "32", "-": "31", "@": "36"}
_REFUSED = 1
_LONGEST_SHOWN = 60
_NO_USER = "--user is empty (an unset variable?); leave it out for your own crontab"


def rewrite(
    given: Mapping[str, str],
    words: list[str],
    change: Callable[[Crontab, files.CrontabFile], Rewritten],
    *,
    cron: Cron | None,
    command: str,
    done: str,
) -> int:
    """Carry out a rewriting command; return its exit status.

    `cron` is the one that reads the crontabs, `done` what was done to a line, for the summary.
    """
    _check(given, words, command)
    plans = [
        _plan(given, source, change, cron or CRONS["debian"])
        for source in _sources(given, words, command)
    ]
    errors = sum(len(plan.rewritten.errors) for plan in plans)
    for plan in plans:
        _report(plan)
        if command == "wrap":
            warnings.warn_of_python_home(plan)
    if command == "wrap" and len(plans) > 1:
        warnings.warn_of_shared_keys(plans)
    if errors:
        complain(f"nothing is changed; correct the {_counted(errors)} with errors above first")
    if not any(name in given for name in _WITHOUT_OUTPUT):
        output.give(plans[0].rewritten.data)
    elif not errors:
        return _carry_out(given, plans, command, done)
    return _REFUSED if errors else 0


def _check(given: Mapping[str, str], words: list[str], command: str) -> None:
    """Raise `UsageError` for options that do not fit each other or the files."""
    for one, other in _EXCLUSIVE:
        if one in given and other in given:
            raise UsageError(f"--{one} and --{other} exclude each other; leave one of them out")
    if "install" in given and words:
        raise UsageError(
            "--install reads the crontab itself; leave the FILE out (for another user: --user USER)"
        )
    if "user" in given and "install" not in given:
        _check_owner(given["user"], command)
    if len(words) > 1 and not any(name in given for name in _WITHOUT_OUTPUT):
        raise UsageError("several crontabs: add --diff, --check or --in-place")
    if "in-place" not in given:
        return
    if not words or files.STANDARD_INPUT in words:
        raise UsageError("--in-place: name the FILE to replace")
    for word in words:
        directory, name = os.path.split(files.real(word))
        if directory in files.SPOOLS:
            raise UsageError(
                "--in-place: cron does not notice a change in its own spool; run "
                f"`oncecron crontab {command} --install --user {visible(name)}`"
            )


def _check_owner(user: str, command: str) -> None:
    """Raise `UsageError` if `--user` cannot say whose crontab is read."""
    if command != "wrap":
        raise UsageError("--user is for --install; add it, or leave both out")
    if not user:
        raise UsageError(_NO_USER)
    if "," in user:
        raise UsageError(
            "several --user are for --install; add it, or name the one user whose crontab this is"
        )


def _sources(
    given: Mapping[str, str], words: list[str], command: str
) -> Iterator[files.CrontabFile]:
    """Yield the crontabs to rewrite, with their owners. Raises `InputError`, `UsageError`."""
    if "install" in given:
        yield from _crontabs_of_users(given)
        return
    for source in _files(given, words, command):
        yield source._replace(named_owner=given.get("user"))


def _files(given: Mapping[str, str], words: list[str], command: str) -> Iterator[files.CrontabFile]:
    for word in words or [""]:
        found = files.in_directory(word, system="user-field" in given)
        if found is None:
            yield files.read_source([word] if word else [], command)
            continue
        if not any(name in given for name in _WITHOUT_OUTPUT):
            raise UsageError(f"{visible(word)} is a directory: add --diff, --check or --in-place")
        for path in found.not_read:
            complain(f"{visible(path)}: unchanged: cron does not read a file with this name")
        for path in found.crontabs:
            yield files.read_source([path], command)


def _crontabs_of_users(given: Mapping[str, str]) -> Iterator[files.CrontabFile]:
    names = given.get("user", user_crontab.own_name()).split(",")
    if not all(names):
        raise UsageError(_NO_USER)
    users = [user_crontab.known(name) if "user" in given else None for name in names]
    for name, user in zip(names, users, strict=True):
        title = user_crontab.name_of(user)
        yield files.CrontabFile(title, user_crontab.read(user), None, name)


def _plan(
    given: Mapping[str, str],
    source: files.CrontabFile,
    change: Callable[[Crontab, files.CrontabFile], Rewritten],
    cron: Cron,
) -> files.Plan:
    """Rewrite a crontab. After an error, the original is written to standard output if the new one belongs there."""
    try:
        crontab = scan(source.data, system="user-field" in given, cron=cron)
        refuse_wrong_kind(crontab, source)
        return files.Plan(source, crontab, change(crontab, source))
    except OncecronError:
        if not any(name in given for name in _WITHOUT_OUTPUT):
            output.give(source.data)
        raise


def refuse_wrong_kind(crontab: Crontab, source: files.CrontabFile) -> None:
    """Raise `UsageError` if the lines name a user and --user-field is missing."""
    if crontab.system or source.user:
        return
    if source.is_system:
        raise UsageError(
            f"the lines of {visible(source.path)} name a user before the command; add --user-field"
        )
    found = named_user(crontab, _is_user, _is_program)
    if found:
        where = source.place_of(found.number)
        raise UsageError(
            f"{where}: {visible(found.name)!r} seems to be a user before the command; add --user-field, or write the "
            "path of the command if it is one"
        )


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):  # a surrogate or a NUL byte
        return False
    return True


def _is_program(word: str, path: str) -> bool:
    paths = os.pathsep.join((path, _SYSTEM_PATH, os.environ.get("PATH", "")))
    try:
        return shutil.which(word, path=paths) is not None
    except ValueError:  # a NUL byte
        return False


def _report(plan: files.Plan) -> None:
    source, crontab, rewritten = plan
    for problem in rewritten.unchanged:
        complain(
            f"{source.place_of(problem.number)}: unchanged: {problem.reason}{_line(crontab, problem)}"
        )
    for problem in rewritten.warnings + rewritten.errors:
        complain(f"{source.place_of(problem.number)}: {problem.reason}{_line(crontab, problem)}")


def _carry_out(
    given: Mapping[str, str], plans: Sequence[files.Plan], command: str, done: str
) -> int:
    output.standard_output()  # nothing is written if the answer cannot be
    writing = "check" not in given and ("install" in given or "in-place" in given)
    for plan in plans:
        if "diff" in given or "install" in given:
            _give_difference(plan.source, plan.rewritten.data)
        if command == "wrap":
            warnings.warn_of_missing_store(plan)
        if writing:
            _say(f"{visible(plan.source.path)}: {_put(given, plan, done)}")
        elif "check" in given:
            would = _counted(plan.rewritten.changed) if plan.rewritten.changed else "nothing"
            _say(f"{visible(plan.source.path)}: {would} to change")
    if len(plans) > 1 and (writing or "check" in given):
        _say(_summary(plans, done if writing else "to change"))
    changed = any(plan.rewritten.changed for plan in plans)
    return EX_CHANGES if "check" in given and changed else 0


def _give_difference(source: files.CrontabFile, new: bytes) -> None:
    """Write the changes to standard output: for patch(1), on a terminal in colour and without control characters."""
    stream = output.standard_output()
    changes = files.difference(source, new)
    colour = style_for(stream, "table", utc=False).colour
    if not (colour or stream.isatty()):
        output.give(changes)
    elif changes:
        lines = changes.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        output.write_text("\n".join(_shown(line, colour=colour) for line in lines), stream)


def _shown(line: str, *, colour: bool) -> str:
    text = visible(line.expandtabs())
    code = next((code for sign, code in _COLOURS.items() if line.startswith(sign)), None)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def _put(given: Mapping[str, str], plan: files.Plan, done: str) -> str:
    """Replace a crontab; return what was done. Raises `OutputError`."""
    source, _, rewritten = plan
    if not rewritten.changed:
        return "nothing to change"
    summary = f"{_counted(rewritten.changed)} {done}"
    if "install" not in given:
        return f"{summary}; backup: {visible(files.replace_file(source, rewritten.data))}"
    user = user_crontab.known(source.user or "")
    restore = user_crontab.install(user, source.data, rewritten.data)
    return f"{summary}; to restore the old crontab: {restore}"


def _say(text: str) -> None:
    output.say(text, output.standard_output())


def _summary(plans: Sequence[files.Plan], done: str) -> str:
    changed = [plan.rewritten.changed for plan in plans if plan.rewritten.changed]
    left = sum(len(plan.rewritten.unchanged) for plan in plans)
    lines = f"{_counted(sum(changed))} {done} in {len(changed)}" if changed else "nothing to change"
    return f"{len(plans)} crontabs: {lines}; {_counted(left)} left unchanged"


def _counted(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"


def _line(crontab: Crontab, problem: Problem) -> str:
    if not 0 < problem.number <= len(crontab.lines) or WRITE_HERE in problem.reason:
        return ""
    raw = crontab.lines[problem.number - 1].raw.decode(errors="backslashreplace")
    text = visible(masked_line(raw.strip(" \t\n")))
    return f": {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '...'}"
