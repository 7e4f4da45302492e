"""The hosts that fire: an environment as small as cron's, a clock of their own, and what a nemesis can do to a machine.

With root a host is a set of namespaces (hostname, network) on a switch; without, it is a name, its processes are
told by their environment, and its network cannot be touched but by the proxy in front of the store.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers import Host
from servers.process import (
    Process,
    as_ourselves,
    descendants,
    process_table,
    send,
    spawn,
    wait_gone,
)
from servers.require import program
from servers.skew import skewed

CHAIN = ("--wait", "-A", "INPUT")


class FiringHost:
    """One host; `machine` is its namespaces, or None in the reduced form."""

    def __init__(self, name: str, machine: Host | None, directory: Path, store: str) -> None:
        self.name = name
        self.machine = machine
        self.store = store
        self.state = directory / "state" / name
        self.state.mkdir(parents=True, mode=0o700)
        self.clock_file = directory / f"clock-{name}"
        self.has_clock = False
        self.frozen = False
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
        plain = {
            "HOME": str(self.state), "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin",
            "XDG_STATE_HOME": str(self.state), "ONCECRON_HOST": self.name, "ONCECRON_STORE": self.store,
            "WITNESS_HOST": self.name, **more,
        }  # fmt: skip
        if not self.has_clock:
            return plain
        faked = skewed(0, plain)
        del faked["FAKETIME"]
        return faked | {"FAKETIME_TIMESTAMP_FILE": str(self.clock_file)}

    def start(
        self, command: Sequence[str], environment: dict[str, str], **options: Any
    ) -> "subprocess.Popen[bytes]":
        """Start a command here; its pid is the command's own."""
        prefix = self.machine.prefix if self.machine else []
        return spawn([*prefix, *as_ourselves(), *command], env=environment, **options)

    def run(
        self, command: Sequence[str], seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command here to its end."""
        prefix = self.machine.prefix if self.machine else []
        return subprocess.run(
            [*prefix, *command], env=self.environment(), check=False, capture_output=True,
            text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    # Its processes

    def processes(self) -> list[Process]:
        """Return all that runs here."""
        if self.machine:
            return self.machine.processes()
        ours = f"XDG_STATE_HOME={self.state}\0".encode()
        return [process for process in process_table() if ours in _environment(process.pid)]

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

    # Its network; only with namespaces

    def silence(self, towards: str, stores: Sequence[Host]) -> None:
        """Let packets vanish where they arrive: `store`, `host`, or `both` ways."""
        for place, rule in self._rules(towards, stores):
            _filter(place, [*CHAIN, *rule, "-j", "DROP"])

    def reset(self, stores: Sequence[Host]) -> None:
        """Answer what it sends to the store by RST."""
        for place, rule in self._rules("store", stores):
            _filter(
                place, [*CHAIN, "-p", "tcp", *rule, "-j", "REJECT", "--reject-with", "tcp-reset"]
            )

    def lose(self, share: float, stores: Sequence[Host]) -> None:
        """Lose so many of the packets, at random, both ways."""
        chance = ["-m", "statistic", "--mode", "random", "--probability", f"{share:.2f}"]
        for place, rule in self._rules("both", stores):
            _filter(place, [*CHAIN, *rule, *chance, "-j", "DROP"])

    def mend_network(self, stores: Sequence[Host]) -> None:
        """Undo all of it, on both ends."""
        assert self.machine is not None
        self.machine.heal()
        _filter(self.machine, ["--wait", "-F", "INPUT"])
        for place in stores:
            rules = place.run([program("iptables"), "--wait", "-S", "INPUT"]).splitlines()
            for rule in reversed(rules):
                if f"{self.machine.address}/32" in rule:
                    _filter(place, ["--wait", "-D", *rule.split()[1:]])

    def _rules(self, towards: str, stores: Sequence[Host]) -> list[tuple[Host, list[str]]]:
        assert self.machine is not None
        at_store = [(place, ["-s", self.machine.address]) for place in stores]
        at_host = [(self.machine, ["-s", place.address]) for place in stores]
        return {"store": at_store, "host": at_host, "both": at_store + at_host}[towards]


class Tree:
    """The processes of one firing, by their part; of a `table` where many are looked for at once."""

    def __init__(self, wrapper: int, table: Sequence[Process] | None = None) -> None:
        everybody = descendants(wrapper, table)
        self.wrapper = [process for process in everybody if process.pid == wrapper]
        guards = [process for process in everybody if process.parent == wrapper]
        self.guard = guards[:1]
        self.job = [p for p in everybody if p not in self.wrapper and p not in self.guard]

    def parts(self, roles: Sequence[str]) -> list[Process]:
        """Return the processes of these parts; none where one of the parts has none."""
        parts: list[list[Process]] = [getattr(self, role) for role in roles]
        return [process for part in parts for process in part] if all(parts) else []

    def signal(self, roles: Sequence[str], number: int) -> bool:
        """Send a signal to these parts; return whether there was anybody in each."""
        everybody = self.parts(roles)
        if number == signal.SIGKILL and len(everybody) > 1:
            send(everybody, signal.SIGSTOP)  # so that none sees another's end
        send(everybody, number)
        return bool(everybody)


def _filter(place: Host, words: Sequence[str]) -> None:
    place.run([program("iptables"), *words])


def _environment(pid: int) -> bytes:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def firing_of(pid: int) -> int | None:
    """Return the firing that a process descends from."""
    words = _environment(pid).split(b"\0")
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
