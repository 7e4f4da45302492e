"""The keeper of a drill: a process that waits for the end of the drill, however that comes, and removes what it made.

It learns of the end from a pipe whose other end the drill alone holds, so `kill -9` is an end like any other. Then it
kills what still runs on the hosts and in front of the store, and removes the namespace and the directory. It holds the
lock of the directory, which has a note of what else is to be removed. Where it was killed too, the next drill of this
user on this machine finds the directory without that lock, and does the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from oncecron.core.errors import StoreError
from oncecron.host.stderr import complain
from oncecron_drill.processes import Process, environment_of, process_table, send, wait_gone
from oncecron_drill.stores import open_drilled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.stores.address import Address

PREFIX = "oncecron_drill"
"""How the name of each namespace of a drill begins; the drill uses no other."""
MARK = "XDG_STATE_HOME"
"""The variable that tells the processes of a drill from all others: it names something in the drill's directory."""
SWEEPS = 5
"""How often what still runs is looked for; each may have started another one before it was stopped."""

_DIRECTORY = "oncecron-drill-"


@dataclasses.dataclass(frozen=True)
class Ground:
    """What a drill makes for itself: a directory, and in the store a namespace."""

    NOTE: ClassVar[str] = "keeper.json"

    directory: Path
    address: Address | None
    """None where there is no namespace."""
    store: str
    """The address without a password."""

    @property
    def own_namespace(self) -> str:
        """The name of the namespace that it makes; a DBA may have prepared another one."""
        return f"{PREFIX}_{self.directory.name.removeprefix(_DIRECTORY)}"

    @property
    def note(self) -> Path:
        """The file that says what is to be removed from which store; there is none before there may be something."""
        return self.directory / self.NOTE

    def write_note(self, *, has_namespace: bool) -> None:
        """Say whether there is, or may be, a namespace to remove."""
        new = self.note.with_suffix(".new")
        new.write_text(json.dumps({"store": self.store, "has_namespace": has_namespace}))
        new.rename(self.note)

    def processes(self) -> list[Process]:
        """Return all that runs on its hosts and in front of its store."""
        ours = f"{MARK}={self.directory}/".encode()
        return [
            process
            for process in process_table()
            if any(word.startswith(ours) for word in environment_of(process.pid))
        ]

    def end_processes(self) -> None:
        """Kill all of them, and wait until they are dead: till then they hold files, and stand in the process table."""
        for _ in range(SWEEPS):
            if not (living := self.processes()):
                return
            send(living, signal.SIGSTOP)
            send(living, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                wait_gone(living)

    def clear(self) -> None:
        """Kill and remove all of it. Where the namespace cannot be removed now, the note stays for the next drill."""
        self.end_processes()
        noted = self._noted()
        is_removed = not noted.get("has_namespace") or (
            noted.get("store") == self.store and self._remove_namespace()
        )
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif is_removed or path != self.note:
                path.unlink(missing_ok=True)
        if is_removed:
            self.directory.rmdir()

    def _noted(self) -> dict[str, Any]:
        try:
            found = json.loads(self.note.read_text())
        except (FileNotFoundError, ValueError):  # it was killed before; or the disk has lost power
            return {}
        return found if isinstance(found, dict) else {}

    def _remove_namespace(self) -> bool:
        if self.address is None:
            return False
        try:
            with contextlib.closing(open_drilled(self.address, self.own_namespace)) as store:
                store.remove()
        except StoreError as error:
            complain(
                f"the namespace {self.own_namespace} of a drill is left: {error}; the next drill into this store "
                "removes it"
            )
            return False
        return True


@contextlib.contextmanager
def keeping(address: Address | None, store: str) -> Iterator[Ground]:
    """Give the ground of a drill, which is cleared when the block or this process ends. To be called without threads.

    `store`: the address without a password.
    """
    _clear_what_is_dead(address, store)
    directory, lock = _make_directory()
    ground = Ground(directory, address, store)
    told, lives = os.pipe()
    keeper = os.fork()
    if not keeper:
        os.close(lives)
        _keep(ground, told)
    os.close(told)
    try:
        yield ground
    finally:
        os.close(lives)
        os.waitpid(keeper, 0)
        os.close(lock)


def _make_directory() -> tuple[Path, int]:
    """Make a directory and lock it; another drill that begins at this moment may take it for one of the dead."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_DIRECTORY))
        with contextlib.suppress(FileNotFoundError):
            lock = _lock(directory, fcntl.LOCK_EX)
            if directory.exists():
                return directory, lock
            os.close(lock)


def _lock(directory: Path, how: int) -> int:
    """Lock a directory of this user, and return its descriptor. Raises `OSError`."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory, flags)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(directory)
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _keep(ground: Ground, told: int) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.read(told, 1)
        ground.clear()
    finally:
        os._exit(0)


def _clear_what_is_dead(address: Address | None, store: str) -> None:
    """Clear what drills of this user have left whose keeper is dead; a namespace in another store stays noted."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY}*"):
        ground = Ground(directory, address, store)
        with contextlib.suppress(OSError):
            lock = _lock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                ground.clear()
            finally:
                os.close(lock)
