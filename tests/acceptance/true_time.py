"""Hosts with clocks of their own around a PostgreSQL server whose clock shows the true time.

What each host's cron does is played: a firing comes when *its own* clock shows the time, in the order and at the
distances of the true time. The true time is read by the server from a file, and where nobody fires for a while
it jumps, so that days pass in seconds. The clock of the jobs' journal is always the real one.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from log_of import PostgresLog, Record, Skipped
from servers import Database, Journal, PostgresServer, assert_exclusive, job, skewed
from servers.oncecron import Ended, Firing, Oncecron, installed
from servers.process import as_server_user, spawn
from servers.skew import libfaketime

MINUTE, HOUR, DAY = 60, 3600, 86400
CRON_DELAY = 1.0  # Debian's cron fires about a second into the minute
NEAR = 3.0  # seconds of true time that are lived through instead of jumped over
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its place in Linux


def at(text: str) -> float:
    """Return the instant with this text, in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def named(instant: float) -> str:
    """Return the text of an instant, as ticks have it."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%MZ")


FIRST = at("2027-01-05T02:00Z")  # a tick of all schedules here


class Site(NamedTuple):
    """A host: how far its clock is ahead, and how far it is stepped back after its cron has woken."""

    name: str
    ahead: float = 0.0
    step: float = 0.0


class Due(NamedTuple):
    """A firing: when the host's clock shows the time that its cron waits for."""

    site: Site
    shown: float

    @property
    def true(self) -> float:
        return self.shown - self.site.ahead


class TrueTime:
    """The true time, in a file that libfaketime reads at each look at the clock."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "clock"
        self.set(FIRST - DAY)

    def now(self) -> float:
        return time.time() + self._ahead

    def set(self, instant: float) -> None:
        self._ahead = instant - time.time()
        new = self.file.with_suffix(".new")
        new.write_text(f"{self._ahead:+.3f}\n")
        new.rename(self.file)


class TrueServer(PostgresServer):
    """A PostgreSQL server whose clock shows the true time."""

    def __init__(self, clock: TrueTime) -> None:
        super().__init__()
        self.clock = clock

    def _launch(self) -> None:
        environment = {
            "LD_PRELOAD": libfaketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock.file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        # By env in the last place: the semaphore of libfaketime must belong to the server's user.
        variables = [f"{name}={value}" for name, value in environment.items()]
        server = [str(self.programs / "postgres"), "-D", str(self.data)]
        with (self.directory / "log").open("ab") as log:
            self.process = spawn(
                [*as_server_user("QUIT"), "/usr/bin/env", *variables, *server],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )


class World:
    """Hosts around one server, which keeps no execution longer than they want."""

    def __init__(self, database: Database, clock: TrueTime, path: Path, journal: Journal) -> None:
        database = installed(database)
        database.execute("update oncecron.meta set least_executions = 0")
        self.url = database.url()
        self.log = PostgresLog(database)
        self.clock = clock
        self.path = path
        self.journal = journal
        self.pids: list[int] = []
        clock.set(FIRST - DAY)

    def fire(
        self, site: Site, shown: float, *options: object, command: Sequence[str] | None = None,
        **environment: str,
    ) -> Firing:  # fmt: skip
        """Fire now, from a host whose clock shows `shown` and is then stepped back."""
        clock = skewed(shown + site.step - time.time(), environment)
        host = Oncecron(self.url, self.path, site.name, **clock)
        firing = host.fire(
            "k", *options, "--", *(command or job(self.journal, "--beats", "--sleep", 0.1))
        )
        self.pids.append(firing.process.pid)
        return firing

    def at(self, true: float, site: Site, *options: object, **more: object) -> Ended:
        """Fire once at this true time, by the host's clock, and wait for the end."""
        self.clock.set(true)
        return self.fire(site, true + site.ahead, *options, **more).wait()  # type: ignore[arg-type]

    def play(
        self, dues: Iterable[Due], *options: object, in_turn: bool = False, **environment: str
    ) -> list[Ended]:
        """Let all that is due fire, in the order of the true time.

        `in_turn`: each when the one before has ended, which on a busy machine half a second does not give.
        """
        running: list[Firing] = []
        ended: list[Ended] = []
        for due in sorted(dues, key=lambda due: due.true):
            left = due.true - self.clock.now()
            if left > NEAR:
                ended += [firing.wait() for firing in running]
                running = []
                self.clock.set(due.true)
            elif left > 0:
                time.sleep(left)  # so far apart are the hosts' clocks
            running.append(self.fire(due.site, due.shown, *options, **environment))
            if in_turn:
                ended.append(running.pop().wait())
        return ended + [firing.wait() for firing in running]

    def started(self) -> list[str]:
        """Return the ticks in the order of their starts, having seen that none was started twice."""
        assert_exclusive(self.journal)
        return [start.tick for start in self.journal.starts()]

    def executions(self) -> list[Record]:
        return self.log.executions("k")

    def skips(self, reason: str) -> list[Skipped]:
        return [skip for skip in self.log.skips("k") if skip.reason == reason]


def forget(pids: Iterable[int]) -> None:
    """Remove what libfaketime leaves behind when a process ends by _exit."""
    for pid in pids:
        for name in ("faketime_shm", "sem.faketime_sem"):
            with suppress(FileNotFoundError):
                SHARED_MEMORY.joinpath(f"{name}_{pid}").unlink()


def every_host(sites: Iterable[Site], instants: Iterable[float]) -> list[Due]:
    """Return the firings of cron on each of these hosts."""
    instants = list(instants)
    return [Due(site, instant + CRON_DELAY) for site in sites for instant in instants]
