"""Read and write on Redis what the channels of `oncecron notify` were notified of."""

from __future__ import annotations

from oncecron.core import bounds
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import Notice
from oncecron.stores.redis.resp import pairs

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.pipeline import Pipeline


def listed(pipeline: Pipeline, unreadable: Unreadable) -> list[Notice]:
    """Return the notices by channel."""
    [found] = pipeline.ask([("HGETALL", pipeline.names.of_namespace("notices"))])
    notices = (
        unreadable.read(f"the notice of {channel!r:.60}", _notice, channel, text)
        for channel, text in pairs(found)
    )
    return sorted(filter(None, notices))


def put(pipeline: Pipeline, notice: Notice) -> bool:
    """Write a notice; see `Inspector.put_notice`."""
    bounds.check(notice._asdict())
    values = {**notice._asdict(), "version": str(notice.version)}
    return bool(pipeline.confirmed_step("notice", [], values))


def _notice(channel: Any, text: bytes) -> Notice:
    version, _, document = text.decode().partition(":")
    return Notice(channel.decode(), int(version), document)
