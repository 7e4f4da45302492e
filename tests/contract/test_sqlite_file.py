"""The SQLite store's file: who makes it, who may, and its words for trouble."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from herd import run_at_once
from hosts import Host, minute

from oncecron.core import clock
from oncecron.core.errors import ConfigurationError, StoreRefusesError, StoreUnavailable
from oncecron.core.log_rows import HistoryQuery, LeastRetention, Roles
from oncecron.core.model import Lease, Refusal
from oncecron.stores.address import state_directory
from oncecron.stores.sqlite import connection
from oncecron.stores.sqlite.connection import file_of, network_file_system
from oncecron.stores.sqlite.lease_store import SQLiteLeaseStore
from oncecron.stores.sqlite.reader import SQLiteReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from contract_log import Log
    from contract_stores import SQLiteKind

    from oncecron.stores.api import LeaseStore
    from oncecron.stores.reader import Reader

    _firing_half: type[LeaseStore] = SQLiteLeaseStore
    _peoples_half: type[Reader] = SQLiteReader

INSTALLERS = 20


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a file that is not there, in a directory of its own."""
    (tmp_path / "new").mkdir(0o755)
    return tmp_path / "new" / "oncecron.db"


def first_host(path: Path) -> Host:
    """Return a host whose first call makes the file."""
    return Host(opened(SQLiteLeaseStore(str(path), namespace="oncecron")), "first.example")


_opened: list[Any] = []


def opened(store: Any) -> Any:
    """Return a store that is closed after the test."""
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


# The file


def test_the_first_firing_makes_the_file_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the state directory, and what SQLite puts beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = Path(state_directory()) / "oncecron.db"
    host = first_host(path)
    host.win(minute(1))
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    host.store.close()


def test_twenty_first_firings_at_once_install_it_once(path: Path) -> None:
    """Each of them gets its lease."""
    run_at_once("installer", [[str(path), f"key{number}"] for number in range(INSTALLERS)])
    people = opened(SQLiteReader(str(path), namespace="oncecron"))
    assert len(list(people.history(HistoryQuery()))) == INSTALLERS
    people.close()


@pytest.mark.parametrize(
    ("namespace", "file"),
    [
        ("oncecron", "/var/lib/oncecron/oncecron.db"),
        ("staging", "/var/lib/oncecron/oncecron-staging.db"),
    ],
)
def test_each_namespace_has_its_file(namespace: str, file: str) -> None:
    """Staging and production can share an address."""
    assert file_of("/var/lib/oncecron/oncecron.db", namespace) == file


@pytest.mark.parametrize(
    ("path", "namespace"), [("oncecron.db", "oncecron"), ("/x.db", "../y"), ("/x.db", "")]
)
def test_a_file_is_absolute_and_a_namespace_a_word(path: str, namespace: str) -> None:
    """Anything else is a wrong configuration."""
    with pytest.raises(ConfigurationError):
        file_of(path, namespace)


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    """SQLite's own addresses would read them as signs."""
    odd = tmp_path / "50% of #1?mode=ro" / "store.db"
    odd.parent.mkdir()
    host = first_host(odd)
    host.run(minute(1))
    assert odd.exists()


def test_a_path_may_begin_with_two_slashes(path: Path) -> None:
    """`sqlite:////var/lib/jobs.db`, as other programs want it: SQLite would read a host's name."""
    doubled = opened(SQLiteLeaseStore("/" + str(path), namespace="oncecron"))
    Host(doubled, "first.example").run(minute(1))
    assert isinstance(first_host(path).fire(minute(1)), Refusal)


def test_a_file_that_was_replaced_has_no_lease_of_the_old_one(store: SQLiteKind, a: Host) -> None:
    """Whoever claims now claims in the new one: holding on to the old file would be two at a time."""
    lease = a.win(minute(1))
    for suffix in ("", "-wal", "-shm"):
        Path(store.address + suffix).unlink()
    assert a.renew(lease) is None


def test_people_do_not_make_the_file(path: Path) -> None:
    """A reader of a store that is not there is told so, and what makes it."""
    people = opened(SQLiteReader(str(path), namespace="oncecron"))
    with pytest.raises(StoreRefusesError, match="oncecron init"):
        list(people.history(HistoryQuery()))
    assert not path.exists()


def test_the_printed_schema_is_the_installed_one(store: SQLiteKind, tmp_path: Path) -> None:
    """For whoever wants to read it first."""
    people = store.people()
    by_hand = str(tmp_path / "by-hand.db")
    tables = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(by_hand)) as database:
        database.executescript(people.schema_sql(Roles()))
        assert database.execute(tables).fetchall() == store.run(tables)
    assert opened(SQLiteReader(by_hand, namespace="oncecron")).leases() == []


