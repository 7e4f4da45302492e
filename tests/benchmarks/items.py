"""What `oncecron each` costs for each batch, beside `xargs -P` and GNU parallel, and the load of a list.

Run by hand: `tests/benchmarks/run items`. Everything is measured in turn (A B C A B C ...); medians of all rounds, and
ratios of runs of the same round. The servers are on this machine, with their data in memory where there is room, so
that the speed of its disk does not count: a PostgreSQL that flushes each commit, and a Redis that syncs its log of
writes with each command. Two more have a disk whose flush takes a millisecond: each of their calls of fdatasync(2)
waits for so long, by a library that is compiled here.

    batch      20 items for `true`, four at a time: a run of a long list less one of a short list, by their batches. The
               list is in the store before; "with the load" it is not
    cpu        user + system in the same way: of the client with all that it started, and of the server
    load       from the start of `each` to the first command: a list on standard input, and the output of --items
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from oncecron.core.model import Outcome

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processors import cpu_seconds
from servers import PostgresServer, RedisServer
from servers.process import place_of_servers, public_directory, spawn

from oncecron.core import clock
from oncecron.core.log_rows import Roles
from oncecron.core.model import AskAgain, Ending, Firing, Holder, Lease, Retention
from oncecron.core.tick import named_tick
from oncecron.stores import open_lease_store, open_reader
from oncecron.stores.address import parse_address
from oncecron_each.item_model import Chunk, Item, ItemList
from oncecron_each.store import open_item_store

BATCH, JOBS = 20, 4
SHORT = BATCH * JOBS
KEY = "bench"
TTL = 600.0
"""Nobody renews the leases of this process."""
CHUNK = 5000
SLOWER = 5
"""How many times slower GNU parallel is, about: it gets a shorter list."""
POSTGRES = {
    **dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes"), "on"),
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}
FLUSH = "1 ms a flush"
SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/prctl.h>
#include <time.h>

static int flush(const char *name, int fd) {
  struct timespec millisecond = {0, 1000000};
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  nanosleep(&millisecond, 0);
  return ((int (*)(int)) dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }
"""
REDIS: dict[str, Any] = {"aof": True, "appendfsync": "always"}
STAMP = '[ -e "$STAMP" ] || date +%s.%N >"$STAMP"'


def slow_disk(directory: Path) -> list[str]:
    """Return a prefix with which the flushes of a server take longer; nothing if there is no C compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        return []
    source, library = directory / "slow_disk.c", directory / "slow_disk.so"
    source.write_text(SLOW_DISK)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return ["/usr/bin/env", f"LD_PRELOAD={library}"]


def url_of(server: PostgresServer | RedisServer) -> str:
    if isinstance(server, RedisServer):
        return server.url()
    return server.create_database().url("owner")


class Sample(NamedTuple):
    """One run; seconds."""

    whole: float
    cpu: float
    """Of the client and what it started."""
    server_cpu: float = 0.0


class Bench:
    """Lists of items in files, and the stores."""

    def __init__(self, script: Path) -> None:
        self.script = str(script)
        self.directory = Path(tempfile.mkdtemp(prefix="bench-"))
        self.data = public_directory("bench", place_of_servers())
        postgres, redis = PostgresServer(**POSTGRES), RedisServer(**REDIS)
        self.servers: dict[str, PostgresServer | RedisServer]
        self.servers = {"PostgreSQL": postgres, "Redis": redis}
        if slow := slow_disk(self.data):
            self.servers[f"PostgreSQL, {FLUSH}"] = PostgresServer(prefix=slow, **POSTGRES)
            self.servers[f"Redis, {FLUSH}"] = RedisServer(prefix=slow, **REDIS)
        self.urls = {name: url_of(server.start()) for name, server in self.servers.items()}
        self.urls["SQLite"] = f"sqlite://{self.data}/items.db"
        for url in self.urls.values():
            reader = open_reader(parse_address(url), "oncecron")
            reader.initialise(Roles())
            reader.close()
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory),
            "STAMP": str(self.directory / "stamp"),
        }

    def list_of(self, length: int) -> Path:
        path = self.directory / f"items-{length}"
        if not path.exists():
            path.write_text("".join(f"user-{number}@example.com\n" for number in range(length)))
        return path

    def each(self, store: str, *words: str) -> list[str]:
        url = self.urls[store]
        return [self.script, "each", "--store", url, "--key", KEY, "--slots", str(JOBS), *words]

    def server_cpu(self, store: str) -> float:
        """Return what the server's processes have used; those that have ended too."""
        server = self.servers.get(store)
        return cpu_seconds(server.process.pid) if server and server.process else 0.0

    def close(self) -> None:
        for server in self.servers.values():
            server.remove()
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


