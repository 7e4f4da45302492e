"""What a firing costs, side by side with what people use instead. Run by hand: `tests/benchmarks/run`.

All contenders are measured in one run on one machine, in turn (A B C A B C ...), winning and losing, each as a
whole process, as cron starts it; the two in Python share one interpreter and one virtual environment.
What counts are the ratios to dislock of the same round (median of all rounds), not milliseconds.

    to child   from the start of the process to the first instruction of the command (CLOCK_REALTIME)
    whole      from the start of the process to its end
    cpu        user + system of the process and everything that it waited for
    memory     private memory (Private_* of smaps_rollup) of all its processes but the command, while that sleeps
    turns      round trips to the server after connecting, counted by a proxy
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import (
    Database,
    FaultProxy,
    PostgresServer,
    RedisServer,
    descendants,
    eventually,
)
from servers.process import end, free_port, spawn

TTL_SCHEDULE = "0 0 1 1 *"
SHELL_SCRIPT = """\
psql -qXAt -v ON_ERROR_STOP=1 -v key="$1" "$BENCH_URL" <<'SQL'
select pg_try_advisory_lock(hashtext(:'key')) as got \\gset
\\if :got
insert into bench_log (key, host, pid) values (:'key', 'host', pg_backend_pid()) returning id \\gset
\\! sh -c "$BENCH_COMMAND"
update bench_log set finished_at = clock_timestamp(), exit_code = 0 where id = :id;
\\endif
SQL
"""
REDIS_SCRIPT = """\
token=$$-$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -p "$BENCH_REDIS" set "$1" "$token" nx px 60000)" = OK ] || exit 0
sh -c "$BENCH_COMMAND"
redis-cli -p "$BENCH_REDIS" eval \
  "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end" 1 "$1" "$token" >/dev/null
