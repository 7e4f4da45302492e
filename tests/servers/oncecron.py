"""One host that fires: the installed console script, in the small environment that cron gives."""

import dataclasses
import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from servers.postgres import Database
from servers.prepared import can_carry_out, carry_out
from servers.process import Process, descendants, end, public_directory, spawn
from servers.waiting import eventually

CONSOLE_SCRIPT = Path(sys.executable).with_name("oncecron")
SHELL = f"{CONSOLE_SCRIPT.name}-shell"
SHORT_TTL = 3
"""Seconds, half of the least that users are given: for tests that wait for a lease to end. All else is in proportion.

Less would make tests fail on a busy machine: a job is stopped when it could not renew its lease for 2.25 s.
"""


@functools.cache
def _with_timing(name: str, seconds: float) -> Path:
    """Write the installed console script once more, with one more line: a value of timing.py is another."""
    changed = f"import oncecron.core.timing\noncecron.core.timing.{name} = {seconds}\n"
    return _with_lines(changed, public_directory(name.lower().replace("_", "-")))


def _with_lines(lines: str, directory: Path) -> Path:
    """Write both console scripts into a directory with more lines; return the first one."""
    for name, package in ((CONSOLE_SCRIPT.name, "oncecron"), (SHELL, "oncecron_crontab")):
        source = CONSOLE_SCRIPT.with_name(name)
        if name == SHELL and not source.exists():
            continue  # without the plugin
        imports = f"from {package}.__main__ import main\n"
        text = source.read_text()
        assert text.count(imports) == 1, text
        script = directory / name
        script.write_text(text.replace(imports, lines + imports))
        script.chmod(0o755)
    return directory / CONSOLE_SCRIPT.name


def script_of(library: Path) -> Path:
    """Return the console script that imports oncecron from a directory; SHORT_TTL is not too short for it."""
    lines = (
        f"sys.path.insert(0, {str(library)!r})\n"
        f"import oncecron.core.timing\noncecron.core.timing.MINIMUM_TTL = {SHORT_TTL}\n"
    )
    return _with_lines(lines, public_directory("script"))


def recording_script() -> Path:
    """Return the console script of which no skip is lost, beside its oncecron-shell.

    A firing does without the record after a second, and a busy machine needs more.
    """
    return _with_timing("SKIP_TIMEOUT", 60.0)


def patient_script() -> Path:
    """Return the console script that takes its time for an answer at a TAB: a busy machine needs more than a second."""
    return _with_timing("COMPLETION_TIMEOUT", 60.0)


WAITS, STARTED = "oncecron: waiting: ", ": the store has started and may have forgotten a lease; "


class Ended(NamedTuple):
    """What a command has left to its caller."""

    status: int
    out: bytes
    err: str

    @property
    def complaint(self) -> str:
        """Return what it wrote, but for a line that a Redis which has started lets nothing start yet."""
        first, end, rest = self.err.partition("\n")
        return rest if first.startswith(WAITS) and STARTED in first and end else self.err


class Firing:
    """One `oncecron run` that is under way."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def wait(self, deadline: float = 60) -> Ended:
        """Wait for the end; the whole tree is killed if it does not come."""
        try:
            out, err = self.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired as error:
            tree = descendants(self.process.pid)
            end(self.process)
            raise AssertionError(f"still running after {deadline} s: {tree}") from error
        return Ended(self.process.returncode, out, err.decode())

    @property
    def wrapper(self) -> Process:
        return descendants(self.process.pid)[0]

    def guard(self) -> Process:
        return eventually(lambda: self._children(self.process.pid)[0], retry_on=IndexError)

    def job(self) -> Process:
        return eventually(lambda: self._children(self.guard().pid)[0], retry_on=IndexError)

    @staticmethod
    def _children(pid: int) -> list[Process]:
        return [process for process in descendants(pid) if process.parent == pid]


class Oncecron:
    """The console script on one host; with `--ttl SHORT_TTL` the one to which this is not too short."""

    def __init__(
        self, store: str, state: Path, name: str = "host-a", *, prefix: Sequence[str] = (),
        script: Path = CONSOLE_SCRIPT, **environment: str,
    ) -> None:  # fmt: skip
        self.prefix = list(prefix)
        self.script = script
        self.loses_no_output = False
        """Whether a firing with --capture waits for its output as long as a busy machine needs, not for a second."""
        self.environment = {
            "HOME": str(state), "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin",
            "XDG_STATE_HOME": str(state / name), "ONCECRON_HOST": name, "ONCECRON_STORE": store,
            **environment,
        }  # fmt: skip

    def start(self, *arguments: object, **options: object) -> Firing:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = [*self.prefix, *self._words(arguments)]
        return Firing(spawn(command, env=self.environment, **pipes))

    def __call__(
        self, *arguments: object, deadline: float = 60, cwd: Path | None = None, **options: object
    ) -> Ended:
        """Run a command to its end; what people type without an interpreter's start, where that is no difference."""
        words = self._words(arguments)
        usual = not self.prefix and not options and self.script == CONSOLE_SCRIPT
        if usual and can_carry_out(words, self.environment):
            status, out, err = carry_out(words, self.environment, str(cwd or Path.cwd()), deadline)
            return Ended(status, out, err.decode())
        return self.start(*arguments, cwd=cwd, **options).wait(deadline)

    def run(self, key: str, *arguments: object, deadline: float = 60) -> Ended:
        """Fire once: options, then `--`, then the command."""
        return self("run", "--key", key, *arguments, deadline=deadline)

    def fire(self, key: str, *arguments: object) -> Firing:
        return self.start("run", "--key", key, *arguments)

    def _words(self, arguments: Sequence[object]) -> list[str]:
        """Return the console script and what is typed behind it; bytes may be any."""
        typed = [os.fsdecode(each if isinstance(each, bytes) else str(each)) for each in arguments]
        short = ("--ttl", str(SHORT_TTL)) in itertools.pairwise(typed)
        if short and self.script == CONSOLE_SCRIPT:
            return [str(_with_timing("MINIMUM_TTL", float(SHORT_TTL))), *typed]
        captures = self.loses_no_output and "--capture" in typed
        if captures and self.script == CONSOLE_SCRIPT:
            return [str(_with_timing("OUTPUT_TIMEOUT", 60.0)), *typed]
        return [str(self.script), *typed]


def installed(
    database: Database, *, prefix: Sequence[str] = (), script: Path = CONSOLE_SCRIPT
) -> Database:
    """Install the schema as its owner; whoever fires from now on may fire and read, and nothing else."""
    owner = Oncecron(database.url("owner"), Path("/nonexistent"), prefix=prefix, script=script)
    grants = ["--run-role", "runner", "--read-role", "runner", "--read-role", "reader"]
    grants += ["--job-role", "jobber", "--operator-role", "operator"]
    done = owner("init", *grants)
    assert done.status == 0, done.err
    return dataclasses.replace(database, run_as="runner")
