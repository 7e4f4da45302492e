"""Every way in which libpq can be told where the server is, and how to log in."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Certificates, Database, PostgresServer, eventually
from servers.oncecron import Oncecron
from servers.process import free_port, without_overrides

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.stores.postgres.address import explain

NewPostgres = Callable[..., PostgresServer]


def quiet(host: Oncecron, tick: str = "one") -> bool:
    """Return whether a firing ran its command, with nothing but its output."""
    return host.run("k", "--connect-timeout", "5s", "--tick", tick, "--", "echo", "ran") == (
        0,
        b"ran\n",
        "",
    )


def bare(database: Database) -> str:
    return database.url().replace(":runner-password@", "@")


def refused(host: Oncecron) -> str:
    """Return the one line of a firing that is refused, which is also that of a command for people."""
    ended = host.run("k", "--connect-timeout", "5s", "--tick", "one", "--", "true")
    asked = host("history")
    assert (ended.status, asked.status, asked.out) == (78, 78, b""), ended
    assert ended.err.replace("key k: ", "") == asked.err
    assert asked.err.count("\n") == 1
    assert "runner-password" not in asked.err
    return asked.err.rstrip("\n")


def test_a_password_file_that_libpq_ignores(ready: Database, public_path: Path) -> None:
    """It says nothing, or only to C's standard error: the message names the file, and what is wrong with it."""
    passwords = public_path / ".pgpass"
    host = Oncecron(bare(ready), public_path)
    server = ready.server
    line = f"{server.host}:{server.port}:{ready.name}:runner:PASSWORD"
    add = f"add `{line}` to it (mode 600), or give the password in store_file or by a service"
    assert refused(host).endswith(f"; {passwords} does not exist; {add}")
    passwords.mkdir()
    assert f"; libpq ignores {passwords}, which is not a regular file; put" in refused(host)
    passwords.rmdir()
    passwords.write_text("other:*:*:*:runner-password\n")
    passwords.chmod(0o644)
    wrong_mode = (
        f"; libpq ignores {passwords}, because its mode is 644; run `chmod 600 {passwords}`"
    )
    assert refused(host).endswith(wrong_mode)
    passwords.chmod(0o600)
    assert refused(host).endswith(f"; {passwords} has no line for this login; {add}")
    passwords.write_text(line.replace("PASSWORD", "wrong"))
    assert refused(host).endswith(f"; check the password in {passwords}")
    elsewhere = Oncecron(bare(ready), public_path, PGPASSFILE=str(public_path / "none"))
    assert f"; {public_path}/none does not exist; add `{line}`" in refused(elsewhere)
    passwords.write_text(line.replace("PASSWORD", "runner-password"))
    assert quiet(host)


def test_a_password_file_that_the_user_may_not_read(ready: Database, public_path: Path) -> None:
    """Neither the file nor one of the directories above it."""
    directory = public_path / "secrets"
    directory.mkdir(mode=0o700)
    passwords = directory / "passwords"
    passwords.write_text("*:*:*:*:runner-password\n")
    host = Oncecron(bare(ready), public_path, prefix=without_overrides(), PGPASSFILE=str(passwords))
    for closed in (passwords, directory):
        closed.chmod(0)
        assert f"; user {os.geteuid()} may not read {passwords}; change its owner" in refused(host)
        closed.chmod(0o700)


def test_a_service_that_is_not_there(ready: Database, public_path: Path) -> None:
    """Its file, or its section: refused at once, with the file that was looked at."""
    services = public_path / "services"
    host = Oncecron("postgresql://?service=jobs", public_path, PGSERVICEFILE=str(services))
    assert refused(host).endswith(f'"{services}" not found; correct the file, or $PGSERVICEFILE')
    services.write_text("[other]\nhost=a\n")
    assert f"; define it in {services}, or correct PGSERVICE" in refused(host)
    server = ready.server
    services.write_text(
        f"[jobs]\nhost={server.host}\nport={server.port}\nuser=runner\npassword=x\n"
    )
    assert refused(host).endswith("; check the password in the service jobs")