"""


class Sample(NamedTuple):
    """One run of one contender; seconds."""

    to_child: float | None
    whole: float
    cpu: float


class Contender:
    """Something that starts a command once; `prepare` decides whether the next run wins or loses."""

    name = ""
    asks: Literal["postgres", "redis", "etcd"] = "postgres"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.environment = dict(stage.environment)
        self.number = 0

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        raise NotImplementedError

    def key(self, *, wins: bool) -> str:
        """Return a key that will be won, or the one that is always lost."""
        if wins:
            self.number += 1
        return f"{self.name}-{self.number}-{os.getpid()}" if wins else f"{self.name}-lost"


class Oncecron(Contender):
    """`oncecron run --tick`: one key, which has run before, and a tick for each firing."""

    name = "oncecron"

    def url(self, through: FaultProxy | None) -> str:
        """Return the address of the store."""
        return self.stage.database.url(via=through)

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        url = self.url(through)
        arguments = ["run", "--store", url, "--key", self.name, "--tick", key, "--", *command]
        return [str(self.stage.bin / "oncecron"), *arguments]


class OncecronOnRedis(Oncecron):
    """The same on Redis."""

    name = "oncecron-redis"
    asks = "redis"

    def url(self, through: FaultProxy | None) -> str:
        """Return the address of the store."""
        return self.stage.redis.url(via=through)


class RedisScript(Contender):
    """`redis-cli SET NX PX` in a shell script: no log, no heartbeat, the end of the lease is a guess."""

    name = "redis-cli"
    asks = "redis"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        port = through.port if through else self.stage.redis.port
        self.environment |= {"BENCH_REDIS": str(port), "BENCH_COMMAND": " ".join(command)}
        return ["/bin/sh", "-c", REDIS_SCRIPT, "bench", key]


class Dislock(Contender):
    """dislock (PyPI) in schedule mode."""

    name = "dislock"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        self.environment |= {
            "DATABASE_URL": self.stage.database.url(via=through),
            "LOCK_KEY": key,
            "CRON_SCHEDULE": TTL_SCHEDULE,
        }
        return [str(self.stage.bin / "dislock"), "DATABASE_URL", *command]


class ShellScript(Contender):
    """psql in a shell script: advisory lock and a log row; it cannot lose but to a running holder."""

    name = "psql"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        self.environment |= {
            "BENCH_URL": self.stage.database.url(via=through),
            "BENCH_COMMAND": " ".join(command),
        }
        return ["/bin/sh", "-c", SHELL_SCRIPT, "bench", key]


class Etcdctl(Contender):
    """`etcdctl lock`: no log, and it waits instead of refusing, so it cannot lose."""

    name = "etcdctl"
    asks = "etcd"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        """Return the command line under a key of its own."""
        self.environment |= {"ETCDCTL_API": "3"}
        port = through.port if through else self.stage.etcd_port
        return ["etcdctl", f"--endpoints=127.0.0.1:{port}", "lock", key, *command]


class Stage:
    """The servers and the virtual environment."""

    def __init__(self, environment: Path) -> None:
        self.bin = environment / "bin"
        self.server = PostgresServer().start()
        self.database: Database = self.server.create_database()
        self.redis = RedisServer(aof=True, appendfsync="everysec").start()
        self.directory = Path(tempfile.mkdtemp(prefix="bench-"))
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory),
        }
        self.etcd_port = free_port()
        self.etcd: subprocess.Popen[bytes] | None = None
        with self.database.connect("owner") as connection:
            connection.execute(
                "create table key_value (key text primary key, value text not null, expire_at timestamptz not null)"
            )
            connection.execute(
                "create table bench_log (id bigserial, key text, host text, pid int,"
                " started_at timestamptz default clock_timestamp(), finished_at timestamptz, exit_code int)"
            )

    def start_etcd(self) -> bool:
        """Start a server of etcd, where it is installed."""
        if not (shutil.which("etcd") and shutil.which("etcdctl")):
            return False
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, free_port()))
        self.etcd = spawn(
            ["etcd", "--data-dir", str(self.directory / "etcd"), "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
             "--log-level", "error", "--unsafe-no-fsync"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        health = ["etcdctl", f"--endpoints=127.0.0.1:{self.etcd_port}", "endpoint", "health"]
        environment = {**self.environment, "ETCDCTL_API": "3"}
        eventually(
            lambda: (
                subprocess.run(health, env=environment, capture_output=True, check=False).returncode
                == 0
            ),
            30,
        )
        return True

    def close(self) -> None:
        """Stop the servers."""
        if self.etcd:
            end(self.etcd)
        self.server.remove()
        self.redis.remove()
        shutil.rmtree(self.directory, ignore_errors=True)


def measure(contender: Contender, *, wins: bool) -> Sample:
    """Run once as a whole process."""
    stamp = contender.stage.directory / "stamp"
    stamp.unlink(missing_ok=True)
    tell = ["/bin/sh", str(contender.stage.directory / "tell")]
    command = contender.command(contender.key(wins=wins), tell)
    began = time.time()
    before = time.monotonic()
    pid = os.posix_spawn(
        shutil.which(command[0], path="/usr/bin:/bin") or command[0],
        command,
        contender.environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)
        ],
    )
    _, status, usage = os.wait4(pid, 0)
    whole = time.monotonic() - before
    if status != 0:
        raise RuntimeError(f"{contender.name}: {command} ended with wait status {status}")
    if wins is not stamp.exists():
        raise RuntimeError(f"{contender.name}: {'lost' if wins else 'won'} against expectation")
    to_child = float(stamp.read_text()) - began if wins else None
    return Sample(to_child, whole, usage.ru_utime + usage.ru_stime)


def private_memory(contender: Contender) -> float:
    """Return the private MB of all processes but the command, while it sleeps."""
    command = contender.command(contender.key(wins=True), ["/bin/sleep", "30"])
    process = spawn(command, env=contender.environment, stdout=subprocess.DEVNULL)

    def sleeping() -> Any:
        tree = descendants(process.pid)
        asleep = any(Path(f"/proc/{p.pid}/comm").read_text() == "sleep\n" for p in tree)
        return tree if asleep else None

    tree = eventually(sleeping, 20, retry_on=(AssertionError, FileNotFoundError))
    kilobytes = 0
    for member in tree:
        if Path(f"/proc/{member.pid}/comm").read_text() != "sleep\n":
            rows = Path(f"/proc/{member.pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))
    for member in reversed(tree):
        os.kill(member.pid, 15)
    process.wait(30)
    return kilobytes / 1024


def turns(contender: Contender, *, wins: bool) -> int:
    """Return the round trips after connecting, of all connections together."""
    stage = contender.stage
    ports = {"postgres": stage.server.port, "redis": stage.redis.port, "etcd": stage.etcd_port}
    proxy = FaultProxy(ports[contender.asks])
    try:
        connecting = 0
        if contender.asks == "postgres":
            contender.stage.database.connect("owner", via=proxy).close()
            connecting = proxy.round_trips()
        known = len(proxy.connections())
        command = contender.command(contender.key(wins=wins), ["/bin/true"], through=proxy)
        subprocess.run(command, env=contender.environment, check=True, capture_output=True)
        rows = proxy.connections()[known:]
        return sum(row.round_trips for row in rows) - connecting * len(rows)
    finally:
        proxy.close()


def report(results: dict[str, dict[str, list[Sample]]], extras: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table of medians and of ratios to dislock, round by round."""
    lines = [
        "| | to child ms | whole ms | cpu ms | of dislock's: to child | whole | cpu | private MB | turns |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for case in ("wins", "loses"):
        for name, cases in results.items():
            samples = cases.get(case)
            if not samples:
                continue
            base = results["dislock"][case]
            cells = [_milliseconds(samples, field) for field in Sample._fields]
            cells += [_ratio(samples, base, field) for field in Sample._fields]
            extra = extras[name]
            memory = f"{extra['memory']:.1f}" if case == "wins" else ""
            lines.append(
                f"| {name} {case} | {' | '.join(cells)} | {memory} | {extra['turns'][case]} |"
            )
    return "\n".join(lines)


def _milliseconds(samples: list[Sample], field: str) -> str:
    values = [value for sample in samples if (value := getattr(sample, field)) is not None]
    return f"{statistics.median(values) * 1000:.0f}" if values else ""


def _ratio(samples: list[Sample], base: list[Sample], field: str) -> str:
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(samples, base, strict=True)]
    values = [a / b for a, b in pairs if a is not None and b]
    return f"{statistics.median(values):.2f}" if values else ""


