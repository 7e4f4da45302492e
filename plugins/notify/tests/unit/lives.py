"""Random lives of keys and hosts, in a SQLite store with a simulated clock; what is true of them is kept beside it.

Hosts fire keys each minute as cron does, die and return, are cut off from the store; people pause, drain, forget,
rename and prune. Each claim and each end is the real store's. Of the code under test this knows nothing.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import clock
from oncecron.core.log_rows import LeastRetention, Roles
from oncecron.core.model import AskAgain, Ending, Firing, Holder, Lease, Refusal, Retention
from oncecron.core.tick import Tick, minute_tick
from oncecron.stores.sqlite.lease_store import SQLiteLeaseStore
from oncecron.stores.sqlite.reader import SQLiteReader

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import pytest

BEGIN = 1_795_132_800.0  # 2026-11-20T00:00Z
MINUTE = 60.0
TTL = 150.0
PEOPLE = ("ann@desk", "bob@lap")
KEEP = Retention(executions=1e9, skips=1e9)


class Due(NamedTuple):
    """A tick of a key, and what became of it: `ran`, `held`, `paused`, `drained`, or `nobody` fired it."""

    tick: Tick
    how: str


class Run:
    """A run of a key, with what only its host knows."""

    def __init__(self, key: Key, tick: Tick, host: Host, lease: Lease, now: float) -> None:
        self.key, self.tick, self.host, self.lease = key, tick, host, lease
        self.boot = host.boot
        self.started = self.renewed = now
        self.ends = now
        self.fate = "succeeded"
        self.is_cut_off = False
        self.outcome = "running"
        self.ended: float | None = None
        self.kept = False

    def is_living(self, now: float) -> bool:
        """Return whether its lease is there and has not expired."""
        return (self.outcome == "running" or self.kept) and now < self.renewed + TTL

    def known_outcome(self, now: float) -> str:
        """Return how it ended, as far as anybody can know."""
        is_over = self.outcome == "running" and now >= self.renewed + TTL
        return "lost" if is_over else self.outcome


class Key:
    """A key: what is expected of it, and what ran."""

    def __init__(self, name: str, every: int, command: str) -> None:
        self.name, self.every, self.command = name, every, command
        self.paused: tuple[str, float] | None = None
        self.forgotten: tuple[str, float] | None = None
        self.expected_since: float | None = None
        self.renamed_to: str | None = None
        self.runs: list[Run] = []
        self.dues: list[Due] = []

    def fire_in_vain(self, tick: Tick) -> None:
        """Expect a key that has never run, or not since it was forgotten, from its first firing on."""
        if self.expected_since is None:
            self.expected_since = (tick.instant or 0.0) - 1

    @property
    def is_retired(self) -> bool:
        """Return whether it was forgotten, and no host has fired it since."""
        return self.forgotten is not None and self.expected_since is None

    @property
    def schedule(self) -> str:
        """Return its crontab fields."""
        return "* * * * *" if self.every == 1 else f"*/{self.every} * * * *"

    def living(self, now: float) -> Run | None:
        """Return the run that has its lease."""
        return next((run for run in self.runs if run.is_living(now)), None)

    def newest_ended(self, now: float) -> Run | None:
        """Return the newest run that does not run, and is not tried again."""
        return next((run for run in reversed(self.runs) if not run.is_living(now)), None)

    def not_started(self, now: float, *hows: str) -> list[Due]:
        """Return the ticks since the newest start that nobody started, for one of these causes."""
        if self.expected_since is None:
            return []
        newest = max((run.tick.instant or 0.0 for run in self.runs), default=0.0)
        begin = max(newest, self.expected_since)
        end = self.paused[1] if self.paused else now
        return [
            due for due in self.dues if begin < (due.tick.instant or 0.0) < end and due.how in hows
        ]


class Host:
    """A host: whether it lives, and the lines of its crontab."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.store = SQLiteLeaseStore(path, namespace="default")
        self.boot = 0
        self.lives_from = 0.0
        self.drained: tuple[str, float] | None = None
        self.forgotten_at: float | None = None
        self.lines: dict[str, float] = {}
        """Keys, and since when they have a line."""
        self.fired: dict[str, list[tuple[str, float]]] = {}
        """The ticks that it fired, and when, by key."""

    def newest(self, key: str | None = None) -> float | None:
        """Return when it last fired a key, or anything."""
        of_keys = self.fired.values() if key is None else [self.fired.get(key, [])]
        return max((at for each in of_keys for _, at in each), default=None)

    def has_line(self, key: Key) -> bool:
        """Return whether it has had a line for a key since the key was due last."""
        due = max((due.tick.instant or 0.0 for due in key.dues), default=0.0)
        return self.lines.get(key.name, due) < due


