"""Read and write on Redis what the channels of `oncecron notify` were notified of."""

from __future__ import annotations

from oncecron.core import bounds
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Notice
from oncecron.core.model import MOST_CHANNELS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.people_client import PeopleClient


_BATCH = 1000
_LONGEST = bounds.LONGEST_DOCUMENT + 20  # with the version before it


def listed(pipeline: PeopleClient, channels: Iterable[str], unreadable: Unreadable) -> list[Notice]:
    """Return the notices of these channels, by name; one that is longer than any that is written is not fetched."""
    name, found = pipeline.names.of_namespace("notices"), []
    for channel in sorted(channels):
        [size] = pipeline.ask([("HSTRLEN", name, channel)])
        [text] = pipeline.ask([("HGET", name, channel)]) if 0 < size <= _LONGEST else [None]
        if size and (notice := unreadable.read(f"the notice of {channel}", _notice, channel, text)):
            found.append(notice)
    return found


def put(pipeline: PeopleClient, notice: Notice) -> bool:
    """Write a notice; see `Inspector.put_notice`."""
    bounds.check(notice._asdict())
    values = {**notice._asdict(), "version": str(notice.version), "most": MOST_CHANNELS}
    return bounds.has_room(pipeline.confirmed_step("notice", [], values))


def others(pipeline: PeopleClient, channels: Collection[str], *, remove: bool) -> int:
    """Return how many other channels there are; see `Inspector.other_notices`."""
    name = pipeline.names.of_namespace("notices")
    [known] = pipeline.ask([("HKEYS", name)])
    wanted = {channel.encode() for channel in channels if _is_fetched(pipeline, name, channel)}
    junk = [channel for channel in known if channel not in wanted]
    for first in range(0, len(junk) if remove else 0, _BATCH):
        pipeline.ask([("HDEL", name, *junk[first : first + _BATCH])])
    return len(junk)


def _is_fetched(pipeline: PeopleClient, name: str, channel: str) -> bool:
    return int(pipeline.ask([("HSTRLEN", name, channel)])[0]) <= _LONGEST


def _notice(channel: str, text: bytes | None) -> Notice:
    if text is None:
        raise ValueError("it is longer than any that oncecron writes; `oncecron prune` removes it")
    version, _, document = text.decode().partition(":")
    return Notice(channel, int(version), document)
