"""The process that pings: which events of a firing are pings.

For each shard: its first start is the start ping. Its end is the end ping, unless another attempt follows. That is so
between two attempts of --retries, and after a loss with --failover, when another host may run the next attempt and ping
its end. If guard and wrapper are both killed, nothing is known of the job, and no end is reported: the service notices
by itself that none came.
"""

from __future__ import annotations

import os

from oncecron.alerts.ping_channel import Channel
from oncecron.alerts.pinger import events_in
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oncecron.alerts.ping_services import PingKind
    from oncecron.alerts.pinger import EventKind
    from oncecron.run.spec import RunSpec


def deliver(spec: RunSpec, events: int, woken: int) -> None:
    """Ping until wrapper and guard have exited and every ping has been sent or given up."""
    channels = [Channel(ping, spec.firing.key, verbose=spec.verbose) for ping in spec.pings]
    story = Story(failover=spec.firing.failover)
    for kind, record in _pings(story, events, woken):
        for channel in channels:
            channel.send(kind, record)
    for channel in channels:
        channel.finish()


def _pings(story: Story, events: int, woken: int) -> Iterator[tuple[PingKind, dict[str, Any]]]:
    at, more = 0, b"\0"
    while more:
        found, size = _events_from(events, at)
        at += size
        for kind, record in found:
            yield from story.take(kind, record)
        more = os.read(woken, 4096)
    for kind, record in _events_from(events, at)[0]:
        yield from story.take(kind, record)
    yield from story.close()


def _events_from(events: int, at: int) -> tuple[list[tuple[EventKind, dict[str, Any]]], int]:
    return events_in(os.pread(events, os.fstat(events).st_size - at, at))


class Story:
    """What has been reported of one firing."""

    def __init__(self, *, failover: bool) -> None:
        self._failover = failover
        self._executions: dict[int, int | None] = {}
        """The newest execution of each shard that has started."""
        self._kept: dict[int, dict[str, Any]] = {}
        """The last attempt of each shard after which another is to follow."""
        self._ended: set[int] = set()

    def take(
        self, kind: EventKind, record: dict[str, Any]
    ) -> Iterator[tuple[PingKind, dict[str, Any]]]:
        """Yield the ping that an event is, if it is one."""
        shard = record["shard"]
        if kind == "start":
            first = shard not in self._executions
            self._executions[shard] = record["execution_id"]
            if first:
                yield "start", record
        elif shard in self._executions and shard not in self._ended:
            full = {**record, "execution_id": self._executions[shard]}
            self._kept[shard] = full
            if kind == "end" and not self._goes_on_elsewhere(record):
                self._ended.add(shard)
                yield "end", full

    def close(self) -> Iterator[tuple[PingKind, dict[str, Any]]]:
        """Yield the end of each shard whose next attempt never came, and which no other host continues."""
        for shard, record in self._kept.items():
            if shard not in self._ended and not self._failover:
                yield "end", record

    def _goes_on_elsewhere(self, record: dict[str, Any]) -> bool:
        lost = record["outcome"] == "lost"
        return lost and self._failover and record["attempt"] <= record["retries"]
