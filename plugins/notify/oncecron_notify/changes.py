"""What a channel knows, as a document in the store, and which findings are changes to it.

problem     a finding that is new to the channel, and has lasted for its `for`
worse       it was a warning and is critical now
reminder    it is still there, and `remind` is over
recovered   it is no longer there, and what was wrong is well again (`endings`)
closed      it is no longer there, for another reason

The number of ticks, or the words, may change without a message. A key or a host is not said to be well as long as
another finding about it that is as bad is open: when that ends, one end is told of both. A channel knows only as many
findings as its document has room for: more than a thousand. The others are told when some of these are over; the
message counts all.

    {"known": [{"finding": "failed", "key": "billing", "shard": null, "host": null,
                "channel": null, "state": "critical", "since": 1795400000.0, "sent_at": 1795400060.0,
                "telling": "critical", "changed_at": 1795400059.0}],
     "waiting": [], "failing": null, "told": []}

`known` has the findings that the channel knows of. `sent_at` null: a message about it was tried and not acknowledged,
so nobody can tell what the channel knows. `waiting` has findings that have not lasted yet, and `since` when they were
there at each pass. `failing` is how the channel fails at present: {"since", "tried_at", "tries",
"error"}. `told` has the newest changes that the channel has acknowledged, for people who look who was told what.
"""

from __future__ import annotations

import json
from hashlib import sha256

from oncecron.core.errors import UNREADABLE, reason_of
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import Told
from oncecron.core.masking import visible
from oncecron.core.tick import instant_of
from oncecron.host.stderr import complain
from oncecron.stores.reader import check
from oncecron.watch.findings import STATES, Finding, sentence
from oncecron_notify.message import ENDED, Change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from oncecron_notify.channels import Channel
    from oncecron_notify.notices import Notice

    Record = TypeVar("Record")

_ROOM = 1 << 19
"""For what a channel knows, in bytes: half of the longest document that a store takes."""
_LONGEST_ERROR = 500
_TOLD, _LONGEST_WORDS = 50, 300


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


class Ending(NamedTuple):
    """How a finding ended."""

    change: str
    """`recovered` or `closed`."""
    words: str
    """A sentence, without its subject if that is a key."""
    is_covered: bool = False
    """Whether it is not said while another finding about the same key or host is open that is as bad."""


class _Waiting(NamedTuple):
    since: float


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
    waiting: Mapping[Identity, float] = {}
    """The findings that have not lasted yet, and since when they have been there."""
    told: Sequence[Told] = ()
    """The newest changes that it has acknowledged, the oldest first."""


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
    known = {_record(Identity, row): _record(Known, row) for row in document["known"]}
    if strange := {each for known_ in known.values() for each in (known_.state, known_.telling)} - {
        *STATES
    }:
        raise ValueError(f"a state is {strange.pop()!r:.60}")
    waiting = {_record(Identity, row): _record(_Waiting, row).since for row in document["waiting"]}
    failing = None if document["failing"] is None else _record(Failing, document["failing"])
    told = [_record(Told, row) for row in document.get("told", ())[-_TOLD:]]
    return Knowledge(known, failing, waiting, tuple(told))


def _record(kind: type[Record], row: Mapping[str, Any]) -> Record:
    """Return a record of a row. Raises `ValueError` for one that no pass writes."""
    record = kind(*(row[name] for name in kind._fields))  # type: ignore[attr-defined]
    check(record)
    return record


