"""What people do while hosts fire: pause and resume keys, drain hosts, stop and release what runs.

Each is a command of the installed `oncecron`, typed on one of the hosts by its operator, and drawn from a seed. What is
paused or drained is given back after a while, again and again until that has been done.
"""

import itertools
import math
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from oncecron_drill.firing_hosts import FiringHost
from oncecron_drill.history import Operation, Recorder, now

GAP = 4.0
"""Seconds between two deeds, on average."""
LASTS = (2.0, 6.0)
"""Seconds until what was paused or drained is given back."""
AGAIN = 1.0
"""Seconds until that is tried again."""
MOST_AT_ONCE = 3
KINDS = {"pause": 3, "drain": 2, "stop": 4, "release": 2}
HOW_TO_STOP = ((), ("--grace", "1s"), ("--signal", "KILL"))
UNDOES = {"pause": "resume", "drain": "undrain"}
ALL_KEYS = 0.1
"""Share of the pauses that are of all keys."""


class People:
    """Types commands whenever `step` is called, and reads how they end whenever `look` is."""

    def __init__(
        self, random: Random, hosts: Sequence[FiringHost], keys: Sequence[str], oncecron: Sequence[str], store: str,
        recorder: Recorder, running: Callable[[], list[str]],
    ) -> None:  # fmt: skip
        """`store` is the operator's URL; `running` tells the keys that hosts are firing."""
        self._random = random
        self.hosts = hosts
        self._keys = keys
        self._oncecron = oncecron
        self._store = store
        self.recorder = recorder
        self._running = running
        self._ids = itertools.count(1)
        self._directory = recorder.directory / "people"
        self._directory.mkdir()
        self._typed: dict[int, tuple[Operation, subprocess.Popen[bytes]]] = {}
        self._owed: dict[tuple[str, str], float] = {}
        self._in_doubt: set[tuple[str, str]] = set()
        self._next = now() + GAP

    @property
    def waiting(self) -> bool:
        """Whether a command has not ended."""
        return bool(self._typed)

    def step(self) -> None:
        if now() < self._next or len(self._typed) >= MOST_AT_ONCE:
            return
        self._next = now() + self._random.expovariate(1 / GAP)
        [kind] = self._random.choices(list(KINDS), list(KINDS.values()))
        if kind in UNDOES:
            self._hinder(kind)
        elif keys := sorted(set(self._running())):
            how = self._random.choice(HOW_TO_STOP) if kind == "stop" else ()
            self._type([kind, self._random.choice(keys), *how])

    def look(self) -> None:
        """Read who has ended, and give back what is due."""
        for operation, process in list(self._typed.values()):
            if process.poll() is not None:
                self._has_ended(operation, process.returncode)
        for (word, subject), due in list(self._owed.items()):
            if now() >= due and not self._is_typed(subject):
                self._type([word, subject])

    def give_back(self) -> bool:
        """Resume and undrain at once; return whether all of it is done."""
        self._owed = {what: min(due, now()) for what, due in self._owed.items()}
        self.look()
        return not self._owed

    def _hinder(self, kind: str) -> None:
        """Pause or drain, unless it is already; of the hosts one at a time, or nobody would be left."""
        if kind == "drain":
            subject = self._random.choice([host.name for host in self.hosts])
            taken = any(word == "undrain" for word, _ in self._owed)
        else:
            everything = self._random.random() < ALL_KEYS
            subject = "--all" if everything else self._random.choice(self._keys)
            taken = ("resume", subject) in self._owed
        if not taken and self._type([kind, subject, "--new"]):
            self._owed[UNDOES[kind], subject] = now() + self._random.uniform(*LASTS)

    def _is_typed(self, subject: str) -> bool:
        return any(
            operation.subject == subject and operation.words[0] in (*UNDOES, *UNDOES.values())
            for operation, _ in self._typed.values()
        )

    def _type(self, words: list[str]) -> bool:
        awake = [host for host in self.hosts if not host.frozen]
        if not awake:
            return False
        host = self._random.choice(awake)
        operation = Operation(next(self._ids), now(), host.name, words)
        with self._out(operation).open("wb") as out, self._err(operation).open("wb") as err:
            process = host.start(
                [*self._oncecron, *words], host.environment(ONCECRON_STORE=self._store),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        self._typed[operation.id] = operation, process
        self.recorder.operation(operation)
        return True

    def _has_ended(self, operation: Operation, status: int) -> None:
        operation.ended, operation.status = now(), status
        operation.stdout = self._out(operation).read_text(errors="replace")
        operation.stderr = self._err(operation).read_text(errors="replace")
        self.recorder.operation(operation)
        del self._typed[operation.id]
        word, subject = operation.words[0], operation.subject
        if word in UNDOES and status != 0:  # the store may hear it late, after what undoes it
            self._in_doubt.add((UNDOES[word], subject))
        if (word, subject) not in self._owed:
            return
        if status != 0:
            self._owed[word, subject] = now() + AGAIN
        elif (word, subject) in self._in_doubt:
            self._in_doubt.remove((word, subject))
            self._owed[word, subject] = math.inf  # once more, when all faults are undone
        else:
            del self._owed[word, subject]

    def _out(self, operation: Operation) -> Path:
        return self._directory / f"{operation.id}.out"

    def _err(self, operation: Operation) -> Path:
        return self._directory / f"{operation.id}.err"
