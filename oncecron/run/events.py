"""What the heartbeat thread tells the guard."""

from __future__ import annotations

from oncecron.core.light import NamedTuple
from oncecron.core.model import Firing, Lease, Refusal, Unconfirmed


class Granted(NamedTuple):
    """A claim, or the order to retry, was answered by a lease."""

    lease: Lease


class Refused(NamedTuple):
    """The claim of a part was answered by a refusal."""

    firing: Firing
    refusal: Refusal
    unanswered: bool
    """Whether an earlier claim of the part was not answered, so that it may have been granted."""
    waits: bool
    """Whether it is asked for again."""


class Over(NamedTuple):
    """No part is to be had any more."""


class Failed(NamedTuple):
    """The claim was not answered, or its lease not renewed in time to start with; nothing was started."""

    error: Exception
    unanswered: list[Firing]
    """For which parts the store was asked, so that it may have granted a lease."""


class Renewed(NamedTuple):
    """The lease was renewed."""

    lease: Lease


class Lost(NamedTuple):
    """The lease is lost for good: somebody else may have it."""


class Kept(NamedTuple):
    """The end of an attempt was recorded, and the lease kept."""


class NotRetried(NamedTuple):
    """No further attempt has begun: it was refused, or could not be asked for."""

    why: Refusal | Exception
    unanswered: bool = False
    """Whether it may have begun all the same."""


class Recorded(NamedTuple):
    """The end was recorded, or could not be."""

    error: Exception | None


Event = (
    Granted | Unconfirmed | Refused | Over | Failed | Renewed | Lost | Kept | NotRetried | Recorded
)