def document_of(knowledge: Knowledge) -> str:
    """Return the document."""
    known = sorted(knowledge.known.items(), key=_order)
    rows = [{**which._asdict(), **values._asdict()} for which, values in known]
    waits = sorted(knowledge.waiting.items(), key=_order)
    document = {
        "known": rows,
        "waiting": [{**which._asdict(), "since": since} for which, since in waits],
        "failing": knowledge.failing and knowledge.failing._asdict(),
        "told": [each._asdict() for each in knowledge.told],
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _order(item: tuple[Identity, object]) -> tuple[str, ...]:
    return tuple(str(each) for each in item[0])


def failure_after(before: Failing | None, error: str, now: float) -> Failing:
    """Return how a channel fails after one more try."""
    since, tries = (before.since, before.tries) if before else (now, 0)
    return Failing(since, now, tries + 1, error[:_LONGEST_ERROR])


def failing_channels(notices: Iterable[Notice]) -> dict[str, Failing]:
    """Return how channels fail, by name."""
    states = ((notice.channel, knowledge_in(notice).failing) for notice in notices)
    return {channel: failing for channel, failing in states if failing is not None}


class News(NamedTuple):
    """What a pass has found out for a channel."""

    knowledge: Knowledge
    """What the channel knows, without what has ended for it without a word."""
    changes: list[Change]
    """What it is to be notified of, what is worst first."""


def news_for(
    channel: Channel,
    knowledge: Knowledge,
    findings: Sequence[Finding],
    now: float,
    ending: Callable[[Identity, Known], Ending | None] | None,
    *,
    remind: float | None = None,
) -> News:
    """Return what a channel is to be notified of.

    `ending` answers how a finding ended; None: not every row of the store could be read, so a finding that is missing
    may still be there.
    """
    here = findings_for(channel, findings)
    waiting = {
        which: min(knowledge.waiting.get(which, now), now)  # a clock may have been set back
        for which in here
        if which not in knowledge.known
    }
    lasting = {
        which: found
        for which, found in here.items()
        if which in knowledge.known or now - waiting[which] >= channel.lasting
    }
    found = [*_of_present(lasting, knowledge, now, remind)]
    new = {identity(each.finding) for each in found}
    if ending is None:
        waiting = {**knowledge.waiting, **waiting}
    else:
        present = {identity(each) for each in findings}
        open_now = {w: each.state for w, each in here.items() if w in {*knowledge.known, *new}}
        over, silently = _ended(open_now, present, knowledge, ending)
        found += over
        known = {w: each for w, each in knowledge.known.items() if w not in silently}
        knowledge = knowledge._replace(known=known)
    kept = _fitting(waiting, new) if channel.lasting else {}
    return News(knowledge._replace(waiting=kept), found)


def _fitting(waiting: Mapping[Identity, float], new: Collection[Identity]) -> dict[Identity, float]:
    room, kept = _ROOM // 2, {}
    for which, since in waiting.items():
        room -= _size(which)
        if room < 0:
            break
        if which not in new:
            kept[which] = since
    return kept


def findings_for(channel: Channel, findings: Sequence[Finding]) -> dict[Identity, Finding]:
    """Return the findings that are for a channel: not those about itself, which it may not receive."""
    return {
        identity(each): each
        for each in findings
        if channel.is_for(each) and each.channel != channel.name
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
        # abs: where the clock was set back by a year, a year without reminders is too long.
        elif remind is not None and abs(now - before.sent_at) >= remind:
            yield Change("reminder", found, before.state)


def _size(which: Identity) -> int:
    """Return how many bytes of a document a finding takes: its names, escaped, and the rest."""
    return 200 + len(json.dumps(which))


def _ended(
    open_now: Mapping[Identity, str],
    present: Collection[Identity],
    knowledge: Knowledge,
    ending: Callable[[Identity, Known], Ending | None],
) -> tuple[list[Change], set[Identity]]:
    """Return what is to be said of the findings that are over, and those of which nothing is to be said.

    `open_now`: the states of what is found and the channel knows, or is told now.
    """
    gone = {which: each for which, each in knowledge.known.items() if which not in open_now}
    endings = {which: ending(which, each) for which, each in gone.items() if which not in present}
    undecided = {which: gone[which].state for which, how in endings.items() if how is None}
    covering = {**open_now, **undecided}
    over: dict[Identity | str, Change] = {}
    silently = {*gone} & {*present}
    ranks = {which: (STATES.index(known.state), known.since) for which, known in gone.items()}
    for which, how in sorted(endings.items(), key=lambda item: ranks[item[0]]):
        before = gone[which]
        if how is None or (how.is_covered and _as_bad(which, before, covering)):
            continue  # the end of that comes first
        silently.add(which)
        where = (which.host, which.channel)
        found = Finding(
            which.finding, "ok", which.key, which.shard, 0, None, before.since, how.words, *where
        )
        # Of what ends for a key at once, the worst is told: one event.
        over[which.key if which.key and not which.host else which] = Change(
            how.change, found, before.state
        )
    changes = [*over.values()]
    return changes, silently - {identity(each.finding) for each in changes}


def _as_bad(which: Identity, before: Known, others: Mapping[Identity, str]) -> bool:
    """Return whether another finding about the same key or host is as bad as this one was.

    A host that fires nothing is none about the keys that it fired: other hosts run them.
    """
    return any(
        STATES.index(state) >= STATES.index(before.state)
        and (
            (which.key is not None and which.key == each.key)
            or (which.host is not None and which.host == each.host)
        )
        for each, state in others.items()
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
        if change.change in ENDED and before:
            known[which] = before._replace(sent_at=None, telling=telling, changed_at=changed_at)
        elif change.change != "reminder":
            since = before.since if before else _began(change.finding)
            since = now if since is None else since
            known[which] = Known(telling, since, None, telling, changed_at)
    return knowledge._replace(known=known)


def _began(found: Finding) -> float | None:
    return instant_of(found.tick) if found.since is None else found.since


def knowledge_after(knowledge: Knowledge, found: Sequence[Change], now: float) -> Knowledge:
    """Return what a channel knows that has acknowledged a message; `knowledge`: while that was under way."""
    known = dict(knowledge.known)
    for change in found:
        which = identity(change.finding)
        if change.change in ENDED:
            known.pop(which, None)
        else:
            known[which] = known[which]._replace(state=change.finding.state, sent_at=now)
    told = (*knowledge.told, *(_told(change, now) for change in found))
    return Knowledge(known, None, knowledge.waiting, told[-_TOLD:])


def _told(change: Change, now: float) -> Told:
    found = change.finding
    words = sentence(found)[:_LONGEST_WORDS]
    return Told(now, change.change, found.state, found.finding, found.key, words)


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