# Batches


class Contender(NamedTuple):
    """Something that runs a command for 20 items, four at a time."""

    name: str
    store: str
    words: list[str]
    slower: int = 1
    """It gets a list that is so many times shorter."""
    is_loaded: bool = False
    """Its items are in the store before it starts."""

    def prepared(self, bench: Bench, length: int) -> tuple[list[str], Path]:
        """Return the words of a new run, and the file of its standard input."""
        if not self.store:
            return self.words, bench.list_of(length)
        tick = uuid.uuid4().hex
        words = bench.each(self.store, "--tick", tick, *self.words)
        if not self.is_loaded:
            return words, bench.list_of(length)
        url = bench.urls[self.store]
        items = open_item_store(parse_address(url), "oncecron", TTL)
        loader = Loader(url, items, tick, JOBS)
        loader.load(length)
        loader.end("succeeded")
        items.close()
        return words, Path(os.devnull)


def contenders(bench: Bench) -> list[Contender]:
    numbers, jobs = ("-n", str(BATCH)), str(JOBS)
    found = [Contender("xargs -P", "", ["xargs", *numbers, "-P", jobs, "true"])]
    if parallel := shutil.which("parallel"):
        words = [parallel, "--will-cite", *numbers, "-j", jobs, "true"]
        found.append(Contender("GNU parallel", "", words, SLOWER))
    words = ["--batch", str(BATCH), "--jobs", jobs, "--", "true"]
    for store in bench.urls:
        found.append(Contender(f"oncecron, {store}", store, words, is_loaded=True))
        if FLUSH not in store:
            found.append(Contender(f"oncecron, {store}, with the load", store, words))
    return found


def run(bench: Bench, store: str, words: list[str], items: Path) -> Sample:
    server = bench.server_cpu(store)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with items.open() as given:
        subprocess.run(
            words, stdin=given, env=bench.environment, check=True, stdout=subprocess.DEVNULL
        )
    whole = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(whole, cpu, bench.server_cpu(store) - server)


