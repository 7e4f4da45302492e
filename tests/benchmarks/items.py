"""What `oncecron each` costs for each batch, beside `xargs -P` and GNU parallel, and what a large list costs.

Run by hand: `tests/benchmarks/run items`. Everything is measured in turn (A B C A B C ...); medians of all rounds, and
ratios of runs of the same round. The servers are on this machine, with their data in memory where there is room, so
that the speed of its disk does not count: a PostgreSQL that flushes each commit, and a Redis that syncs its log of
writes with each command.

    batch      20 items for `true`, four at a time: a run of a long list less one of a short list, by their batches. The
               list is in the store before; "with the load" it is not
    cpu        user + system in the same way: of the client with all that it started, and of the server
    load       from the start of `each` to the first command: a list on standard input, and the output of --items
    draw       settle a batch of 20 and draw the next one, in this process, from lists of several lengths in turn
    memory     of the largest process of `each`, its private memory (Private_* of smaps_rollup), and of the largest
               process of PostgreSQL, its own (Anonymous: without shared buffers), in a load and in a run to the end
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processors import cpu_seconds
from servers import PostgresServer, RedisServer, descendants
from servers.process import place_of_servers, public_directory, spawn

from oncecron.core import clock
from oncecron.core.log_rows import Roles
from oncecron.core.model import AskAgain, Ending, Firing, Holder, Lease, Retention
from oncecron.core.tick import named_tick
from oncecron.each.store import open_item_store
from oncecron.each.values import Chunk, Draw, Item, ItemList
from oncecron.stores import open_lease_store, open_reader
from oncecron.stores.address import parse_address

if TYPE_CHECKING:
    from oncecron.core.model import Outcome

BATCH, JOBS = 20, 4
SHORT = BATCH * JOBS
KEY = "bench"
TTL = 600.0
"""Nobody renews the leases of this process."""
DRAWS = 40
"""Draws of a turn: a list of 1,000 has 50."""
TURNS = 4
"""Turns of draws in each round."""
CHUNK = 5000
LARGE_BATCH = 1000
SLOWER = 5
"""How many times slower GNU parallel is, about: it gets a shorter list."""
POSTGRES = {
    **dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes"), "on"),
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}
STAMP = '[ -e "$STAMP" ] || date +%s.%N >"$STAMP"'


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
        self.postgres = PostgresServer(**POSTGRES).start()
        self.redis = RedisServer(aof=True, appendfsync="always").start()
        self.urls = {
            "PostgreSQL": self.postgres.create_database().url("owner"),
            "Redis": self.redis.url(),
            "SQLite": f"sqlite://{self.data}/items.db",
        }
        for url in self.urls.values():
            reader = open_reader(parse_address(url), "oncecron")
            reader.initialise(Roles())
            reader.close()
        self.programs = {"PostgreSQL": self.postgres.process, "Redis": self.redis.process}
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory),
            "STAMP": str(self.directory / "stamp"),
        }

    def list_of(self, length: int) -> Path:
        """Return a file with so many items."""
        path = self.directory / f"items-{length}"
        if not path.exists():
            path.write_text("".join(f"user-{number}@example.com\n" for number in range(length)))
        return path

    def each(self, store: str, *words: str) -> list[str]:
        """Return the words of an `each`."""
        url = self.urls[store]
        return [self.script, "each", "--store", url, "--key", KEY, "--slots", str(JOBS), *words]

    def server_cpu(self, store: str) -> float:
        """Return what the server's processes have used; those that have ended too."""
        server = self.programs.get(store)
        return cpu_seconds(server.pid) if server else 0.0

    def close(self) -> None:
        """Stop the servers."""
        self.postgres.remove()
        self.redis.remove()
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
        loader = Drawing(url, items, tick, JOBS)
        loader.load(length)
        loader.end("succeeded")
        items.close()
        return words, Path(os.devnull)


def contenders(bench: Bench) -> list[Contender]:
    """Return all of them, xargs first."""
    numbers, jobs = ("-n", str(BATCH)), str(JOBS)
    found = [Contender("xargs -P", "", ["xargs", *numbers, "-P", jobs, "true"])]
    if parallel := shutil.which("parallel"):
        words = [parallel, "--will-cite", *numbers, "-j", jobs, "true"]
        found.append(Contender("GNU parallel", "", words, SLOWER))
    words = ["--batch", str(BATCH), "--jobs", jobs, "--", "true"]
    for store in bench.urls:
        found.append(Contender(f"oncecron, {store}", store, words, is_loaded=True))
        found.append(Contender(f"oncecron, {store}, with the load", store, words))
    return found


