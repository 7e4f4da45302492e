"""How long the reports take on a large log, on each store: what they cost grows with what they print, not with the log.

Run by hand: `tests/benchmarks/run reports`. A store is filled in bulk (`large_logs`), with so many executions and as
many skips of 1,000 keys and 50 hosts; then each command runs a few times, its output goes to /dev/null, and the
shortest time counts.

    s           from start to end, by the clock
    cpu         user + system of the command
    server      the same of the server, meanwhile; SQLite has none
    MB          the most memory that the command had
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from large_logs import History, fill_postgres, fill_redis, fill_sqlite, name
from processors import cpu_seconds
from servers import PostgresServer, RedisServer
from servers.oncecron import Oncecron, installed
from servers.process import place_of_servers, public_directory

ROWS = int(os.environ.get("ONCECRON_TEST_ROWS", "1000000"))
COMMANDS = {
    words: words.split()
    for words in (
        "check", "jobs", "hosts", "metrics", "history", "history --skips", "history --exhausted",
        f"why {name(500)}", "audit --since 1h", "audit --since 1d", "report --html - --since 1d",
    )
}  # fmt: skip
SCRIPT = """
import json, os, resource, subprocess, sys, time
began = time.perf_counter()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
took = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([status, took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""
"""Measures in a small process: what a child is measured at includes the memory of its parent before exec."""


class Filled(NamedTuple):
    """A store with a large log."""

    url: str
    server: int | None
    """The process whose tree is the server."""


class Sample(NamedTuple):
    """Seconds, and megabytes."""

    status: int
    took: float
    cpu: float
    memory: float
    server_cpu: float


def postgres(stack: ExitStack, history: History) -> Filled:
    """Start a server and fill it; it has 128 MB of buffers, which is what it has unasked."""
    server = PostgresServer(shared_buffers="128MB", max_wal_size="4GB").start()
    stack.callback(server.remove)
    database = installed(server.create_database())
    fill_postgres(database, history)
    assert server.process
    return Filled(database.url("reader"), server.process.pid)


def redis(stack: ExitStack, history: History) -> Filled:
    server = RedisServer().start()
    stack.callback(server.remove)
    fill_redis(server, history)
    return Filled(server.url(), server.process.pid if server.process else None)


def sqlite(stack: ExitStack, history: History) -> Filled:
    directory = public_directory("reports", place_of_servers())
    path = directory / "log.db"
    stack.callback(path.unlink)
    url = f"sqlite://{path}"
    assert Oncecron(url, directory)("init").status == 0
    fill_sqlite(path, history)
    return Filled(url, None)


STORES: dict[str, Callable[[ExitStack, History], Filled]] = {
    "postgres": postgres,
    "redis": redis,
    "sqlite": sqlite,
}


def measure(store: Filled, script: Path, words: list[str]) -> Sample:
    host = Oncecron(store.url, public_directory("reports", place_of_servers()), script=script)
    before = cpu_seconds(store.server) if store.server else 0.0
    done = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT, str(script), *words],
        env=host.environment, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    time.sleep(0.1)  # the session ends
    used = cpu_seconds(store.server) - before if store.server else 0.0
    return Sample(*json.loads(done.stdout), used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--rows", type=int, default=ROWS, help="executions, and as many skips")
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    script = options.environment.absolute() / "bin" / "oncecron"
    for kind in options.stores.split(","):
        with ExitStack() as stack:
            began = time.perf_counter()
            store = STORES[kind](stack, History(options.rows))
            print(f"{kind}: filled in {time.perf_counter() - began:.0f} s", flush=True)
            print(f"\n| {kind}, {options.rows:,} executions | s | cpu | server | MB |")
            print("|---|--:|--:|--:|--:|")
            for words, command in COMMANDS.items():
                samples = [measure(store, script, command) for _ in range(options.rounds)]
                best = min(samples, key=lambda each: each.took)
                assert best.status in (0, 1, 2), words  # 1 and 2: there are findings
                cells = [best.took, best.cpu, best.server_cpu]
                shown = " | ".join(f"{each:.2f}" for each in cells)
                print(f"| `{words}` | {shown} | {best.memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