def batches(bench: Bench, length: int, rounds: int) -> dict[str, list[Sample]]:
    """Return what a batch costs each contender, round by round."""
    costs: dict[str, list[Sample]] = {}
    for turn in range(rounds + 1):
        for each in contenders(bench):
            lengths = (SHORT, length // each.slower)
            short, long = (run(bench, each.store, *each.prepared(bench, n)) for n in lengths)
            number = (lengths[1] - SHORT) / BATCH
            cost = Sample(*((a - b) / number for a, b in zip(long, short, strict=True)))
            if turn:  # the first one fills the page cache
                costs.setdefault(each.name, []).append(cost)
    return costs


# Loads


def seconds_to_first_command(
    bench: Bench, store: str, words: list[str], items: Path | None
) -> float:
    """Run `each` up to its first command."""
    stamp = Path(bench.environment["STAMP"])
    stamp.unlink(missing_ok=True)
    with (items or Path(os.devnull)).open() as given:
        began = time.time()
        process = spawn(
            [*bench.each(store, *words), "--shell", STAMP],
            env=bench.environment, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    while process.poll() is None and not (stamp.exists() and stamp.stat().st_size):
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    if not stamp.exists():
        raise RuntimeError(f"{words}: {process.returncode} {errors.decode()}")
    return float(stamp.read_text()) - began


def loads(bench: Bench, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds to the first command of 50,000 items, by where they come from."""
    found: dict[str, dict[str, list[float]]] = {}
    items = bench.list_of(50_000)
    sources = {"standard input": ((), items), "--items": (("--items", f"cat {items}"), None)}
    for _ in range(rounds):
        for store in (name for name in bench.urls if FLUSH not in name):
            for name, (words, given) in sources.items():
                tick = ("--tick", uuid.uuid4().hex, "--batch", str(BATCH))
                took = seconds_to_first_command(bench, store, [*tick, *words], given)
                found.setdefault(store, {}).setdefault(name, []).append(took)
    return found


class Loader:
    """One slot that loads a list in this process, over a connection that others may use too."""

    def __init__(self, url: str, store: Any, tick: str, shard: int) -> None:
        self._store = store
        self._leases = open_lease_store(parse_address(url), "oncecron", TTL)
        self.lease = self._claim(tick, shard)

    def _claim(self, tick: str, shard: int) -> Lease:
        wanted = Firing(
            KEY, shard, named_tick(tick), str(uuid.uuid4()), Holder("bench", os.getpid(), "bench"), "true",
            clock.wall(), TTL, None, None, again=False, schedule=None, zone=None, shards=JOBS + 1, resumes=True,
        )  # fmt: skip
        while isinstance(answer := self._leases.claim(wanted, deadline=self._deadline()), AskAgain):
            time.sleep(answer.after)
        if not isinstance(answer, Lease):
            raise TypeError(str(answer))
        return answer

    def _deadline(self) -> float:
        return clock.lease_time(self._leases.lease_clock) + TTL

    def load(self, length: int) -> None:
        items_of = ItemList(KEY, self.lease.tick or "")
        for number, first in enumerate(range(0, length, CHUNK)):
            end = min(length, first + CHUNK)
            names = (f"user-{place}@example.com" for place in range(first, end))
            chunk = Chunk(number, [Item(name, name) for name in names], is_last=end == length)
            self._store.load(self.lease, items_of, chunk, deadline=self._deadline())

    def end(self, outcome: Outcome) -> None:
        ending = Ending(outcome, None, None, 1.0, None, None, None)
        self._leases.finish(self.lease, ending, Retention(1e9, 1e9), deadline=self._deadline())
        self._leases.close()


# The report


def _ratio(values: list[float], base: list[float]) -> float:
    return median(a / b for a, b in zip(values, base, strict=True))


def table_of_batches(costs: dict[str, list[Sample]]) -> str:
    """Return a Markdown table; the ratios are to xargs in the same round."""
    lines = [
        "| a batch | by the clock, ms | of xargs | from, to | CPU, ms | of which the server | CPU, of xargs |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    wholes = {name: [each.whole for each in samples] for name, samples in costs.items()}
    cpus = {
        name: [each.cpu + each.server_cpu for each in samples] for name, samples in costs.items()
    }
    for name, samples in costs.items():
        every = [a / b for a, b in zip(wholes[name], wholes["xargs -P"], strict=True)]
        server = median([each.server_cpu for each in samples])
        cells = [
            *(f"{median(wholes[name]) * 1000:.2f}", f"{median(every):.2f}"),
            f"{min(every):.2f}, {max(every):.2f}",
            *(f"{median(cpus[name]) * 1000:.2f}", f"{server * 1000:.2f}"),
            f"{_ratio(cpus[name], cpus['xargs -P']):.2f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_loads(times: dict[str, dict[str, list[float]]]) -> str:
    lines = [f"| | {' | '.join(times)} |", f"|---|{'--:|' * len(times)}"]
    for source in ("standard input", "--items"):
        cells = [f"{median(each[source]):.2f}" for each in times.values()]
        name = f"50,000 items from {source}, to the first command, s"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=20_000, help="length of the long list")
    options = parser.parse_args()
    bench = Bench(options.environment.absolute() / "bin" / "oncecron")
    try:
        costs = batches(bench, options.items, options.rounds)
        missing = "" if "GNU parallel" in costs else "; GNU parallel is not installed"
        if not any(FLUSH in name for name in costs):
            missing += "; no slow disk, because there is no C compiler"
        print(
            f"{options.items} items, {options.rounds} rounds, {os.cpu_count()} processors, "
            f"Python {sys.version.split()[0]}{missing}\n\n{table_of_batches(costs)}\n",
            flush=True,
        )
        print(table_of_loads(loads(bench, max(1, options.rounds // 2))))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
