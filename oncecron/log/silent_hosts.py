"""Who is called a silent host, and what else the rows of the hosts show: names that two machines have, wrong clocks.

A host is silent on a key that it used to fire, when other hosts fired the last three ticks of the key and it did not,
and that for `SILENT_AFTER`: a host that reboots is not. A drained host is not: somebody knows about it. A firing by
hand (--again) is no tick of its host. A host that has not fired a key for `HOST_FORGOTTEN_AFTER` is none of its hosts.
Neither is one that has fired a single tick of it: a pod, or a container, has its name for one run.

A host that is silent on a key and has fired nothing else since is dead, or its cron is: that is one silence, of all its
keys. One that fires other keys has lost a line of its crontab.
"""

from __future__ import annotations

from oncecron.core.clock import believed, is_ahead
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.timing import HOST_FORGOTTEN_AFTER, SETTLED, SILENT_AFTER
from oncecron.log.job_summary import by_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from oncecron.core.log_rows import KeyHost

LAST_TICKS = 3
"""A host that has fired none of so many last ticks of a key is silent."""

_HABIT = 2
"""A host that has fired so many ticks of a key is expected to fire the next one too."""

NAMES_CURE = "give each machine a name of its own, or set ONCECRON_HOST"


class HostSilence(NamedTuple):
    """A host that is silent: on a key, or on all that it used to fire."""

    host: str
    since: float
    """When it last fired one of these keys."""
    keys: tuple[str, ...]
    is_whole: bool
    """Whether it has fired nothing at all since."""
    is_proven: bool = True
    """Whether it was there when the key was due last: one that is back after hours has not come to all keys yet."""


class KeyHosts(NamedTuple):
    """Who fired the last ticks of a key."""

    ticks: tuple[str, ...]
    """The last three, the newest first; fewer if there are no more."""
    first_at: dict[str, float]
    """When each of them was first fired."""
    hosts: frozenset[str]
    """Those that fired one of them."""
    silent: tuple[tuple[str, float], ...]
    """Those that are silent on it, and when they last fired it."""


def newest_rows(rows: Iterable[KeyHost], since: float) -> list[KeyHost]:
    """Return the newest row of each host, by name; of those that have been seen since then."""
    newest: dict[str, KeyHost] = {}
    for row in rows:
        if row.seen_at >= since and row.seen_at >= newest.get(row.host, row).seen_at:
            newest[row.host] = row
    return sorted(newest.values(), key=lambda row: row.host)


def same_names(rows: Iterable[KeyHost]) -> dict[str, str]:
    """Return what is known of the hosts whose name two machines have, by host."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if row.machines > 1:
            keys.setdefault(row.host, []).append(row.key)
    return {
        host: f"{host} is the name of two machines or more, which have fired the same ticks of {of_host[0]}"
        for host, of_host in sorted(keys.items())
    }


def recent(rows: Iterable[KeyHost], now: float) -> Iterator[KeyHost]:
    """Yield the rows that retention keeps, or would remove with the next end of the key, with times to believe."""
    for row in rows:
        if row.seen_at < now - HOST_FORGOTTEN_AFTER:
            continue
        if not is_ahead(row.seen_at, now) and not any(is_ahead(at, now) for _, at in row.ticks):
            yield row  # no copy: there may be tens of thousands
            continue
        ticks = tuple((tick, believed(at, now)) for tick, at in row.ticks)
        yield row._replace(seen_at=believed(row.seen_at, now), ticks=ticks)


def last_ticks(rows: Iterable[KeyHost], drained: Collection[str]) -> dict[str, KeyHosts]:
    """Return by key who fired its last ticks; a drained host is not silent.

    Ticks are in the order in which their first firings reached the store. With fewer than three, no host is silent:
    each has fired one of them.
    """
    return {key: _of_key(of_hosts, drained) for key, of_hosts in by_key(rows).items()}


def silences(
    rows: Sequence[KeyHost], drained: Collection[str], now: float, after: float = SILENT_AFTER
) -> list[HostSilence]:
    """Return what hosts are silent on, by host: of each one silence of all its keys, or one of each key.

    `rows`: of all keys. `after`: how long a host must have fired nothing of a key, in seconds.
    """
    fires: dict[str, set[str]] = {}
    fired_at: dict[str, list[float]] = {}
    for row in rows:
        if row.ticks:
            fires.setdefault(row.host, set()).add(row.key)
            fired_at.setdefault(row.host, []).extend([at for _, at in row.ticks])
    newest = {host: max(times) for host, times in fired_at.items()}
    missed_from: dict[str, float] = {}
    of_host: dict[str, list[HostSilence]] = {}
    for key, of_key in sorted(last_ticks(rows, drained).items()):
        for host, since in of_key.silent:
            if now - since >= after:
                is_proven = _was_there(fired_at[host], of_key, now)
                silence = HostSilence(host, since, (key,), False, is_proven)
                of_host.setdefault(host, []).append(silence)
                first = of_key.first_at[of_key.ticks[-1]]
                missed_from[host] = max(first, missed_from.get(host, first))
    found = []
    for host, of_keys in sorted(of_host.items()):
        if newest[host] < missed_from[host] and now - newest[host] >= after:
            found.append(HostSilence(host, newest[host], tuple(sorted(fires[host])), True))
        else:
            found += of_keys
    return found


def _was_there(fired_at: Iterable[float], of_key: KeyHosts, now: float) -> bool:
    """Return whether a host has fired another key between the last ticks of a key on which it is silent.

    It may still come to the very newest tick, a moment after another host.
    """
    newest, second, third = (of_key.first_at[each] for each in of_key.ticks)
    until = newest if newest <= now - SETTLED / 2 else second
    return any(third < at < until for at in fired_at)


def _of_key(rows: Sequence[KeyHost], drained: Collection[str]) -> KeyHosts:
    first: dict[str, float] = {}
    fired: dict[str, float] = {}
    ticks_of: dict[str, set[str]] = {}
    for row in rows:
        host = row.host
        for tick, at in row.ticks:
            ticks_of.setdefault(host, set()).add(tick)
            if tick not in first or at < first[tick]:
                first[tick] = at
            if host not in fired or at > fired[host]:
                fired[host] = at
    newest = tuple(sorted(first, key=lambda tick: (-first[tick], tick))[:LAST_TICKS])
    present = {row.host for row in rows if any(tick in newest for tick, _ in row.ticks)}
    silent = (
        (host, at)
        for host, at in sorted(fired.items())
        if host not in present and host not in drained and len(ticks_of[host]) >= _HABIT
    )
    first_at = {tick: first[tick] for tick in newest}
    return KeyHosts(newest, first_at, frozenset(present), tuple(silent))