def run(bench: Bench, store: str, words: list[str], items: Path) -> Sample:
    """Run a contender as a whole process."""
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


# Loads and memory


def largest(pids: list[int], counted: str) -> int:
    """Return the memory of the largest of these processes in kB: the rows of smaps_rollup that begin with a word."""
    most = 0
    for pid in pids:
        try:
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        most = max(most, sum(int(row.split()[1]) for row in rows if row.startswith(counted)))
    return most


class Memory:
    """The memory of the largest process of `each`, and of PostgreSQL, in kB."""

    def __init__(self, bench: Bench, store: str) -> None:
        self.client = self.server = 0
        self._postmaster = bench.postgres.process if store == "PostgreSQL" else None

    def look(self, pid: int) -> None:
        """Look at them now."""
        clients = [each.pid for each in descendants(pid)]
        self.client = max(self.client, largest(clients, "Private_"))
        if self._postmaster:
            backends = [each.pid for each in descendants(self._postmaster.pid)]
            self.server = max(self.server, largest(backends, "Anonymous"))


def watched(
    bench: Bench,
    store: str,
    words: list[str],
    items: Path | None,
    memory: Memory | None,
    *,
    to_end: bool,
) -> float:
    """Run `each` to its end, or to its first command: return the seconds to that."""
    stamp = Path(bench.environment["STAMP"])
    stamp.unlink(missing_ok=True)
    with (items or Path(os.devnull)).open() as given:
        began = time.time()
        process = spawn(
            [*bench.each(store, *words), "--shell", STAMP],
            env=bench.environment, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    while process.poll() is None and (to_end or not (stamp.exists() and stamp.stat().st_size)):
        if memory:
            memory.look(process.pid)
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    if to_end and process.returncode in (
        0,
        1,
    ):  # 1: what ran at a TERM, and the last draws here, are in doubt
        return 0.0
    if to_end or not stamp.exists():
        raise RuntimeError(f"{words}: {process.returncode} {errors.decode()}")
    return float(stamp.read_text()) - began


def loads(bench: Bench, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds to the first command of 50,000 items, by where they come from."""
    found: dict[str, dict[str, list[float]]] = {}
    items = bench.list_of(50_000)
    sources = {"standard input": ((), items), "--items": (("--items", f"cat {items}"), None)}
    for _ in range(rounds):
        for store in bench.urls:
            for name, (words, given) in sources.items():
                tick = ("--tick", uuid.uuid4().hex, "--batch", str(BATCH))
                took = watched(bench, store, [*tick, *words], given, None, to_end=False)
                found.setdefault(store, {}).setdefault(name, []).append(took)
    return found


# Draws


class Drawing:
    """One slot that draws a list in this process, over a connection that others may use too."""

    def __init__(self, url: str, store: Any, tick: str, shard: int) -> None:
        self._store = store
        self._leases = open_lease_store(parse_address(url), "oncecron", TTL)
        self.lease = self._claim(tick, shard)
        self._draw = Draw(1, wanted=BATCH, slots=JOBS)

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
        """Load a list of so many items."""
        items_of = ItemList(KEY, self.lease.tick or "")
        for number, first in enumerate(range(0, length, CHUNK)):
            end = min(length, first + CHUNK)
            names = (f"user-{place}@example.com" for place in range(first, end))
            chunk = Chunk(number, [Item(name, name) for name in names], is_last=end == length)
            self._store.load(self.lease, items_of, chunk, deadline=self._deadline())

    def times(self, count: int) -> list[float]:
        """Return the seconds of each of so many draws."""
        found = []
        for _ in range(count):
            began = time.perf_counter()
            drawn = self._store.draw(self.lease, self._draw, deadline=self._deadline())
            found.append(time.perf_counter() - began)
            if drawn is None or len(drawn.items) < BATCH:
                raise RuntimeError(str(drawn))
            self._draw = self._draw._replace(number=self._draw.number + 1)
        return found

    def end(self, outcome: Outcome) -> None:
        """Give the lease back."""
        ending = Ending(outcome, None, None, 1.0, None, None, None)
        self._leases.finish(self.lease, ending, Retention(1e9, 1e9), deadline=self._deadline())
        self._leases.close()


def draws(bench: Bench, store: str, million: str, rounds: int) -> dict[str, list[float]]:
    """Return the medians of turns of draws, by how many items are left; `million`: the tick of the large list."""
    url = bench.urls[store]
    items = open_item_store(parse_address(url), "oncecron", TTL)
    large = Drawing(url, items, million, 0)
    found: dict[str, list[float]] = {"1,000": [], "20,000": [], "the large list": []}
    middle = Drawing(url, items, uuid.uuid4().hex, 1)
    middle.load(20_000)
    for turn in range(TURNS * rounds + 1):
        small = Drawing(url, items, uuid.uuid4().hex, 2)
        small.load(1000)
        for name, drawing in zip(found, (small, middle, large), strict=True):
            drawing.times(5)  # the slot's row, and the caches
            median = statistics.median(drawing.times(DRAWS))
            if turn:
                found[name].append(median)
        small.end("stopped")
    middle.end("stopped")
    large.end("stopped")
    items.close()
    return found


# The report


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _ratio(values: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, base, strict=True))


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
        server = _median([each.server_cpu for each in samples])
        cells = [
            *(f"{_median(wholes[name]) * 1000:.2f}", f"{_median(every):.2f}"),
            f"{min(every):.2f}, {max(every):.2f}",
            *(f"{_median(cpus[name]) * 1000:.2f}", f"{server * 1000:.2f}"),
            f"{_ratio(cpus[name], cpus['xargs -P']):.2f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_stores(results: dict[str, dict[str, Any]], length: int) -> str:
    """Return a Markdown table with a column for each store."""
    rows: dict[str, list[str]] = {}

    def add(name: str, cell: str) -> None:
        rows.setdefault(name, []).append(cell)

    for each in results.values():
        for source, times in each["loads"].items():
            add(f"50,000 items from {source}, to the first command, s", f"{_median(times):.2f}")
        add(f"{length:,} items, to the first command, s", f"{each['large load']:.1f}")
        add("the same, items a second", f"{length / each['large load']:,.0f}")
        small, *others = each["draws"]
        base = each["draws"][small]
        add(f"a draw at {small} items left, ms", f"{_median(base) * 1000:.2f}")
        for name in others:
            title = f"{length:,}" if name == "the large list" else name
            add(
                f"a draw at {title} items left, of that", f"{_ratio(each['draws'][name], base):.2f}"
            )
        for name in ("1,000", f"{length:,}"):
            memory = each["memory"][name]
            add(f"largest process of `each` with {name} items, MB", f"{memory.client / 1024:.1f}")
        for name in ("1,000", f"{length:,}"):
            memory = each["memory"][name]
            cell = f"{memory.server / 1024:.1f}" if memory.server else ""
            add(f"largest session of PostgreSQL with {name} items, MB", cell)
    head = [f"| | {' | '.join(results)} |", f"|---|{'--:|' * len(results)}"]
    return "\n".join(
        [*head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())]
    )


def measure_store(bench: Bench, store: str, length: int, rounds: int) -> dict[str, Any]:
    """Load a large list, draw from it in this process, and run it to its end."""
    found: dict[str, Any] = {"memory": {}}
    for name, size in (("1,000", 1000), (f"{length:,}", length)):
        memory = found["memory"][name] = Memory(bench, store)
        tick, items = uuid.uuid4().hex, bench.list_of(size)
        words = ["--tick", tick, "--batch", str(BATCH)]
        took = watched(bench, store, words, items, memory, to_end=False)
        if size == length:
            found["large load"] = took
            found["draws"] = draws(bench, store, tick, rounds)
        words = ["--tick", tick, "--batch", str(LARGE_BATCH if size == length else BATCH)]
        watched(bench, store, words, None, memory, to_end=True)
    return found


def main() -> None:
    """Measure, print the tables, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=20_000, help="length of the long list")
    parser.add_argument("--large", type=int, default=1_000_000, help="length of the large list")
    parser.add_argument("--only", choices=("batches", "lists"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench = Bench(options.environment.absolute() / "bin" / "oncecron")
    results: dict[str, Any] = {}
    costs: dict[str, list[Sample]] = {}
    try:
        if options.only != "lists":
            costs = batches(bench, options.items, options.rounds)
            missing = "" if "GNU parallel" in costs else "; GNU parallel is not installed"
            print(
                f"{options.items} items, {options.rounds} rounds, {os.cpu_count()} processors, "
                f"Python {sys.version.split()[0]}{missing}\n\n{table_of_batches(costs)}\n",
                flush=True,
            )
        if options.only != "batches":
            times = loads(bench, max(1, options.rounds // 2))
            for store in bench.urls:
                results[store] = measure_store(bench, store, options.large, options.rounds)
                results[store]["loads"] = times[store]
            print(table_of_stores(results, options.large))
        if options.json:
            every = {"batches": costs, "stores": results}
            options.json.write_text(json.dumps(every, indent=1, default=vars))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
