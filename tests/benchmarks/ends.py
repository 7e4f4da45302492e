"""What a claim and the end of a run take with a large log, beside the same with an empty one.

Run by hand: `tests/benchmarks/run ends`. Two PostgreSQL servers alike, one of them with ten million executions. Each
round fires both in turn: first in a new session, whose statements are planned anew as those of a firing are, and then
again and again in that session. The ratios are of the same round, so that the load of the machine does not count.

    cold    the first claim of a session, which connects too, and its first end
    warm    the median of the others

The data are in memory (/dev/shm), so no commit waits for a disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from large_logs import FilledPostgres, Size, fill, firing, host, keys_of

from oncecron.core import clock
from oncecron.core.model import Ending, Lease, Retention
from oncecron.core.tick import named_tick
from oncecron.stores import open_lease_store
from oncecron.stores.address import parse_address

KEYS = 100
HOSTS = 50
WARM = 20
"""Claims and ends of a session after the first ones."""
ENDS = {"pruning": Retention(0.0, 0.0), "plain": Retention(1e9, 1e9)}
"""Nothing expires, for the store keeps more. By the first, each end finds that out; by the second, few do."""
KEEP_ALL = "update oncecron.meta set least_executions = 1e10, least_skips = 1e10"


class Times(NamedTuple):
    """Seconds."""

    cold_claim: float
    cold_end: float
    warm_claim: float
    warm_end: float


def measure(url: str, key: str, kept: Retention) -> Times:
    """Claim and end in a new session, and go on in it."""
    wanted = firing(key, named_tick("-"), host(1))
    store = open_lease_store(parse_address(url), "oncecron", wanted.ttl)
    deadline = clock.lease_time(store.lease_clock) + 60
    claims, ends = [], []
    for _ in range(1 + WARM):
        each = wanted._replace(tick=named_tick(str(uuid.uuid4())), owner=str(uuid.uuid4()))
        began = time.perf_counter()
        lease = store.claim(each, deadline=deadline)
        claims.append(time.perf_counter() - began)
        assert isinstance(lease, Lease), lease
        began = time.perf_counter()
        store.finish(lease, Ending("succeeded", 0, None, 1.5), kept, deadline=deadline)
        ends.append(time.perf_counter() - began)
    store.close()
    return Times(claims[0], ends[0], statistics.median(claims[1:]), statistics.median(ends[1:]))


def report(rows: int, empty: list[Times], full: list[Times]) -> str:
    """Return a Markdown table."""
    lines = [f"| ms | empty | {rows:,} executions | ratio | from, to |", "|---|--:|--:|--:|--:|"]
    for number, name in enumerate(Times._fields):
        pairs = [(a[number], b[number]) for a, b in zip(empty, full, strict=True)]
        ratios = statistics.quantiles((b / a for a, b in pairs), n=4)
        times = (statistics.median(each) * 1000 for each in zip(*pairs, strict=True))
        cells = " | ".join(f"{each:.2f}" for each in times)
        lines.append(
            f"| {name.replace('_', ' ')} | {cells} | {ratios[1]:.2f} | {ratios[0]:.2f}, {ratios[2]:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fill one of two servers, measure, print the table, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--executions", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [Size(KEYS, HOSTS, n, 0) for n in (2 * KEYS, options.executions)]
    stores: list[FilledPostgres] = []
    samples: dict[str, list[list[Times]]] = {name: [[], []] for name in ENDS}
    try:
        for size in sizes:
            stores.append(FilledPostgres(Path(tempfile.gettempdir())))
            began = time.monotonic()
            fill(stores[-1], size)
            stores[-1].database.execute(KEEP_ALL)
            print(f"{size.executions} in {time.monotonic() - began:.0f} s", file=sys.stderr)
        keys = keys_of(sizes[0])
        for number in range(1 + options.rounds):
            for name, kept in ENDS.items():
                for store, times in zip(stores, samples[name], strict=True):
                    times.append(measure(store.url, keys[number % KEYS], kept))
    finally:
        for store in stores:
            store.close()
    print(f"{options.rounds} rounds, {os.cpu_count()} processors")
    for name, both in samples.items():
        empty, full = (each[1:] for each in both)  # the first round fills the caches
        print(f"\n{name} ends\n\n{report(options.executions, empty, full)}")
    if options.json:
        options.json.write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main()
