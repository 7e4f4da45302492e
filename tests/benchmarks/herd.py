"""All hosts fire one key at one instant: how long until the last of them has ended, and at what cost.

Run by hand: `tests/benchmarks/run herd`. Each firing is a whole process, as cron starts it, of a host of its own. On
one machine they would come one after another, as fast as it starts them. So the server is stopped until three
quarters of them are connecting, and then meets them all at once. A firing that fails, or a second run, ends the
benchmark with an error.

    ended      from when the server goes on to the end of the last firing; all share the processors of this machine
    refused    connections that the server refused, and that were tried again
    cpu        user + system of a firing, and of the server for each firing
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processors import cpu_seconds
from servers import PostgresServer, RedisServer, eventually
from servers.oncecron import installed

BUDGET = "5m"
"""--connect-timeout: a thousand firings share the processors of one host here."""


class Herd(NamedTuple):
    """What became of a herd; seconds."""

    count: int
    ended: float
    refused: int
    cpu: float
    server_cpu: float


def clients_of(port: int) -> int:
    """Return how many clients are connected to a port of this machine, or try to be (proc(5), /proc/net/tcp)."""
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[2].endswith(f":{port:04X}") and row[3] in ("01", "02") for row in rows)


class PostgresStage:
    """A PostgreSQL; by default it has a hundred connections."""

    def __init__(self, connections: int) -> None:
        self.name = f"PostgreSQL, max_connections = {connections}"
        self.server = PostgresServer(
            max_connections=connections, synchronous_commit="on", shared_buffers="128MB"
        ).start()
        self.url = installed(self.server.create_database()).url()

    def server_cpu(self) -> float:
        """Return the CPU time of the server so far."""
        assert self.server.process
        return cpu_seconds(self.server.process.pid)

    def refused(self) -> int:
        """Return how many connections were refused so far."""
        log = self.server.log()
        return log.count("too many clients already") + log.count("remaining connection slots")

    def close(self) -> None:
        """Stop it."""
        self.server.remove()


class RedisStage:
    """A Redis with the same limit, which by default is a hundred times higher."""

    def __init__(self, connections: int) -> None:
        self.name = f"Redis, maxclients = {connections}"
        self.server = RedisServer(aof=True, appendfsync="everysec", maxclients=connections)
        self.server.start()
        self.url = self.server.url()

    def server_cpu(self) -> float:
        """Return the CPU time of the server so far."""
        return cpu_seconds(self.server.process.pid)

    def refused(self) -> int:
        """Return how many connections were refused so far."""
        with self.server.connect() as client:
            return int(client.info("stats")["rejected_connections"])

    def close(self) -> None:
        """Stop it."""
        self.server.remove()


class Hosts:
    """So many hosts, which fire a key together."""

    def __init__(self, script: Path, directory: Path, url: str) -> None:
        self._script = str(script)
        self._directory = directory
        self._numbers = itertools.count(1)
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "XDG_STATE_HOME": str(directory),
            "ONCECRON_STORE": url,
        }

    def fire(self, count: int, stage: PostgresStage | RedisStage) -> Herd:
        """Let `count` hosts fire a new tick. Raises RuntimeError for an error, and unless it ran once."""
        tick = f"tick-{next(self._numbers)}"
        errors = self._directory / "stderr"
        start, gate = os.pipe()
        with errors.open("wb") as stream:
            pids = [self._wait_at(start, gate, tick, n, stream.fileno()) for n in range(count)]
        os.close(start)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        server_before, refused_before = stage.server_cpu(), stage.refused()
        stage.server.sigstop()
        os.close(gate)
        eventually(lambda: clients_of(stage.server.port) >= count * 3 // 4, 180)
        began = time.monotonic()
        stage.server.sigcont()
        statuses = {os.waitpid(pid, 0)[1] for pid in pids}
        ended = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        server_cpu = stage.server_cpu() - server_before
        said = errors.read_text()
        if statuses != {0} or said:
            raise RuntimeError(f"a firing failed: wait statuses {statuses}\n{said}")
        runs, skips = self._count("history", tick), self._count("history --skips", tick)
        if (runs, skips) != (1, count - 1):
            raise RuntimeError(f"of {count} firings {runs} ran, and {skips} were skipped")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        refused = stage.refused() - refused_before
        return Herd(count, ended, refused, cpu / count, server_cpu / count)

    def _wait_at(self, start: int, gate: int, tick: str, number: int, stderr: int) -> int:
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            self._fire_at(start, tick, number, stderr)
        return pid

    def _fire_at(self, start: int, tick: str, number: int, stderr: int) -> NoReturn:
        try:
            os.read(start, 1)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(stderr, 2)
            words = ["run", "--key", "herd", "--tick", tick, "--connect-timeout", BUDGET]
            environment = {**self._environment, "ONCECRON_HOST": f"host-{number}"}
            command = [self._script, *words, "--", "true"]
            os.execve(self._script, command, environment)  # noqa: S606 - a firing
        finally:
            os._exit(127)

    def _count(self, words: str, tick: str) -> int:
        command = [self._script, *words.split(), "herd", "--tick", tick, "--limit", "0", "--json"]
        done = subprocess.run(command, env=self._environment, capture_output=True, check=True)
        return len(json.loads(done.stdout))


def report(results: dict[str, list[Herd]]) -> str:
    """Return a Markdown table."""
    titles = (
        "store",
        "firings",
        "runs",
        "errors",
        "all ended after, s",
        "connections refused and tried again",
    )
    titles += ("CPU of a firing, ms", "CPU of the server for each, ms")
    lines = [f"| {' | '.join(titles)} |", f"|---|{'--:|' * (len(titles) - 1)}"]
    for name, herds in results.items():
        for herd in herds:
            cells = (
                *(name, f"{herd.count:,}", 1, 0, f"{herd.ended:.1f}", f"{herd.refused:,}"),
                *(f"{herd.cpu * 1000:.0f}", f"{herd.server_cpu * 1000:.1f}"),
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Fire, print the table, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--count", type=int, action="append", help="firings (300 and 1000)")
    parser.add_argument("--connections", type=int, default=100, help="that the servers allow")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    script = options.environment.absolute() / "bin" / "oncecron"
    results: dict[str, Any] = {}
    for kind in (PostgresStage, RedisStage):
        stage = kind(options.connections)
        try:
            with tempfile.TemporaryDirectory(prefix="bench-") as name:
                hosts = Hosts(script, Path(name), stage.url)
                hosts.fire(3, stage)  # page cache, .pyc files
                results[stage.name] = [
                    hosts.fire(count, stage) for count in options.count or (300, 1000)
                ]
        finally:
            stage.close()
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}\n")
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
