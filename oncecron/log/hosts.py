"""One line a host: which keys it fires, and on which of them it is silent (`log.silent_hosts`).

What a firing by hand (--again) did counts as a win or a skip, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.log_rows import is_internal
from oncecron.core.units import DAY
from oncecron.log.job_summary import by_key
from oncecron.log.silent_hosts import newest_rows, recent, silences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncecron.core.log_rows import KeyHost, Pause


class HostSummary(NamedTuple):
    """A host at a glance, in the order of its published fields."""

    host: str
    seen_at: float
    """When its last firing reached the store."""
    version: str
    """Of oncecron, at that firing."""
    clock_ahead: float
    """Seconds by which its clock was ahead of the store's."""
    drained_by: str | None
    keys: int
    """How many keys it fires, without those of what oncecron runs for itself."""
    wins: int
    """How often it started a command of these keys in the last 24 hours, counted by whole hours."""
    skips: int
    """How often it skipped a tick."""
    silent_on: tuple[str, ...]
    """The keys on which it is silent."""
    machines: int = 1
    """2: two machines or more have this name."""


def clock_said(host: HostSummary) -> str:
    """Return how far its clock is ahead."""
    return f"{host.clock_ahead:+.1f}s".replace("-0.0", "+0.0")


def hosts(rows: Iterable[KeyHost], pauses: Iterable[Pause], now: float) -> Iterator[HostSummary]:
    """Yield every host by name."""
    known = list(recent(rows, now))
    drained = {pause.host: pause.author for pause in pauses if pause.host is not None}
    silent: dict[str, list[str]] = {}
    for each in silences(known, drained, now):
        silent.setdefault(each.host, []).extend(each.keys)
    of_host: dict[str, list[KeyHost]] = {}
    for row in known:
        of_host.setdefault(row.host, []).append(row)
    for newest in newest_rows(known, 0.0):
        host, of_keys = newest.host, of_host[newest.host]
        jobs = [row for row in of_keys if not is_internal(row.key)]
        yield HostSummary(
            host,
            newest.seen_at,
            newest.version,
            newest.clock_ahead,
            drained.get(host),
            len({row.key for row in jobs if fires(row)}),
            sum(row.wins for row in jobs),
            sum(row.skips for row in jobs),
            tuple(silent.get(host, ())),
            max(row.machines for row in of_keys),
        )


def fires(row: KeyHost) -> bool:
    """Return whether the host has fired the key by itself, and not only by hand."""
    return row.command is not None


def of_last_day(rows: Iterable[KeyHost]) -> dict[str, list[KeyHost]]:
    """Return by key the hosts that fired it within a day of its last firing: their crontabs can be compared."""
    found = by_key(filter(fires, rows))
    newest = {key: max(row.seen_at for row in of_key) for key, of_key in found.items()}
    return {
        key: [row for row in of_key if row.seen_at >= newest[key] - DAY]
        for key, of_key in found.items()
    }
