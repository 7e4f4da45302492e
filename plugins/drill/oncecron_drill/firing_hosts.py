"""The hosts that fire: a name, a state directory, a clock of their own, and the process trees that belong to them.

Their processes are told by their environment. What is done to a machine is done to all of them at once.
"""

import fcntl
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncecron_drill.generator import WITNESS_WORDS
from oncecron_drill.processes import (
    Process,
    command_line,
    descendants,
    environment_of,
    process_table,
    send,
    wait_gone,
)

LAUNCHER = Path(__file__).with_name("launcher.py")


class FiringHost:
    """One host; `store` is its ONCECRON_STORE."""

    def __init__(self, name: str, directory: Path, store: str) -> None:
        self.name = name
        self.store = store
        self.state = directory / "state" / name
        self.state.mkdir(parents=True, mode=0o700)
        self.clock_file = directory / f"clock-{name}"
        self.has_clock = False
        self.frozen = False
        self.is_full = False
        """Whether its disk is full."""
        self.is_foreign = False
        """Whether another wrapper than oncecron fires here."""
        self.offset = 0.0

    def give_clock(self, seconds: float) -> None:
        """Let its wall clock be wrong by so much, also for what runs already."""
        self.offset = seconds
        self.has_clock = True
        temporary = self.clock_file.with_suffix(".new")
        temporary.write_text(f"{seconds:+.3f}\n")
        temporary.rename(self.clock_file)

    def environment(self, **more: str) -> dict[str, str]:
        """Return what cron would give, and where the store is."""
        return {
            "HOME": str(self.state), "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin",
            "XDG_STATE_HOME": str(self.state), "ONCECRON_HOST": self.name, "ONCECRON_STORE": self.store,
            "WITNESS_HOST": self.name, **more,
        }  # fmt: skip

    def words(self, command: Sequence[str]) -> list[str]:
        """Return what is executed for a command here."""
        return list(command)

    def start(
        self, command: Sequence[str], environment: dict[str, str], **options: Any
    ) -> "subprocess.Popen[bytes]":
        """Start a command here, in a session of its own; its pid is the command's own."""
        options.setdefault("stdin", subprocess.DEVNULL)
        words = self.words(command)
        return subprocess.Popen(words, env=environment, start_new_session=True, **options)

    def run(
        self, command: Sequence[str], seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command here to its end."""
        return subprocess.run(
            self.words(command), env=self.environment(), check=False, capture_output=True,
            text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    # Its processes

    def processes(self) -> list[Process]:
        """Return all that runs here."""
        ours = f"XDG_STATE_HOME={self.state}".encode()
        return [process for process in process_table() if ours in environment_of(process.pid)]

    def freeze(self) -> None:
        """Stop all its processes, as a suspended virtual machine."""
        self.frozen = True
        count = -1
        while count != (count := len(self.processes())):  # the children born in between
            send(self.processes(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all go on."""
        self.frozen = False
        send(self.processes(), signal.SIGCONT)

    def power_off(self) -> None:
        """Kill all its processes; none sees another's end."""
        self.freeze()
        everybody = self.processes()
        send(everybody, signal.SIGKILL)
        wait_gone(everybody)
        self.frozen = False


class DrillHost(FiringHost):
    """A host of the drill: oncecron is started by way of `launcher.py`, with the environment of whoever drills."""

    def __init__(
        self, name: str, directory: Path, store: str, *, oncecron: Sequence[str], more: Mapping[str, str]
    ) -> None:  # fmt: skip
        """`oncecron`: the words that start it; `more`: what its environment has besides."""
        super().__init__(name, directory, store)
        self._oncecron = list(oncecron)
        self._more = dict(more)

    def environment(self, **more: str) -> dict[str, str]:
        """Return what the drill itself got, for libpq's variables and files, but for oncecron's own."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("ONCECRON_")
        }
        plain = super().environment(**more)
        del plain["HOME"], plain["LOGNAME"]
        if self.is_foreign:
            del plain["PATH"]  # the wrapper is found where it was typed
        return inherited | plain | self._more | more

    def words(self, command: Sequence[str]) -> list[str]:
        """Put the launcher between the interpreter and oncecron."""
        own = self._oncecron
        if list(command[: len(own)]) != own or not (self.has_clock or self.is_full):
            return list(command)
        at = len(own) - (2 if own[-2:-1] == ["-m"] else 1)  # of the script, or of `-m oncecron`
        clock = str(self.clock_file) if self.has_clock else "-"
        return [*own[:at], str(LAUNCHER), clock, "full" if self.is_full else "-", *command[at:]]


class Tree:
    """The processes of one firing, by their part; of a `table` where many are looked for at once.

    Of another wrapper than oncecron, whatever runs between it and the job is taken for its guard; it may have none.
    """

    def __init__(
        self, wrapper: int, table: Sequence[Process] | None = None, *, has_guard: bool = True
    ) -> None:
        everybody = descendants(wrapper, table)
        self._has_guard = has_guard
        if not has_guard:
            self.job = [process for process in everybody if is_job(process.pid)]
            others = [process for process in everybody if process not in self.job]
            self.wrapper = [process for process in others if process.pid == wrapper]
            self.guard = [process for process in others if process.pid != wrapper]
            return
        self.wrapper = [process for process in everybody if process.pid == wrapper]
        guards = [process for process in everybody if process.parent == wrapper]
        self.guard = guards[:1]
        self.job = [p for p in everybody if p not in self.wrapper and p not in self.guard]

    def parts(self, roles: Sequence[str]) -> list[Process]:
        """Return the processes of these parts; none where one of the parts has none."""
        if not self._has_guard and not self.guard and "wrapper" in roles:
            roles = [role for role in roles if role != "guard"]
        parts: list[list[Process]] = [getattr(self, role) for role in roles]
        return [process for part in parts for process in part] if all(parts) else []

    def signal(self, roles: Sequence[str], number: int) -> bool:
        """Send a signal to these parts; return whether there was anybody in each."""
        everybody = self.parts(roles)
        if number == signal.SIGKILL and len(everybody) > 1:
            send(everybody, signal.SIGSTOP)  # so that none sees another's end
        send(everybody, number)
        return bool(everybody)


def is_job(pid: int) -> bool:
    """Return whether a process is a job of a drill, or forked by one."""
    return command_line(pid)[: len(WITNESS_WORDS)] == [word.encode() for word in WITNESS_WORDS]


def firing_of(pid: int) -> int | None:
    """Return the firing that a process descends from."""
    words = environment_of(pid)
    found = [word.partition(b"=")[2] for word in words if word.startswith(b"WITNESS_FIRING=")]
    return int(found[0]) if found else None


def locked_files(journal: Path) -> list[Path]:
    """Return the files of starts of which something still lives."""
    taken = []
    for path in sorted(journal.glob("*/*")):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            taken.append(path)
        finally:
            os.close(descriptor)
    return taken
