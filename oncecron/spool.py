"""Records on local disk that the store has not got yet.

Per user, store and namespace: STATE/spool/STORE/KEY/RECORD.json, directories 0700. A record is one file, written
by temporary name, fsync and rename, so that it is there whole or not at all; what a killed process was writing is
removed by whoever looks next. Never below a directory that others may write to, never through a link.
"""

from __future__ import annotations

import os
import stat
import zlib
from typing import TYPE_CHECKING, Any

from oncecron import clock
from oncecron.errors import StoreError
from oncecron.stores.address import masked, state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncecron.store import FiringStore
    from oncecron.stores.address import Address

OTHERS_AT_ONCE = 20
"""Records of other keys that one firing delivers, which has a job of its own."""

_WRITTEN_WITHIN = 5.0  # seconds that writing a record may take

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-")


class SpoolError(Exception):
    """The spool cannot be used; the message says why and where."""


def spool_of(address: Address, namespace: str) -> Spool:
    """Return this user's spool for a store."""
    return Spool(state_directory(), masked(address.target), namespace)


class Spool:
    """The records of one store and namespace."""

    def __init__(self, state_directory: str, store: str, namespace: str) -> None:
        """`store`: its text without the password. Touches no disk."""
        self._state = state_directory
        self.root = os.path.join(state_directory, "spool", _name_of(f"{store} {namespace}"))

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, as `late`, until it is delivered. Raises `SpoolError` when the disk does not take it."""
        import json  # noqa: PLC0415 - only where the store failed

        part = f"{record['shard']}-" if record.get("shard") else ""
        name = f"{record['owner']}-{part}{record.get('attempt', record['kind'])}.json"
        try:
            directory = self._directory(record["key"])
            temporary = os.path.join(directory, f".{name}.{os.getpid()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                    json.dump({**record, "late": True}, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, os.path.join(directory, name))
            except OSError:
                _remove(temporary)  # a full disk
                raise
            _sync_directory(directory)
        except OSError as error:
            raise SpoolError(f"cannot write to {self.root}: {error.strerror or error}") from error

    def keys(self) -> list[str]:
        """Return the names of the directories that hold records."""
        return sorted(name for name in _listed(self.root) if not name.startswith("."))

    def pending(self, key: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (path, record) of a key, or of all, the oldest first; a broken file is set aside."""
        for name in self._names(key):
            for path in sorted(self._records(name), key=_modified):
                try:
                    record = _read(path)
                except FileNotFoundError:
                    continue  # delivered by somebody else meanwhile
                except (OSError, ValueError):
                    os.rename(path, path + ".broken")
                else:
                    yield path, record

    def set_aside(self) -> list[str]:
        """Return the files that could not be read as records."""
        directories = [os.path.join(self.root, name) for name in self.keys()]
        return sorted(
            os.path.join(directory, name)
            for directory in directories
            for name in _listed(directory)
            if name.endswith(".broken")
        )

    def has(self, key: str | None = None) -> bool:
        """Return whether anything is pending, of a key at the cost of one look into a directory.

        Of all it is a look for each key that ever had a record. Their directories stay: whoever adds a record must not
        find its directory removed meanwhile.
        """
        return any(self._records(name) for name in self._names(key))

    def lock(self) -> int | None:
        """Become the only one who delivers; return a descriptor to close, or None if somebody else is."""
        import fcntl  # noqa: PLC0415 - only where a record was spooled

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(os.path.join(self.root, ".lock"), flags, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def deliver(
        self, store: FiringStore, key: str | None, *, wanted: Callable[[int], bool], within: float
    ) -> None:
        """Deliver a key's records, or all, while they are `wanted`; whatever fails stays for the next time.

        `wanted` is asked before each, and told how many were delivered; `within`: seconds for one record.
        """
        if not self.has(key) or (lock := self.lock()) is None:
            return
        try:
            for number, (path, record) in enumerate(self.pending(key)):
                if not wanted(number):
                    break
                store.deliver(record, deadline=clock.lease_time(store.lease_clock) + within)
                os.unlink(path)
        except (StoreError, OSError):
            store.close()
        finally:
            os.close(lock)

    def note_unreachable(self, key: str) -> bool:
        """Remember that the store was away; return whether that is news for this host and key."""
        try:
            path = os.path.join(self._directory(key), ".unreachable")
        except (OSError, SpoolError):
            return True
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def note_reached(self, key: str) -> None:
        """Forget that the store was away."""
        _remove(os.path.join(self.root, _name_of(key), ".unreachable"))

    def _names(self, key: str | None) -> list[str]:
        return self.keys() if key is None else [_name_of(key)]

    def _records(self, name: str) -> list[str]:
        directory = os.path.join(self.root, name)
        files = _listed(directory)
        for file in files:
            if file.startswith(".") and ".json." in file:
                _remove_unless_written(os.path.join(directory, file))
        return [os.path.join(directory, file) for file in files if file.endswith(".json")]

    def _directory(self, key: str) -> str:
        directory = os.path.join(self.root, _name_of(key))
        for path in (self._state, os.path.dirname(self.root), self.root, directory):
            _make(path)
            _refuse_unsafe(path)
        return directory


def _make(directory: str) -> None:
    """Make a directory and those above it, all 0700: os.makedirs gives its mode to the last alone."""
    if not os.path.lexists(directory):
        _make(os.path.dirname(directory))
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:  # another firing was faster
            return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _remove_unless_written(temporary: str) -> None:
    """Remove what was being written, unless its process lives, here or in a container that shares the directory."""
    if os.path.exists(f"/proc/{temporary.rpartition('.')[2]}"):
        return
    if abs(clock.wall() - _modified(temporary)) > _WRITTEN_WITHIN:
        _remove(temporary)


def _read(path: str) -> dict[str, Any]:
    """Return the record in a file. Raises `ValueError` where there is none."""
    import json  # noqa: PLC0415 - only where a record was spooled

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        record = json.load(file)
    if not isinstance(record, dict) or not {"kind", "key"} <= record.keys():
        raise ValueError(f"{path} holds no record")
    return record


def _refuse_unsafe(directory: str) -> None:
    """Raise `SpoolError` if somebody else could put or change something here."""
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise SpoolError(f"{directory} is a link; set XDG_STATE_HOME to a directory of your own")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise SpoolError(f"{directory} can be written by others; chown and chmod 700 it")
    while directory != "/":
        directory = os.path.dirname(directory)
        mode = os.stat(directory).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise SpoolError(f"{directory} is world-writable; set XDG_STATE_HOME to a safe place")


def _name_of(text: str) -> str:
    """Return a file name for any text: readable, and different for different texts."""
    safe = "".join(letter if letter in _SAFE else "_" for letter in text).lstrip(".")
    if safe == text and len(text) <= 120:  # noqa: PLR2004
        return text
    return f"{safe[:100]}-{zlib.crc32(text.encode('utf-8', 'surrogateescape')):08x}"


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
