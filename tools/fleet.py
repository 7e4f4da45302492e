"""A made-up fleet for pictures and tests: three hosts that have run fourteen keys for ninety days, in a SQLite store.

The older part of the log is written as rows. What happened last is claimed by the hosts, as it would be. Only the clock
is made up, so that everything is the same each time.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import clock
from oncecron.core.log_rows import Roles
from oncecron.core.model import Ending, Firing, Holder, Lease, Output, Retention
from oncecron.core.units import DAY, MINUTE
from oncecron.host.local_time import next_ticks, scheduled_tick
from oncecron.stores import open_lease_store, open_reader
from oncecron.stores.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncecron.core.model import Outcome

NOW = datetime.fromisoformat("2026-11-20T09:41:07Z").timestamp()
TTL = 60.0
HOSTS = ("web1", "web2", "worker1")
_SINCE = NOW - 90 * DAY


class Job(NamedTuple):
    """A line of the crontab that all hosts have."""

    schedule: str
    command: str
    seconds: float
    """How long it takes, more or less."""
    fails: float = 0.0
    """How often it fails."""


JOBS = {
    "billing-nightly": Job("0 2 * * *", "/srv/billing/bill.sh --all", 740, 0.02),
    "export-accounting": Job("0 6 * * 1-5", "/srv/billing/export.py", 95, 0.02),
    "fetch-rates": Job("*/15 * * * *", "/srv/shop/fetch-rates", 2.4, 0.0003),
    "import-orders": Job("*/5 * * * *", "/usr/local/bin/import-orders -q", 6.2, 0.0002),
    "invoice-reminders": Job("30 7 * * 1-5", "/srv/billing/remind.py", 31),
    "newsletter": Job("0 8 * * 1-5", "/srv/mail/newsletter.sh", 310),
    "postgres-backup": Job("30 1 * * *", "/usr/local/bin/backup.sh", 2710, 0.012),
    "prune-carts": Job("5 0 * * *", "/srv/shop/prune-carts", 44),
    "reindex-search": Job("0 3 * * *", "/srv/search/reindex.sh", 1502, 0.01),
    "sessions-clean": Job("17 * * * *", "/srv/shop/clean-sessions", 3.1),
    "sitemap": Job("40 4 * * *", "/srv/shop/sitemap", 128),
    "stock-levels": Job("*/10 * * * *", "/srv/shop/stock-levels", 11, 0.0003),
    "sync-warehouse": Job("0 * * * *", "/srv/shop/sync-warehouse", 420, 0.001),
    "tls-renew": Job("20 4 * * 1", "/usr/local/bin/renew-all", 17),
}
_MISSED = ("reindex-search", "2026-11-20T03:00Z")
_FAILED = ("billing-nightly", "2026-11-20T02:00Z")
_SLOW = ("sync-warehouse", "2026-11-20T09:00Z")
_FAILED_AFTER = 707.4
_OUTPUT = """\
2026-11-20 02:00:01 4,211 customers to bill
2026-11-20 02:09:48 connecting to ledger.example.com:5432
2026-11-20 02:11:48 could not connect: connection timed out
2026-11-20 02:11:48 3,902 customers billed, 309 are left
"""


class Fleet:
    """The hosts, their store, and the clock of all of them."""

    def __init__(self, path: str) -> None:
        """Open the store, a file that need not exist."""
        self.path = path
        self._now = _SINCE
        self._random = random.Random(20)  # noqa: S311 - the same each time
        self._store = open_lease_store(Address("sqlite", path), "oncecron", TTL)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Let all clocks of this process show the fleet's time."""
        real = clock.wall, clock.lease_time
        clock.wall, clock.lease_time = (lambda: self._now), (lambda _clock=0: self._now)
        try:
            yield
        finally:
            clock.wall, clock.lease_time = real

    def fill(self) -> None:
        """Let ninety days pass."""
        with self.clock():
            reader = open_reader(Address("sqlite", self.path), "oncecron")
            reader.initialise(Roles())
            self._change(_INSERT, self._old_rows())
            firings = ((at, key) for key in JOBS for at in _ticks(key, _claimed_since(key), NOW))
            running: list[tuple[float, str, Lease]] = []
            for at, key in sorted(firings):
                running = self._end_before(at, running)
                running += self._tick(key, at)
            for _, _, lease in self._end_before(NOW, running):
                self._now = NOW
                assert self._store.renew(lease, deadline=NOW + TTL)
            self._change("update job_key set expected_since = ?", [(_SINCE,)])
            self._now = datetime.fromisoformat("2026-11-19T16:02:00Z").timestamp()
            reader.pause("newsletter", author="ann@web1", reason="new mail server", seconds=None)
            reader.close()
            self._store.close()
            self._now = NOW

    def _change(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.executemany(statement, rows)

    def _old_rows(self) -> list[tuple[object, ...]]:
        """Return what ran before the hosts claim, in the order of time."""
        firings = [(at, key) for key in JOBS for at in _ticks(key, _SINCE, _claimed_since(key))]
        rows: list[tuple[object, ...]] = []
        for at, key in sorted(firings):
            outcome, exit_code, took = self._end(key)
            start = at + self._random.uniform(0.2, 1.6)
            tick = scheduled_tick(JOBS[key].schedule, "UTC", at + 1)
            host, pid = self._random.choice(HOSTS), self._random.randint(900, 32000)
            rows.append(
                (key, tick.text, tick.instant, outcome, exit_code, host, pid, JOBS[key].command, start, start,
                 start + took, took, f"{key} {at}")
            )  # fmt: skip
        return rows

    def _end(self, key: str) -> tuple[Outcome, int, float]:
        """Return how a run ends, and after how many seconds."""
        job, fails = JOBS[key], self._random.random() < JOBS[key].fails
        took = job.seconds * self._random.lognormvariate(0, 0.18) * (0.4 if fails else 1.0)
        return ("failed", 1, took) if fails else ("succeeded", 0, took)

    def _tick(self, key: str, at: float) -> list[tuple[float, str, Lease]]:
        """Let all hosts fire at a tick; return the run, and when it ends."""
        which = key, str(scheduled_tick(JOBS[key].schedule, "UTC", at + 1).text)
        if which == _MISSED or (key == "newsletter" and at > NOW - DAY):
            return []
        first = self._random.choice(HOSTS)
        lease = self._fire(key, at + self._random.uniform(0.2, 1.2), first)
        assert lease
        for number, host in enumerate(sorted({*HOSTS} - {first}), 1):
            self._fire(key, at + 1.2 + number / 4, host)
        took = self._end(key)[2]
        if which == _FAILED:
            took = _FAILED_AFTER
        return [(NOW + 1 if which == _SLOW else lease.started_at + took, key, lease)]

    def _end_before(
        self, at: float, running: Sequence[tuple[float, str, Lease]]
    ) -> list[tuple[float, str, Lease]]:
        """Let the runs end that do so before a time; return the others."""
        for end, key, lease in sorted(each for each in running if each[0] < at):
            self._now, took = end, end - lease.started_at
            ending = Ending("succeeded", 0, None, took)
            if (key, lease.tick) == _FAILED:
                ending = Ending("failed", 3, None, took, output=Output(_OUTPUT, 0))
            assert self._store.finish(lease, ending, Retention(), deadline=end + TTL)
        return [each for each in running if each[0] >= at]

    def _fire(self, key: str, at: float, host: str) -> Lease | None:
        self._now = at
        job = JOBS[key]
        firing = Firing(
            key=key,
            shard=0,
            tick=scheduled_tick(job.schedule, "UTC", at),
            owner=f"{key} {at} {host}",
            holder=Holder(host, self._random.randint(900, 32000), "batch"),
            command=job.command,
            fired_at=at,
            ttl=TTL,
            min_gap=None,
            starting_deadline=None,
            again=False,
            schedule=job.schedule,
            zone="UTC",
        )
        answer = self._store.claim(firing, deadline=at + TTL)
        return answer if isinstance(answer, Lease) else None


def _claimed_since(key: str) -> float:
    """Return since when hosts claim the ticks of a key: of one that runs often, only the last ones."""
    if key == _SLOW[0]:
        return NOW - DAY
    return NOW - (100 * MINUTE if "*" in JOBS[key].schedule.split()[1] else 7 * DAY)


def _ticks(key: str, since: float, until: float) -> Iterator[float]:
    instants = (tick.instant or 0.0 for tick in next_ticks(JOBS[key].schedule, "UTC", since))
    return itertools.takewhile(lambda at: at < until, instants)


_INSERT = """
insert into job_execution (key, shard, tick, tick_instant, named, attempt, owner_attempt, outcome, cause, exit_code,
  host, pid, user, command, fired_at, started_at, finished_at, duration, owner)
values (?, 0, ?, ?, 0, 1, 1, ?, 'schedule', ?, ?, ?, 'batch', ?, ?, ?, ?, ?, ?)
"""
