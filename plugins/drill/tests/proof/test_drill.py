"""`oncecron drill`: a well store is clean, a broken oncecron is found, and nothing is left behind."""

import dataclasses
import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import Database, PgBouncer, PostgresServer, RedisServer, Sentinels, eventually
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from servers.process import Process, as_ourselves, command_line, process_table, spawn

from oncecron.stores.address import parse_address
from oncecron_drill import drill as drills
from oncecron_drill import history
from oncecron_drill.another_wrapper import Wrapper
from oncecron_drill.assess import assess
from oncecron_drill.certificate import Certificate, as_text
from oncecron_drill.generator import TTL
from oncecron_drill.keeper import Ground, keeping
from oncecron_drill.strength import FEWEST

IS_LONG = os.environ.get("ONCECRON_TEST_DRILLS") == "long"
KINDS = ("pooled", "postgres", "redis", "sentinel", "sqlite")
SHORT, FULL = 0.25, 2.0
"""Minutes."""
CLEAN_DRILLS = 10
LIVES_ON = "stubborn"
"""A key whose job does not end while a test looks at what is left of its firing."""
BEGUN = 120
"""Seconds after which a drill has certainly done with its control, and begun."""
NOT_SHOWN = {
    "fence-asleep": "the jobs of a drill write nothing under their fencing token",
    "deadline-from-receipt": "its window is 0.4 s of a lease, which two minutes of all faults seldom meet",
}
"""Mutations that a drill does not find within its two minutes, and why."""


