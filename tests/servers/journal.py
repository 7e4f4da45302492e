"""The journal that jobs write themselves, and the proofs that are drawn from it.

A line's meaning stands in `children/job.py`. An interval of life is proved from what a job wrote:
from its first to its last line, so a job that was killed without `--beats` is known only to have
lived at its start.
"""

import collections
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from servers.process import command_line, process_table, send
from servers.waiting import eventually

SCRIPT = Path(__file__).resolve().parent.parent / "children" / "job.py"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the journal."""

    kind: str
    host: str
    pid: int
    time: float
    run: str
    key: str
    shard: str
    tick: str
    attempt: str
    token: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Run:
    """One start of the job with all that it left behind, from its own lines."""

    lines: tuple[Line, ...]

    @property
    def first(self) -> Line:
        return self.lines[0]

    @property
    def started(self) -> float:
        return self.first.time

    @property
    def last_sign(self) -> float:
        """When the last of its processes certainly still lived."""
        return max(line.time for line in self.lines)

    @property
    def end(self) -> Line | None:
        """The line with which the job itself ended, if it came to that."""
        own = (line for line in self.lines if line.kind == "end" and line.pid == self.first.pid)
        return next(own, None)

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.detail == "0"

    @property
    def signals(self) -> list[str]:
        """The names of the signals that the job itself received, in order."""
        own = (line for line in self.lines if line.pid == self.first.pid)
        return [line.detail for line in own if line.kind == "signal"]

    def __str__(self) -> str:
        line = self.first
        return (
            f"{line.key} tick {line.tick} shard {line.shard} attempt {line.attempt} token"
            f" {line.token} on {line.host} pid {line.pid}: {self.started:.3f}..{self.last_sign:.3f}"
        )


class Journal:
    """A file that jobs of any user append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        path.chmod(0o666)

    def lines(self) -> list[Line]:
        """Return the whole lines, in the order in which they were written."""
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [_line(text) for text in whole.splitlines()]

    def runs(self) -> list[Run]:
        by_run: dict[str, list[Line]] = collections.defaultdict(list)
        for line in self.lines():
            by_run[line.run].append(line)
        return sorted((Run(tuple(lines)) for lines in by_run.values()), key=lambda run: run.started)

    def starts(self) -> list[Line]:
        return [run.first for run in self.runs()]

    def wait_for(
        self, kind: str, count: int = 1, deadline: float = 30,
        where: Callable[[Line], bool] = lambda _: True,
    ) -> list[Line]:  # fmt: skip
        """Wait until there are so many lines of a kind, and return them."""

        def found() -> list[Line]:
            lines = [line for line in self.lines() if line.kind == kind and where(line)]
            assert len(lines) >= count, f"{len(lines)} of {count} {kind} lines in {self.path}"
            return lines

        return eventually(found, deadline)

    def kill_jobs(self) -> None:
        """Kill the jobs that still live, told by this journal in their command lines."""
        name = os.fsencode(self.path)
        send((p for p in process_table() if name in command_line(p.pid)), signal.SIGKILL)

    def write(self, *fields: object) -> None:
        """Append one line, as a job would."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, (" ".join(map(str, fields)) + "\n").encode())
        finally:
            os.close(descriptor)


def job(journal: Journal, *options: object) -> list[str]:
    """Return the command line of the job that writes to this journal.

    The interpreter is the real one: a shim or a virtual environment would only cost time.
    """
    interpreter = os.path.realpath(sys.executable)
    return [interpreter, "-S", "-E", str(SCRIPT), str(journal.path), *map(str, options)]


def assert_exclusive(
    journal: Journal, *, attempts: bool = False, ignore_after_success: bool = False
) -> None:
    """Fail if two runs of one key and shard lived at a time, or a tick was started twice.

    With `attempts` a tick may be started again as a further attempt. With `ignore_after_success`
    what a successful job left running no longer counts. An empty journal proves nothing: it fails.
    """
    runs = journal.runs()
    assert runs, f"nothing ran: {journal.path} is empty"
    by_key: dict[tuple[str, str], list[Run]] = collections.defaultdict(list)
    for run in runs:
        by_key[run.first.key, run.first.shard].append(run)
    for of_key in by_key.values():
        _assert_no_overlap(of_key, ignore_after_success)
        _assert_started_once(of_key, attempts)


def assert_tokens_rise(journal: Journal) -> None:
    """Fail unless each start of a key and shard has a higher fencing token than the one before."""
    last: dict[tuple[str, str], Line] = {}
    for start in journal.starts():
        before = last.get((start.key, start.shard))
        assert start.token.isdigit(), f"no fencing token: {start}"
        assert before is None or int(before.token) < int(start.token), f"{before} then {start}"
        last[start.key, start.shard] = start


def _assert_no_overlap(runs: Iterable[Run], ignore_after_success: bool) -> None:
    living: Run | None = None
    until = 0.0
    for run in runs:
        overlap = living is not None and run.started <= until
        assert not overlap, f"two at a time:\n  {living}\n  {run}"
        over = run.end.time if ignore_after_success and run.succeeded and run.end else run.last_sign
        if over > until:
            living, until = run, over


def _assert_started_once(runs: Iterable[Run], attempts: bool) -> None:
    seen: dict[tuple[str, str], Run] = {}
    for run in runs:
        if run.first.tick == "-":
            continue
        identity = (run.first.tick, run.first.attempt if attempts else "")
        assert identity not in seen, f"started twice:\n  {seen[identity]}\n  {run}"
        seen[identity] = run


def _line(text: str) -> Line:
    kind, host, pid, time, run, key, shard, tick, attempt, token, detail = text.split(" ")
    return Line(kind, host, int(pid), float(time), run, key, shard, tick, attempt, token, detail)
