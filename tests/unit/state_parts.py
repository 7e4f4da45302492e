"""What a state of the guard works with, without a store, a job or a wrapper."""

import os
from typing import Any, cast

from oncecron.core.model import Ending, Lease, Refusal
from oncecron.run.guard import Guard
from oncecron.run.job import JobEnd, Trust
from oncecron.run.reporter import Reporter
from oncecron.run.spec import RunSpec

NOW = 100.0
TTL = 60.0
LEASE = Lease("k", 0, "t", "o", 1, 42, 9, TTL, 0.0, NOW + TTL)
NEXT_LEASE = LEASE._replace(attempt=2, execution_id=43, token=10)
LATE_LEASE = LEASE._replace(trusted_until=NOW)
SUCCEEDED = JobEnd(Ending("succeeded", 0, None, 1.0), 0)
FAILED = JobEnd(Ending("failed", 3, None, 1.0), 3)


class Orders:
    """The mailbox of the store thread."""

    newest_claim = None

    def __init__(self) -> None:
        self.given: list[tuple[str, str | None]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda ending=None: self.given.append((name, ending.note if ending else None))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.given]


class Told:
    """What a firing would report; nothing of it is written anywhere."""

    def __init__(self) -> None:
        self.log = self
        self.lines: list[str] = []
        self.spooled: list[dict[str, Any]] = []
        self.disk_is_full = False
        self.unstarted: list[tuple[int, str]] = []
        self.interrupted: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def hold(self) -> None:
        """Let the thread of the log rest: there is none."""

    def resume(self) -> None:
        """Let it go on."""

    def spool(self, record: dict[str, Any]) -> bool:
        if not self.disk_is_full:
            self.spooled.append(record)
        return not self.disk_is_full

    def spool_not_started(self, firing: Any, why: str) -> None:
        self.unstarted.append((firing.shard, why))

    def record_interrupted(self, _firing: Any, why: str) -> None:
        self.interrupted.append(why)

    def say_store_failure(self, _error: Exception) -> int:
        """Return the exit status of a firing whose store is away."""
        return 69

    def delay_after(self, _lease: Lease) -> float:
        return 5.0

    def say_no_retry(self, _lease: Lease, event: Any, stop_reason: str | None = None) -> str:
        return event.why.reason if isinstance(event.why, Refusal) else stop_reason or "away"

    def send(self, _record: object) -> None:
        """Ignore the log."""

    def say_refusal(self, *_refused: object, waits: bool) -> None:
        """Ignore a refusal."""

    def say_start(self, _lease: Lease) -> None:
        """Ignore a start."""

    def say_end(self, ending: Ending) -> None:
        if ending.outcome in ("timed-out", "stopped"):
            self.lines.append(ending.outcome)

    def say_no_start(self, _error: OSError) -> int:
        """Return the exit status of a command that is not executable."""
        return 126


class FakeJob:
    """A job that ends when the test says so."""

    cannot_start = False
    ended: JobEnd | None = None

    def __init__(self, **_: Any) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start(self, *_: Any) -> None:
        if self.cannot_start:
            raise OSError(8, "Exec format error")

    def judge(self, _now: float, _trusted_until: float) -> JobEnd | None:
        return self.ended

    def poll_timeout(self, _now: float, _trusted_until: float) -> float:
        return 7.0

    def forward(self, number: int, _now: float, *, already_there: bool) -> None:
        self.calls.append(("forward", number, already_there))

    def obey(self, request: Any, _now: float) -> None:
        self.calls.append(("obey", request))

    def kill(self, stop: Any, _now: float) -> None:
        self.calls.append(("kill", stop.outcome))

    def terminate(self, stop: Any, _now: float) -> None:
        self.calls.append(("terminate", stop.note))


class Bench(Guard):
    """A guard without processes, pipes and thread: its states are given what happens by the test."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec, Trust(), -1, -1, cast("Any", None))
        for descriptor in (self.store_thread.event_fd, self.store_thread._wake_fd):
            os.close(descriptor)
        self.time = NOW
        self.orders = self.store_thread = cast("Any", Orders())
        self.told = self.reporter = cast("Any", Told())
        self.reports: list[str] = []
        self.report = self.reports.append  # type: ignore[method-assign]

    def now(self) -> float:
        return self.time

    def really_reporting(self) -> "Bench":
        """Let the reports go where those of a firing go."""
        self.reporter = Reporter(self.spec)
        return self
