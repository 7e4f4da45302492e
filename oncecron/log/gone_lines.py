"""Keys whose line seems to be gone from the crontabs: their hosts fire other keys, and this one no more.

A line is removed because the job is retired, or because it has another key now. Or it is there, and its hosts were not
when the tick was due: nobody can tell from what they last fired.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from oncecron.core.log_rows import is_internal
from oncecron.core.text import listed, visible
from oncecron.core.timing import SETTLED
from oncecron.log.hosts import fires
from oncecron.log.job_summary import by_key
from oncecron.log.silent_hosts import newest_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oncecron.core.log_rows import JobKey, KeyHost

_NAMED_HOSTS = 3


def gone_lines(
    rows: Sequence[KeyHost],
    keys: Iterable[JobKey],
    missed: Mapping[str, float],
    *,
    alone: bool = True,
) -> dict[str, str]:
    """Return what is to be said of the keys whose line is gone, by key.

    `missed`: the instants of the first ticks that are missed, by key. `alone`: whether one key alone is not
    started; where several are, nobody should forget any of them.
    """
    # A pass of notify tells nothing of the lines of the keys: it may be all that its host still fires.
    of_people = (row for row in rows if not is_internal(row.key))
    seen = {row.host: row.seen_at for row in newest_rows(of_people, 0.0)}
    rows = sorted(rows)
    of_keys = by_key(rows)
    running: dict[str | None, list[KeyHost]] = {}
    for row in rows:
        if row.key not in missed:
            running.setdefault(row.command, []).append(row)
    since = {known.key: known.expected.since for known in keys if known.expected}
    found = {}
    for key, instant in missed.items():
        after = instant + SETTLED
        of_key = [row for row in of_keys.get(key, ()) if fires(row) and row.seen_at < after]
        alive = sorted({row.host for row in of_key if seen.get(row.host, 0.0) > after})
        if not alive:
            continue
        last = max(of_key, key=lambda row: row.seen_at)
        same = (row for row in running.get(last.command, ()) if row.host in alive)
        newer = (row.key for row in same if since.get(row.key, 0.0) >= last.seen_at)
        found[key] = _words(key, alive, next(newer, None), alone=alone)
    return found


def _words(key: str, hosts: Sequence[str], successor: str | None, *, alone: bool) -> str:
    who = visible(listed(hosts, _NAMED_HOSTS))
    one = len(hosts) == 1
    forget = f"oncecron forget {shlex.quote(key)}"
    if successor is not None:
        renamed = f": if it was renamed, run `{forget}`" if alone else ""
        return f"{who} {'runs' if one else 'run'} its command as {successor} now{renamed}"
    fires_others = f"{who} {'fires other keys, but has' if one else 'fire other keys, but have'} not fired this one"
    retired = (
        f"if it is retired or was moved to a later hour, run `{forget}`, else " if alone else ""
    )
    return f"{fires_others}: {retired}see that its line is there"