class World:
    """Keys and hosts, and their store."""

    def __init__(
        self, draw: random.Random, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.draw = draw
        self.now = BEGIN
        monkeypatch.setattr(clock, "wall", lambda: self.now)
        monkeypatch.setattr(clock, "lease_time", lambda _clock: self.now)
        path = str(directory / "store.db")
        self.reader = SQLiteReader(path, namespace="default")
        self.reader.initialise(Roles(), LeastRetention(MINUTE, 1e6))
        self.keys = {
            name: Key(name, every, f"/bin/{name}")
            for name, every in (("mail", 1), ("bill", 5), ("sync", 5), ("load", 10))
        }
        self.hosts = {name: Host(name, path) for name in ("web1", "web2", "web3")}
        for host in self.hosts.values():
            host.lines = dict.fromkeys(self.keys, self.now)
        self.is_quiet = self.is_pruned = False

    # What happens by itself

    def pass_minute(self) -> None:
        """Let a minute begin, with all that hosts do in it."""
        self.now = (self.now // MINUTE + 1) * MINUTE + 1
        for key in self.keys.values():
            for run in key.runs:
                if run.outcome == "running" or run.kept:
                    self._go_on(run)
        tick = minute_tick(self.now)
        minute = int(self.now // MINUTE)
        for key in self.keys.values():
            if minute % key.every == 0:
                self._fire(key, tick)
        self.now += 20

    def _go_on(self, run: Run) -> None:
        host, now = run.host, self.now
        deadline = now + 30
        if host.boot != run.boot or host.lives_from > now:
            return  # died with its host
        if run.kept:
            answer = host.store.retry(run.lease, deadline=deadline) if not run.is_cut_off else None
            if isinstance(answer, Lease):
                run.lease, run.kept, run.outcome = answer, False, "running"
                run.started = run.renewed = now
                run.ends, run.fate = now, self.draw.choice(("succeeded", "failed"))
            elif answer is not None:
                self._finish(run, run.outcome)
                run.kept = False
            return
        if now >= run.ends:
            self._end(run)
        elif not run.is_cut_off and host.store.renew(run.lease, deadline=deadline):
            run.renewed = now

    def _end(self, run: Run) -> None:
        if run.fate == "retried":
            ending = Ending("failed", 1, None, 1.0)
            if run.host.store.keep(run.lease, ending, deadline=self.now + 30):
                run.outcome, run.kept, run.renewed, run.ended = "failed", True, self.now, self.now
            return
        self._finish(run, run.fate)

    def _finish(self, run: Run, outcome: str) -> None:
        code = 0 if outcome == "succeeded" else 1
        ending = Ending(outcome, code, None, self.now - run.started)  # type: ignore[arg-type]
        run.host.store.finish(run.lease, ending, KEEP, deadline=self.now + 30)
        run.outcome, run.ended = outcome, self.now

    def _fire(self, key: Key, tick: Tick) -> None:
        answers = []
        hosts = list(self.hosts.values())
        self.draw.shuffle(hosts)
        for host in hosts:
            if key.name not in host.lines or host.lives_from > self.now:
                continue
            self.now += self.draw.uniform(0.01, 0.2)
            firing = Firing(
                *(key.name, 0, tick, str(uuid.uuid4()), Holder(host.name, 7, "root")),
                *(key.command, self.now - 0.5, TTL, None, None, False, key.schedule, "UTC"),
                retries=1,
                machine=f"{host.name} {host.boot}",
            )
            answer = host.store.claim(firing, deadline=self.now + 30)
            if isinstance(answer, AskAgain):  # it does not wait
                answer = answer.refusal
                host.store.skip(firing, answer, deadline=self.now + 30)
            assert isinstance(answer, Lease | Refusal)
            host.fired.setdefault(key.name, []).append((str(tick.text), self.now))
            if isinstance(answer, Refusal):
                answers.append(answer.reason)
                key.fire_in_vain(tick)
                continue
            answers.append("ran")
            self._start(key, tick, host, answer)
        how = (
            next((each for each in ("ran", "held", "paused", "drained") if each in answers), "")
            or "nobody"
        )
        key.dues.append(Due(tick, how))

    def _start(self, key: Key, tick: Tick, host: Host, lease: Lease) -> None:
        for before in key.runs:
            if before.outcome == "running" and not before.is_living(self.now):
                before.outcome = "lost"
            before.kept = False
        if key.expected_since is None:
            key.expected_since = self.now
        key.forgotten = None
        run = Run(key, tick, host, lease, self.now)
        key.runs.append(run)
        fate = 0.0 if self.is_quiet else self.draw.random()
        if fate > 0.9:
            run.fate = self.draw.choice(("failed", "retried"))
        elif fate > 0.86:
            run.ends += self.draw.choice((5, 15, 40)) * MINUTE
        elif fate > 0.83:
            run.is_cut_off = True
            run.ends += self.draw.choice((2, 8, 1000)) * MINUTE
        if run.ends <= self.now:
            self._end(run)

    # What befalls hosts, and what people do

    def befall(self) -> None:
        """Let something happen."""
        host = self.draw.choice([*self.hosts.values()])
        key = self.draw.choice([*self.keys.values()])
        author = self.draw.choice(PEOPLE)
        happen = self.draw.choice(
            [
                *(self._die, self._die, self._die_briefly, self._die_briefly),
                *(self._pause, self._pause, self._drain, self._drain),
                *(self._forget, self._forget_host, self._lose_line, self._lose_line),
                *(self._retire, self._retire, self._rename, self._restore, self._prune),
            ]
        )
        happen(host, key, author)

    def _die(self, host: Host, _key: Key, _author: str) -> None:
        self._stop(host, self.draw.choice((12, 25, 60, 100)))

    def _die_briefly(self, host: Host, _key: Key, _author: str) -> None:
        self._stop(host, 3)

    def _stop(self, host: Host, minutes: int) -> None:
        host.boot += 1
        host.lives_from = max(host.lives_from, self.now + minutes * MINUTE)

    def _pause(self, _host: Host, key: Key, author: str) -> None:
        if key.paused:
            self.reader.resume(key.name)
            key.paused = None
        else:
            self.reader.pause(key.name, author=author, reason=None, seconds=None)
            key.paused = author, self.now

    def _drain(self, host: Host, _key: Key, author: str) -> None:
        if host.drained:
            self.reader.undrain(host.name)
            host.drained = None
        else:
            self.reader.drain(host.name, author=author)
            host.drained = author, self.now

    def _forget(self, _host: Host, key: Key, author: str) -> None:
        if self.reader.forget(key.name, author):
            key.forgotten, key.expected_since = (author, self.now), None

    def _forget_host(self, host: Host, _key: Key, _author: str) -> None:
        self.reader.forget_host(host.name)
        host.fired.clear()
        host.forgotten_at = self.now

    def _lose_line(self, host: Host, key: Key, _author: str) -> None:
        host.lines.pop(key.name, None)

    def _retire(self, _host: Host, key: Key, author: str) -> None:
        for host in self.hosts.values():
            self._lose_line(host, key, author)

    def _rename(self, _host: Host, key: Key, author: str) -> None:
        had = [host for host in self.hosts.values() if key.name in host.lines]
        if not had or key.renamed_to or len(self.keys) > 6:
            return
        self._retire(_host, key, author)
        name = key.renamed_to = f"{key.name}-2"
        self.keys[name] = Key(name, key.every, key.command)
        for host in had:
            host.lines[name] = self.now

    def _restore(self, host: Host, key: Key, _author: str) -> None:
        host.lines.setdefault(key.name, self.now)

    def _prune(self, _host: Host, _key: Key, _author: str) -> None:
        self.reader.prune(Retention(executions=1800.0, skips=1e6))
        self.is_pruned = True

    def heal(self) -> None:
        """Mend everything, so that all keys are well within the next hour."""
        self.is_quiet = True
        for host in self.hosts.values():
            host.lives_from = min(host.lives_from, self.now)
            if host.drained:
                self._drain(host, next(iter(self.keys.values())), "")
            host.lines = dict.fromkeys(self.keys, self.now)
        for key in self.keys.values():
            if key.paused:
                self._pause(next(iter(self.hosts.values())), key, "")
            for run in key.runs:
                run.ends = min(run.ends, self.now)
                run.fate = "succeeded" if run.outcome == "running" else run.fate

    def close(self) -> None:
        """Close the files."""
        with suppress(Exception):
            self.reader.close()
        for host in self.hosts.values():
            host.store.close()
