"""Draw what `oncecron history`, `oncecron jobs` and `oncecron timeline` print on a terminal, as docs/images/*.svg.

The store is a real SQLite store, in which made-up hosts claim, and the real commands show it. Only the clock is made
up, so that the pictures say the same each time: a test compares the words in them.

    python tools/screenshots.py           write the pictures (needs the `docs` extra)
    python tools/screenshots.py --check   say which are stale, exit status 1
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import termios
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from oncecron.cli.main import invoke
from oncecron.core import clock
from oncecron.core.model import Ending, Firing, Holder, Lease, Retention
from oncecron.host.local_time import scheduled_tick
from oncecron.stores import open_lease_store, open_reader
from oncecron.stores.address import Address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.model import Outcome
    from oncecron.stores.api import LeaseStore

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
PICTURES = {
    "history": ["history", "--utc", "--limit", "9"],
    "jobs": ["jobs", "--utc"],
    "timeline": ["timeline", "--utc", "--since", "36h"],
}
PIDS = {"web1": 2114, "web2": 1897, "web3": 2240}
SCHEDULES = {
    "backup": "0 4 * * *",
    "billing-nightly": "0 2 * * *",
    "import-orders": "*/5 * * * *",
    "reindex": "0 3 * * *",
    "send-reports": "30 5 * * *",
}
COMMANDS = {
    "backup": "/usr/local/bin/backup.sh",
    "billing-nightly": "/srv/billing/bill.sh",
    "import-orders": "/usr/local/bin/import-orders -q",
    "reindex": "/srv/search/reindex.sh",
    "send-reports": "/srv/reports/send.sh",
}
COLUMNS = 100
TTL = 60.0
HOUR = 3600.0


class Cluster:
    """Three hosts that share a store and a clock, which stands still unless it is set."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._now = 0.0

    def now(self, _lease_clock: int = 0) -> float:
        """Return the time, by any clock."""
        return self._now

    def set(self, time: str) -> None:
        """Set the clock to a time such as 2026-11-20T02:00:01Z."""
        self._now = datetime.fromisoformat(time).timestamp()

    def start(self, key: str, host: str, time: str, *, failover: bool = False) -> Lease:
        """Let a host fire at a time; it gets the lease."""
        self.set(time)
        schedule = SCHEDULES[key]
        firing = Firing(
            key=key,
            shard=0,
            tick=scheduled_tick(schedule, "UTC", self._now),
            owner=f"{key} {time}",
            holder=Holder(host, PIDS[host] + int(self._now) // 60 % 997, "batch"),
            command=COMMANDS[key],
            fired_at=self._now,
            ttl=TTL,
            min_gap=None,
            starting_deadline=None,
            again=False,
            schedule=schedule,
            zone="UTC",
            failover=failover,
            retries=2 if failover else 0,
        )
        granted = self._store.claim(firing, deadline=self._now + TTL)
        assert isinstance(granted, Lease), granted
        return granted

    def end(self, lease: Lease, outcome: Outcome, after: float, exit_code: int | None) -> None:
        """Let the holder record the end, so many seconds after the start."""
        self._now = lease.started_at + after
        signal = SIGTERM if exit_code is None else None
        ending = Ending(outcome, exit_code, signal, after)
        assert self._store.finish(lease, ending, Retention(), deadline=self._now + TTL)

    def run(self, key: str, host: str, time: str, after: float, exit_code: int = 0) -> None:
        """Let a host run a job."""
        outcome: Outcome = "failed" if exit_code else "succeeded"
        self.end(self.start(key, host, time), outcome, after, exit_code)


@contextlib.contextmanager
def filled_store() -> Iterator[str]:
    """Give the address of a store in which three hosts have worked for two days, and are at it."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/jobs.db"
        address = Address("sqlite", path)
        store = open_lease_store(address, "oncecron", TTL)
        cluster = Cluster(store)
        real = clock.wall, clock.lease_time
        clock.wall, clock.lease_time = cluster.now, cluster.now
        try:
            _two_days(cluster)
            open_reader(address, "oncecron").pause(
                "send-reports", author="ann@web1", reason="new mail server", seconds=24 * HOUR
            )
            cluster.set("2026-11-20T06:15:04Z")
            yield f"sqlite://{path}"
        finally:
            clock.wall, clock.lease_time = real
            store.close()


def _two_days(cluster: Cluster) -> None:
    for day, host in (("2026-11-19", "web3"), ("2026-11-20", "web2")):
        cluster.run("billing-nightly", host, f"{day}T02:00:01Z", 723.0)
        if day == "2026-11-19":
            cluster.run("reindex", "web2", f"{day}T03:00:01Z", 1502.0)
            cluster.run("backup", "web1", f"{day}T04:00:02Z", 2710.0)
            cluster.run("send-reports", "web3", f"{day}T05:30:01Z", 48.3)
    cluster.start("reindex", "web1", "2026-11-20T03:00:01Z")  # and its host dies
    taken_over = cluster.start("reindex", "web3", "2026-11-20T03:01:02Z", failover=True)
    cluster.end(taken_over, "succeeded", 1544.0, 0)
    cluster.end(
        cluster.start("backup", "web3", "2026-11-20T04:00:01Z"), "timed-out", 3 * HOUR / 2, None
    )
    first = datetime.fromisoformat("2026-11-20T05:55:01Z")
    hosts = (("web1", 0), ("web3", 0), ("web2", 3), ("web1", 0))
    for number, (host, exit_code) in enumerate(hosts):
        at = first + timedelta(minutes=5 * number)
        cluster.run("import-orders", host, at.isoformat(), 1.8 + number / 10, exit_code)
    cluster.start("import-orders", "web2", "2026-11-20T06:15:01Z")


class Terminal(io.StringIO):
    """A terminal of as many columns as fit a page."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self._terminal, _ = os.openpty()
        termios.tcsetwinsize(self._terminal, (24, COLUMNS))

    def isatty(self) -> bool:
        """Say so."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that knows the width; what is written stays here."""
        return self._terminal


def picture(name: str, arguments: list[str], store: str) -> str:
    """Return a picture of what a command prints on a terminal."""
    answer = Terminal()
    with contextlib.redirect_stdout(answer):
        assert invoke([*arguments, "--store", store]) == 0
    text = Text.from_ansi(answer.getvalue().rstrip())
    width = max(len(line.plain) for line in text.split())
    console = Console(record=True, width=width, file=io.StringIO(), color_system="standard")
    console.print(Text.assemble(f"$ oncecron {' '.join(arguments)}\n", text), no_wrap=True)
    svg = console.export_svg(title="", unique_id=f"oncecron-{name}")
    svg = re.sub(
        r"@font-face \{.*?\}", "", svg, flags=re.DOTALL
    )  # no other server is asked for a font
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def words(svg: str) -> list[str]:
    """Return the texts in a picture; another release of rich may draw them otherwise."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def main() -> int:
    """Write the pictures, or compare them."""
    os.environ["FORCE_COLOR"] = "1"
    os.environ.pop("NO_COLOR", None)
    stale = []
    with filled_store() as store:
        for name, arguments in PICTURES.items():
            file = IMAGES / f"{name}.svg"
            drawn = picture(name, arguments, store)
            if not file.exists() or words(file.read_text(encoding="utf-8")) != words(drawn):
                stale.append(file.name)
            if "--check" not in sys.argv:
                IMAGES.mkdir(exist_ok=True)
                file.write_text(drawn, encoding="utf-8")
    if "--check" in sys.argv and stale:
        print("stale, run tools/screenshots.py:", *stale)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
