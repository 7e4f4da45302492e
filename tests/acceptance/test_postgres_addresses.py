"""Every way in which libpq can be told where the server is, and how to log in."""

from pathlib import Path

import pytest
from servers import Database, eventually
from servers.oncecron import Oncecron
from servers.process import free_port

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.stores.postgres.address import explain


def quiet(host: Oncecron, tick: str = "one") -> bool:
    """Return whether a firing ran its command, with nothing but its output."""
    return host.run("k", "--connect-timeout", "5s", "--tick", tick, "--", "echo", "ran") == (
        0,
        b"ran\n",
        "",
    )


def bare(database: Database) -> str:
    """Return the URL without a password."""
    return database.url().replace(":runner-password@", "@")


def test_a_password_file(ready: Database, public_path: Path) -> None:
    """~/.pgpass, mode 600."""
    server = ready.server
    passwords = public_path / ".pgpass"
    passwords.write_text(f"{server.host}:{server.port}:{ready.name}:runner:runner-password\n")
    passwords.chmod(0o600)
    assert quiet(Oncecron(bare(ready), public_path))


def test_a_password_file_that_others_may_read_is_no_use(ready: Database, public_path: Path) -> None:
    """It is ignored by libpq: exit 78, and the cure."""
    passwords = public_path / ".pgpass"
    passwords.write_text("*:*:*:*:runner-password\n")
    passwords.chmod(0o644)
    ended = Oncecron(bare(ready), public_path).run("k", "--tick", "one", "--", "true")
    assert ended.status == 78
    assert "~/.pgpass" in ended.err
    assert "runner-password" not in ended.err


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


def test_several_servers_the_first_away(ready: Database, public_path: Path) -> None:
    """The next one is asked."""
    server = ready.server
    here, away = f"{server.host}:{server.port}", f"127.0.0.1:{free_port()}"
    assert quiet(Oncecron(ready.url().replace(here, f"{away},{here}"), public_path))


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
        firing = host.fire("k", "--tick", "one", "--", "echo", "ran")
        eventually(lambda: "connection authorized: user=runner" in standby.log())
        standby.promote()
        assert firing.wait().out == b"ran\n"
    finally:
        standby.remove()


STANDBY = "session is read-only"
BUSY = "FATAL: sorry, too many clients already"
PASSWORD = "FATAL: password authentication failed"


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
    said = zip(servers[::2], servers[1::2], strict=True)
    message = "\n".join(
        f"connection to server at {name}, port 1 failed: {why}" for name, why in said
    )
    assert type(explain(message, "postgresql://a,b/")) is expected


def test_a_notice_of_the_server_is_not_mailed(ready: Database, public_path: Path) -> None:
    """The way of libpq itself is to print it."""
    ready.execute(
        """
        create function public.chatter() returns trigger language plpgsql as $$ begin
          raise warning 'chatter'; return new;
        end $$;
        create trigger chatter before insert on oncecron.job_execution
          for each row execute function public.chatter()
        """
    )
    assert quiet(Oncecron(ready.url(), public_path))
