"""Which hosts fire which keys, and which host has stopped to.

A host is silent on a key that it used to fire, when other hosts fired the last three ticks of the key and it did not.
A drained host is not: somebody knows about it. What a firing by hand (--again) did counts as a win or a skip, and
nothing else. A host that has not fired a key for `HOST_FORGOTTEN_AFTER` is none of its hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.clock import believed
from oncecron.core.timing import HOST_FORGOTTEN_AFTER
from oncecron.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import TypeVar

    from oncecron.core.log_rows import HostTicks, KeyHost, Pause

    Row = TypeVar("Row", HostTicks, KeyHost)

LAST_TICKS = 3
"""A host that has fired none of so many last ticks of a key is silent."""


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
    """How many keys it fires."""
    wins: int
    """How often it started a command in the last 24 hours, counted by whole hours."""
    skips: int
    """How often it skipped a tick."""
    silent_on: str | None
    """The keys on which it is silent, joined by commas."""
    machines: int = 1
    """2: two machines or more have this name."""


class Silence(NamedTuple):
    """A host that is silent on a key."""

    host: str
    since: float
    """When it last fired the key."""


class KeyHosts(NamedTuple):
    """Who fired the last ticks of a key."""

    ticks: tuple[str, ...]
    """The last three, the newest first; fewer if there are no more."""
    first_at: dict[str, float]
    """When each of them was first fired."""
    hosts: frozenset[str]
    """Those that fired one of them."""
    silent: tuple[Silence, ...]


def hosts(rows: Iterable[KeyHost], pauses: Iterable[Pause], now: float) -> Iterator[HostSummary]:
    """Yield every host by name."""
    known = list(recent(rows, now))
    drained = {pause.host: pause.author for pause in pauses if pause.host is not None}
    silent: dict[str, list[str]] = {}
    for key, each in sorted(last_ticks(known, drained).items()):
        for host, _ in each.silent:
            silent.setdefault(host, []).append(key)
    of_host: dict[str, list[KeyHost]] = {}
    for row in known:
        of_host.setdefault(row.host, []).append(row)
    for newest in newest_rows(known, 0.0):
        host, of_keys = newest.host, of_host[newest.host]
        yield HostSummary(
            host,
            newest.seen_at,
            newest.version,
            newest.clock_ahead,
            drained.get(host),
            len({row.key for row in of_keys if fires(row)}),
            sum(row.wins for row in of_keys),
            sum(row.skips for row in of_keys),
            ",".join(silent.get(host, ())) or None,
            max(row.machines for row in of_keys),
        )


def newest_rows(rows: Iterable[Row], since: float) -> list[Row]:
    """Return the newest row of each host, by name; of those that have been seen since then."""
    newest: dict[str, Row] = {}
    for row in rows:
        if row.seen_at >= since and row.seen_at >= newest.get(row.host, row).seen_at:
            newest[row.host] = row
    return sorted(newest.values(), key=lambda row: row.host)


def same_names(rows: Iterable[Row]) -> dict[str, str]:
    """Return what is known of the hosts whose name two machines have, by host."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if row.machines > 1:
            keys.setdefault(row.host, []).append(row.key)
    return {
        host: f"{host} is the name of two machines or more, which have fired the same ticks of {of_host[0]}"
        for host, of_host in sorted(keys.items())
    }


NAMES_CURE = "give each machine a name of its own, or set ONCECRON_HOST"


def clock_difference(ahead: float) -> str:
    """Say how far a host's clock is ahead of the store's."""
    return f"is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the store's"


def recent(rows: Iterable[Row], now: float) -> Iterator[Row]:
    """Yield the rows that retention keeps, or would remove with the next end of the key, with times to believe."""
    for row in rows:
        if row.seen_at >= now - HOST_FORGOTTEN_AFTER:
            ticks = tuple((tick, believed(at, now)) for tick, at in row.ticks)
            yield row._replace(seen_at=believed(row.seen_at, now), ticks=ticks)


def fires(row: KeyHost) -> bool:
    """Return whether the host has fired the key by itself, and not only by hand."""
    return row.command is not None


def last_ticks(rows: Iterable[Row], drained: Collection[str]) -> dict[str, KeyHosts]:
    """Return by key who fired its last ticks; a drained host is not silent.

    Ticks are in the order in which their first firings reached the store. With fewer than three, no host is silent:
    each has fired one of them.
    """
    of_key: dict[str, list[Row]] = {}
    for row in rows:
        of_key.setdefault(row.key, []).append(row)
    return {key: _of_key(of_hosts, drained) for key, of_hosts in of_key.items()}


def _of_key(rows: Sequence[Row], drained: Collection[str]) -> KeyHosts:
    first: dict[str, float] = {}
    for row in rows:
        for tick, at in row.ticks:
            first[tick] = min(at, first.get(tick, at))
    newest = tuple(sorted(first, key=lambda tick: (-first[tick], tick))[:LAST_TICKS])
    fired: dict[str, float] = {}
    present: set[str] = set()
    for row in rows:
        for tick, at in row.ticks:
            fired[row.host] = max(at, fired.get(row.host, at))
            if tick in newest:
                present.add(row.host)
    silent = (
        Silence(host, at)
        for host, at in sorted(fired.items())
        if host not in present and host not in drained
    )
    first_at = {tick: first[tick] for tick in newest}
    return KeyHosts(newest, first_at, frozenset(present), tuple(silent))


def of_last_day(rows: Iterable[KeyHost]) -> dict[str, list[KeyHost]]:
    """Return by key the hosts that fired it within a day of its last firing: their crontabs can be compared."""
    newest: dict[str, float] = {}
    found: dict[str, list[KeyHost]] = {}
    for row in rows:
        if fires(row):
            newest[row.key] = max(row.seen_at, newest.get(row.key, row.seen_at))
            found.setdefault(row.key, []).append(row)
    return {
        key: [row for row in of_key if row.seen_at >= newest[key] - DAY]
        for key, of_key in found.items()
    }
