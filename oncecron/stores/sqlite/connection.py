"""Open or create the file of a SQLite store, check it, and explain its errors.

The file is in WAL mode, so readers never wait. The first process that opens it installs the schema, in one transaction
under the file's lock: twenty concurrent firings install it once. `init` alone changes an existing schema (`upgrade`).

A file on a network file system is refused. SQLite's locks are not reliable there, and the memory that processes share
through the file does not reach another host, so two hosts could both get a lease. A file is refused like a
configuration file if another user could write to it or replace it; in the state directory, as for `local`, like the
spool.

A connection belongs to the file that it opened; `is_current` returns whether the path still means that file.
"""

from __future__ import annotations

import errno
import os
import select
import stat

from oncecron.core import clock
from oncecron.core.errors import (
    ConfigurationError,
    RecordRefusedError,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import recordable_values
from oncecron.host import safe_paths
from oncecron.stores.address import DEFAULT_NAMESPACE, command_line, shell_quoted, state_directory
from oncecron.stores.sqlite.light_sqlite import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any

    Version = tuple[int, int | None]
    """Of a schema, and the oldest of a program that it serves."""

_SQLITE_RETRY_PAUSE = 0.01
"""Between two tries of the one statement for which SQLite itself does not wait."""

SCHEMA_VERSION = 1
"""The version of the schema that this program needs and makes."""
SCHEMA_OLDEST: int | None = None
"""The oldest version of a program that this schema serves too (stores/schema_version.py)."""
_MADE = (SCHEMA_VERSION, SCHEMA_OLDEST)
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
MOUNTS = "/proc/self/mountinfo"
NETWORK_FILE_SYSTEMS = (
    " 9p acfs afs beegfs ceph cifs coda gfs gfs2 glusterfs gpfs lustre ncp ncpfs nfs nfs4 ocfs2 orangefs "
    "panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs vmhgfs wekafs fuse.ceph fuse.ceph-fuse fuse.davfs "
    "fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs fuse.mfs fuse.ossfs fuse.rclone fuse.s3fs "
    "fuse.sshfs fuse.vmhgfs-fuse "
)
"""Their names in mountinfo; including those that a virtual machine shares with its host or with other guests."""

_PERMANENT = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG),
    *(errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EISDIR),  # the directory is something else
)
_LOCKED = (StoreUnavailable, "another process holds its lock")
_REFUSED = (RecordRefusedError, "it does not take this record")
_TROUBLES: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_FULL: (StoreUnavailable, "the disk is full; free some space"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "cannot read or write it; check the disk"),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "out of memory"),
    sqlite3.SQLITE_CORRUPT: (
        StoreRefusesError,
        "it is damaged; move it and its -wal and -shm files away, or restore a backup",
    ),
    sqlite3.SQLITE_CONSTRAINT: _REFUSED,
    sqlite3.SQLITE_MISMATCH: _REFUSED,
    sqlite3.SQLITE_TOOBIG: _REFUSED,
    sqlite3.SQLITE_NOTADB: (StoreRefusesError, "not a SQLite database; use another file"),
}


def file_of(path: str, namespace: str) -> str:
    """Return the file of a namespace: `path` for the default one, else `path` with `-NAMESPACE` before its suffix.

    Raises ConfigurationError when the path is not absolute or the namespace cannot be part of a file name.
    """
    if not os.path.isabs(path):
        raise ConfigurationError(f"the path of a SQLite store must be absolute: {path!r} is not")
    if not namespace or "/" in namespace or "\0" in namespace:
        raise ConfigurationError(f"the namespace {namespace!r} cannot be part of a file's name")
    if namespace == DEFAULT_NAMESPACE:
        return path
    stem, suffix = os.path.splitext(path)
    return f"{stem}-{namespace}{suffix}"


_DIRECTORY = os.path.join(os.path.dirname(__file__), "sql")
STEPS = os.path.join(_DIRECTORY, "steps")
_read: dict[str, dict[str, str]] = {}


def statements(name: str) -> dict[str, str]:
    """Return the statements of the file `name`.sql beside this module, by the names above them.

    A plugin adds the file of this name in its own folder; without the folder, the program has no such plugin. Several
    statements can share a section: they contain `{name}` in its place. A section that uses another comes after it. A
    process reads each file once, like a module, so an upgrade does not affect a running job.
    """
    if name not in _read:
        found: dict[str, str] = {}
        folders = sorted(entry for entry in os.listdir(_DIRECTORY) if "." not in entry)
        for folder in ("", *folders):
            path = os.path.join(_DIRECTORY, folder, f"{name}.sql")
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    found |= _sections(file.read())
        _read[name] = found
    return _read[name]


