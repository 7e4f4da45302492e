"""Keep records on local disk until the store has them.

The spool is per user, store and namespace: STATE/spool/STORE/KEY/RECORD.json, in directories with mode 0700. A record
is one file, written under a temporary name, with fsync and rename, so it is there whole or not at all. The name has all
that tells a record from others, and whether it is a skip. The next delivery removes the temporary files of killed
processes. The spool is never used below a directory that other users can write to, and never through a link: there,
nothing is written, read or changed.

A claim needs to know how earlier runs of its key ended, so those records go first (`ends`). Skips can wait.

A record that the store refuses is set aside as RECORD.json.refused, with the reason, and a file that is no record as
RECORD.json.broken. Neither is delivered again, so that the later records are. `oncecron flush` lists them.
"""

from __future__ import annotations

import os
import stat

from oncecron.config.options import is_key
from oncecron.core import clock, system
from oncecron.core.errors import (
    EX_CONFIG,
    OncecronError,
    RecordRefusedError,
    StoreError,
    reason_of,
    shortage_of,
)
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import (
    CAUSES,
    LOST_BY_HOLDER,
    LOST_BY_STORE,
    OUTCOMES,
    REFUSAL_REASONS,
    REQUEST_KINDS,
    Ending,
    place_text,
)
from oncecron.core.units import DAY, LARGEST_SIZE
from oncecron.host import safe_paths, stderr
from oncecron.stores.address import masked, state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from oncecron.core.model import Firing, Lease, LostRun, Refusal
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore

_SPOOL_WRITE_TIMEOUT = 5.0
"""An older temporary file in the spool is left over from a killed process."""

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-")
_REFUSED = ".refused"
_BROKEN = ".broken"
_LOCK = ".lock"
_SKIP = "-skip"
_LARGEST = 8 * LARGEST_SIZE
"""In bytes, of a record: JSON makes 6 MiB of the largest output. Its other texts have less than 2 MiB."""


class SpoolError(OncecronError):
    """The spool cannot be used; the message says why and where."""

    exit_status = EX_CONFIG


def spool_of(address: Address, namespace: str) -> Spool:
    """Return this user's spool for a store; a password must not be in the name of its directory."""
    store = address.target if address.kind == "sqlite" else masked(address.target)
    return Spool(state_directory(), store, namespace)


