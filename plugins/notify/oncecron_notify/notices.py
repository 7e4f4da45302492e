"""What the store keeps for `oncecron notify`: what each channel was notified of, written by compare-and-set."""

from __future__ import annotations

from oncecron.core.errors import RecordRefusedError
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.model import is_key, recordable

if TYPE_CHECKING:
    from collections.abc import Collection

    from oncecron.stores.reader import Reader

MOST_CHANNELS = 100
"""How many channels a store keeps documents of; a role that may fire can make them up."""
LONGEST_DOCUMENT = 1 << 20
"""In bytes."""
_LARGEST_VERSION = (1 << 53) - 2
"""The next one is an integer of JSON, too."""
_LONGEST_SHOWN = 80


class Notice(NamedTuple):
    """What a channel was notified of."""

    channel: str
    version: int
    """How often the document was written; 0: never."""
    document: str
    """JSON; see `oncecron_notify.changes`."""


def notices(store: Reader, channels: Collection[str]) -> list[Notice]:
    """Return what these channels were notified of, by name."""
    asked = {"channels": [*channels], "longest": LONGEST_DOCUMENT}
    return sorted(store.read("notify/notices", Notice, "the notice of {0}", **asked))


def put_notice(store: Reader, notice: Notice) -> bool:
    """Write the document of a channel, if its version is still that of the notice; return False if it is not.

    The version rises by one. Version 0: the channel has none yet. Raises `RecordRefusedError`, also where other
    channels have used up `MOST_CHANNELS`.
    """
    length = len(recordable(notice.document).encode())
    is_possible = {
        "channel": is_key(notice.channel),
        "version": 0 <= notice.version <= _LARGEST_VERSION,
        "document": length <= LONGEST_DOCUMENT,
    }
    for name, possible in is_possible.items():
        if not possible:
            shown = repr(getattr(notice, name))[:_LONGEST_SHOWN]
            raise RecordRefusedError(f"the record has a {name} that no host can have: {shown}")
    written = store.change("notify/put_notice", "run", **notice._asdict(), most=MOST_CHANNELS)
    if written is None:
        raise RecordRefusedError(
            f"the store has what {MOST_CHANNELS} channels were notified of, and room for no other one; have the "
            "store's owner run `oncecron prune`"
        )
    return bool(written)


def other_notices(store: Reader, channels: Collection[str]) -> int:
    """Return how many other channels there are, which anybody who may write to the store can make up."""
    return sum(count for [count] in store.rows("notify/other_notices", channels=[*channels]))


def remove_other_notices(store: Reader, channels: Collection[str]) -> int:
    """Forget all other channels; return how many there were."""
    return int(store.change("notify/remove_other_notices", "own", channels=[*channels]))