def plugin_files() -> tuple[str, ...]:
    """Return the names of the files that plugins alone have."""
    folders = (entry.path for entry in os.scandir(_DIRECTORY) if entry.is_dir())
    found = {name for folder in folders if folder != STEPS for name in os.listdir(folder)}
    return tuple(name.removesuffix(".sql") for name in found.difference(os.listdir(_DIRECTORY)))


def _sections(text: str) -> dict[str, str]:
    parts = (section.partition("\n") for section in f"\n{text}".split("\n-- name: ")[1:])
    found = {title.strip(): text.strip() for title, _, text in parts}
    return {title: _filled(text, found) for title, text in found.items()}


def _filled(text: str, pieces: dict[str, str]) -> str:
    if "{" in text:
        for title, piece in pieces.items():
            text = text.replace("{" + title + "}", piece)
    return text


def connect(path: str, *, deadline: float, create: bool, check: bool = True) -> Connection:
    """Open the store in the file `path`; with `create`, create the file and the schema if they are missing.

    `deadline` is in seconds of CLOCK_MONOTONIC. Raises StoreRefusesError or StoreUnavailable; with `check`, also if the
    schema does not serve this program.
    """
    try:
        refuse_network(path)
        _refuse_no_place(path)
        if create:
            _make(path)
        elif not os.path.exists(path):
            raise _absent(path)
        _refuse_unsafe(path)
        connection = Connection(path)
    except OSError as error:
        raise _unusable(error, path) from error
    except sqlite3.Error as error:
        raise explained(error, path) from error
    try:
        connection.wait_until(deadline)
        schema = connection.schema(deadline, create=create)
        if check and schema != _MADE:
            _check_version(schema, path)
    except sqlite3.Error as error:
        connection.close()
        raise explained(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _check_version(schema: Version, path: str) -> None:
    from oncecron.stores import schema_version  # noqa: PLC0415 - only where it may not fit

    found = schema_version.Recorded(*schema)
    if not schema_version.serves(found, SCHEMA_VERSION):
        init = f"run {command_line('init', f'sqlite://{path}', DEFAULT_NAMESPACE)}"
        raise schema_version.misfit(f"the store {path}", found, SCHEMA_VERSION, init)


def _refuse_no_place(path: str) -> None:
    """Raise StoreRefusesError if no file can be at this path. Only the state directory is made by itself.

    A typing error in a path would else make a directory, and a store of its own, which nobody looks for.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        directory = os.path.dirname(os.path.realpath(path))
        if os.path.dirname(path) == state_directory() or os.path.isdir(directory):
            return
        raise StoreRefusesError(
            f"the store {path}: its directory {directory} does not exist; correct the path, or make it: "
            f"`mkdir -p -m 700 {shell_quoted(directory)}`"
        ) from None
    if kind != stat.S_IFREG:
        what = "a directory" if kind == stat.S_IFDIR else "not a regular file"
        raise StoreRefusesError(
            f"the store {path} is {what}; name a file in a directory of its own"
        )


def _refuse_unsafe(path: str) -> None:
    """Raise StoreRefusesError if another user could write to the file or put another one in its place."""
    directory = os.path.dirname(path)
    if directory == state_directory() and (why := safe_paths.unsafe(directory)):
        raise StoreRefusesError(f"the store {path}: {why}")
    if why := safe_paths.why_distrusted(path if os.path.lexists(path) else directory):
        raise StoreRefusesError(f"the store {path}: {why}")


def refuse_network(path: str) -> None:
    """Raise StoreRefusesError if the file is, or would be made, on a network file system."""
    place = path
    while not os.path.exists(place):
        place = os.path.dirname(place)
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            mounts = file.read()
    except OSError:
        return  # only Linux has mountinfo
    kind = network_file_system(mounts, os.stat(place).st_dev)
    if kind:
        raise StoreRefusesError(
            f"the store {path} is on a network file system ({kind}), where SQLite's locks are not reliable; "
            "put it on a local disk, or use postgresql:// or redis:// for several hosts"
        )


def network_file_system(mounts: str, device: int) -> str | None:
    """Return the type of the file system with this device number if it is a network one.

    `mounts` is the text of mountinfo (proc(5)): its third field is the device, and the type follows a single dash. A
    device that is not listed, such as a subvolume of btrfs, is local.
    """
    number = f" {os.major(device)}:{os.minor(device)} "
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        kind = source.partition(" ")[0]
        if number in mount and f" {kind} " in NETWORK_FILE_SYSTEMS:
            return kind
    return None


def _make(path: str) -> None:
    """Create the file, and the state directory, accessible only to their owner, if they are missing.

    An existing file is not opened: closing it would release this process's SQLite locks on it (fcntl(2): closing any
    descriptor of a file releases all locks of the process on that file).
    """
    if os.path.exists(path):
        return
    directory = os.path.dirname(path)
    if directory == state_directory():
        os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
    _refuse_unsafe(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        return  # another process was faster
    except FileNotFoundError as error:  # such as in /proc
        raise _impossible(error, path) from error


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "backslashreplace")


class Connection:
    """An open store: statements by name, transactions, and the timeout for locks."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.installed = False
        """Whether this connection made the schema."""
        name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        # No transaction but our own: sqlite3 would begin one at the first write, after what a step has read.
        self._database = sqlite3.connect(
            f"file://{name}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
        )
        self._database.row_factory = sqlite3.Row
        self._database.text_factory = _text  # of another program it may be no UTF-8
        status = os.stat(path)
        self._file = (status.st_dev, status.st_ino)
        self._statements = dict(statements("connection"))
        self._set: dict[str, str | int] = {}
        """What pragmas have set, so that a connection which is used again and again is not told again."""

    def load(self, name: str) -> None:
        """Learn the statements of the file `name`.sql."""
        self._statements.update(statements(name))

    def knows(self, name: str) -> bool:
        """Return whether a statement with this name has been loaded."""
        return name in self._statements

    def execute(self, name: str, /, **values: Any) -> sqlite3.Cursor:
        """Run the statement with this name."""
        return self._database.execute(self._statements[name], recordable_values(values))

    def removable(self, name: str, /, **values: Any) -> list[Any]:
        """Return the rows that the statement with this name, a DELETE, would return; else how many it would remove."""
        condition, _, returned = self._statements[name].partition("RETURNING")
        count = condition.replace("DELETE", f"SELECT {returned or 'count(*)'}", 1)
        return self._database.execute(count, recordable_values(values)).fetchall()

    def execute_many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Run the statement with this name for each row of values; return how many rows it has changed."""
        return self._database.executemany(self._statements[name], rows).rowcount

    def one(self, name: str, /, **values: Any) -> Any:
        """Return the first row of the statement with this name (a `sqlite3.Row`), or None."""
        return self.execute(name, **values).fetchone()

    def reading(self) -> Transaction:
        """Begin a transaction that sees one state of the store and blocks no other process."""
        return Transaction(self, "begin_reading")

    def writing(self, *, durable: bool) -> Transaction:
        """Begin a transaction that blocks other writers; `durable`: its commit waits for the disk."""
        wanted = "sync_each_commit" if durable else "sync_later"
        if self._set.get("sync") != wanted:
            self.execute(wanted)
            self._set["sync"] = wanted
        return Transaction(self, "begin_writing")

    def wait_until(self, deadline: float) -> None:
        """Let statements wait for locks until `deadline` (CLOCK_MONOTONIC), which must be in the future."""
        remaining = deadline - clock.lease_time(clock.MONOTONIC)
        if remaining <= 0:
            raise StoreUnavailable(f"the store {self.path} did not answer in time")
        milliseconds = int(remaining * 1000) + 1
        if self._set.get("wait") != milliseconds:
            self._database.execute(
                self._statements["wait_at_most"].format(milliseconds=milliseconds)
            )
            self._set["wait"] = milliseconds

    def is_current(self) -> bool:
        """Return whether the path still means the file that was opened."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def schema(self, deadline: float, *, create: bool) -> Version:
        """Return what the schema says about itself; with `create`, install it in an empty file.

        Raises StoreRefusesError for an empty file, and for another program's.
        """
        with self.reading():
            found = self._recorded()
        if found is None:
            if not create:
                raise _absent(self.path)
            self._write_ahead(deadline)
            with self.writing(durable=True):
                found = self._recorded() or self._install()
        return found

    def upgrade(self) -> int:
        """Bring the schema to the version of this program, whole or not at all; return the version that it had."""
        from oncecron.stores import schema_version  # noqa: PLC0415 - for `init` alone

        where = f"the store {self.path}"
        with self.writing(durable=True):
            found = schema_version.Recorded(*(self._recorded() or _MADE))
            for text in schema_version.missing(where, found, SCHEMA_VERSION, STEPS):
                for statement in _sections(text).values():
                    self._database.execute(statement)
            self._set_version()
        return found.version

    def _recorded(self) -> Version | None:
        if self.one("count_objects")[0] == 0:
            return None
        try:
            version, oldest = self.one("schema_version")
            return int(version), int(oldest) if oldest else None
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # no such table
                raise
        except (TypeError, ValueError):
            pass
        raise StoreRefusesError(
            f"the store {self.path} is another program's database; use another file"
        )

    def _install(self) -> Version:
        for statement in statements("schema").values():
            self._database.execute(statement)
        self._set_version()
        self.installed = True
        return _MADE

    def _set_version(self) -> None:
        self.execute("set_schema_version", version=SCHEMA_VERSION, oldest=SCHEMA_OLDEST)

    def _write_ahead(self, deadline: float) -> None:
        """Switch to WAL mode. SQLite needs exclusive access for that and does not wait for it."""
        while True:
            try:
                mode = self.one("write_ahead")
            except sqlite3.OperationalError as error:
                late = clock.lease_time(clock.MONOTONIC) + _SQLITE_RETRY_PAUSE > deadline
                if late or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                select.select(
                    (), (), (), _SQLITE_RETRY_PAUSE
                )  # libfaketime 0.9.10 breaks time.sleep()
                continue
            if mode[0] != "wal":
                raise StoreRefusesError(
                    f"the store {self.path}: its file system cannot share memory (no WAL); use a local disk"
                )
            return

    def close(self) -> None:
        """Close; an open transaction is rolled back. Never raises."""
        try:
            self._database.close()
        except sqlite3.Error:
            return


