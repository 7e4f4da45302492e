"""One run: hosts fire, the nemesis strikes, everything is undone, what is left is gathered.

One thread fires, kills and reaps; a second, the operator, asks the store what may take seconds. No promise is judged
here: that is the checker's, from what was recorded.
"""

import contextlib
import dataclasses
import heapq
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from oncecron.core.masking import masked
from oncecron_drill.faults import FURTHEST_STEP, OUTLIVING, HostFaults
from oncecron_drill.firing_hosts import FiringHost, firing_of, is_job, locked_files
from oncecron_drill.generator import KEYS, TTL, Key, Shot, shots
from oncecron_drill.history import CALM_TICK, Firing, Log, Recorder, now
from oncecron_drill.nemesis import USUAL, Nemesis, Pace
from oncecron_drill.processes import Process, command_line, send
from oncecron_drill.pulse import Pulse
from oncecron_drill.wanted import Store, Wanted

CALM = TTL + 30
"""Seconds in which each key must run when every fault is undone, for the longest; the hosts go on until then."""
CALM_BY_CLOCKS = CALM + FURTHEST_STEP
"""Where hosts tell when a job has started, a host whose clock was ahead may have told a start that is still to come: a
key with --min-gap runs again, and its dead lease ends, when that is over."""
APART = 0.4
"""Seconds between the keys' first firings in the calm, and between two looks at who has run."""
SOON, BRIEFLY = 5.0, " --seconds 1"
"""Seconds between two ticks of a key then, and what its job is told besides."""
PLANNED = (CALM_BY_CLOCKS + 3 * SOON) * max(key.period for key in KEYS if not key.by_clock) / SOON
"""Seconds of the plan that are left for the calm: it needs a tick of each key every SOON, for as long as it lasts."""
LONGEST_END = 60.0
"""Seconds for the firings that are under way to end, when no more are fired."""
LONGEST_LEAVING = 5.0
"""Seconds for a guard to leave, which its wrapper does not wait for for ever; a job that is left lives for longer."""
LONGEST_NOTICE = 45.0
"""Seconds until a server has noticed that a client is gone without a word."""
LONGEST_QUEUE = 180.0
"""The same where a lock makes them wait for each other, for as long as all of them take."""
MOST_OF_A_KEY = 2
"""Firings of a key that another wrapper has under way on a host at a time: its lock may wait for ever."""
TURN = 0.01
MOST_SAID = 65536
"""Bytes of a pipe."""
TOO_LATE = 10.0
"""Seconds by which a machine with too much to do may be late; what is later is not fired at all."""


class UnreadableError(Exception):
    """The log cannot be read when all is over."""


