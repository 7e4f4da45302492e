"""The jobs of Debian's packages: a line and the same line wrapped do the same, once, on a machine of stubs.

One file is kept beside the tests; ONCECRON_TEST_PACKAGES names packages whose files are fetched. One line of four is
run, which the seed chooses; with ONCECRON_TEST_STORES=all each.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crontabs import REALISTIC
from crontabs.debian_packages import files_in_cron_d
from crontabs.sandbox import MISSING, Done, Line, World, run, worlds
from servers.oncecron import CONSOLE_SCRIPT
from story_stores import seed, wanted

from oncecron_crontab.leading_test import leading_test
from oncecron_crontab.percent_sign import split_command
from oncecron_crontab.scanner import Crontab, Entry, scan
from oncecron_crontab.wrap import WrapSettings, wrap

EVERYTHING = WrapSettings(str(CONSOLE_SCRIPT), "UTC", ("*",))
AHEAD = 2
"""Seconds by which a tick can come early."""
NOT_FOUND = 127
NOTHING = Line(b":", {}, b"root")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Give the system crontabs of all packages."""
    found = files_in_cron_d(tmp_path_factory.mktemp("packages"))
    return found + [file for file in REALISTIC if file.name.startswith("system-")]


def chosen(data: bytes) -> bytes:
    """Return a crontab with a comment above each line that wrap would leave on every host."""
    left = {problem.number for problem in wrap(scan(data, system=True), EVERYTHING).unchanged}
    lines = scan(data, system=True).lines
    above = [
        b"# oncecron: key=line-%d\n" % line.number if line.number in left else b"" for line in lines
    ]
    return b"".join(comment + line.raw for comment, line in zip(above, lines, strict=True))


def wrapped_lines(crontab: Crontab) -> Iterator[tuple[Line, Line]]:
    """Yield each line that wrap changes: as it was, and as it is."""
    done = wrap(crontab, EVERYTHING)
    assert done.errors == []
    for before, after in zip(
        crontab.entries(), scan(done.data, system=True).entries(), strict=True
    ):
        if before.raw != after.raw:
            yield line(crontab, before), line(crontab, after)


def line(crontab: Crontab, entry: Entry) -> Line:
    """Return an entry as cron runs it."""
    return Line(entry.command, crontab.environment(entry), entry.user or b"root")


def what_is_due(original: Line, world: World, state: Path, nothing: Done) -> Done:
    """Return what the wrapped line must do: the same, or nothing on a host where the test before the command fails."""
    alone = run(original, world, state, "alpha")
    before, _ = split_command(original.command)
    command = leading_test(before)
    if command is None:
        return alone
    test = original._replace(command=command)
    if run(test, world, state, "alpha", named=original).status == 0:
        return alone
    assert alone._replace(status=0) == nothing, (
        f"its test fails, and it does something: {original.command!r}"
    )
    return nothing


def on_two_hosts(original: Line, wrapped: Line, world: World, directory: Path) -> list[Done]:
    """Run a wrapped line on one host and then on another, within one tick."""
    while True:
        (state := directory / str(next(NUMBERS))).mkdir()
        minute = (time.time() + AHEAD) // 60
        done = [run(wrapped, world, state, host, named=original) for host in ("alpha", "beta")]
        if minute == (time.time() + AHEAD) // 60:
            return done


def not_started(due: Done) -> list[Done]:
    """Return what every host does with a program that does not exist: the tick stays for a host that has it."""
    return [due] if due.status == NOT_FOUND and due.err == MISSING and not due.calls else []


def compared(
    original: Line, wrapped: Line, world: World, directory: Path
) -> tuple[Done, list[str]]:
    """Return what a line had to do, and in words what it did otherwise when it was wrapped."""
    nothing = run(NOTHING, world, directory, "alpha", named=original)
    due = what_is_due(original, world, directory, nothing)
    first, second = on_two_hosts(original, wrapped, world, directory)
    return due, different(first, due) + (
        different(second, nothing) if second not in not_started(due) else []
    )


def different(done: Done, expected: Done) -> list[str]:
    """Return in words what was done otherwise than expected."""
    pairs = zip(done._fields, done, expected, strict=True)
    return [f"{name} is {found!r}, not {due!r}" for name, found, due in pairs if found != due]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_wrapped_line_does_the_same_once(files: list[Path], tmp_path: Path) -> None:
    """Programs, arguments, input, variables, output, files and exit status, whatever the programs find and answer."""
    counts: Counter[str] = Counter(files=len(files))
    differences: list[str] = []
    for file in files:
        crontab = scan(chosen(file.read_bytes()), system=True)
        counts["lines"] += len(list(crontab.entries()))
        for original, wrapped in wrapped_lines(crontab):
            counts["wrapped"] += 1
            if wanted() != "all" and (counts["wrapped"] + seed()) % 4:
                continue
            calls = 0
            for world in worlds(original):
                due, found = compared(original, wrapped, world, tmp_path)
                differences += [
                    f"{file.name}: {original.command!r}, {world}: {text}" for text in found
                ]
                calls += len(due.calls)
                counts["firings"] += 2
            differences += [] if calls else [f"{file.name}: {original.command!r} calls nothing"]
            counts.update(compared=1, calls=calls)
    print(dict(counts), len(differences), "differences")  # `tests/run ... -rP` shows it
    assert not differences, "\n".join(differences)
