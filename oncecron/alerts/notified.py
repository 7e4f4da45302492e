"""What a channel was notified of, as a document in the store.

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
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.alerts.findings import finding
from oncecron.alerts.kinds import STATES
from oncecron.core.clock import is_time
from oncecron.core.errors import UNREADABLE, reason_of
from oncecron.core.stderr import complain, visible
from oncecron.core.timing import CHANNEL_FORGOTTEN, CHANNEL_TRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from oncecron.alerts.findings import Finding
    from oncecron.core.log_rows import Notice

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


class Notified(NamedTuple):
    """What a channel was notified of."""

    known: Mapping[Identity, Known] = {}
    failing: Failing | None = None


def identity(found: Finding) -> Identity:
    """Return which finding it is."""
    return Identity(found.finding, found.key, found.shard, found.host, found.channel)


def read(notice: Notice) -> Notified:
    """Return what a document says. One that cannot be read is named, and counts as empty: all is sent again."""
    try:
        return _read(json.loads(notice.document))
    except UNREADABLE as error:
        name = visible(notice.channel)
        complain(
            f"what channel {name} was notified of cannot be read, and is sent again: {reason_of(error)}"
        )
        return Notified()


def _read(document: Any) -> Notified:
    known = {}
    for row in document["known"]:
        which = Identity(*(row[name] for name in Identity._fields))
        values = Known(*(row[name] for name in Known._fields))
        _check(which, values)
        known[which] = values
    failing = document["failing"]
    if failing is None:
        return Notified(known)
    values_of = Failing(*(failing[name] for name in Failing._fields))
    times = is_time(values_of.since) and is_time(values_of.tried_at)
    if not (times and isinstance(values_of.tries, int) and isinstance(values_of.error, str)):
        raise ValueError(f"failing is {failing!r:.60}")
    return Notified(known, values_of)


def _check(which: Identity, values: Known) -> None:
    """Raise `ValueError` for a row that no pass writes."""
    texts = all(isinstance(each, str | None) for each in (which.key, which.host, which.channel))
    whole = which.shard is None or type(which.shard) is int
    times = all(map(is_time, (values.since, values.changed_at, values.sent_at or 0.0)))
    kinds = isinstance(which.finding, str) and {values.state, values.telling} <= {*STATES}
    if not (kinds and texts and whole and times):
        raise ValueError(f"a row is {(*which, *values)!r:.60}")


def written(notified: Notified) -> str:
    """Return the document."""
    known = sorted(notified.known.items(), key=_order)
    rows = [{**which._asdict(), **values._asdict()} for which, values in known]
    failing = notified.failing and notified.failing._asdict()
    return json.dumps({"known": rows, "failing": failing}, allow_nan=False, separators=(",", ":"))


def _order(item: tuple[Identity, Known]) -> tuple[str, ...]:
    return tuple(str(each) for each in item[0])


def failed(before: Failing | None, error: str, now: float) -> Failing:
    """Return how a channel fails after one more try."""
    since, tries = (before.since, before.tries) if before else (now, 0)
    return Failing(since, now, tries + 1, error[:_LONGEST_ERROR])


def failing_channels(notices: Iterable[Notice], now: float) -> Iterator[Finding]:
    """Yield the findings about channels that fail, as long as they are tried."""
    for notice in notices:
        failing = read(notice).failing
        if (
            failing is None
            or failing.tries < CHANNEL_TRIES
            or failing.tried_at < now - CHANNEL_FORGOTTEN
        ):
            continue
        name = visible(notice.channel)
        reason = f"channel {name} of notify fails: {visible(failing.error)}"
        yield finding("channel", None, 1, reason, since=failing.since, channel=notice.channel)