class Run:
    """The hosts, what they have under way, and the record of it."""

    def __init__(
        self, wanted: Wanted, hosts: Sequence[FiringHost], store: Store, operator: Executor
    ) -> None:
        if wanted.wrapper:
            keys = wanted.wrapper.keys(wanted.keys)
            wanted = dataclasses.replace(wanted, keys=keys, item_keys=())
        self.wanted = wanted
        self.hosts = {host.name: host for host in hosts}
        for host in (
            hosts if wanted.wrapper else ()
        ):  # its clock and its disk are those of the machine
            host.is_foreign, host.has_clock, host.is_full = True, False, False
        self.store = store
        self.operator = operator
        self.recorder = Recorder(wanted.directory)
        self._ended = contextlib.ExitStack()
        self._ended.callback(self.recorder.close)
        self.journal = wanted.directory / "journal"
        self.journal.mkdir(mode=0o777)
        (wanted.directory / "items").mkdir(mode=0o777)
        self.stderr = wanted.directory / "stderr"
        self.stderr.mkdir()
        self._ids = itertools.count(1)
        self.living: dict[int, tuple[Firing, subprocess.Popen[bytes]]] = {}
        self._fired: set[tuple[str, str | None]] = set()
        self._of_items = {key.name: key.items for key in wanted.item_keys}
        self._begin_at = 0.0
        self._queue: list[tuple[float, int, Shot]] = []
        self._pipes: dict[int, int] = {}

    def close(self) -> None:
        """Beat no more, also where it was interrupted, and record no more."""
        self._ended.close()

    def faults_of(self, host: FiringHost, random: Random) -> HostFaults:
        """Return what can be done to a host."""
        proxies = self.store.proxies.get(host.name, ())
        firings = partial(self.firings_of, host)
        return HostFaults(host, proxies, random, firings, outside=self.wanted.outside)

    def pace(self) -> Pace:
        """Return how hard the nemesis strikes."""
        return USUAL

    def firings_of(self, host: FiringHost) -> list[Firing]:
        """Return what a host has under way."""
        return [firing for firing, _ in self.living.values() if firing.host == host.name]

    def head(self) -> dict[str, Any]:
        """Return what was asked for, as the checker reads it."""
        wanted = self.wanted
        return {
            "seed": wanted.seed, "store": wanted.store, "minutes": wanted.minutes, "ttl": wanted.lease,
            "hosts": list(self.hosts), "wall": time.time() - now(),
            "keys": {
                key.name: {"seconds": key.longest, "period": key.period, "rule": key.rule, "parts": key.parts}
                for key in wanted.keys
            },
            "items": self._of_items,
            "retried": [key.name for key in wanted.item_keys if "--in-doubt retry" in key.run],
            "promised": wanted.wrapper and wanted.wrapper.rules, "kinds": self.nemesis.kinds,
        }  # fmt: skip

    # The run

    def begin(self) -> None:
        """Do what is to be done when the first firing is near."""

    def calm(self) -> None:
        """Undo what is no fault of the nemesis."""

    def meanwhile(self) -> None:
        """Do what is due besides, again and again while faults strike."""

    def look(self) -> bool:
        """See which of that has ended; return whether some has not."""
        return False

    def give_back(self) -> bool:
        """Undo it when no more faults strike; return whether all is undone."""
        return True

    def say_how_far(self) -> None:
        """Say it, again and again."""

    def go(self) -> None:
        """Fire and strike for so long, undo everything, go on for a while, gather."""
        self.strike()
        self._wait_for(self.operator.submit(self.store.well))
        while not self.give_back():
            self._turn()
        self.calm()
        self.recorder.moment("quiet")
        self._go_on_until_all_have_run(now())
        self._fire_what_waits_for_its_minute()
        self._fire_what_outlives_its_lease()
        self._fire_the_items()
        self._let_them_end()
        self._pulse.stop()
        self.feel()
        self.recorder.moment("end")
        self._gather()

    def is_long_enough(self) -> bool:
        """Return whether faults have struck for so long."""
        return self.elapsed >= self.wanted.minutes * 60

    def strike(self) -> None:
        """Fire and strike for so long, and undo all that lasts."""
        wanted = self.wanted
        seconds = wanted.minutes * 60
        random = Random(f"{wanted.seed} nemesis")
        faults = [self.faults_of(host, random) for host in self.hosts.values()]
        self.nemesis = Nemesis(
            random,
            faults,
            self.store.faults,
            self.operator,
            self.recorder,
            wanted.faults,
            self.pace(),
        )
        self.recorder.head(**self.head())
        planned = shots(
            wanted.seed,
            (*wanted.keys, *wanted.item_keys),
            list(self.hosts),
            time.time(),
            seconds + PLANNED,
        )
        self._queue = [(self._due(shot), number, shot) for number, shot in enumerate(planned)]
        heapq.heapify(self._queue)
        self._pulse = Pulse(self.store.beat, pause=wanted.pulse)
        self._ended.callback(self._pulse.stop)
        self._begin_at = now()
        self.begin()
        while not self.is_long_enough():
            self._turn()
            self.nemesis.step()
            self.meanwhile()
            self.say_how_far()
        while not self.nemesis.undo_all():
            self._turn()

    def stop(self) -> None:
        """End all that runs, and the record."""
        for host in self.hosts.values():
            host.power_off()
        self._let_them_end()
        self._pulse.stop()
        for moment in ("quiet", "end"):
            self.recorder.moment(moment)
        self._write_log(dataclasses.asdict(Log()))

    def _go_on_until_all_have_run(self, quiet: float) -> None:
        """Fire each key, its next tick at once, until it has started; for a ttl at least, as dead hosts have leases."""
        by_period = sorted(self.wanted.keys, key=lambda key: key.period)
        waiting = {key.name for key in by_period if not key.by_clock}
        self._bring_forward([key.name for key in by_period if key.name in waiting])
        look, calm = now(), CALM_BY_CLOCKS if self.wanted.store == "sqlite" else CALM
        calm += self.wanted.lease - TTL
        while now() < quiet + TTL or (waiting and now() < quiet + calm):
            self._turn()
            if now() >= look:
                look = now() + APART
                waiting = {
                    key.name
                    for key in self.wanted.keys
                    if key.name in waiting and _newest(self.journal / key.name, key.parts) <= quiet
                }
                self._queue = [planned for planned in self._queue if planned[2].key.name in waiting]
                heapq.heapify(self._queue)

    def _bring_forward(self, keys: list[str]) -> None:
        """Let the ticks of each that nobody has fired yet come now, one soon after the other, for short jobs."""
        elapsed, queue = now() - self._begin_at, []
        for number, name in enumerate(keys):
            its = [
                planned
                for planned in self._queue
                if planned[2].key.name == name and (name, planned[2].tick) not in self._fired
            ]
            first = min((at for at, _, _ in its), default=0.0)
            for planned_at, order, shot in its:
                key = dataclasses.replace(shot.key, job=shot.key.job + BRIEFLY)
                faster = min(1.0, SOON / key.period)
                at = elapsed + number * APART + (planned_at - first) * faster
                queue.append((at, order, dataclasses.replace(shot, at=at, key=key)))
        self._queue = queue
        heapq.heapify(self._queue)

    def _wait_for(self, operation: "Future[None]") -> None:
        while not operation.done():
            self._turn()
        operation.result()

    def _turn(self) -> None:
        if self._queue and self._queue[0][0] <= now() - self._begin_at:
            at, number, shot = heapq.heappop(self._queue)
            if now() - self._begin_at - at < TOO_LATE:
                self._fire(number, shot)
        self._reap()
        self.look()
        self.feel()
        time.sleep(TURN)  # between two looks at who has ended

    def feel(self) -> None:
        """Record what befell the store by itself."""
        for fault in self._pulse.slow():
            self.recorder.fault(fault)

    def _fire(self, number: int, shot: Shot) -> None:
        host = self.hosts[shot.host]
        due = self._due(shot)
        if (
            host.frozen or due > now() - self._begin_at + TURN
        ):  # its cron fires when it can, by its clock
            later = max(due, now() - self._begin_at + 0.2)
            heapq.heappush(self._queue, (later, number, shot))
            return
        if not self._is_crowded(host, shot.key):
            self._start(host, shot)

    def _is_crowded(self, host: FiringHost, key: Key) -> bool:
        """Return whether another wrapper runs the key here and waits for it too: then it will be asked soon enough."""
        its = [firing for firing in self.firings_of(host) if firing.key == key.name]
        return host.is_foreign and len(its) >= MOST_OF_A_KEY

    def _due(self, shot: Shot) -> float:
        return shot.at - (self.hosts[shot.host].offset if shot.key.by_clock else 0)

    def _start(self, host: FiringHost, shot: Shot) -> None:
        if shot.tick is not None:
            self._fired.add((shot.key.name, shot.tick))
        command, more = self._command(host, shot)
        # Options before `--` are oncecron's, for the rules; and a password is for no history.
        typed = ["--", *map(masked, command)] if host.is_foreign else command
        firing = Firing(next(self._ids), now(), host.name, shot.key.name, shot.tick, typed, 0)
        with self._stderr_of(host, firing) as stderr:
            process = host.start(
                command, host.environment(WITNESS_FIRING=str(firing.id), **more),
                stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
        firing.pid = process.pid
        self.living[firing.id] = firing, process
        self.recorder.firing(firing)

    def _command(self, host: FiringHost, shot: Shot) -> tuple[list[str], dict[str, str]]:
        wrapper, fenced = self.wanted.wrapper, self.store.fenced_write()
        if wrapper is None:
            return shot.command(self.wanted.oncecron, self.journal, fenced), {}
        job = shot.job(self.journal, fenced)
        return wrapper.command(shot, job, host.store), wrapper.environment(shot)

    def _stderr_of(self, host: FiringHost, firing: Firing) -> BinaryIO:
        """Return where a firing writes what it says: a file, and where its disk is full a pipe."""
        if not host.is_full:
            return (self.stderr / str(firing.id)).open("wb")
        said, end = os.pipe()
        os.set_blocking(said, False)
        self._pipes[firing.id] = said
        return os.fdopen(end, "wb", buffering=0)

    def _said(self, firing: Firing) -> str:
        path = self.stderr / str(firing.id)
        if said := self._pipes.pop(firing.id, None):
            with contextlib.suppress(BlockingIOError):
                path.write_bytes(os.read(said, MOST_SAID))
            os.close(said)
        text = path.read_text(errors="replace") if path.exists() else ""
        if not text:
            path.unlink(missing_ok=True)
        return text

    def _reap(self) -> None:
        for firing, process in list(self.living.values()):
            if process.poll() is not None:
                self._has_ended(firing, process)

    def _has_ended(self, firing: Firing, process: "subprocess.Popen[bytes]") -> None:
        firing.ended, firing.status = now(), process.returncode
        firing.stderr = self._said(firing)
        self.recorder.firing(firing)
        del self.living[firing.id]

    def _let_them_end(self) -> None:
        end = now() + (LONGEST_QUEUE if self.wanted.wrapper else LONGEST_END)
        while now() < end:
            self._reap()
            waiting = self.look()
            self.feel()
            if not (self.living or waiting):
                return
            time.sleep(TURN)  # between two looks at who has ended

    def _fire_what_waits_for_its_minute(self) -> None:
        for key in self.wanted.keys:
            if key.by_clock:
                by_hand = dataclasses.replace(key, rule="none", run="", job=key.job + BRIEFLY)
                self._fire_now(self._first_host, by_hand)

    def _fire_what_outlives_its_lease(self) -> None:
        key = next((key for key in self.wanted.keys if key.name in OUTLIVING), None)
        if key is not None:
            by_hand = dataclasses.replace(key, rule="none", run=f"--wait {CALM:g}s")
            self._fire_now(self._first_host, by_hand)

    def _fire_the_items(self) -> None:
        for key in self.wanted.item_keys:
            for host in self.hosts.values():
                self._fire_now(host, key, CALM_TICK)

    def _fire_now(self, host: FiringHost, key: Key, tick: str | None = None) -> None:
        self._start(host, Shot(self.elapsed, host.name, key, tick))

    @property
    def _first_host(self) -> FiringHost:
        return next(iter(self.hosts.values()))

    @property
    def elapsed(self) -> float:
        """Seconds since the first firing."""
        return now() - self._begin_at

    # Afterwards

    def _gather(self) -> None:
        left = []
        for host in self.hosts.values():
            host.give_clock(0)  # an audit on SQLite goes by the clocks of the hosts
            left += self._living_processes(host)  # first: who is leaving may record something yet
            left += self._undelivered_of(host) if self.wanted.wrapper is None else []
        log = dataclasses.asdict(Log()) if self.wanted.wrapper else self._log()
        log["left"] = left + self._left_in_the_store()
        for path in locked_files(self.journal):
            with path.open("a") as file:
                file.write(json.dumps({"event": "lives", "at": now()}) + "\n")
        self._write_log(log)

    def _write_log(self, log: dict[str, Any]) -> None:
        (self.wanted.directory / "log.json").write_text(json.dumps(log))

    def _undelivered_of(self, host: FiringHost) -> list[str]:
        done = host.run([*self.wanted.oncecron, "flush"])
        why = f"flush ended with {done.returncode}: {done.stderr.strip()}"
        left = [f"{host.name}: {path} is left" for path in _undelivered(host.state)]
        return [f"{host.name}: {why}", *left] if done.returncode else left

    def _log(self) -> dict[str, Any]:
        first = self._first_host
        return {
            "executions": self._rows(first, "history", "--limit", "0"),
            "skips": self._rows(first, "history", "--skips", "--limit", "0"),
            "findings": self._rows(first, "audit"),
            "items": [
                row for what in sorted(self._fired, key=str) for row in self._items_of(first, *what)
            ],
            "register": self.operator.submit(self.store.register).result(),
        }

    def _left_in_the_store(self) -> list[str]:
        for proxy in (proxy for proxies in self.store.proxies.values() for proxy in proxies):
            proxy.sever()  # a middlebox forgets whom it has not heard of; these have no timer for it
        end = now() + LONGEST_NOTICE
        while left := self.operator.submit(self.store.leftovers).result():
            if now() > end:
                return list(left)
            time.sleep(0.5)  # between two looks
        return []

    def _rows(self, host: FiringHost, command: str, *options: str) -> list[dict[str, Any]]:
        done = host.run([*self.wanted.oncecron, command, *options, "--format", "json"])
        if done.returncode and not (command == "audit" and done.stdout):
            raise UnreadableError(
                f"`oncecron {command}` ended with {done.returncode}: {done.stderr.strip()}"
            )
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def _items_of(self, host: FiringHost, key: str, tick: str | None) -> list[dict[str, Any]]:
        if key not in self._of_items or tick is None:
            return []
        words = ["items", key, "--tick", tick, "--format", "json"]
        done = host.run([*self.wanted.oncecron, *words])
        rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return rows

    def _living_processes(self, host: FiringHost) -> list[str]:
        end = now() + LONGEST_LEAVING
        while (living := self._running_on(host)) and now() < end:
            time.sleep(TURN)  # between two looks at who has left
        left = [
            f"{host.name}: process {process.pid} lives: {_command(process.pid)}"
            for process in living
        ]
        send(host.processes(), signal.SIGKILL)  # the dead have no command line
        return left

    def _running_on(self, host: FiringHost) -> list[Process]:
        unguarded = self._unguarded()
        return [
            process
            for process in host.processes()
            if firing_of(process.pid) not in unguarded
            if self.wanted.wrapper is None or is_job(process.pid)
        ]

    def _unguarded(self) -> set[int | None]:
        hit = [hit[:2] for fault in self.recorder.faults.values() for hit in fault.hit]
        return {firing for firing, role in hit if role == "guard" and (firing, "wrapper") in hit}


def _newest(directory: Path, parts: int) -> float:
    newest = dict.fromkeys(map(str, range(parts)), 0.0)
    for name in os.listdir(directory) if directory.exists() else []:
        part, at = name.partition("-")[0], float(name.rpartition("-")[2])
        newest[part] = max(at, newest.get(part, 0.0))
    return min(newest.values())


def _command(pid: int) -> str:
    return b" ".join(command_line(pid)).decode(errors="replace") or "-"


def _undelivered(state: Path) -> list[Path]:
    found = (Path(directory) / name for directory, _, names in os.walk(state) for name in names)
    return [
        path for path in found if path.name not in (".lock", ".unreachable", ".waiting", "place")
    ]
