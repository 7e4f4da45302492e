"""What channels were notified of, on Redis: a hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron_notify.notices import LONGEST_DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from oncecron.stores.api import Row
    from oncecron.stores.reader import Reader
    from oncecron.stores.redis.people_client import PeopleClient

_LONGEST = LONGEST_DOCUMENT + 20  # with the version before it
_BATCH = 1000  # notices that one step removes


def notices(
    client: PeopleClient, reader: Reader, channels: Collection[str], **_: Any
) -> Iterator[Row]:
    """Yield what channels were notified of; fetch nothing that is longer than any that is written."""
    for channel in channels:
        if size := _size(client, channel):
            text = _ask(client, "HGET", channel) if size <= _LONGEST else None
            row = reader.readable("the notice of {0}", _notice, channel, text)
            if row is not None:
                yield row


def _notice(channel: str, text: bytes | None) -> tuple[str, int, str]:
    if text is None:
        raise ValueError("it is longer than any that oncecron writes; `oncecron prune` removes it")
    version, _, document = text.decode().partition(":")
    return channel, int(version), document


def other_notices(
    client: PeopleClient, _reader: Reader, channels: Collection[str]
) -> Iterator[Row]:
    """Yield how many other channels there are."""
    yield (len(_others(client, channels)),)


def remove_other_notices(client: PeopleClient, channels: Collection[str]) -> int:
    """Remove them."""
    junk = _others(client, channels)
    for first in range(0, len(junk), _BATCH):
        _ask(client, "HDEL", *junk[first : first + _BATCH])
    return len(junk)


def _others(client: PeopleClient, channels: Collection[str]) -> list[bytes]:
    wanted = {each.encode() for each in channels if _size(client, each) <= _LONGEST}
    return [channel for channel in _ask(client, "HKEYS") if channel not in wanted]


def put_notice(client: PeopleClient, version: int, **values: Any) -> Any:
    """Write the next version of a document."""
    told = {**values, "version": str(version)}
    return client.confirmed_step("notify/put_notice", [], told, [_name(client)])


def _size(client: PeopleClient, channel: str) -> int:
    size: int = _ask(client, "HSTRLEN", channel)
    return size


def _ask(client: PeopleClient, verb: str, *words: Any) -> Any:
    return client.ask([(verb, _name(client), *words)])[0]


def _name(client: PeopleClient) -> str:
    return client.names.of_namespace("notices")
