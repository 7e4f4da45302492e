"""The values that the holder of a lease exchanges with Redis; a firing that loses never imports this module."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST, lease_of, stored_request, trust_after
from oncecron.core.timing import HOST_FORGOTTEN_AFTER

if TYPE_CHECKING:
    from oncecron.core.model import Ending, Firing, Lease, Request, Retention
    from oncecron.stores.redis.resp import Reply

    Values = dict[str, str | int | float | None]


def of_lease(lease: Lease) -> Values:
    """Return the arguments of a step for a lease."""
    return {
        "execution_id": lease.execution_id,
        "owner": lease.owner,
        "attempt": lease.attempt,
        "started_at": lease.started_at,
        "fencing_token": lease.token,
        "ttl": lease.ttl,
        "cause": lease.cause,
    }


def of_ending(ending: Ending) -> Values:
    """Return the arguments of a step for an end."""
    return {
        "outcome": ending.outcome,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "duration": ending.duration,
        "note": ending.note,
        "lost_reason": ending.lost_reason,
        "request": ending.request and ending.request.kind,
        "requested_by": ending.request and ending.request.author,
        "output": ending.output and ending.output.text,
        "output_cut": ending.output and ending.output.cut,
    }


def of_retention(retention: Retention | None, most: int) -> Values:
    """Return the arguments of a step for the retention; `most`: executions, and skips, of a shard."""
    if retention is None:
        return {}
    return {
        "keep_executions": retention.executions,
        "keep_skips": retention.skips,
        "keep_most": most,
        "least_executions": LEAST.executions,
        "least_skips": LEAST.skips,
        "host_forgotten_after": HOST_FORGOTTEN_AFTER,
    }


def granted(firing: Firing, answer: dict[str, str], sent: float) -> Lease:
    """Return the lease in the answer to a claim."""
    return lease_of(
        firing,
        sent=sent,
        execution_id=int(answer["execution_id"]),
        attempt=int(answer["attempt"]),
        token=int(answer["fencing_token"]),
        started_at=float(answer["started_at"]),
        cause=answer["cause"],  # type: ignore[arg-type]
    )


def of_next_attempt(lease: Lease, answer: dict[str, str], sent: float) -> Lease:
    """Return the lease of the next attempt."""
    return lease._replace(
        attempt=int(answer["attempt"]),
        execution_id=int(answer["execution_id"]),
        token=int(answer["fencing_token"]),
        started_at=float(answer["started_at"]),
        trusted_until=trust_after(sent, lease.ttl),
        request=None,
        cause=answer["cause"],  # type: ignore[arg-type]
    )


def renewed(lease: Lease, answer: Reply, sent: float) -> Lease | None:
    """Return the renewed lease, with the request to its holder; None if it is lost."""
    request = None
    if isinstance(answer, list):
        answer, *words = answer
        request = _request(words)
    if answer == b"lost":
        return None
    if isinstance(answer, bytes) and answer != b"renewed":
        lease = lease._replace(execution_id=int(answer))
    return lease._replace(trusted_until=trust_after(sent, lease.ttl), request=request)


def _request(words: list[Reply]) -> Request:
    kind, author, signal, grace = (
        word.decode("utf-8", "replace") if isinstance(word, bytes) else "" for word in words
    )
    return stored_request(kind, author, signal, grace or None)