def test_there_are_no_roles(store: SQLiteKind) -> None:
    """Asking for some is a wrong configuration, and not silently nothing."""
    with pytest.raises(ConfigurationError):
        store.people().initialise(Roles(run=("cron",)))


# Trouble


def test_a_network_file_system_is_found_by_its_device() -> None:
    """The device of the file is looked up among the mounts; a path could be mounted over."""
    mounts = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "31 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "77 31 0:52 / /srv/a\\040b rw,relatime shared:3 - nfs4 filer:/export rw,vers=4.2\n"
        "78 31 0:53 / /mnt rw,relatime - fuse.sshfs user@host: rw\n"
    )
    found = [
        network_file_system(mounts, os.makedev(*device))
        for device in ((254, 0), (0, 52), (0, 53), (0, 99))
    ]
    assert found == [None, "nfs4", "fuse.sshfs", None]


def test_a_network_file_system_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made there, naming the cure."""
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(f"77 31 {number} / / rw,relatime shared:3 - cifs //filer/export rw\n")
    monkeypatch.setattr(connection, "MOUNTS", str(mounts))
    with pytest.raises(StoreRefusesError, match=r"cifs.*local disk.*postgresql://") as error:
        first_host(path).fire(minute(1))
    assert error.value.exit_status == 78
    assert not path.exists()


def test_a_state_directory_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `local` is: somebody else could have put the file there, with leases and ticks of his own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = tmp_path / "oncecron"
    path = directory / "oncecron.db"
    first_host(path).fire(minute(1))
    directory.chmod(0o777)
    with pytest.raises(StoreRefusesError, match=r"other users can write to.*chmod 700"):
        first_host(path).fire(minute(2))
    path.rename(tmp_path / "moved.db")
    with pytest.raises(StoreRefusesError, match="other users can write to"):
        first_host(path).fire(minute(2))
    assert not path.exists()


@pytest.mark.parametrize("place", ["file", "directory"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_file_that_others_may_write_or_replace_is_refused(
    path: Path, place: str, mode: int
) -> None:
    """Anywhere: whoever writes to it takes leases, and stops jobs; people do not read it either."""
    first_host(path).fire(minute(1))
    changed = path if place == "file" else path.parent
    changed.chmod(changed.stat().st_mode | mode)
    told = rf"other users can write to {changed}; .*`chmod go-w {changed}`"
    with pytest.raises(StoreRefusesError, match=told) as error:
        first_host(path).fire(minute(2))
    assert error.value.exit_status == 78
    people = opened(SQLiteReader(str(path), namespace="oncecron"))
    with pytest.raises(StoreRefusesError, match=told):
        list(people.history(HistoryQuery()))


def test_no_file_is_made_where_others_may_write(path: Path) -> None:
    """A temporary directory protects the files of its users by the sticky bit."""
    path.parent.chmod(0o777)
    with pytest.raises(StoreRefusesError, match=f"chmod go-w {path.parent}"):
        first_host(path).fire(minute(1))
    assert not path.exists()
    path.parent.chmod(0o1777)
    first_host(path).win(minute(1))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file/x.db", "Not a directory: .*; use another file"),
        ("file/new/x.db", "Not a directory: .*; use another file"),
        ("n" * 256, "File name too long: .*; use another file"),
        ("nowhere.db", "its directory .*/typo does not exist"),
        ("/proc/x.db", "No such file or directory: .*; use another file"),
        ("directory", "is a directory; name a file in a directory of its own"),
        ("fifo", "is not a regular file; name a file in a directory of its own"),
        ("/dev/null", "is not a regular file; name a file in a directory of its own"),
        (
            "typo/deep/x.db",
            "its directory .*/typo/deep does not exist; .*: `mkdir -p -m 700 .*/typo/deep`",
        ),
    ],
)
def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path, name: str, told: str) -> None:
    """For good, to a firing and to people; and nothing is made there, because a typing error has brought us there."""
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "nowhere.db").symlink_to("typo/x.db")
    path = tmp_path / name
    people = opened(SQLiteReader(str(path), namespace="oncecron"))
    for use in (
        lambda: first_host(path).fire(minute(1)),
        lambda: people.initialise(Roles(), LeastRetention(0.0, 0.0)),
    ):
        with pytest.raises(StoreRefusesError, match=told):
            use()
    assert not (tmp_path / "typo").exists()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """And left as it is."""
    path.write_text("0 2 * * * root /usr/local/bin/bill\n" * 40)
    with pytest.raises(StoreRefusesError, match="not a SQLite database"):
        first_host(path).fire(minute(1))
    assert path.read_text().startswith("0 2")


def test_another_programs_database_is_refused(path: Path) -> None:
    """Its tables are not ours to add to."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(StoreRefusesError, match="another program"):
        first_host(path).fire(minute(1))


