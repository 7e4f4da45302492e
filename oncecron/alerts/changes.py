"""Which findings a channel does not know yet, and which of those that it knows are over.

problem     a finding that is new to the channel
worse       it was a warning and is critical now
reminder    it is still there, and `remind` is over
recovered   it is no longer there

The number of ticks, or the words, may change without a message. A channel knows only as many findings as its document
has room for: more than a thousand. The others are told when some of these have recovered; the message counts all.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from oncecron.alerts.findings import Finding
from oncecron.alerts.kinds import STATES
from oncecron.alerts.notified import Known, Notified, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.alerts.notified import Identity
    from oncecron.alerts.settings import Channel

RECOVERED = "recovered"

_ROOM = 1 << 19
"""For what a channel knows, in bytes: half of the longest document that a store takes."""


class Change(NamedTuple):
    """What is to be said about one finding."""

    change: str
    finding: Finding
    """Of a recovery: in the state `ok`."""
    previous: str
    """Its state as the channel knows it; `ok` if it does not."""
    change_id: str = ""
    """The same in whichever message it comes, until it is acknowledged; see `with_ids`."""


def changes(
    channel: Channel,
    notified: Notified,
    findings: Sequence[Finding],
    now: float,
    *,
    remind: float | None = None,
    complete: bool = True,
) -> list[Change]:
    """Return what a channel is to be notified of, what is worst first.

    `complete`: whether every row of the store could be read. Otherwise a finding that is missing may still be there.
    """
    here = present(channel, findings)
    found = [*_of_present(here, notified, now, remind)]
    if complete:
        found += _recovered(channel, here, notified)
    return found


def present(channel: Channel, findings: Sequence[Finding]) -> dict[Identity, Finding]:
    """Return the findings that are for a channel: not those about itself, which it may not receive."""
    return {
        identity(each): each
        for each in findings
        if channel.is_for(each.key) and each.channel != channel.name
    }


def _of_present(
    here: Mapping[Identity, Finding], notified: Notified, now: float, remind: float | None
) -> Iterator[Change]:
    room = _ROOM - sum(map(_size, notified.known))
    for which, found in here.items():
        before = notified.known.get(which)
        if before is None:
            room -= _size(which)
            if room >= 0:
                yield Change("problem", found, "ok")
        elif before.sent_at is None:
            yield Change("problem", found, "ok")
        elif STATES.index(found.state) > STATES.index(before.state):
            yield Change("worse", found, before.state)
        elif remind is not None and abs(now - before.sent_at) >= remind:
            yield Change("reminder", found, before.state)


def _size(which: Identity) -> int:
    """Return how many bytes of a document a finding takes: its names, escaped, and the rest."""
    return 200 + len(json.dumps(which))


def _recovered(
    channel: Channel, here: Mapping[Identity, Finding], notified: Notified
) -> Iterator[Change]:
    for which, before in notified.known.items():
        if which not in here and channel.is_for(which.key):
            yield Change(RECOVERED, _over(which, before), before.state)


def _over(which: Identity, before: Known) -> Finding:
    how = _OVER.get(which.finding, f"is no longer {which.finding}")
    about = f"channel {which.channel} of notify " if which.channel else ""
    about += f"shard {which.shard}: " if which.shard else ""
    reason = about + how.replace("HOST", which.host or "as many hosts as wanted")
    where = (which.host, which.channel)
    return Finding(
        which.finding, "ok", which.key, which.shard, 0, None, before.since, reason, *where
    )


_OVER = {
    "missed": "runs again: no tick is missed now",
    "silent": "runs again",
    "failed": "no longer fails",
    "lost": "is no longer lost: a later run has ended, or runs",
    "expired": "the expired lease is gone",
    "slow": "is no longer slow",
    "overrun": "no longer skips ticks",
    "silent-host": "is fired by HOST again",
    "clock": "the clock of HOST is right again",
    "future": "nothing of it is in the future any more",
    "zone": "starts at its ticks again",
    "same-name": "HOST is the name of one machine again",
    "channel": "works again",
}


def tried(notified: Notified, found: Sequence[Change], now: float) -> Notified:
    """Return what a channel knows while a message is under way: of its changes nobody can tell.

    A reminder changes nothing that it knows.
    """
    known = dict(notified.known)
    for change in found:
        which, telling = identity(change.finding), change.finding.state
        before = known.get(which)
        is_repeated = before and before.sent_at is None and before.telling == telling
        changed_at = before.changed_at if before and is_repeated else now
        if change.change == RECOVERED and before:
            known[which] = before._replace(sent_at=None, telling=telling, changed_at=changed_at)
        elif change.change != "reminder":
            since = before.since if before else change.finding.since
            since = now if since is None else since
            known[which] = Known(telling, since, None, telling, changed_at)
    return notified._replace(known=known)


def acknowledged(notified: Notified, found: Sequence[Change], now: float) -> Notified:
    """Return what a channel knows that has acknowledged a message; `notified`: while that was under way."""
    known = dict(notified.known)
    for change in found:
        which = identity(change.finding)
        if change.change == RECOVERED:
            known.pop(which, None)
        else:
            known[which] = known[which]._replace(state=change.finding.state, sent_at=now)
    return Notified(known)


def with_ids(channel: str, under_way: Notified, found: Iterable[Change]) -> list[Change]:
    """Return changes with their ids: of the channel, the finding, what is told of it, and when that was first told.

    A repetition may come with other changes than before, or as `problem` what was `worse`.
    """
    identified = []
    for change in found:
        which = identity(change.finding)
        known = under_way.known[which]
        reminded = known.sent_at if change.change == "reminder" else None
        parts = (channel, *which, known.telling, known.changed_at, reminded)
        identified.append(change._replace(change_id=_digest(*parts)))
    return identified


def message_id(found: Iterable[Change]) -> str:
    """Return the id of a message: the same for the same changes."""
    return _digest(*(change.change_id for change in found))


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]
