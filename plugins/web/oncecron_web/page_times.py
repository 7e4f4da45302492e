"""The waits and limits in time of pages and metrics, each with its reason."""

from __future__ import annotations

from oncecron.core.units import DAY

METRICS_WITHIN = 8.0
"""`metrics` answers within this time: Prometheus waits 10 s for a scrape unless it is configured otherwise."""
PAGE_WITHIN = 12.0
"""`web` answers within this time: the store has `READER_TIMEOUT` for one question, and a person waits. A page that
is not read by then is there later."""
PAGE_TIMELINE = 90.0 * DAY
"""The longest timeline of all keys that `web` draws: as far as its calendar goes, for which the same is read."""
PAGE_GRID = 400.0 * DAY
"""The longest one of the hosts of a key: as long as the log is kept by default."""
PAGE_AWAY_WITHIN = 1.0
"""And within this time once it is known that the store is away."""
PAGE_PER_QUERY = 1.5
"""A page of `web` is kept this long for each question that it has asked: so it costs one query per second at most, also
where a store needs some more to connect, or for the newest skips."""
PAGE_KEPT = 2.0
"""And at least this long."""
PAGE_KEPT_TIMES = 5
"""And this many times as long as it took: the store of a long log does nothing for a page most of the time."""
PAGE_ERROR_KEPT = 2.0
"""A store that is away is asked again after this long, whatever the number of people who wait."""
SLOW_CLIENT = 30
"""`web` and `metrics` close a connection on which nothing has moved for so many seconds."""
SHORTEST_HOST_GRID = 3600.0
"""`web` shows the hosts of a key by time as far back as its newest runs go, but at least as far as this."""