def test_files_of_tls(new_postgres: NewPostgres, certificates: Certificates) -> None:
    """A key that others may read, or that is not there: refused at once where TLS is required, with the cure."""
    files = {
        "ssl_cert_file": certificates["server.crt"],
        "ssl_key_file": certificates["server.key"],
    }
    server = new_postgres(ssl="on", **files)
    database = server.create_database()
    key = certificates.directory / "open.key"
    key.write_bytes(certificates["client.key"].read_bytes())
    key.chmod(0o644)
    own = f"&sslcert={certificates['client.crt']}&sslkey="
    for more, told in (
        (f"{own}{key}", f"; run `chmod 600 {key}`"),
        (f"{own}/none.key", 'key file "/none.key"; correct sslkey, or the file'),
        ("&sslrootcert=/none.crt", "; correct sslrootcert, or the file"),
    ):
        mode = "verify-full" if "root" in more else "require"
        host = Oncecron(f"{database.url()}?sslmode={mode}{more}", certificates.directory)
        assert refused(host).endswith(told)


def test_an_address_that_is_no_utf_8(ready: Database, public_path: Path) -> None:
    """It is libpq's, byte for byte: a wrong password is no bug of ours."""
    host = Oncecron(ready.url(), public_path)
    latin = bare(ready).encode().replace(b"runner@", b"runner:gr\xfcn@")
    ended = host("run", "--store", latin, "--key", "k", "--", "true")
    assert ended.status == 78
    assert "password authentication failed" in ended.err


def test_a_service(ready: Database, public_path: Path) -> None:
    """postgresql://?service=NAME and a service file."""
    server = ready.server
    services = public_path / "services"
    services.write_text(
        f"[jobs]\nhost={server.host}\nport={server.port}\ndbname={ready.name}\n"
        "user=runner\npassword=runner-password\n"
    )
    host = Oncecron("postgresql://?service=jobs", public_path, PGSERVICEFILE=str(services))
    assert quiet(host)


def test_the_environment_of_libpq(ready: Database, public_path: Path) -> None:
    """PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE."""
    server = ready.server
    environment = {
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": "runner",
        "PGPASSWORD": "runner-password",
        "PGDATABASE": ready.name,
    }
    assert quiet(Oncecron("postgresql://", public_path, **environment))


def test_several_servers_one_of_them_a_standby(ready: Database, public_path: Path) -> None:
    """The primary is found, wherever it stands in the list."""
    standby = ready.server.make_standby()
    try:
        primary = f"{ready.server.host}:{ready.server.port}"
        both = f"{standby.host}:{standby.port},{primary}"
        assert quiet(Oncecron(ready.url().replace(primary, both), public_path))
    finally:
        standby.remove()


def test_a_switchover_is_waited_for(ready: Database, public_path: Path) -> None:
    """While only the standby answers of several servers, a firing asks again until the primary is there."""
    standby = ready.server.make_standby(log_connections="on")
    unused = f"127.0.0.1:{free_port()}"
    both = f"{unused},{standby.host}:{standby.port}"
    store = ready.url().replace(f"{ready.server.host}:{ready.server.port}", both)
    try:
        host = Oncecron(store, public_path)
        words = ("--connect-timeout", "60s", "--tick", "one", "--", "echo", "ran")
        firing = host.fire("k", *words)
        eventually(lambda: "connection authorized: user=runner" in standby.log())
        standby.promote()
        assert firing.wait().out == b"ran\n"
    finally:
        standby.remove()


STANDBY = "session is read-only"
BUSY = "FATAL:  53300: sorry, too many clients already"
PASSWORD = "FATAL:  28P01: password authentication failed"


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (['"a"', STANDBY], StoreRefusesError),
        (['"a"', "Connection refused"], StoreUnavailable),
        (['"a"', STANDBY, '"b"', BUSY], StoreUnavailable),
        (['"a"', STANDBY, '"b"', STANDBY], StoreUnavailable),
        (['"a" (::1)', "Connection refused", '"a" (127.0.0.1)', PASSWORD], StoreRefusesError),
        (['"a"', PASSWORD, '"b"', PASSWORD], StoreRefusesError),
        (['"a"', PASSWORD, '"b"', "Connection refused"], StoreUnavailable),
    ],
)
def test_what_is_worth_asking_again(servers: list[str], expected: type[StoreError]) -> None:
    """Only what no server of the list can answer later is refused at once."""
    said = [
        (name.partition(" ")[0], f"connection to server at {name}, port 1 failed: {why}")
        for name, why in zip(servers[::2], servers[1::2], strict=True)
    ]
    assert type(explain(said, "postgresql://a,b/")) is expected