def test_a_damaged_file_is_refused(path: Path) -> None:
    """With what to do about it."""
    first_host(path).run(minute(1))
    content = bytearray(path.read_bytes())
    content[200:] = b"\xa5" * (len(content) - 200)
    path.write_bytes(content)
    with pytest.raises(StoreRefusesError, match=r"damaged|not a SQLite database|tables"):
        first_host(path).fire(minute(2))


@pytest.mark.parametrize("version", ["2", "0"])
def test_an_unknown_schema_is_refused(store: SQLiteKind, a: Host, version: str) -> None:
    """Naming both versions and the command; nobody changes it on the way."""
    store.run("UPDATE meta SET value = :version", version=version)
    with pytest.raises(StoreRefusesError) as error:
        a.fire(minute(1))
    assert error.value.exit_status == 78
    cure = "oncecron init" if version == "0" else "upgrade oncecron on this host"
    for word in (f"version {version}", "version 1", cure):
        assert word in str(error.value)
    with pytest.raises(StoreRefusesError):
        store.people().initialise(Roles())


def test_a_locked_file_is_unavailable_at_the_deadline(store: SQLiteKind, a: Host) -> None:
    """Not before and not much later; the next call is a new one."""
    a.win(minute(1), key="other")  # on a busy machine, to open the file may take longer
    firing = a.firing(minute(1))
    with closing(sqlite3.connect(store.address, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = clock.lease_time(clock.MONOTONIC)
        with pytest.raises(StoreUnavailable, match="locked"):
            a.store.claim(firing, deadline=start + 1)
        assert 0.9 < clock.lease_time(clock.MONOTONIC) - start < 20
    assert isinstance(a.ask(firing), Lease)


def test_a_deadline_that_has_passed_is_not_waited_for(a: Host) -> None:
    """Whoever comes with no time left gets no answer."""
    with pytest.raises(StoreUnavailable, match="in time"):
        a.store.claim(a.firing(minute(1)), deadline=clock.lease_time(clock.MONOTONIC) - 1)


def test_a_refusal_that_cannot_be_recorded_stands(
    store: SQLiteKind, a: Host, b: Host, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losers only read to learn that they lost; whoever writes does not keep them."""
    monkeypatch.setattr("oncecron.stores.claim_loop.SKIP_TIMEOUT", 0.3)
    a.win(minute(1))
    firing = b.firing(minute(1))
    with closing(sqlite3.connect(store.address, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = b.store.claim(firing, deadline=b.deadline())
    assert isinstance(answer, Refusal)
    assert answer.reason == "held"
    assert log.skips() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVEN: to be another user needs root")
def test_another_users_file_is_refused(path: Path) -> None:
    """With the user and the directory in the message."""
    first_host(path).run(minute(1))
    for directory in (path.parent, *path.parent.parents[:3]):
        directory.chmod(0o755)
    path.chmod(0o644)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            first_host(path).fire(minute(2))
        except StoreRefusesError as error:
            os._exit(0 if "65534" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVEN: a full disk needs root to mount one")
def test_a_full_disk_is_unavailable(tmp_path: Path) -> None:
    """It may have room again."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("NOT PROVEN: this machine cannot mount a small file system")
    try:
        host = first_host(place / "store.db")
        host.run(minute(1))
        with (place / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(b"x" * 4096)
        with pytest.raises(StoreUnavailable):
            host.run(minute(2))
        (place / "ballast").unlink()
        host.run(minute(2))
        host.store.close()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_namespace_is_a_database_beside_the_store(tmp_path: Path) -> None:
    """Of the store without a suffix, too, whose -wal and -shm are named like namespaces."""
    path = tmp_path / "store"
    stores = [SQLiteReader(str(path), namespace=name) for name in ("oncecron", "staging")]
    for store in stores:
        assert list(store.namespaces()) == [name for name in ("oncecron",) if path.exists()]
        store.initialise(Roles())
        assert list(store.history(HistoryQuery())) == []
    assert (tmp_path / "store-wal").exists()
    (tmp_path / "store-notes").write_text("no database")
    for store in stores:
        assert sorted(store.namespaces()) == ["oncecron", "staging"]
        store.close()