def main() -> None:
    """Measure, print the table, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "environment", type=Path, help="virtual environment with oncecron and dislock"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    stage = Stage(options.environment.absolute())
    (stage.directory / "tell").write_text(f"exec date +%s.%N >{stage.directory}/stamp\n")
    try:
        contenders: list[Contender] = [
            *(Oncecron(stage), OncecronOnRedis(stage), Dislock(stage)),
            *(ShellScript(stage), RedisScript(stage)),
        ]
        if stage.start_etcd():
            contenders.append(Etcdctl(stage))
        losing = contenders[:3]
        results: dict[str, dict[str, list[Sample]]] = {
            c.name: {"wins": [], "loses": []} for c in contenders
        }
        for contender in contenders:
            measure(contender, wins=True)  # schema, page cache, .pyc files
        for contender in losing:
            lost = contender.command(contender.key(wins=False), ["/bin/true"])
            subprocess.run(lost, env=contender.environment, check=True)
        for _ in range(options.rounds):
            for contender in contenders:
                results[contender.name]["wins"].append(measure(contender, wins=True))
            for contender in losing:
                results[contender.name]["loses"].append(measure(contender, wins=False))
        extras: dict[str, dict[str, Any]] = {
            c.name: {"memory": private_memory(c), "turns": {"wins": turns(c, wins=True)}}
            for c in contenders
        }
        for c in losing:
            extras[c.name]["turns"]["loses"] = turns(c, wins=False)
        print(
            f"{options.rounds} rounds, {os.cpu_count()} processors, Python {sys.version.split()[0]}\n"
        )
        print(report(results, extras))
        if options.json:
            options.json.write_text(json.dumps({"samples": results, "extras": extras}, indent=1))
    finally:
        stage.close()


if __name__ == "__main__":
    main()
