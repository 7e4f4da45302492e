"""Draw the live pages: the overview with filters, a key, a host, and the notice in place of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron_web.addresses import address, host_address, key_address
from oncecron_web.render import Links, overview, page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncecron.core.text import Clock
    from oncecron_web.addresses import Link
    from oncecron_web.contents import Job, Overview
    from oncecron_web.host_page import HostPage
    from oncecron_web.key_page import KeyPage

    Query = Mapping[str, str]

_LINKS = Links(key_address, host_address)
_STATES = (
    *("missed", "silent", "lost", "failed", "timed-out", "stopped", "overdue", "overrun"),
    *("running", "paused", "ok"),
)
"""What the filter of the overview offers."""
_SPANS = ("1h", "24h", "7d", "30d")


def draw_overview(contents: Overview, query: Query, clock: Clock) -> str:
    """Return the overview of the keys that the address chooses."""
    return overview(
        filtered(contents, query),
        clock._replace(now=contents.now),
        _LINKS,
        template="live_overview.html",
        query=query,
        words=_STATES,
        spans=_SPANS,
        all_hosts=sorted(each.name for each in contents.hosts),
        all_keys=len(contents.jobs),
    )


def draw_key(contents: KeyPage, query: Query, clock: Clock) -> str:
    """Return the page of a key."""
    key = contents.summary.key
    filters = {name: query[name] for name in ("since", "outcome", "host", "limit") if name in query}

    def tick_address(tick: str | None, run: int | None = None) -> str:
        """Return the address of this page with a tick, or the firing of a run, explained."""
        which = {"tick": tick} if tick is not None else {"run": "" if run is None else str(run)}
        return address("key", name=key, **which, **filters)

    return page(
        "key.html",
        clock._replace(now=contents.now),
        _LINKS,
        contents=contents,
        query=query,
        tick_address=tick_address,
        words=(*OUTCOMES, *REFUSAL_REASONS),
        spans=_SPANS,
        all_hosts=sorted({each.host for each in contents.hosts}),
        all_address=key_address(key),
    )


def draw_host(contents: HostPage, query: Query, clock: Clock) -> str:
    """Return the page of a host."""
    return page(
        "host.html",
        clock._replace(now=contents.now),
        _LINKS,
        contents=contents,
        query=query,
        run_address=lambda run: address(
            "key", name=run.key, tick=run.tick or "", run="" if run.tick else str(run.execution_id)
        ),
        words=OUTCOMES,
        spans=_SPANS,
        all_address=host_address(contents.host.name),
    )


def draw_notice(clock: Clock, title: str, text: str, near: Sequence[Link] = ()) -> str:
    """Return the page that stands in place of one: a sentence, and where to go."""
    return page("notice.html", clock, _LINKS, title=title, text=text, near=near)


def filtered(contents: Overview, query: Query) -> Overview:
    """Return what concerns the keys that a part of their name, states and a host choose."""
    part, host = query.get("q", "").casefold(), query.get("host")
    words = {word.strip() for word in query.get("outcome", "").split(",") if word.strip()}
    if not (part or host or words):
        return contents
    jobs = [
        each
        for each in contents.jobs
        if part in each.summary.key.casefold() and _is_of(each, host) and _has(each, words)
    ]
    keys = {each.summary.key for each in jobs}
    lines = tuple(line for line in contents.timeline.lines if line.name in keys)
    return contents._replace(
        jobs=jobs,
        problems=[
            each for each in contents.problems if each.key in keys or (host and each.host == host)
        ],
        running=[each for each in contents.running if each.key in keys],
        timeline=contents.timeline._replace(lines=lines),
        hosts_of=[each for each in contents.hosts_of if each.key in keys],
        hosts=[each for each in contents.hosts if host in (None, each.name)],
    )


def _is_of(job: Job, host: str | None) -> bool:
    running = (job.summary.running_host or "").split(",")
    return host is None or host in running or any(run.host == host for run in job.runs)


def _has(job: Job, words: set[str]) -> bool:
    states = {word for word, _ in job.states} | {job.summary.outcome}
    return not words or bool(states & words)
