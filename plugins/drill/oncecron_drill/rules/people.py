"""What people ask for is done, and said: nothing starts that is paused or drained, what was stopped is dead."""

import math
from collections.abc import Iterator

from oncecron_drill.history import Operation, Start
from oncecron_drill.rules.exclusion import is_excused
from oncecron_drill.rules.joined import RECORDING, UNDONE_BY, Joined, alive_until, taken_back
from oncecron_drill.rules.verdict import Violation

_ENDED_BY_STOPS = ("stop", "release")
_BUGS = ("Traceback (most recent call last)", "internal error")
_AWAY, _NOT_YET, _REFUSED, _UNKNOWN = 69, 75, 78, 66


def hindered(joined: Joined) -> Iterator[Violation]:
    """Nothing starts whose claim was decided after a pause, or the draining of its host, had returned."""
    for operation in joined.history.operations:
        kind = operation.words[0]
        if kind not in UNDONE_BY or operation.status != 0 or operation.ended is None:
            continue
        until, _ = taken_back(joined, operation)
        for start in joined.starts:
            names = (start.host,) if kind == "drain" else (start.key, "--all")
            if operation.subject not in names or not operation.ended < start.at < until:
                continue
            if joined.claimed_after(start) > operation.ended:
                yield _of(
                    joined, operation, start, kind,
                    f"was started although {joined.operation_text(operation)} had returned, "
                    f"{start.at - operation.ended:.3f} s before",
                    hole=joined.forgets(operation.at, operation.ended),
                )  # fmt: skip


def stopped(joined: Joined) -> Iterator[Violation]:
    """When stop or release says that it is done, nothing lives of what had started before it was asked for."""
    for operation in joined.history.operations:
        if (
            operation.words[0] not in _ENDED_BY_STOPS
            or operation.status != 0
            or operation.ended is None
        ):
            continue
        for start in joined.starts:
            until = alive_until(start)
            if (
                start.key != operation.subject
                or not start.at < operation.at < operation.ended < until
            ):
                continue
            hole = is_excused(joined, start, operation.ended, until) or joined.forgets(
                start.at, until
            )
            yield _of(
                joined, operation, start, "not-ended",
                f"lived {until - operation.ended:.3f} s after {joined.operation_text(operation)} had returned",
                hole=hole,
            )  # fmt: skip


def commands(joined: Joined) -> Iterator[Violation]:
    """Every command ends, never by a bug of ours, says what it did, and fails only where a fault explains it."""
    for operation in joined.history.operations:
        if what := _wrong_end(joined, operation):
            yield Violation(
                "command", f"{joined.operation_text(operation)} {what}",
                operation.subject, moments=[operation.at, operation.ended or joined.history.end],
            )  # fmt: skip


def _wrong_end(joined: Joined, operation: Operation) -> str | None:
    status, said = operation.status, operation.stderr.strip()
    if status is None or operation.ended is None:
        return "never ended"
    if status == 70 or any(bug in said for bug in _BUGS):
        return f"failed by itself ({status}): {said[-200:]}"
    if status == 0:
        return None if operation.stdout.strip() else "succeeded without a word"
    if not _is_explained(joined, operation):
        return f"left with {status}, and no fault explains it: {said or 'no word'}"
    return None if said or status < 0 else f"left with {status} without a word"


def _is_explained(joined: Joined, operation: Operation) -> bool:
    """Return whether faults, or what had happened before, explain a status that is not 0."""
    status = operation.status or 0
    near = joined.felt(operation.host, operation.at, operation.ended or operation.at)
    if status < 0:
        return any(fault.target == operation.host for fault in near)
    if operation.words[0] in _ENDED_BY_STOPS and status == _NOT_YET:
        return bool(near) or _holder_felt(joined, operation)
    if operation.words[0] in _ENDED_BY_STOPS and status == _UNKNOWN:
        return "no host has fired key" in operation.stderr and not _is_known(joined, operation)
    return status in (_AWAY, _REFUSED) and bool(near)


def _is_known(joined: Joined, operation: Operation) -> bool:
    return any(
        start.key == operation.subject and start.at < operation.at
        and not joined.forgets(start.at, alive_until(start) + RECORDING)
        for start in joined.starts
    )  # fmt: skip


def _holder_felt(joined: Joined, operation: Operation) -> bool:
    since, until = (
        operation.at - joined.history.head.get("ttl", 0.0),
        operation.ended or operation.at,
    )
    holders = [
        firing
        for firing in joined.history.firings
        if firing.key == operation.subject and joined.runs_of(firing)
        and firing.at <= until and (firing.ended or math.inf) + RECORDING >= since
    ]  # fmt: skip
    return any(
        joined.felt(firing.host, max(firing.at, since), until, firing.key) for firing in holders
    )


def _of(
    joined: Joined, operation: Operation, start: Start, rule: str, what: str, *, hole: bool
) -> Violation:
    firing = joined.firing_of(start)
    return Violation(
        {"pause": "paused", "drain": "drained"}.get(rule, rule),
        f"{joined.start_text(start)} of {start.key} {what}",
        start.key, start.tick, [operation.at, start.at, alive_until(start)], [start], [firing] if firing else [], hole,
    )  # fmt: skip