class Spool:
    """The records of one store and namespace."""

    def __init__(self, state_directory: str, store: str, namespace: str) -> None:
        """`store`: its text without the password. Touches no disk."""
        self._state = state_directory
        self._newly_aside: list[str] = []
        """What this process has set aside, with the reason."""
        self.was_busy = False
        """Whether another process was delivering records that were to be delivered here."""
        self.root = os.path.join(state_directory, "spool", name_of(f"{store} {namespace}"))

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, marked `late`, until it is delivered. Raises `SpoolError` when the disk refuses it."""
        self._write({**record, "late": True}, "")

    def probe(self) -> None:
        """Write what no reader takes for a record, and remove it. Raises `SpoolError` where no record could be kept."""
        self.remove(self._write({"key": "", "owner": "probe", "attempt": os.getpid()}, ".probe"))

    def keep(self, record: dict[str, Any]) -> bool:
        """Do what `add` does; if the disk refuses, write the record to standard error and return False."""
        try:
            self.add(record)
        except SpoolError as error:
            stderr.complain(f"key {record['key']}: a record is lost: {error}: {record}")
            return False
        return True

    def refuse(self, record: dict[str, Any], why: str, path: str | None = None) -> None:
        """Set aside a record that the store refuses; `path`: where it is. Raises `SpoolError`."""
        written = self._write({**record, "late": True, "refused": why}, _REFUSED)
        if path:
            self.remove(path)
        self._newly_aside.append(f"{written}: {why}")

    def _write(self, record: dict[str, Any], suffix: str) -> str:
        part = f"{record['shard']}-" if record.get("shard") else ""
        what = record["attempt"] if "attempt" in record else f"{record.get('reason')}{_SKIP}"
        name = f"{record['owner']}-{part}{what}.json{suffix}"
        try:
            return self.write_file(record["key"], name, record)
        except OSError as error:
            raise SpoolError(f"cannot write to {self.root}: {reason_of(error)}") from error

    def refuse_unsafe(self) -> None:
        """Raise `SpoolError` if another user could have written here: then no record is pending."""
        if os.path.lexists(self.root):
            for name in ("", *self.keys()):
                self._refuse_unsafe(name)

    def pending(self, key: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (path, record) of a key, or of all keys, oldest first; skip broken files."""
        for name in self._names(key):
            yield from self._records_in(name)

    def taken(
        self, key: str | None = None, *, ends: bool = False
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the same for delivery, and set broken files aside. `ends`: leave out skips, and do not open them.

        One process at a time delivers the records of a key: one that has lost this race leaves them out (`was_busy`).
        Where there are no locks, they count once (see `LeaseStore.deliver`). Raises `SpoolError`.
        """
        for name in self._names(key):
            if _records(self.files_of(name)) and (lock := self.lock(name)) is not None:
                try:
                    yield from self._records_in(name, set_aside=True, ends=ends)
                finally:
                    system.calls.close(lock)

    def _records_in(
        self, name: str, *, set_aside: bool = False, ends: bool = False
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in sorted(_records(self.files_of(name)), key=_modified):
            if ends and path.endswith(f"{_SKIP}.json"):
                continue
            try:
                record = self.read_file(path)
            except FileNotFoundError:
                continue  # another process has delivered it
            except (OSError, ValueError, RecursionError) as error:
                if set_aside and shortage_of(error) is None:
                    _change(os.rename, path, path + _BROKEN)
                    self._newly_aside.append(f"{path}{_BROKEN}: {reason_of(error)}")
            else:
                record.pop("refused", None)  # somebody has put it back
                yield path, record

    def set_aside(self) -> list[tuple[str, str | None]]:
        """Return (path, reason) of the records that the store refused, and (path, None) of what is no record."""
        files = sorted(path for name in self.keys() for path in self.files_of(name))
        return [
            (path, self._reason(path) if path.endswith(_REFUSED) else None)
            for path in files
            if path.endswith((_REFUSED, _BROKEN))
        ]

    def has(self, key: str | None = None) -> bool:
        """Return whether a record of a key, or of any key, is pending; remove leftovers of killed processes.

        For one key this reads one directory; for all keys, one for each key that ever had a record. The directories
        are never removed, because another process may be adding a record.
        """
        for name in self._names(key):
            files = self.files_of(name)
            for file in files:
                base = os.path.basename(file)
                if base.startswith(".") and ".json." in base:
                    _remove_unless_written(file)
            if _records(files):
                return True
        return False

    def deliver(
        self,
        store: LeaseStore,
        key: str | None,
        seconds: Callable[[], float],
        *,
        ends: bool = False,
    ) -> bool:
        """Deliver the records of a key, or all; keep what fails. Return whether there was time for all.

        `seconds` returns what the next record has, or 0 to stop. An unsafe directory is skipped without a message,
        which cron would mail each time; `oncecron flush` reports it. What is set aside is reported once, in one line.
        """
        if not self.has(key):
            return True
        try:
            for path, record in self.taken(key, ends=ends):
                if (left := seconds()) <= 0:
                    return False
                deadline = clock.lease_time(store.lease_clock) + left
                try:
                    store.deliver(record, deadline=deadline)
                except RecordRefusedError as error:
                    self.refuse(record, str(error), path)
                else:
                    self.remove(path)
        except (StoreError, SpoolError, OSError):
            store.close()
        finally:
            self.report_aside()
        return True

    def report_aside(self) -> None:
        """Report what this process has set aside since the last call, in one line."""
        aside, self._newly_aside = self._newly_aside, []
        if aside:
            more = f"; {len(aside) - 1} more" if len(aside) > 1 else ""
            stderr.complain(f"spooled record set aside: {aside[0]}{more}")

    def _names(self, key: str | None) -> list[str]:
        return self.keys() if key is None else [name_of(key)]

    def _reason(self, path: str) -> str:
        try:
            return str(self.read_file(path).get("refused"))
        except (OSError, ValueError, RecursionError):
            return "unknown"

    # The files; a simulation has them in memory

    def keys(self) -> list[str]:
        """Return the names of the directories that hold records."""
        return sorted(name for name in _names_in(self.root) if not name.startswith("."))

    def files_of(self, name: str) -> list[str]:
        """Return the paths of the files in a directory of the spool; none if it is unsafe."""
        files = [file for file in _names_in(os.path.join(self.root, name)) if file != _LOCK]
        # A firing with an empty spool reads only one directory.
        if not files or not self._is_safe(name):
            return []
        return [os.path.join(self.root, name, file) for file in files]

    def read_file(self, path: str) -> dict[str, Any]:
        """Return the record in a file. Raises `ValueError` if there is none."""
        import json  # noqa: PLC0415 - only where a record was spooled

        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
            # It may have been put there while the directory was unsafe.
            if not stat.S_ISREG(status.st_mode) or not ours:
                raise ValueError(f"not a regular file that only user {os.geteuid()} can write")
            if status.st_size > _LARGEST:
                raise ValueError(f"larger than any record: {status.st_size} bytes")
            record = json.load(file)
        if not is_record(record):
            raise ValueError("not a spool record")
        return record  # type: ignore[no-any-return]

    def write_file(self, key: str, name: str, record: dict[str, Any]) -> str:
        """Write a file that is there whole or not at all; return its path. Raises `OSError` or `SpoolError`."""
        import json  # noqa: PLC0415 - it may need the last descriptor

        directory = self._directory(key)
        temporary = os.path.join(directory, f".{name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump(record, file, allow_nan=False)
                file.flush()
                safe_paths.sync_file(file.fileno())
            os.rename(temporary, os.path.join(directory, name))
        except OSError:
            _remove(temporary)  # a full disk
            raise
        safe_paths.sync(directory)  # a crash of the host may undo a rename that is not on disk
        return os.path.join(directory, name)

    def lock(self, name: str) -> int | None:
        """Lock a directory; return a descriptor to close, or None if another process has the lock.

        Without a lock where there are none: flock(2) on some file systems, in some sandboxes.
        """
        import fcntl  # noqa: PLC0415 - only where a record was spooled

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(os.path.join(self.root, name, _LOCK), flags, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.was_busy = True
            os.close(descriptor)
            return None
        except OSError:
            return descriptor
        return descriptor

    def remove(self, path: str) -> None:
        """Remove a record. Raises `SpoolError`: then it is delivered again, which changes nothing."""
        _change(os.unlink, path)

    def note_unreachable(self, key: str) -> bool:
        """Note that the store is unreachable; return whether this is new for this host and key."""
        return self._note(name_of(key), ".unreachable", float("inf"))

    def note_waiting(self) -> bool:
        """Note that the store lets nothing start for a while; return whether this is new for this host and day."""
        return self._note("", ".waiting", DAY)

    def _note(self, name: str, note: str, lasts: float) -> bool:
        """Write a note; return False where there is one that is not older."""
        try:
            path = os.path.join(self.made(name), note)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                if abs(clock.wall() - os.lstat(path).st_mtime) < lasts:
                    return False
                os.utime(path, follow_symlinks=False)
        except (OSError, SpoolError):
            pass
        return True

    def note_reached(self, key: str) -> None:
        """Note that the store was reached."""
        note = os.path.join(self.root, name_of(key), ".unreachable")
        if os.path.lexists(note) and self._is_safe(name_of(key)):
            _remove(note)

    def _levels(self, name: str) -> list[str]:
        levels = [self._state, os.path.dirname(self.root), self.root]
        return [*levels, os.path.join(self.root, name)] if name else levels

    def _directory(self, key: str) -> str:
        return self.made(name_of(key))

    def made(self, name: str) -> str:
        """Make a directory of the spool, and return its path. Raises `OSError`, or `SpoolError` where it is unsafe."""
        levels = self._levels(name)
        if os.path.lexists(levels[-1]):
            self._refuse_unsafe(name)
            return levels[-1]
        for path in levels:
            safe_paths.make(path)
            if why := safe_paths.unsafe(path):
                raise SpoolError(why)
        return levels[-1]

    def _refuse_unsafe(self, name: str = "") -> None:
        """Raise `SpoolError` if another user could have written here, `OSError` if the directory is missing."""
        if why := safe_paths.unsafe(*self._levels(name)):
            raise SpoolError(why)

    def _is_safe(self, name: str = "") -> bool:
        try:
            self._refuse_unsafe(name)
        except (SpoolError, OSError):
            return False
        return True


def _records(files: list[str]) -> list[str]:
    return [file for file in files if file.endswith(".json")]


def _change(change: Callable[..., None], *paths: str) -> None:
    """Rename or remove a file. Raises `SpoolError` when that is refused."""
    try:
        change(*paths)
    except FileNotFoundError:  # another process has done it
        return
    except OSError as error:
        raise SpoolError(
            f"cannot remove or rename {paths[0]}: {error.strerror}; "
            f"make its directory writable for user {os.geteuid()}"
        ) from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _remove_unless_written(temporary: str) -> None:
    """Remove a temporary file, unless its process may still run, here or in a container with the same directory.

    After a day another process has its pid: in containers, most have the same.
    """
    age = abs(clock.wall() - _modified(temporary))
    lives = os.path.exists(f"/proc/{temporary.rpartition('.')[2]}")
    if age > (DAY if lives else _SPOOL_WRITE_TIMEOUT):
        _remove(temporary)


def name_of(text: str) -> str:
    """Return a file name for any text: readable, and different for different texts."""
    safe = "".join(letter if letter in _SAFE else "_" for letter in text).lstrip(".")
    if safe == text and len(text) <= 120:  # noqa: PLR2004
        return text
    return f"{safe[:100]}-{short_hash(text.encode('utf-8', 'surrogateescape')):08x}"


def short_hash(data: bytes) -> int:
    """Return the FNV-1a hash of 32 bits: for a name a firing need not import `zlib`, which costs 0.4 ms."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x0100_0193 & 0xFFFF_FFFF
    return value


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


# The records that `LeaseStore.deliver` takes, from the spool or for a log store


def execution_record(
    firing: Firing, lease: Lease | None, ending: Ending, *, started_at: float | None = None
) -> dict[str, Any]:
    """Return the record of an execution that ended; without a lease it was `unclaimed`.

    `started_at`: wall time, only needed without a lease.
    """
    now = clock.wall()
    return {
        **_firing_fields(firing),
        "kind": "execution",
        "attempt": lease.attempt if lease else None if ending.outcome == "not-started" else 1,
        "outcome": ending.outcome,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "cause": lease.cause if lease else "manual" if firing.again else "schedule",
        "user": firing.holder.user,
        "command": firing.command,
        "started_at": lease.started_at if lease else started_at or now,
        "finished_at": now,
        "duration": ending.duration,
        "fencing_token": lease.token if lease else None,
        "owner": firing.owner,
        "note": ending.note,
        "lost_reason": ending.lost_reason,
        "request": ending.request and ending.request.kind,
        "requested_by": ending.request and ending.request.author,
        "output": ending.output and ending.output.text,
        "output_cut": ending.output and ending.output.cut,
        "place": place_text(_place_after(lease, ending)),
        "shards": firing.shards,
        "retries": firing.retries,
    }


def _place_after(lease: Lease | None, ending: Ending) -> bytes | None:
    """Return what the job has left, else its first place: a log beside the store is told in no other way.

    The wrapper of a killed guard knows neither: the store keeps what it has.
    """
    if ending.place is None and lease:
        return lease.place or None
    return ending.place


def not_started_record(firing: Firing, why: str) -> dict[str, Any]:
    """Return the record of an attempt that may have been granted and never began: its owner's newest."""
    return execution_record(firing, None, Ending("not-started", None, None, 0.0, why))


def start_record(firing: Firing, lease: Lease) -> dict[str, Any]:
    """Return the record of a start."""
    started = execution_record(firing, lease, Ending("running", None, None, 0.0))
    return {**started, "finished_at": None, "duration": None}


def lost_record(firing: Firing, lost: LostRun) -> dict[str, Any]:
    """Return the record of another firing's run that a claim of this one has declared lost, for an observer."""
    return {
        **lost._asdict(),
        "key": firing.key,
        "shard": firing.shard,
        "finished_at": None,
        "output": None,
    }


def skip_record(firing: Firing, refusal: Refusal) -> dict[str, Any]:
    """Return the record of a skip; a firing has at most one for each reason, so its owner identifies it."""
    host, pid, _ = refusal.holder or (None, None, None)
    return {
        **_firing_fields(firing),
        "kind": "skip",
        "owner": firing.owner,
        "reason": refusal.reason,
        "holder_host": host,
        "holder_pid": pid,
        "detail": refusal.detail,
        "at": clock.wall(),
        "count": 1,
    }


_KNOWN = {"kind", "key", "shard", "host", "pid", "fired_at", "owner"}
_FIELDS_OF = {
    "execution": (
        _KNOWN | {"outcome", "cause"},
        {"tick", "tick_instant", "attempt", "fencing_token", "note"}
        | {"lost_reason", "request", "requested_by"},
    ),
    "skip": (_KNOWN | {"reason", "at"}, {"tick", "tick_instant"}),
}
"""The fields that a record of a kind must have, and those that may be null."""
_WORDS = {
    "outcome": OUTCOMES,
    "reason": REFUSAL_REASONS,
    "cause": CAUSES,
    "lost_reason": (*LOST_BY_STORE, *LOST_BY_HOLDER),
    "request": REQUEST_KINDS,
}


def is_record(found: Any) -> bool:
    """Return whether a value that was read from a file is a record that a store can be asked to take."""
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS_OF:
        return False
    needed, others = _FIELDS_OF[kind]
    return (
        needed | others <= found.keys()
        and not any(found[name] is None for name in needed)
        and all(_fits(name, value) for name, value in found.items())
        and is_key(found["key"])
    )


def _fits(name: str, value: Any) -> bool:
    from oncecron.core import bounds  # noqa: PLC0415 - only where a record was spooled

    if name in _WORDS and value is not None:
        return value in _WORDS[name]
    return bounds.is_possible(name, value)


def _firing_fields(firing: Firing) -> dict[str, Any]:
    return {
        "key": firing.key,
        "shard": firing.shard,
        "tick": firing.tick.text,
        "tick_instant": firing.tick.instant,
        "host": firing.holder.host,
        "pid": firing.holder.pid,
        "fired_at": firing.fired_at,
    }
