"""The items of a tick: what identifies them, their states, and what follows the end of a batch.

A list of items belongs to a key and a tick. An item is drawn in a batch by an execution, which has to prove that its
lease still lives. So an item that was taken is in one of two states, which every store decides when it is asked:

- `taken`: the execution that took it has its lease.
- `lost`, in doubt: it has not, and it did not say how the item ended. The command may have run for it or not. It is
  drawn again only where the firing says so (`Draw.redraw_below`), with the same id.

An item that was queued, or that a batch left `done`, needs no record of its own in a store.
"""

from __future__ import annotations

from oncecron.core.light_modules import sha256_digests
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Literal

    from oncecron.core.retry import RetryPolicy

    ItemState = Literal["queued", "taken", "done", "failed", "lost", "dead"]
    MendedState = Literal["queued", "done"]
    SettledState = Literal["done", "failed", "lost", "dead"]

ITEM_STATES: tuple[ItemState, ...] = ("queued", "taken", "done", "failed", "lost", "dead")
"""`failed` waits for its retry. `lost` is in doubt. `dead` is given up: a permanent exit status, or no retries left."""

MENDABLE_STATES: tuple[ItemState, ...] = ("lost", "dead", "failed")
"""What a person may queue again, or mark as done."""

LARGEST_ITEM = 4096
"""The bytes of an item, and of its identity: a list is no store for payloads."""
LARGEST_BATCH = 1000
"""How many items a draw may want: a store may keep the list in runs of so many positions."""
LARGEST_CHUNK = 5000
"""How many items one step of a load takes: some 50 ms on PostgreSQL, so a heartbeat never waits for long."""
LONGEST_REASON = 4000
"""Bytes of the reason that a command gives for the failure of an item."""


class ItemList(NamedTuple):
    """What a list of items belongs to: the same on every host."""

    key: str
    tick: str
    """The text of the tick."""


class Item(NamedTuple):
    """An item as it is loaded."""

    identity: str
    """Unique in the list."""
    payload: str
    """What the command gets."""


def item_id(items_of: ItemList, identity: str) -> str:
    """Return `ONCECRON_ITEM_ID`: the same for ever for a key, a tick and an identity, on every host and store.

    The first 32 hexadecimal digits of the SHA-256 of the three with a newline between them, which neither a key nor a
    tick can contain.
    """
    return next(item_ids(items_of, (identity,)))


def item_ids(items_of: ItemList, identities: Iterable[str]) -> Iterator[str]:
    """Yield the `item_id` of each identity of a list, in half the time of as many calls."""
    before = "\n".join((*items_of, "")).encode()
    digests = sha256_digests(before + identity.encode() for identity in identities)
    return (digest[:32] for digest in digests)


class Loaded(NamedTuple):
    """What a load has done so far."""

    added: int = 0
    known: int = 0
    """Items that an earlier load had added."""
    repeated: int = 0
    """Items that came twice in this load: the first one counts."""
    total: int = 0
    """How many items the list has, once the load is complete."""


class Chunk(NamedTuple):
    """One step of a load: the items of a list become visible together, with the last one."""

    number: int
    """From 0, rising by one. The same number again, because its answer was lost, has the same answer."""
    items: Sequence[Item]
    """At most `LARGEST_CHUNK`."""
    is_last: bool
    keep: float | None = None
    """How many seconds after its load the list is kept at least; it is never removed before its tick's executions."""


def out_of_turn(number: int, last: int) -> str:
    """Return why a step of a load is refused."""
    return f"step {number} of a load does not follow step {last}"


class Drawn(NamedTuple):
    """The answer to a draw."""

    items: Sequence[DrawnItem]
    """Taken by this execution; empty if there is nothing to draw now."""
    wait: float | None = None
    """Without items: seconds until the next retry is due; None: none is waiting."""
    others: int = 0
    """Without items: how many items other executions have taken; some of them may have to be drawn again."""
    stopped: Literal["paused", "drained"] | None = None
    """Why nothing was taken: the key is paused, or the host of the execution is drained."""


class DrawnItem(NamedTuple):
    """An item that an execution has taken."""

    position: int
    """Its place in the list, from 1."""
    identity: str
    payload: str
    attempt: int
    """How often it has been drawn, with this time."""


class ItemResult(NamedTuple):
    """How a drawn item ended."""

    position: int
    state: SettledState
    delay: float | None = None
    """With `failed`: seconds until its retry."""
    reason: str | None = None
    """For people: an exit status, a signal, or what the command said on descriptor 3."""


class Draw(NamedTuple):
    """What an execution asks of its list: to settle its last batch, and to take the next one.

    A draw whose answer was lost is repeated with the same number: it returns the same batch, and takes nothing more.
    """

    number: int
    """From 1, rising by one with each batch that was returned. A draw that returned none may have the same again."""
    results: Sequence[ItemResult] = ()
    """The items of the last batch that are not `done`: all that are not named here are. Ignored once it is settled."""
    wanted: int = 1
    """At most `LARGEST_BATCH`; 0: settle, and take nothing. The answer then need not say what waits."""
    slots: int = 1
    """The number of shards of the key."""
    redraw_below: int = 0
    """Items in doubt that were drawn fewer times than this are drawn again; 0: none is (the default)."""


class ItemCounts(NamedTuple):
    """How many items of a list are in which state."""

    total: int
    queued: int
    taken: int
    done: int
    failed: int
    lost: int
    dead: int

    @property
    def ended(self) -> int:
        """Return how many will not be drawn again by themselves."""
        return self.done + self.lost + self.dead


def after_failure(
    item: DrawnItem, policy: RetryPolicy, *, exit_code: int | None, reason: str | None = None
) -> ItemResult:
    """Return the result of an item for which the command failed: a retry after full jitter, or `dead`."""
    is_permanent = exit_code is not None and exit_code in policy.permanent
    if is_permanent or item.attempt > policy.retries:
        return ItemResult(item.position, "dead", reason=reason)
    delay = policy.seconds_after(item.attempt)
    return ItemResult(item.position, "failed", delay=delay, reason=reason)
