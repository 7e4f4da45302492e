"""What follows a start: the end of an execution, the next attempt, a late record.

On PostgreSQL and Redis each of these is one function of the server and one round trip: to decide here would cost a
second one at every end of a job. They follow the text below, and SQLite, which has no round trips, decides by the
functions of this module. The same random programs compare all of them (tests/contract/test_same_answers.py).

An execution has no end if it is `running`, or `lost` without a duration: the store only assumed that end, and what
really happened replaces it. A recorded end stays. No step touches the lease of another owner.

- **keep**: the end of an attempt that a retry is to follow. The lease is renewed, or nothing is written. Until its
  owner gives it up, the attempt is `retrying`: a firing with `failover` goes on after it if the lease is lost.
- **retry**: the next attempt under the lease that was kept, once, however often the call is repeated. Its number is
  one above every attempt of its tick. The request to the holder was for the attempt before, and ends. A pause or a
  drain refuses it, and leaves the lease.
- **finish**: the end, and the lease is released. If the lease was lost before, the end gets a note that says so, and
  the reason of the loss stays. For a retrying attempt it means that no retry follows (`give up`). A next attempt that
  `retry` began without an answer did not start.
- **deliver**: a late record, perhaps twice. It is known by owner, key, shard and the owner's number of the attempt; an
  owner that gave up without a number means its newest. For a known execution it is like `finish`; a `running` one
  changes nothing. An execution that the store never saw is inserted, numbered above the other attempts of its tick;
  but a `not-started` that was never granted (no token) has no effect.
- A record with a token at least as high as all before is of a later start: an execution that was running and has no
  lease here is lost (`superseded`). A running one that comes after a higher token, or beside another, or beside a lease
  that is kept between two attempts, is lost too.
- A start that did not happen (`not-started`) is taken back, so that `recent` ignores it. A delivered start counts for
  `recent` if it is the newest (one in the future, by a wrong clock of its host, as if it were now), and its instant for
  the high-water mark if it is not too far ahead. Its token counts for the fence up to a day ahead of the store's clock,
  and a skip of the future as if it were now.
- A record with a value that no host can have made is refused (`core.bounds`).
- A note that an execution has already is not added again.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    from oncecron.core.model import Outcome

ENDED_LATE = "ended after its lease was lost"
RECORDED_LATER = "recorded later"
UNFINISHED = "its end was not recorded"
UNHEARD = "its owner never got the answer"


LONGEST_NOTE = 10_000


class Known(NamedTuple):
    """An execution that the store has, as far as its end depends on it."""

    execution_id: int
    outcome: Outcome
    has_duration: bool
    retrying: bool
    lost: bool
    """Whether its lease was lost before its end (`lost_at`)."""
    note: str | None


class Ended(NamedTuple):
    """What the word of its end does to an execution."""

    how: Literal["end", "give-up", "nothing"]
    """`give-up`: no retry follows the attempt that was kept."""
    note: str | None


def effect_of_end(known: Known, *notes: str | None) -> Ended:
    """Return what an end with these notes does to an execution."""
    if known.retrying:
        return Ended("give-up", join(known.note, *notes))
    if known.outcome == "running" or (known.outcome == "lost" and not known.has_duration):
        return Ended("end", join(known.note, *notes))
    return Ended("nothing", known.note)


def supersedes(token: int | None, fence: int) -> bool:
    """Return whether a late record is of a later start than all that the store knows (`fence`: its last token)."""
    return token is not None and token >= fence


def is_superseded(outcome: Outcome, token: int | None, fence: int, *, beside: bool) -> bool:
    """Return whether a late record of a running execution is lost.

    `beside`: another one is recorded as running, or there is a lease.
    """
    return outcome == "running" and ((token or 0) < fence or beside)


def join(*notes: str | None) -> str | None:
    """Return the notes as one text, without duplicates, of at most `LONGEST_NOTE` characters."""
    text = ""
    for note in notes:
        if note and note not in text:
            text = f"{text}; {note}" if text else note
    return text[:LONGEST_NOTE] or None
