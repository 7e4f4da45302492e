"""How many firings a second one store carries, each with a session of its own, in several ways to connect.

Run by hand: `tests/benchmarks/run sessions`. Clients call the store as firings do, each time on a new connection: a
firing that is skipped connects, looks and records its skip; one that runs connects, looks, is granted and records the
end of its run. There are enough clients at a time for the server never to wait for one.

Clients and server share the processors of this machine, and a client costs more than the server. So the CPU time of the
server for each firing counts: a processor of a server of its own carries its inverse in a second.

    a second    firings a second on this machine, all processors busy
    server cpu  of all processes of the server, for each firing, and of the pooler beside it

The data are in memory (/dev/shm), so no commit waits for a disk. Each measurement is made in several rounds, in each of
them for all ways to connect, and the medians count: other load then strikes all of them alike.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processors import cpu_seconds
from servers import PgBouncer, PostgresServer, RedisServer
from servers.oncecron import installed

from oncecron.core import clock
from oncecron.core.model import AskAgain, Ending, Firing, Holder, Lease, Refusal, Retention
from oncecron.core.tick import Tick, named_tick
from oncecron.stores import open_lease_store
from oncecron.stores.address import parse_address

CLIENTS = 8
"""At a time: with two processors more of them only wait."""
KEYS = 50
HOSTS = 40
HEARTBEATS = 500
COMMAND = "/usr/local/bin/bill.sh --all --month last"
KEPT = Retention(executions=400 * 86400.0, skips=7 * 86400.0)


def host(number: int) -> str:
    return f"app-{number:02}.example.org"


def firing(key: str, tick: Tick, name: str) -> Firing:
    return Firing(
        key, 0, tick, str(uuid.uuid4()), Holder(name, 12345, "root"), COMMAND,
        (tick.instant or clock.wall()) + 1, 60.0, None, None,
        again=False, schedule=None, zone=None,
    )  # fmt: skip


def claim(url: str, wanted: Firing) -> object:
    """Claim, and end the execution if there is one, as a whole process does; return the answer to the claim."""
    store = open_lease_store(parse_address(url), "oncecron", wanted.ttl)
    deadline = clock.lease_time(store.lease_clock) + 30
    while isinstance(answer := store.claim(wanted, deadline=deadline), AskAgain):
        time.sleep(answer.after)  # as a firing: the session before has not ended yet
    if isinstance(answer, Lease):
        ended = Ending("succeeded", 0, None, 1.5, None, None, None)
        assert store.finish(answer, ended, KEPT, deadline=deadline)
    store.close()
    return answer


class Way(NamedTuple):
    """A way to connect."""

    name: str
    url: str
    server: int
    """The process whose tree is the server."""
    pooler: int | None = None


class Sample(NamedTuple):
    """Seconds, and firings a second."""

    rate: float
    server_cpu: float
    pooler_cpu: float


def ways(stack: ExitStack) -> list[Way]:
    server = PostgresServer(synchronous_commit="on", shared_buffers="128MB").start()
    stack.callback(server.remove)
    database = installed(server.create_database())
    pooler = PgBouncer(server, "transaction", pool_size=10, server_lifetime=3600).start()
    stack.callback(pooler.remove)
    redis = RedisServer(aof=True, appendfsync="everysec").start()
    stack.callback(redis.remove)
    assert server.process
    postgres = server.process.pid
    return [
        Way("PostgreSQL by TCP, SCRAM", database.url(), postgres),
        Way("PostgreSQL by its Unix socket, SCRAM", database.url_by_socket(server.directory, server.port), postgres),
        Way(
            "PgBouncer by its Unix socket, transaction pooling",
            database.url_by_socket(pooler.directory, pooler.port), postgres, pooler.process.pid,
        ),
        Way("Redis by TCP", redis.url(), redis.process.pid),
    ]  # fmt: skip


def fire(url: str, client: int, until: float, wins: bool) -> int:
    """Fire again and again until then (monotonic); return how often.

    A firing that is skipped names a tick that has run. One that runs names a new one, of a key of its own client.
    """
    expected = Lease if wins else Refusal
    for count in itertools.count():
        if time.monotonic() >= until:
            return count
        key = f"job-{client}" if wins else f"lost-{count % KEYS}"
        tick = named_tick(str(uuid.uuid4()) if wins else "done")
        answer = claim(url, firing(key, tick, host((client + count * CLIENTS) % HOSTS)))
        if not isinstance(answer, expected):
            raise TypeError(str(answer))
    raise AssertionError


def measure(way: Way, seconds: float, wins: bool) -> Sample:
    server = cpu_seconds(way.server)
    pooler = cpu_seconds(way.pooler) if way.pooler else 0.0
    began = time.monotonic()
    reader, writer = os.pipe()
    pids = []
    for client in range(CLIENTS):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                count = fire(way.url, client, began + seconds, wins)
                os.write(writer, b"%d\n" % count)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(writer)
    statuses = {os.waitpid(pid, 0)[1] for pid in pids}
    took = time.monotonic() - began
    with os.fdopen(reader, "rb") as stream:
        counts = [int(line) for line in stream]
    if statuses != {0}:
        raise RuntimeError(f"{way.name}: a client failed")
    firings = sum(counts)
    server = cpu_seconds(way.server) - server
    pooler = cpu_seconds(way.pooler) - pooler if way.pooler else 0.0
    return Sample(firings / took, server / firings, pooler / firings)


def medians(samples: list[Sample]) -> Sample:
    return Sample(*map(statistics.median, zip(*samples, strict=True)))


def prepare(way: Way) -> None:
    """Let every key run once, so that its tick is done and every statement has been sent."""
    for number in range(KEYS):
        answer = claim(way.url, firing(f"lost-{number}", named_tick("done"), host(0)))
        if not isinstance(answer, Lease | Refusal):
            raise TypeError(str(answer))


def heartbeat(way: Way, held: bool) -> float:
    """Return the CPU time of the server for a heartbeat: on the connection that is held, or on a new one each time."""
    wanted = firing(f"beats-{uuid.uuid4()}", named_tick("one"), host(0))
    url = f"{way.url}?hold={'yes' if held else 'no'}"
    store = open_lease_store(parse_address(url), "oncecron", wanted.ttl)

    def deadline() -> float:
        return clock.lease_time(store.lease_clock) + 30

    lease = store.claim(wanted, deadline=deadline())
    began = cpu_seconds(way.server)
    for _ in range(HEARTBEATS):
        if not held:
            store.close()
        assert isinstance(lease, Lease)
        lease = store.renew(lease, deadline=deadline())
    store.close()
    time.sleep(0.2)  # the last session ends
    return (cpu_seconds(way.server) - began) / HEARTBEATS


def report(results: dict[str, dict[str, Sample]]) -> str:
    titles = ("a second", "server CPU, ms", "one processor carries, a second")
    lines = [
        f"| | skipped: {' | '.join(titles)} | run: {' | '.join(titles)} |",
        f"|---|{'--:|' * 2 * len(titles)}",
    ]
    for name, cases in results.items():
        cells = []
        for sample in (cases["skipped"], cases["run"]):
            pooler = f" + {sample.pooler_cpu * 1000:.2f}" if sample.pooler_cpu else ""
            whole = sample.server_cpu + sample.pooler_cpu
            cells += [f"{sample.rate:,.0f}", f"{sample.server_cpu * 1000:.2f}{pooler}"]
            cells.append(f"{1 / whole:,.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        all_ways = ways(stack)
        for way in all_ways:
            prepare(way)
        cases = [(way, case) for way in all_ways for case in ("skipped", "run")]
        samples: dict[tuple[str, str], list[Sample]] = {}
        for _ in range(options.rounds):
            for way, case in cases:
                sample = measure(way, options.seconds, wins=case == "run")
                samples.setdefault((way.name, case), []).append(sample)
        for (name, case), measured in samples.items():
            results.setdefault(name, {})[case] = medians(measured)
        beats = [heartbeat(all_ways[0], held) * 1000 for held in (True, False)]
    print(
        f"{os.cpu_count()} processors, Python {sys.version.split()[0]}, {CLIENTS} clients, "
        f"{options.rounds} rounds of {options.seconds:g} s\n"
    )
    print(report(results))
    print(
        f"\nA heartbeat on PostgreSQL by TCP: {beats[0]:.1f} ms of server CPU, with hold=no {beats[1]:.1f} ms"
    )


if __name__ == "__main__":
    main()