class Transaction:
    """A transaction that commits at the end; after an error the caller closes the connection, which rolls back."""

    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: Connection, begin: str) -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        """Begin."""
        self._connection.execute(self._begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit."""
        if error is None:
            self._connection.execute("commit")


class Handle:
    """The connection of a store object; one thread uses it at a time."""

    def __init__(
        self, path: str, *, create: bool, statements: tuple[str, ...], begun: bool = False
    ) -> None:
        """Prepare; `begun`: the schema has served the firing already, and is not asked again."""
        self.path = path
        self._create = create
        self._statements = statements
        self._connection: Connection | None = None
        self._begun = begun

    def until(self, deadline: float) -> _Call:
        """Return a context manager for the connection, whose statements wait until `deadline` for locks.

        An error of SQLite inside becomes a StoreError. After any error the connection is closed, which rolls back.
        """
        return _Call(self, deadline)

    def connected(self, deadline: float) -> Connection:
        """Return a connection to the file that the path means now."""
        if self._connection is not None and not self._connection.is_current():
            self.close()
        if self._connection is None:
            self._connection = connect(
                self.path, deadline=deadline, create=self._create, check=not self._begun
            )
            self._begun = True
            for name in self._statements:
                self._connection.load(name)
        self._connection.wait_until(deadline)
        return self._connection

    def close(self) -> None:
        """Close what is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Call:
    __slots__ = ("_deadline", "_handle")

    def __init__(self, handle: Handle, deadline: float) -> None:
        self._handle = handle
        self._deadline = deadline

    def __enter__(self) -> Connection:
        return self._handle.connected(self._deadline)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return  # a reader that stops early is not an error
        self._handle.close()
        if isinstance(error, sqlite3.Error):
            raise explained(error, self._handle.path) from error


def explained(error: sqlite3.Error, path: str) -> StoreError:
    """Return the oncecron error for an error of SQLite in the file `path`, with a cure."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return _forbidden(code, path)
    kind, words = _TROUBLES.get(
        code, (StoreRefusesError, "its tables differ from those that `oncecron init` creates")
    )
    return kind(f"the store {path}: {words} ({error})")


def _forbidden(code: int, path: str) -> StoreError:
    directory = os.path.dirname(path)
    writable = os.access(path, os.R_OK | os.W_OK) and os.access(directory, os.W_OK | os.X_OK)
    if code == sqlite3.SQLITE_CANTOPEN and writable:
        return StoreUnavailable(
            f"cannot open the store {path}; check that the file exists and that the limit of open files is not reached"
        )
    return StoreRefusesError(
        f"the store {path}: user {os.geteuid()} cannot write to it or to its directory {directory}; "
        "change the owner, or use another file"
    )


def _unusable(error: OSError, path: str) -> StoreError:
    if error.errno in _PERMANENT:
        return _impossible(error, path)
    return StoreUnavailable(f"the store {path}: {error.strerror}: {error.filename or path}")


def _impossible(error: OSError, path: str) -> StoreError:
    return StoreRefusesError(
        f"user {os.geteuid()} cannot create the store {path}: {error.strerror}: {error.filename or path}; "
        "use another file"
    )


def _absent(path: str) -> StoreError:
    return StoreRefusesError(
        f"the store {path} does not exist yet; the first firing creates it, or run "
        f"{command_line('init', f'sqlite://{path}', DEFAULT_NAMESPACE)}"
    )
