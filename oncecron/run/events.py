"""The events that the store thread posts to the guard."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import Firing, Lease, Refusal, Unconfirmed

if TYPE_CHECKING:
    from oncecron.core.errors import OncecronError, StoreError


class Granted(NamedTuple):
    """A lease to start a job with: the answer to a claim, a retry, or a renewal before the start."""

    lease: Lease


class Refused(NamedTuple):
    """A shard was refused."""

    firing: Firing
    refusal: Refusal
    waits: bool
    """Whether the shard is claimed again."""


class NoShardLeft:
    """No shard can be claimed any more."""


class Failed(NamedTuple):
    """A claim was not answered, or its lease not renewed before the start; nothing was started."""

    error: OncecronError
    unanswered: list[Firing]
    """The shards whose claim was not answered, so that it may have been granted."""


class Renewed(NamedTuple):
    """A heartbeat renewed the lease."""

    lease: Lease


class Lost:
    """The lease is lost for good: another host may have it.

    If an attempt may have been granted that never began, that is on record.
    """


class Kept:
    """The end of an attempt was recorded, and the lease kept."""


class NotRetried(NamedTuple):
    """The next attempt was refused, or the store did not answer."""

    why: Refusal | OncecronError
    unanswered: bool = False
    """Whether the store may have begun it."""


class Recorded(NamedTuple):
    """The end was recorded, or could not be."""

    error: StoreError | None


class Crashed(NamedTuple):
    """A bug ended the thread: nothing is claimed, renewed or recorded any more."""

    error: Exception


Event = (
    Granted
    | Unconfirmed
    | Refused
    | NoShardLeft
    | Failed
    | Renewed
    | Lost
    | Kept
    | NotRetried
    | Recorded
    | Crashed
)
