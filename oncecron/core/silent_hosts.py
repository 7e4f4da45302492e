"""Who is called a silent host, and what else the rows of the hosts show: names that two machines have, wrong clocks.

A host is silent on a key that it used to fire, when other hosts fired the last three ticks of the key and it did not.
A drained host is not: somebody knows about it. A firing by hand (--again) is no tick of its host. A host that has not
fired a key for `HOST_FORGOTTEN_AFTER` is none of its hosts.
"""

from __future__ import annotations

from oncecron.core.clock import believed
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import HOST_FORGOTTEN_AFTER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import TypeVar

    from oncecron.core.log_rows import HostTicks, KeyHost

    Row = TypeVar("Row", HostTicks, KeyHost)

LAST_TICKS = 3
"""A host that has fired none of so many last ticks of a key is silent."""

NAMES_CURE = "give each machine a name of its own, or set ONCECRON_HOST"


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


def clock_difference(ahead: float) -> str:
    """Say how far a host's clock is ahead of the store's."""
    return f"is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the store's"


def recent(rows: Iterable[Row], now: float) -> Iterator[Row]:
    """Yield the rows that retention keeps, or would remove with the next end of the key, with times to believe."""
    for row in rows:
        if row.seen_at >= now - HOST_FORGOTTEN_AFTER:
            ticks = tuple((tick, believed(at, now)) for tick, at in row.ticks)
            yield row._replace(seen_at=believed(row.seen_at, now), ticks=ticks)


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
