"""Draw the live pages: the overview with filters, a key, a host, and the notice in place of a page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron.log.jobs import WRONG
from oncecron_web.addresses import address
from oncecron_web.render import page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncecron.core.text import Clock
    from oncecron.log.grid import Grid
    from oncecron_web.store_questions import Shown

    Query = Mapping[str, str]

_STATES = (*WRONG, "timed-out", "running", "paused", "ok")
"""What the filter of the overview offers."""
_page = partial(page, is_live=True)
draw_notice = partial(_page, "notice.html")
"""Return the page that stands in place of one: a sentence, and where to go."""


def draw_overview(shown: Shown, query: Query, clock: Clock) -> str:
    """Return the overview of the keys that the address chooses."""
    return _page(
        "live_overview.html",
        clock,
        query=query,
        words=_STATES,
        all_hosts=sorted(each.host for each in shown["hosts"]),
        whole=shown,
        **filtered(shown, query),
    )


def draw_key(shown: Shown, query: Query, clock: Clock) -> str:
    """Return the page of a key."""
    key = shown["job"].key
    filters = {name: query[name] for name in ("since", "outcome", "host", "limit") if name in query}

    def tick_address(tick: str | None, run: int | None = None) -> str:
        """Return the address of this page with a tick, or the firing of a run, explained."""
        which = {"tick": tick} if tick is not None else {"run": "" if run is None else str(run)}
        return address("key", name=key, **which, **filters)

    return _page(
        "key.html",
        clock,
        query=query,
        tick_address=tick_address,
        words=(*OUTCOMES, *REFUSAL_REASONS),
        all_hosts=sorted({each.host for each in shown["hosts"]}),
        **shown,
    )


def draw_host(shown: Shown, query: Query, clock: Clock) -> str:
    """Return the page of a host."""
    return _page("host.html", clock, query=query, words=OUTCOMES, **shown)


def filtered(shown: Shown, query: Query) -> Shown:
    """Return what concerns the keys that a part of their name, states and a host choose."""
    part, host = query.get("q", "").casefold(), query.get("host")
    words = {word.strip() for word in query.get("outcome", "").split(",") if word.strip()}
    if not (part or host or words):
        return shown
    jobs = [
        job
        for job in shown["jobs"]
        if part in job.key.casefold()
        and host in (None, *job.running_on, *(run.host for run in shown["bars"][job.key]))
        and (not words or words & {job.outcome, *(word for word, _ in shown["states"][job.key])})
    ]
    keys = {job.key for job in jobs}

    def of_keys(grid: Grid) -> Grid:
        return grid._replace(lines=tuple(line for line in grid.lines if line.name in keys))

    return shown | {
        "jobs": jobs,
        "problems": [
            each
            for each in shown["problems"]
            if keys.intersection(each.named()) or (host and each.host == host)
        ],
        "more_problems": 0,
        "running": [each for each in shown["running"] if each.key in keys],
        "told": [each for each in shown["told"] if each[1].key in keys],
        "coming": [each for each in shown["coming"] if each.key in keys],
        "timeline": of_keys(shown["timeline"]),
        "days": of_keys(shown["days"]),
        "hosts": [each for each in shown["hosts"] if host in (None, each.host)],
    }