@contextmanager
def standing(kind: str, request: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    """Make an empty store of this kind and give its address, of a login that may make a namespace."""
    if kind == "sqlite":
        (path / "store").mkdir(mode=0o700)
        yield f"sqlite://{path}/store/oncecron.db"
    elif kind == "redis":
        server: RedisServer = request.getfixturevalue("new_redis")(aof=True, appendfsync="no")
        yield server.url()
    elif kind == "sentinel":
        group: Sentinels = request.getfixturevalue("new_sentinels")(aof=True, appendfsync="no")
        yield group.url()
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        pooler: PgBouncer | None = (
            request.getfixturevalue("pgbouncer") if kind == "pooled" else None
        )
        with postgres.create_database().until_dropped() as database:
            yield database.url("owner", via=pooler)


class Driller:
    """Whoever drills: a home and a directory for temporary files, in which nothing else is."""

    def __init__(self, path: Path, script: Path = CONSOLE_SCRIPT) -> None:
        self.temporary = path / "temporary"
        self.temporary.mkdir(mode=0o700)
        self.words = [str(script), "drill"]
        self.environment = {
            "HOME": str(path), "PATH": "/usr/bin:/bin", "TMPDIR": str(self.temporary),
        }  # fmt: skip

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        """Begin; it is told to end if these tests are killed."""
        command = [*as_ourselves("TERM"), *self.words, *map(str, words)]
        return spawn(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *words: object, deadline: float = 400) -> Ended:
        """Drill to the end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=deadline)
        return Ended(process.returncode, out, err.decode())

    def certificate(self, url: str, minutes: float, *words: object) -> dict[str, Any]:
        """Drill, and return the certificate."""
        ended = self("--store", url, "--minutes", minutes, "--yes", "--json", "-", *words)
        assert ended.out, ended.err
        found: dict[str, Any] = json.loads(ended.out)["certificate"]
        verdicts = {"clean": 0, "violated": 1, "nothing found": 3, "not judged": 3}
        assert ended.status == verdicts[found["verdict"]]
        return found

    def left(self) -> list[bytes]:
        """Return the command lines of what still runs of it."""
        ours = str(self.temporary).encode()
        lines = (b" ".join(command_line(process.pid)) for process in process_table())
        return [line for line in lines if ours in line]


@pytest.fixture
def driller(public_path: Path) -> Driller:
    """Make whoever drills, with the installed oncecron."""
    return Driller(public_path)


def told(certificate: dict[str, Any]) -> str:
    """Return why a drill said what it said."""
    timelines = [finding["timeline"] for finding in certificate["violations"]]
    return "\n".join([certificate["why"], f"seed {certificate['seed']}", *timelines])


# What it says


@pytest.mark.chaos
@pytest.mark.stores(1)
@pytest.mark.parametrize("store", KINDS)
def test_nothing_is_found_in_a_well_store_and_its_certificate_is_true(
    store: str, request: pytest.FixtureRequest, public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the jobs wrote themselves, and of what was done to them; so soon nothing is called clean."""
    monkeypatch.setattr(drills, "own_command", lambda: [sys.executable, str(CONSOLE_SCRIPT)])
    monkeypatch.setattr("oncecron_drill.place.own_command", drills.own_command)
    monkeypatch.setattr("tempfile.tempdir", str(public_path))
    with standing(store, request, public_path) as url:
        address = parse_address(url)
        asked = drills.Request(address, "address", SHORT, 4, 8, 7)
        said: list[str] = []
        with keeping(address, "address") as ground:
            found = assess(drills.drill(asked, ground, lambda _, text: said.append(text)))
            agrees_with_the_ledger(found, ground.directory)
        assert not ground.directory.exists()
    assert (found.verdict, found.violations) == ("nothing found", []), told(
        dataclasses.asdict(found)
    )
    assert found.control.together > 0
    assert found.control.faults > 0
    assert f"{found.firings} firings" in said[-1] or found.firings > int(said[-1].split()[0]) > 0


def test_a_control_that_is_never_caught_judges_nothing(
    public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is a lock that holds: flock, which the job inherits."""
    held = ("flock", "-n", f"{public_path}/{{key}}.lock", "{command}")
    monkeypatch.setattr(drills, "own_command", lambda: [sys.executable, str(CONSOLE_SCRIPT)])
    monkeypatch.setattr("oncecron_drill.place.own_command", drills.own_command)
    monkeypatch.setattr("tempfile.tempdir", str(public_path))
    monkeypatch.setattr(drills, "plain_lock", lambda _: Wrapper(held, ("overlap",)))
    monkeypatch.setattr(drills, "LONGEST", 8.0)
    address = parse_address(f"sqlite://{public_path}/store.db")
    with keeping(address, "address") as ground:
        asked = drills.Request(address, "address", 0.1, 4, 8, 7)
        found = assess(drills.drill(asked, ground, lambda *_: None))
    assert found.control.starts > 0
    assert found.control.together == 0
    assert found.verdict == "not judged", told(dataclasses.asdict(found))
    assert "it was not caught" in " ".join(as_text(found).split())


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_the_first_drill_of_a_newcomer_is_a_whole_certificate(driller: Driller) -> None:
    """No server; two minutes, 40 lines of 80 columns, and enough faults of every class."""
    driller.environment["XDG_STATE_HOME"] = str(driller.temporary.parent / "state")
    ended = driller("--store", "local", "--yes")
    lines = ended.out.splitlines()
    assert (ended.status, lines[0]) == (0, b"oncecron drill: CLEAN"), ended.out.decode()
    assert len(lines) <= 40
    assert max(map(len, ended.out.decode().splitlines())) <= 80
    text = " ".join(ended.out.decode().split())
    [hit] = re.findall(r"0 violations in (\d+) faults that hit", text)
    assert int(hit) >= FEWEST
    assert re.search(
        r"control a plain lock ran (two|\d+) jobs (at once|beside each other) in \d+ faults", text
    )
    assert "outside the promise, and in no verdict:" in text
    assert driller.left() == []


def agrees_with_the_ledger(found: Certificate, directory: Path) -> None:
    """Compare a certificate with the files of the run, read without the product's own code."""
    lines = [json.loads(line) for line in (directory / "history.ndjson").read_text().splitlines()]
    firings = {
        line["id"] for line in lines if line["event"] == "firing" and line["key"] != "letters"
    }
    assert found.firings == len(firings)
    files = [path.read_bytes() for path in (directory / "journal").glob("*/*")]
    assert found.starts == sum(b"\n" in text for text in files)  # else killed before its first line
    log = json.loads((directory / "log.json").read_text())
    rows = [row for row in log["executions"] if row["key"] != "letters"]
    assert sum(found.executions.values()) == len(rows)
    assert found.executions["succeeded"] == [row["outcome"] for row in rows].count("succeeded")
    begun = {line["id"]: line["kind"] for line in lines if line["event"] == "fault"}
    begun = {number: kind for number, kind in begun.items() if kind != "slow answer"}
    assert {kind: count.began for kind, count in found.faults.items()} == {
        kind: list(begun.values()).count(kind) for kind in begun.values()
    }
    assert found.latency["p50"] <= found.latency["p95"] <= found.latency["p99"]
    loaded = history.load(directory)
    starts = loaded.starts
    assert any(start.at > loaded.quiet and start.last_sign - start.at > TTL for start in starts)
    assert found.latency["p99"] <= max(start.at for start in starts) - min(
        line["at"] for line in lines if line["event"] == "firing"
    )


# What it leaves


@pytest.mark.stores(1)
@pytest.mark.parametrize("store", ["postgres", "redis", "sqlite"])
def test_ctrl_c_leaves_nothing(
    store: str, driller: Driller, request: pytest.FixtureRequest, public_path: Path
) -> None:
    """No process, no file, no namespace; what was in the store before is as it was."""
    with standing(store, request, public_path) as url:
        host = Oncecron(url, public_path, "other")
        assert host.run("k", "--tick", "one", "--", "true").status == 0
        before = contents(url)
        process = driller.start("--store", url, "--minutes", 5, "--yes")
        eventually(lambda: any(driller.temporary.glob("*/control/journal/*/*")), BEGUN)
        assert set(contents(url)) > set(before)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, b"")
        assert contents(url) == before
    assert list(driller.temporary.iterdir()) == []
    assert eventually(lambda: driller.left() == [])


@pytest.mark.stores(1)
@pytest.mark.parametrize("store", ["postgres", "redis", "sqlite"])
def test_a_drill_that_is_killed_leaves_nothing(
    store: str, driller: Driller, request: pytest.FixtureRequest, public_path: Path
) -> None:
    """Not even with -9, and not what is stopped at that moment: its keeper outlives it."""
    with standing(store, request, public_path) as url:
        before = contents(url)
        process = driller.start("--store", url, "--minutes", 5, "--yes")
        eventually(lambda: '"stopped"' in recorded(driller), BEGUN)
        process.kill()
        process.wait()
        assert eventually(lambda: list(driller.temporary.iterdir()) == [], 60)
        assert eventually(lambda: driller.left() == [])
        assert contents(url) == before


def recorded(driller: Driller) -> str:
    """Return what the drill has written of firings and faults."""
    return "".join(path.read_text() for path in driller.temporary.glob("*/history.ndjson"))


def test_a_drill_ends_with_the_tests_that_began_it(driller: Driller, tmp_path: Path) -> None:
    """Also where they are killed: it is told to end, and removes what it has made."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    store = f"sqlite://{tmp_path}/s.db"
    code = f"""
from pathlib import Path
from test_drill import Driller
driller = Driller(Path({str(tmp_path)!r}))
driller("--store", {store!r}, "--minutes", 5, "--yes")
"""
    tests = spawn([sys.executable, "-c", code], env=environment)
    began = tmp_path / "temporary"
    eventually(lambda: any(began.glob("*/journal/*/*")), BEGUN)
    tests.kill()
    assert eventually(lambda: list(began.iterdir()) == [], 60)
    driller.temporary = began
    assert eventually(lambda: driller.left() == [])


def test_the_next_drill_removes_what_a_killed_keeper_left(
    driller: Driller, database: Database, tmp_path: Path
) -> None:
    """Processes and files whatever it drills; the namespace when it drills the same store."""
    url = database.url("owner")
    process = driller.start("--store", url, "--minutes", 5, "--yes")
    eventually(lambda: any(driller.temporary.glob(f"*/journal/{LIVES_ON}/*")), BEGUN)
    # A child that has not executed its program yet looks like the drill, too.
    keeper = eventually(lambda: len(found := keepers(process.pid)) == 1 and found[0])
    assert keeper
    for pid in (keeper.pid, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert driller.left() != []
    assert driller("--store", "redis://127.0.0.1:1", "--yes").status == 69
    assert driller.left() == []
    assert [path.name for path in driller.temporary.glob("*/*")] == [Ground.NOTE]
    assert driller("--store", url, "--minutes", 0.1, "--hosts", 2, "--keys", 1, "--yes").status in (
        0,
        3,
    )
    assert list(driller.temporary.iterdir()) == []
    query = "select count(*) from pg_namespace where nspname like 'oncecron_drill%'"
    assert database.execute(query) == [(0,)]


def keepers(drill: int) -> list[Process]:
    """Return the children of a drill whose command line is its own."""
    children = [each for each in process_table() if each.parent == drill]
    return [each for each in children if b"drill" in command_line(each.pid)]


def test_a_full_disk_is_no_verdict(driller: Driller, database: Database) -> None:
    """The line names the directory; nothing is left in the store."""
    if os.getuid():
        pytest.skip("NOT PROVEN: a file system of its own needs root")
    small = (
        f"mount -t tmpfs -o size=200k tmpfs {driller.temporary} && exec {shlex.join(driller.words)}"
    )
    command = f"{small} --store {shlex.quote(database.url('owner'))} --minutes 0.5 --yes"
    process = spawn(
        ["unshare", "-m", "sh", "-c", command],
        env=driller.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (74, b"")
    assert re.fullmatch(
        rf"oncecron: not judged: the ledgers of the drill cannot be kept in {driller.temporary}: No space left on "
        r"device; make room there, or set TMPDIR to a directory that has some\n", err.decode(),
    )  # fmt: skip
    query = "select count(*) from pg_namespace where nspname like 'oncecron_drill%'"
    assert database.execute(query) == [(0,)]
    assert eventually(lambda: driller.left() == [])


def contents(url: str) -> dict[str, Any]:
    """Return what stands in a store, by namespaces: enough to see a change of any."""
    if url.startswith("sqlite"):
        directory = Path(url.removeprefix("sqlite://")).parent
        found: dict[str, Any] = {path.name: None for path in directory.glob("*.lock")}
        for path in sorted(directory.glob("*.db")):
            with closing(sqlite3.connect(path)) as file:
                found[path.name] = file.execute("select * from job_execution").fetchall()
        return found
    if url.startswith("redis"):
        import redis

        with closing(redis.Redis.from_url(url)) as client:
            return {name.decode(): client.dump(name) for name in client.keys()}  # noqa: SIM118 - a store, not a dict
    import psycopg

    with psycopg.connect(url) as connection:
        names = "select nspname from pg_namespace where nspname like 'oncecron%' order by 1"
        found = {}
        for (name,) in connection.execute(names).fetchall():
            is_ours = name == "oncecron"
            rows = (
                connection.execute(f"select * from {name}.executions").fetchall() if is_ours else []
            )
            found[name] = rows
        return found


# Who may


def test_without_a_terminal_it_needs_yes(driller: Driller, tmp_path: Path) -> None:
    """And says how much it would do."""
    ended = driller("--store", f"sqlite://{tmp_path}/s.db")
    assert ended.status == 64
    assert re.search(r"fire \d\.\d times a second", ended.err)
    assert "--yes" in ended.err
    assert list(tmp_path.glob("*.db")) == []


def test_at_a_terminal_it_asks(driller: Driller, tmp_path: Path) -> None:
    """No is an answer."""
    ours, theirs = pty.openpty()
    command = [str(CONSOLE_SCRIPT), "drill", "--store", f"sqlite://{tmp_path}/s.db"]
    process = spawn(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"n\n")
    assert process.wait(20) == 0
    assert b"times a second" in b" ".join(shown.split())
    assert list(tmp_path.glob("*.db")) == []
    os.close(ours)


def test_it_takes_no_namespace_that_may_be_in_use(driller: Driller, tmp_path: Path) -> None:
    """Not even when it is told to."""
    ended = driller("--store", f"sqlite://{tmp_path}/s.db", "--namespace", "oncecron", "--yes")
    assert (ended.status, "--namespace" in ended.err) == (64, True)


def prepare(driller: Driller, database: Database, path: Path) -> str:
    """Let the owner make the namespace that a drill may not make; return its name."""
    refused = driller("--store", database.url("runner"), "--yes")
    assert refused.status == 78
    command = shlex.split(refused.err.split("`")[1])
    owner = Oncecron(database.url("owner"), path)
    del command[command.index("--store") : command.index("--store") + 2]  # it has no password
    assert owner(*command[1:]).status == 0
    name = command[command.index("--namespace") + 1]
    assert f"drill with --namespace {name}" in refused.err
    return name


def test_a_role_that_may_not_make_one_gets_the_command(
    driller: Driller, database: Database, tmp_path: Path
) -> None:
    """It is a whole command for the owner; then the drill works, and leaves the namespace to him."""
    name = prepare(driller, database, tmp_path)
    words = ("--namespace", name, "--hosts", 2, "--keys", 2)
    found = driller.certificate(database.url("runner"), 0.1, *words)
    assert found["verdict"] != "violated", told(found)
    rows = database.execute(f"select count(*) from {name}.executions")
    assert rows[0][0] >= found["starts"] > 0
    again = driller("--store", database.url("runner"), "--yes", *words)
    assert (again.status, "records of another drill" in again.err) == (78, True)


def test_a_store_that_is_away_is_not_drilled(driller: Driller) -> None:
    """With the status that this has everywhere."""
    assert driller("--store", "redis://127.0.0.1:1", "--yes").status == 69


# The long form

long = pytest.mark.skipif(not IS_LONG, reason="the long form: ONCECRON_TEST_DRILLS=long")


@long
@pytest.mark.stores("all")
@pytest.mark.timeout(CLEAN_DRILLS * 300)
@pytest.mark.parametrize("store", KINDS)
def test_ten_drills_in_a_row_are_clean(
    store: str, driller: Driller, request: pytest.FixtureRequest, public_path: Path
) -> None:
    """With ten seeds."""
    with standing(store, request, public_path) as url:
        for _ in range(CLEAN_DRILLS):
            found = driller.certificate(url, FULL)
            assert found["verdict"] == "clean", told(found)
