"""What a firing costs, side by side with what people use instead. Run by hand: `tests/benchmarks/run`.

All contenders are measured in one run on one machine, in turn (A B C A B C ...), winning and losing, each as a
whole process, as cron starts it; the two in Python share one interpreter and one virtual environment.
What counts are the ratios to `etcdctl lock` of the same round (median of all rounds), not milliseconds. Without etcd
they are those to dislock. What loses is compared to what wins there.

    to the command   from the start of the process to the first instruction of the command (CLOCK_REALTIME)
    whole            from the start of the process to its end
    CPU              user + system of the process and everything that it waited for, the command included
    page faults      minor ones, of the same processes
    private memory   Private_* of smaps_rollup of all its processes but the command, while that sleeps
    round trips      to the server after connecting, counted by a proxy

Every role logs in with SCRAM-SHA-256 of 4,096 rounds, as PostgreSQL makes it, but not by the server's unix socket.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import (
    Certificates,
    Database,
    FaultProxy,
    PgBouncer,
    PostgresServer,
    RedisServer,
    descendants,
    eventually,
)
from servers.process import end, free_port, spawn

TTL_SCHEDULE = "0 0 1 1 *"
ZONE = "Europe/Berlin"
MINUTES = 1400
"""Of the last day: as many different ticks a daily schedule can have."""
MANY = 200
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
    faults: int


class Contender:
    """Something that starts a command once; `prepare` decides whether the next run wins or loses."""

    name = ""
    asks: Literal["postgres", "postgres with TLS", "redis", "etcd", "a file"] = "postgres"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.environment = dict(stage.environment)
        self.number = 0

    def url(self, through: FaultProxy | None) -> str:
        return self.stage.database.url(via=through)

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

    def options(self, key: str, through: FaultProxy | None) -> list[str]:
        return ["--store", self.url(through), "--key", self.name.replace(" ", "-"), "--tick", key]

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        options = self.options(key.replace(" ", "-"), through)
        return [str(self.stage.bin / "oncecron"), "run", *options, "--", *command]


class OncecronOnRedis(Oncecron):
    name = "oncecron on Redis"
    asks = "redis"

    def url(self, through: FaultProxy | None) -> str:
        return self.stage.redis.url(via=through)


class OncecronOnSqlite(Oncecron):
    """The same on SQLite, for the hosts of one machine."""

    name = "oncecron on SQLite"
    asks = "a file"

    def url(self, through: FaultProxy | None) -> str:
        assert through is None
        return f"sqlite://{self.stage.directory}/store.db"


class OncecronBySocket(Oncecron):
    """The same by the unix socket of PostgreSQL, which asks for no password."""

    name = "oncecron by unix socket"

    def url(self, through: FaultProxy | None) -> str:
        server = self.stage.server
        by_socket = self.stage.database.url_by_socket(server.directory, server.port)
        return by_socket if through is None else super().url(through)


class OncecronByPooler(Oncecron):
    """The same by the unix socket of a PgBouncer on this host, as docs/stores/postgresql.md has it."""

    name = "oncecron behind a PgBouncer"

    def url(self, through: FaultProxy | None) -> str:
        pooler = self.stage.pooler
        by_socket = self.stage.database.url_by_socket(pooler.directory, pooler.port)
        return by_socket if through is None else super().url(through)


class OncecronWithTls(Oncecron):
    """The same with TLS, on another server of PostgreSQL."""

    name = "oncecron with TLS"
    asks = "postgres with TLS"

    def url(self, through: FaultProxy | None) -> str:
        return f"{self.stage.database_with_tls.url(via=through)}?sslmode=require"


class Scheduled(Oncecron):
    """What `crontab wrap` writes: a daily schedule and its zone. Each firing has another minute, so another tick."""

    name = "oncecron --schedule"

    def options(self, key: str, through: FaultProxy | None) -> list[str]:
        """Return the options of `run`: the later the number in the key, the later the minute."""
        job, number = self.name.replace(" ", "-").replace(",", ""), 0
        if key.endswith("-lost"):
            job += "-lost"
        else:
            number = int(key.split("-")[-2])
        assert number < MINUTES, "too many rounds"
        due = self.stage.began.astimezone(ZoneInfo(ZONE)) - timedelta(minutes=MINUTES - number)
        schedule = f"{due.minute} {due.hour} * * *"
        return [*self.where(through), "--key", job, "--schedule", schedule, "--tz", ZONE]

    def where(self, through: FaultProxy | None) -> list[str]:
        return ["--store", self.url(through)]


class ScheduledOnRedis(Scheduled, OncecronOnRedis):
    name = "oncecron on Redis --schedule"


class WithFile(Scheduled):
    """The same with a configuration file, which names the store and has a section for the key."""

    sections = 1
    name = "oncecron --schedule, file of 1 section"

    def where(self, through: FaultProxy | None) -> list[str]:
        """Return the options that name the file, which is written anew for a proxy."""
        path = self.stage.directory / f"{self.sections}-{through.port if through else 0}.toml"
        if not path.exists():
            job = self.name.replace(" ", "-").replace(",", "")
            names = [job, *(f"other-{number}" for number in range(self.sections - 1))]
            text = f'store = "{self.url(through)}"\n' + "".join(
                f'\n[job."{name}"]\ntimeout = "2h"\ngrace = "20s"\nretries = 2\n' for name in names
            )
            path.touch(mode=0o600)
            path.write_text(text)
        return ["--config", str(path)]


class WithLargeFile(WithFile):
    """The same with a section for each of many keys."""

    sections = MANY
    name = f"oncecron --schedule, file of {MANY} sections"


class RedisScript(Contender):
    """`redis-cli SET NX PX` in a shell script: no log, no heartbeat, the end of the lease is a guess."""

    name = "redis-cli script"
    asks = "redis"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        port = through.port if through else self.stage.redis.port
        self.environment |= {"BENCH_REDIS": str(port), "BENCH_COMMAND": " ".join(command)}
        return ["/bin/sh", "-c", REDIS_SCRIPT, "bench", key]


class Dislock(Contender):
    """dislock (PyPI) in schedule mode."""

    name = "dislock"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        self.environment |= {
            "DATABASE_URL": self.url(through),
            "LOCK_KEY": key,
            "CRON_SCHEDULE": TTL_SCHEDULE,
        }
        return [str(self.stage.bin / "dislock"), "DATABASE_URL", *command]


class ShellScript(Contender):
    """psql in a shell script: advisory lock and a log row; it cannot lose but to a running holder."""

    name = "psql script"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        self.environment |= {"BENCH_URL": self.url(through), "BENCH_COMMAND": " ".join(command)}
        return ["/bin/sh", "-c", SHELL_SCRIPT, "bench", key]


class Etcdctl(Contender):
    """`etcdctl lock`: no log, and it waits instead of refusing, so it cannot lose."""

    name = "etcdctl lock"
    asks = "etcd"

    def command(self, key: str, command: list[str], through: FaultProxy | None = None) -> list[str]:
        self.environment |= {"ETCDCTL_API": "3"}
        port = through.port if through else self.stage.etcd_port
        return ["etcdctl", f"--endpoints=127.0.0.1:{port}", "lock", key, *command]


class Stage:
    """The servers and the virtual environment."""

    def __init__(self, environment: Path) -> None:
        self.bin = environment / "bin"
        self.began = datetime.now(UTC)
        self.server, self.database = _postgres()
        self.pooler = PgBouncer(self.server, "transaction", pool_size=2, server_lifetime=86400)
        self.pooler.start()
        (self.pooler.directory / "users").write_text('"owner" "owner-password"\n"postgres" "x"\n')
        self.pooler.process.send_signal(signal.SIGHUP)  # reads it
        self.certificates = Certificates()
        self.server_with_tls, self.database_with_tls = _postgres(
            ssl="on",
            ssl_cert_file=self.certificates["server.crt"],
            ssl_key_file=self.certificates["server.key"],
        )
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

    def port(self, contender: Contender) -> int:
        return {
            "postgres": self.server.port,
            "postgres with TLS": self.server_with_tls.port,
            "redis": self.redis.port,
            "etcd": self.etcd_port,
        }[contender.asks]

    def start_etcd(self) -> bool:
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
        if self.etcd:
            end(self.etcd)
        self.pooler.remove()
        self.server.remove()
        self.server_with_tls.remove()
        self.certificates.remove()
        self.redis.remove()
        shutil.rmtree(self.directory, ignore_errors=True)


def _postgres(**settings: object) -> tuple[PostgresServer, Database]:
    """Start a server of PostgreSQL, whose owner has an ordinary password, and none by the unix socket."""
    server = PostgresServer(**settings).start()
    server.execute("alter role owner password 'owner-password'")
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"local all owner trust\n{rules.read_text()}")
    server.configure(log_connections="off")  # reads the rules too
    return server, server.create_database()


def measure(contender: Contender, *, wins: bool) -> Sample:
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
    return Sample(to_child, whole, usage.ru_utime + usage.ru_stime, usage.ru_minflt)


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
        with contextlib.suppress(ProcessLookupError):  # it ends when its command does
            os.kill(member.pid, 15)
    process.wait(30)
    return kilobytes / 1024


def turns(contender: Contender, *, wins: bool) -> int:
    """Return the round trips after connecting, of all connections together."""
    if contender.asks == "a file":
        return 0
    proxy = FaultProxy(contender.stage.port(contender))
    try:
        connecting = 0
        if contender.asks.startswith("postgres"):
            psycopg.connect(contender.url(proxy)).close()
            connecting = proxy.round_trips()
        known = len(proxy.connections())
        command = contender.command(contender.key(wins=wins), ["/bin/true"], through=proxy)
        subprocess.run(command, env=contender.environment, check=True, capture_output=True)
        rows = proxy.connections()[known:]
        return sum(row.round_trips for row in rows) - connecting * len(rows)
    finally:
        proxy.close()


def report(
    results: dict[str, dict[str, list[Sample]]], extras: dict[str, dict[str, Any]], base: str
) -> str:
    """Return a Markdown table of medians and of ratios to what wins with `base`, round by round."""
    columns = (
        f"to the command, ms | whole, ms | CPU, ms | whole, of {base}'s | CPU, of {base}'s | page faults |"
        " private memory, MB | round trips after connecting"
    )
    lines = [f"| | {columns} |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for name, cases in results.items():
        for case, samples in cases.items():
            if not samples:
                continue
            cells = [_median(samples, field, 1000) for field in ("to_child", "whole", "cpu")]
            cells += [_ratio(samples, results[base]["wins"], field) for field in ("whole", "cpu")]
            cells.append(_median(samples, "faults", 1))
            cells.append(f"{extras[name]['memory']:.1f}" if case == "wins" else "")
            shown = f"{name} {case}" if len(list(filter(None, cases.values()))) > 1 else name
            lines.append(f"| {shown} | {' | '.join(cells)} | {extras[name]['turns'][case]} |")
    return "\n".join(lines)


def _median(samples: list[Sample], field: str, scale: float) -> str:
    values = [value for sample in samples if (value := getattr(sample, field)) is not None]
    return f"{statistics.median(values) * scale:.0f}" if values else ""


def _ratio(samples: list[Sample], base: list[Sample], field: str) -> str:
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(samples, base, strict=True)]
    return f"{statistics.median(a / b for a, b in pairs if b):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "environment", type=Path, help="virtual environment with oncecron and dislock"
    )
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    stage = Stage(options.environment.absolute())
    (stage.directory / "tell").write_text(f"exec date +%s.%N >{stage.directory}/stamp\n")
    try:
        losing: list[Contender] = [
            *(Oncecron(stage), Scheduled(stage), WithFile(stage), WithLargeFile(stage)),
            *(OncecronBySocket(stage), OncecronByPooler(stage), OncecronWithTls(stage)),
            *(
                OncecronOnRedis(stage),
                ScheduledOnRedis(stage),
                OncecronOnSqlite(stage),
                Dislock(stage),
            ),
        ]
        contenders = [*losing, ShellScript(stage), RedisScript(stage)]
        if stage.start_etcd():
            contenders.append(Etcdctl(stage))
        base = "etcdctl lock" if stage.etcd else "dislock"
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
        print(report(results, extras, base))
    finally:
        stage.close()


if __name__ == "__main__":
    main()
