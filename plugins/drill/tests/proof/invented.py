"""Invents histories for the tests of the checker: each firing, with its start and its row, as it should be.

A test takes a legal history and changes the one thing that it is about. Every row has a note that means nothing: no
rule reads it.
"""

from typing import Any

from oncecron_drill.checker import check
from oncecron_drill.history import Fault, Firing, History, Log, Operation, Start

KEY = "billing"
AWAY = "oncecron: key billing: the store cannot be reached\n"
JOB = ["--", "witness"]


class Invented:
    """A history in the making; times are seconds of its clock, which begins at 100."""

    def __init__(self, **head: Any) -> None:
        keys = {KEY: {"seconds": 2.0, "period": 5.0, "once": False}}
        hosts = ["h1", "h2", "h3"]
        self.history = History(
            {"seed": 7, "store": "postgres", "minutes": 1, "ttl": 6.0, "hosts": hosts, "keys": keys, "kinds": {}}
            | head,
            [], [], [], Log(), quiet=200.0, end=200.0,
        )  # fmt: skip
        self.token = 1000

    def fire(
        self, at: float = 100.0, host: str = "h1", tick: str | None = "t1", *, status: int | None = 0,
        lasts: float = 0.5, options: tuple[str, ...] = (), stderr: str = "", key: str = KEY,
    ) -> Firing:  # fmt: skip
        """Add a firing without a start."""
        number = len(self.history.firings) + 1
        named = [] if tick is None else ["--tick", tick]
        command = ["oncecron", "run", "--key", key, *named, *options, *JOB]
        firing = Firing(
            number, at, host, key, tick, command, 1000 + number, at + lasts, status, stderr
        )
        self.history.firings.append(firing)
        return firing

    def start(
        self, firing: Firing, *, at: float | None = None, lasts: float = 1.0, **values: Any
    ) -> Start:
        """Let a firing start its job, which ends with the firing's status, and record it."""
        self.token += 1
        at = firing.at + 0.1 if at is None else at
        told: dict[str, Any] = {
            "file": f"{firing.key}/{len(self.history.starts)}", "at": at, "host": firing.host,
            "pid": firing.pid + 10000, "wrapper": firing.pid, "key": firing.key, "shard": "0", "tick": firing.tick,
            "attempt": 1, "token": self.token, "execution_id": self.token - 1000, "last_sign": at + lasts,
            "ended": at + lasts, "status": firing.status,
        }  # fmt: skip
        start = Start(**{**told, **values})
        self.history.starts.append(start)
        if firing.ended is not None:
            firing.ended = max(firing.ended, at + lasts + 0.1)
        self.row(firing, token=start.token, execution_id=start.execution_id, attempt=start.attempt)
        return start

    def run(
        self, at: float = 100.0, host: str = "h1", tick: str | None = "t1", **values: Any
    ) -> Start:
        """Add a firing that starts its job."""
        return self.start(self.fire(at, host, tick, **values))

    def row(self, firing: Firing, **values: Any) -> dict[str, Any]:
        """Record an execution of a firing, as its status has it unless told otherwise."""
        status = firing.status or 0
        outcome = {0: "succeeded", 75: "lost", 124: "timed-out"}.get(status, "failed")
        row = {
            "execution_id": 0, "key": firing.key, "shard": 0, "tick": firing.tick, "attempt": 1, "outcome": outcome,
            "exit_code": None if outcome == "lost" else status, "signal": None, "host": firing.host,
            "pid": firing.pid, "user": "root", "command": "witness", "started_at": "2026-11-20T02:00:00.000Z",
            "finished_at": "2026-11-20T02:00:01.000Z", "duration": 1.0, "owner": f"o{firing.id}",
            "note": "lease ended, asked by takeover: the store had lost it",
            "cause": self._cause(firing, values.get("attempt", 1)),
            "lost_reason": "expired" if outcome == "lost" else None, "request": None, "requested_by": None,
        }  # fmt: skip
        token = values.pop("token", None)
        row.update(values, fencing_token=token)
        self.history.log.executions.append(row)
        return row

    def _cause(self, firing: Firing, attempt: int) -> str:
        """Return why a firing starts anything, by its options and by what it has started before."""
        if "--again" in firing.command:
            return "manual"
        if attempt == 1:
            return "schedule"
        is_own = any(row["owner"] == f"o{firing.id}" for row in self.history.log.executions)
        return "retry" if is_own else "takeover" if "--failover" in firing.command else "schedule"

    def skip(self, firing: Firing, reason: str = "held", count: int = 1) -> dict[str, Any]:
        """Count a refusal."""
        row = {
            "key": firing.key, "shard": 0, "tick": firing.tick, "reason": reason, "holder_host": None,
            "holder_pid": None, "host": firing.host, "pid": firing.pid, "at": "2026-11-20T02:00:00Z", "count": count,
        }  # fmt: skip
        self.history.log.skips.append(row)
        return row

    def skip_of(self, host: str, at: float, tick: str = "t2") -> Firing:
        """Add a firing that is refused, and count that; return it."""
        firing = self.fire(at, host, tick)
        self.skip(firing)
        return firing

    def operate(
        self, at: float, *words: str, host: str = "h3", status: int | None = 0, lasts: float = 0.5, stderr: str = ""
    ) -> Operation:  # fmt: skip
        """Let somebody type a command, which says that it is done."""
        number = len(self.history.operations) + 1
        said = "done\n" if status == 0 else ""
        operation = Operation(number, at, host, list(words), at + lasts, status, said, stderr)
        self.history.operations.append(operation)
        return operation

    def fault(
        self, at: float, until: float | None, target: str = "store", kind: str = "crash",
        hit: tuple[tuple[Firing, str, str], ...] = (),
    ) -> Fault:  # fmt: skip
        """Add a fault, with whom it hit."""
        hits = [(firing.id, role, state) for firing, role, state in hit]
        fault = Fault(len(self.history.faults) + 1, at, kind, target, "", hits, until)
        self.history.faults.append(fault)
        return fault

    def stop(
        self, firing: Firing, *roles: str, at: float, until: float | None, how: str = "stopped"
    ) -> Fault:
        """Stop (or kill) processes of a firing."""
        hit = tuple((firing, role, how) for role in roles)
        return self.fault(at, until, firing.host, how, hit)


def broken(run: Invented) -> list[str]:
    """Return the rules that a history breaks, but for `missed`: a skip here needs no reason."""
    return [rule for rule in every(run) if rule != "missed"]


def every(run: Invented) -> list[str]:
    """Return all rules that a history breaks."""
    return [violation.rule for violation in check(run.history).violations]


def holes(run: Invented) -> list[str]:
    """Return the rules under which documented holes are counted."""
    return [hole.rule for hole in check(run.history).holes]


def row(run: Invented) -> dict[str, Any]:
    """Return the row of the first start."""
    return run.history.log.executions[0]
