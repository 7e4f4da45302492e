"""Drill one lock after another with one seed: the table of docs/drill.md.

`.venv-test/bin/python plugins/drill/tests/proof/compare_locks.py` drills all of them, about four minutes each, and
prints the table; with names, only those. What was measured is kept in locks/measured.json. It starts servers of its
own on loopback, and fetches etcd from Debian and dislock from PyPI into the test environment.

Each lock has the options that its own documentation recommends. How two jobs of a key came to run at the same time is
told by what was done last to the first of them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[3] / "tests")]

import debian  # noqa: E402 - found by the line above
from servers import PostgresServer, RedisServer, eventually  # noqa: E402
from servers.oncecron import CONSOLE_SCRIPT  # noqa: E402
from servers.process import free_port, spawn  # noqa: E402

from oncecron_drill import history_file  # noqa: E402
from oncecron_drill.checker import check  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEASURED = HERE / "locks" / "measured.json"
SEED, MINUTES = 4711, 2.0
FETCHED = Path(sys.prefix) / "locks"
DISLOCK = "dislock==0.1.0"
CONNECTIONS = ("proxy", "delay", "answer", "connections", "silence")
"""Words in the names of the faults of connections."""
COLUMNS = (
    "lock", "jobs", "faults that hit", "after its process was killed", "after its connections were cut or slow",
    "otherwise", "outside", "a tick twice", "nobody ran",
)  # fmt: skip


STAR = "\\*"


class Place(NamedTuple):
    """Where a lock keeps its state while it is drilled; `server` is HOST:PORT, empty where it has none."""

    url: str
    server: str = ""


class Lock(NamedTuple):
    """A row of the table; `command` has {url} too. Without a command it is oncecron, on its store."""

    name: str
    kind: str
    command: str = ""
    documented: Sequence[str] = ()
    """The columns of which its own documentation says that they can happen."""

    def words(self, place: Place) -> list[str]:
        """Return the options of `oncecron drill`."""
        if not self.command:
            return ["--store", place.url]
        if not place.server:
            return ["--wrapper", self.command.replace("{url}", place.url)]
        url = place.url.replace(place.server, "{proxy}")
        return ["--wrapper", self.command.replace("{url}", url), "--proxy", place.server]


ETCDCTL = FETCHED / "etcd" / "root" / "usr" / "bin" / "etcdctl"
LOCKS = (
    Lock("oncecron, PostgreSQL", "postgres"),
    Lock("oncecron, Redis", "redis"),
    Lock("oncecron, SQLite", "sqlite"),
    Lock(
        "etcdctl lock", "etcd", f"env ETCDCTL_API=3 {ETCDCTL} --endpoints={{url}} lock {{key}} -- {{command}}",
        COLUMNS[3:5],
    ),
    Lock(
        "dislock", "postgres",
        "env DATABASE_URL={url} LOCK_KEY={key} LOCK_STRATEGY=lease RUN_LOCK_TTL_SECONDS=10 "
        f"{FETCHED}/dislock/bin/dislock DATABASE_URL {{command}}",
        COLUMNS[3:5],
    ),
    Lock(
        "psql script", "postgres", f"{HERE}/locks/psql-lock {{url}} {{key}} {{command}}",
        COLUMNS[3:5],
    ),
    Lock(
        "SET NX script", "redis", f"{HERE}/locks/redis-lock {{url}} {{key}} 30000 {{command}}",
        COLUMNS[3:6],
    ),
    Lock("flock, one host", "file", "flock -n {url}/{key} {command}"),
)  # fmt: skip
DISLOCK_TABLE = """
create table key_value (key text primary key, value text not null, expire_at timestamptz not null)
"""


# Where they stand


@contextlib.contextmanager
def standing(kind: str) -> Iterator[Place]:
    """Start a server of this kind, empty, and stop it."""
    with contextlib.ExitStack() as stack:
        if kind == "postgres":
            postgres = PostgresServer(synchronous_commit="on")
            stack.callback(postgres.remove)
            database = postgres.start().create_database()
            with database.connect() as connection:
                connection.execute(DISLOCK_TABLE)
            yield Place(database.url("owner"), f"{postgres.host}:{postgres.port}")
        elif kind == "redis":
            redis = RedisServer(aof=True, appendfsync="always")
            stack.callback(redis.remove)
            redis.start()
            yield Place(redis.url(), f"{redis.host}:{redis.port}")
        elif kind == "etcd":
            address = _start_etcd(stack)
            yield Place(address, address)
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            yield Place(f"sqlite://{directory}/oncecron.db" if kind == "sqlite" else directory)


def _start_etcd(stack: contextlib.ExitStack) -> str:
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    address, peers = (f"127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        str(ETCDCTL.with_name("etcd")), "--data-dir", directory, "--log-level", "error",
        "--listen-client-urls", f"http://{address}", "--advertise-client-urls", f"http://{address}",
        "--listen-peer-urls", f"http://{peers}",
    ]  # fmt: skip
    server = spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    healthy = [str(ETCDCTL), f"--endpoints={address}", "endpoint", "health"]
    eventually(lambda: _run(healthy, check=False).returncode == 0, 30)
    return address


def fetch() -> None:
    """Fetch what the machine does not have, once."""
    debian.once(
        FETCHED / "etcd",
        lambda: debian.unpack(FETCHED / "etcd", ("trixie",), ("etcd-server", "etcd-client")),
    )
    debian.once(FETCHED / "dislock", _fetch_dislock)


def _fetch_dislock() -> None:
    venv.create(FETCHED / "dislock", with_pip=True)
    _run([str(FETCHED / "dislock/bin/python"), "-m", "pip", "-q", "install", DISLOCK])


def _run(command: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ETCDCTL_API": "3"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)


def versions() -> dict[str, str]:
    """Return what was measured, by name."""
    said = {
        "oncecron": [str(CONSOLE_SCRIPT), "--version"],
        "PostgreSQL": ["psql", "--version"],
        "Redis": ["redis-server", "--version"],
        "etcd": [str(ETCDCTL), "version"],
        "flock": ["flock", "--version"],
    }
    found = {
        name: re.findall(r"\d+(?:\.\d+)+", _run(words).stdout)[0] for name, words in said.items()
    }
    return {
        **found,
        "dislock": DISLOCK.partition("==")[2],
        "Linux": platform.release(),
        "CPUs": str(os.cpu_count()),
    }


# What is measured


def drill(lock: Lock, seed: int, minutes: float) -> dict[str, Any]:
    """Drill one lock, and return its row."""
    with standing(lock.kind) as place, tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "drill.json"
        options = ["--minutes", f"{minutes:g}", "--seed", str(seed), "--json", str(file), "--yes"]
        words = [str(CONSOLE_SCRIPT), "drill", *options, *lock.words(place)]
        print(shlex.join(words), flush=True)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, flush=True)
        if not file.exists():
            raise RuntimeError(f"{lock.name} was not drilled: {done.stderr}")
        return row(file)


def row(file: Path) -> dict[str, Any]:
    """Return the figures of a drill from its file."""
    certificate, history = history_file.judge(str(file))
    verdict = check(history)
    overlaps = Counter(
        "outside" if found.hole else cause(found.sentence)
        for found in (*verdict.violations, *verdict.holes)
        if found.rule == "overlap"
    )
    rules = Counter(found.rule for found in verdict.violations)
    return {
        "jobs": certificate.starts,
        "faults that hit": sum(count.hit for count in certificate.classes.values()),
        **{name: overlaps[name] for name in COLUMNS[3:7]},
        "a tick twice": rules["double"] if _is_judged(history.head, "double") else None,
        "nobody ran": rules["blocked"],
        "day": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def _is_judged(head: dict[str, Any], rule: str) -> bool:
    return head.get("promised") is None or rule in head["promised"]


def cause(sentence: str) -> str:
    """Return the column of two jobs at once, by what was done last to the first."""
    found = re.search(r"; before that: ([^(]+) \(", sentence)
    kind = found[1] if found else ""
    if kind.startswith("kill the wrapper"):
        return COLUMNS[3]
    return COLUMNS[4] if any(word in kind for word in CONNECTIONS) else COLUMNS[5]


# The table


def table(measured: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table in docs/drill.md; COLUMNS[3:7] are its overlaps."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---{'|--:' * (len(COLUMNS) - 1)}|"
    for lock in LOCKS:
        if lock.name in measured["rows"]:
            its = measured["rows"][lock.name]
            cells = (cell(lock, name, its[name]) for name in COLUMNS[1:])
            yield f"| {lock.name} | {' | '.join(cells)} |"


def cell(lock: Lock, column: str, number: int | None) -> str:
    """Return the text of a figure; a star where the lock's own documentation says that it can happen."""
    if number is None:
        return "-"
    return f"{number}{STAR}" if number and column in lock.documented else str(number)


def known() -> dict[str, Any]:
    """Return what was measured before."""
    found: dict[str, Any] = json.loads(MEASURED.read_text()) if MEASURED.exists() else {"rows": {}}
    return found


def main() -> None:
    """Drill, keep and print."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join(lock.name for lock in LOCKS)
    )
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    fetch()
    for lock in LOCKS:
        if not options.names or lock.name in options.names:
            its = drill(lock, options.seed, options.minutes)
            measured = known() | {
                "seed": options.seed,
                "minutes": options.minutes,
                "versions": versions(),
            }
            measured["rows"][lock.name] = its
            MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    print("\n".join(table(known())))


if __name__ == "__main__":
    main()
