"""A secret that changes while a job runs: the file that has the store's address is read again, and the job lives on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from log_of import PostgresLog, RedisLog
from servers import (
    Certificates,
    Database,
    Journal,
    PostgresServer,
    RedisServer,
    eventually,
    job,
)
from servers.oncecron import Firing, Oncecron, installed
from servers.process import end, free_port

OLD, NEW = "old-secret", "new-secret"
TTL = "10s"
LONGER = 12  # than a lease that nobody renews
NewRedis = Callable[..., RedisServer]
NewPostgres = Callable[..., PostgresServer]


def write(path: Path, text: str) -> str:
    """Replace a file as an administrator does; return its path."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.rename(path)
    return str(path)


@pytest.fixture
def database(new_postgres: NewPostgres) -> Database:
    """Give a database of a server whose passwords may be changed."""
    return installed(new_postgres().create_database())


def rotate(database: Database) -> None:
    """Change the password of the role that fires, and end its sessions."""
    server = database.server
    server.execute(f"alter role {database.run_as} password '{NEW}'")
    ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = %s"
    server.execute(ended, database.run_as)


def with_new_password(database: Database) -> str:
    return database.url().replace(f"{database.run_as}-password", NEW)


@contextmanager
def running(host: Oncecron, journal: Journal, *options: object) -> Iterator[Firing]:
    """Let a job run, which must live longer than its lease after what happens meanwhile, and end well."""
    command = job(journal, "--sleep", LONGER)
    firing = host.fire("k", "--ttl", TTL, "--tick", "one", *options, "--", *command)
    journal.wait_for("start")
    yield firing
    ended = firing.wait(60)
    assert (ended.status, ended.out, ended.err) == (0, b"", "")
    [run] = journal.runs()
    assert run.succeeded
    assert run.signals == []


@pytest.mark.turns(3, "rotated")
def test_the_store_file_of_a_postgres(
    database: Database, public_path: Path, journal: Journal
) -> None:
    """Its password, while a job runs: the lease is renewed with the new one, and the end recorded."""
    file = write(public_path / "store.url", database.url())
    host = Oncecron("", public_path, ONCECRON_STORE_FILE=file)
    with running(host, journal):
        rotate(database)
        write(Path(file), with_new_password(database))
    assert [record.outcome for record in PostgresLog(database).executions("k")] == ["succeeded"]
    assert host.run("k", "--tick", "two", "--", "true").status == 0


@pytest.mark.turns(3, "rotated")
def test_the_configuration_file(database: Database, public_path: Path, journal: Journal) -> None:
    """It says where the store is: by name of a store file, and by itself. A wrong file is not taken."""
    config = public_path / "oncecron.toml"
    write(config, f'store = "{database.url()}"\n')
    host = Oncecron("", public_path, ONCECRON_CONFIG=str(config))
    with running(host, journal):
        write(config, "store = unquoted")
        rotate(database)
        write(public_path / "store.url", with_new_password(database))
        write(config, 'store_file = "store.url"\n')
    assert [record.outcome for record in PostgresLog(database).executions("k")] == ["succeeded"]


def test_a_password_that_stays_wrong(database: Database, public_path: Path) -> None:
    """A firing that is refused says so at once, as before: the file has not changed."""
    file = write(public_path / "store.url", with_new_password(database))
    ended = Oncecron("", public_path, ONCECRON_STORE_FILE=file).run("k", "--", "true")
    assert ended.status == 78
    assert "check the password in the store's URL" in ended.err


@pytest.mark.turns(3, "rotated")
def test_the_items_of_a_tick(database: Database, public_path: Path) -> None:
    """A runner of `each` draws on with the new password."""
    file = write(public_path / "store.url", database.url())
    host = Oncecron("", public_path, ONCECRON_STORE_FILE=file)
    done = public_path / "done"
    items = ("--items", "seq 8", "--slots", "1", "--jobs", "1")
    command = ("/bin/sh", "-c", f'echo "$1" >>{done}; sleep 1', "sh", "{}")
    firing = host.start("each", "--key", "k", "--ttl", TTL, "--tick", "1", *items, "--", *command)
    eventually(done.exists, 30)
    rotate(database)
    write(Path(file), with_new_password(database))
    ended = firing.wait(60)
    assert (ended.status, ended.err) == (0, "")
    assert sorted(done.read_text().split()) == [str(number) for number in range(1, 9)]


@pytest.mark.turns(3, "rotated")
def test_metrics_that_are_served(database: Database, public_path: Path) -> None:
    """A process that lives for months reads the new password too."""
    file = write(public_path / "store.url", database.url())
    host = Oncecron("", public_path, ONCECRON_STORE_FILE=file)
    port = free_port()
    served = host.start("metrics", "--listen", f"127.0.0.1:{port}")

    def is_up() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return b"oncecron_up 1.0" in answer.read()

    try:
        eventually(is_up, 30, retry_on=OSError)
        rotate(database)
        assert not is_up()
        write(Path(file), with_new_password(database))
        eventually(is_up, 30)
    finally:
        end(served.process)


# Redis


@pytest.mark.turns(3, "rotated")
def test_files_of_tls(
    new_redis: NewRedis, certificates: Certificates, public_path: Path, journal: Journal
) -> None:
    """A client's certificate that is replaced: a file that is cut, or whose key is not there yet, ends no job."""
    server = new_redis(aof=True, tls=certificates, tls_auth_clients="yes")
    own, key = public_path / "own.crt", public_path / "own.key"
    key.write_bytes(certificates["client.key"].read_bytes())
    write(own, certificates["client.crt"].read_text())
    host = Oncecron(server.tls_url(ssl_certfile=own, ssl_keyfile=key), public_path)
    said = public_path / "said"
    command = ("--ttl", TTL, "--tick", "one", "-v", "--", *job(journal, "--sleep", LONGER))
    with said.open("wb") as stderr:
        firing = host.start("run", "--key", "k", *command, stderr=stderr)
    journal.wait_for("start")
    write(own, "")
    with server.connect() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    eventually(
        lambda: (
            f"not renewed yet, retrying: Redis {host.environment['ONCECRON_STORE']}: ssl_certfile"
            in said.read_text()
        )
    )
    write(own, certificates["client.crt"].read_text())
    assert firing.process.wait(60) == 0
    [run] = journal.runs()
    assert (run.succeeded, run.signals) == (True, [])
    assert [record.outcome for record in RedisLog(server).executions("k")] == ["succeeded"]
