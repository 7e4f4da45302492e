"""What a channel knows, as a document in the store, and which findings are changes to it.

problem     a finding that is new to the channel
worse       it was a warning and is critical now
reminder    it is still there, and `remind` is over
recovered   it is no longer there

The number of ticks, or the words, may change without a message. A channel knows only as many findings as its document
has room for: more than a thousand. The others are told when some of these have recovered; the message counts all.

    {"known": [{"finding": "failed", "key": "billing", "shard": null, "host": null,
                "channel": null, "state": "critical", "since": 1795400000.0, "sent_at": 1795400060.0,
                "telling": "critical", "changed_at": 1795400059.0}],
     "failing": null}

`known` has the findings that the channel knows of. `sent_at` null: a message about it was tried and not acknowledged,
so nobody can tell what the channel knows. `failing` is how the channel fails at present: {"since", "tried_at", "tries",
"error"}.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.alerts.findings import KINDS, STATES, Finding
from oncecron.core.clock import is_time
from oncecron.core.errors import UNREADABLE, reason_of
from oncecron.core.stderr import complain, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncecron.alerts.channels import Channel
    from oncecron.core.log_rows import Notice

RECOVERED = "recovered"

_ROOM = 1 << 19
"""For what a channel knows, in bytes: half of the longest document that a store takes."""
_LONGEST_ERROR = 500


class Identity(NamedTuple):
    """Which finding it is, whatever its words and counts are."""

    finding: str
    key: str | None
    shard: int | None
    host: str | None
    channel: str | None


class Known(NamedTuple):
    """A finding that a channel knows of."""

    state: str
    since: float
    """When it began, as far as is known."""
    sent_at: float | None
    """When the channel acknowledged the last message about it; None: it has not."""
    telling: str
    """The state that the last change tells; `ok` while its end is under way."""
    changed_at: float
    """When the first message with that change was made: a repetition is the same change."""


class Failing(NamedTuple):
    """How a channel fails."""

    since: float
    tried_at: float
    tries: int
    """In a row."""
    error: str


class Knowledge(NamedTuple):
    """What a channel knows."""

    known: Mapping[Identity, Known] = {}
    failing: Failing | None = None


def identity(found: Finding) -> Identity:
    """Return which finding it is."""
    return Identity(found.finding, found.key, found.shard, found.host, found.channel)


def knowledge_in(notice: Notice) -> Knowledge:
    """Return what a document says. One that cannot be read is named, and counts as empty: all is sent again."""
    try:
        return _read(json.loads(notice.document))
    except UNREADABLE as error:
        name = visible(notice.channel)
        complain(
            f"what channel {name} was notified of cannot be read, and is sent again: {reason_of(error)}"
        )
        return Knowledge()


def _read(document: Any) -> Knowledge:
    known = {}
    for row in document["known"]:
        which = Identity(*(row[name] for name in Identity._fields))
        values = Known(*(row[name] for name in Known._fields))
        _check(which, values)
        known[which] = values
    failing = document["failing"]
    if failing is None:
        return Knowledge(known)
    values_of = Failing(*(failing[name] for name in Failing._fields))
    times = is_time(values_of.since) and is_time(values_of.tried_at)
    if not (times and isinstance(values_of.tries, int) and isinstance(values_of.error, str)):
        raise ValueError(f"failing is {failing!r:.60}")
    return Knowledge(known, values_of)


def _check(which: Identity, values: Known) -> None:
    """Raise `ValueError` for a row that no pass writes."""
    texts = all(isinstance(each, str | None) for each in (which.key, which.host, which.channel))
    whole = which.shard is None or type(which.shard) is int
    times = all(map(is_time, (values.since, values.changed_at, values.sent_at or 0.0)))
    kinds = isinstance(which.finding, str) and {values.state, values.telling} <= {*STATES}
    if not (kinds and texts and whole and times):
        raise ValueError(f"a row is {(*which, *values)!r:.60}")


def document_of(knowledge: Knowledge) -> str:
    """Return the document."""
    known = sorted(knowledge.known.items(), key=_order)
    rows = [{**which._asdict(), **values._asdict()} for which, values in known]
    failing = knowledge.failing and knowledge.failing._asdict()
    return json.dumps({"known": rows, "failing": failing}, allow_nan=False, separators=(",", ":"))


def _order(item: tuple[Identity, Known]) -> tuple[str, ...]:
    return tuple(str(each) for each in item[0])


def failure_after(before: Failing | None, error: str, now: float) -> Failing:
    """Return how a channel fails after one more try."""
    since, tries = (before.since, before.tries) if before else (now, 0)
    return Failing(since, now, tries + 1, error[:_LONGEST_ERROR])


def failing_channels(notices: Iterable[Notice]) -> dict[str, Failing]:
    """Return how channels fail, by name."""
    states = ((notice.channel, knowledge_in(notice).failing) for notice in notices)
    return {channel: failing for channel, failing in states if failing is not None}


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
    knowledge: Knowledge,
    findings: Sequence[Finding],
    now: float,
    *,
    remind: float | None = None,
    complete: bool = True,
) -> list[Change]:
    """Return what a channel is to be notified of, what is worst first.

    `complete`: whether every row of the store could be read. Otherwise a finding that is missing may still be there.
    """
    here = findings_for(channel, findings)
    found = [*_of_present(here, knowledge, now, remind)]
    if complete:
        found += _recovered(channel, here, knowledge)
    return found


def findings_for(channel: Channel, findings: Sequence[Finding]) -> dict[Identity, Finding]:
    """Return the findings that are for a channel: not those about itself, which it may not receive."""
    return {
        identity(each): each
        for each in findings
        if channel.is_for(each.key) and each.channel != channel.name
    }


def _of_present(
    here: Mapping[Identity, Finding], knowledge: Knowledge, now: float, remind: float | None
) -> Iterator[Change]:
    room = _ROOM - sum(map(_size, knowledge.known))
    for which, found in here.items():
        before = knowledge.known.get(which)
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
    channel: Channel, here: Mapping[Identity, Finding], knowledge: Knowledge
) -> Iterator[Change]:
    for which, before in knowledge.known.items():
        if which not in here and channel.is_for(which.key):
            yield Change(RECOVERED, _over(which, before), before.state)


def _over(which: Identity, before: Known) -> Finding:
    kind = KINDS.get(which.finding)  # a newer version may have written another one
    how = kind.over if kind else f"is no longer {which.finding}"
    about = f"channel {which.channel} of notify " if which.channel else ""
    about += f"shard {which.shard}: " if which.shard else ""
    reason = about + how.replace("HOST", which.host or "as many hosts as wanted")
    where = (which.host, which.channel)
    return Finding(
        which.finding, "ok", which.key, which.shard, 0, None, before.since, reason, *where
    )


def knowledge_under_way(knowledge: Knowledge, found: Sequence[Change], now: float) -> Knowledge:
    """Return what a channel knows while a message is under way: of its changes nobody can tell.

    A reminder changes nothing that it knows.
    """
    known = dict(knowledge.known)
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
    return knowledge._replace(known=known)


def knowledge_after(knowledge: Knowledge, found: Sequence[Change], now: float) -> Knowledge:
    """Return what a channel knows that has acknowledged a message; `knowledge`: while that was under way."""
    known = dict(knowledge.known)
    for change in found:
        which = identity(change.finding)
        if change.change == RECOVERED:
            known.pop(which, None)
        else:
            known[which] = known[which]._replace(state=change.finding.state, sent_at=now)
    return Knowledge(known)


def with_ids(channel: str, under_way: Knowledge, found: Iterable[Change]) -> list[Change]:
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
