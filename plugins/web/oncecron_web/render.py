"""Render pages: the templates of this folder, with every text escaped.

A key, a host, a reason or an output may be whatever somebody wrote into the store or a job printed. So each text that a
template shows is made visible (`core.stderr`), cut, and escaped by jinja2. No template trusts a text.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from oncecron.core.masking import without_logins
from oncecron.core.stderr import visible
from oncecron.core.text import Clock, tick_time
from oncecron.core.timing import NOTABLE_CLOCK_SKEW
from oncecron.core.units import MINUTE, format_duration
from oncecron.log.missed import MISSED_AT_MOST
from oncecron_web import charts
from oncecron_web.looks import LOOKS, look, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncecron.log.grid import Grid, Run
    from oncecron_web.contents import Host, Overview, Problem

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")
_LONGEST_TEXT = 2000
"""Characters of a text that are shown; a command or a reason may have thousands."""
_LISTED = 5
_MOST_HOSTS = 500
_EXACT = Clock(utc=True)


def _no_link(_name: str) -> str | None:
    return None


class Links(NamedTuple):
    """Where the names of keys and hosts lead to; None: nowhere, as in a page that stands alone."""

    key: Callable[[str], str | None] = _no_link
    host: Callable[[str], str | None] = _no_link


NO_LINKS = Links()


def overview(contents: Overview, clock: Clock, links: Links = NO_LINKS, **more: Any) -> str:
    """Return the overview as a page that needs nothing else. `clock`: see `page`.

    `more`: what a template that extends `overview.html` needs, and its name as `template`.
    """
    template = more.pop("template", "overview.html")
    return page(template, clock, links, contents=contents, sentence=sentence(contents), **more)


def page(template: str, clock: Clock, links: Links = NO_LINKS, **values: Any) -> str:
    """Return the page of a template; each text in `values` is shown as text.

    `clock`: in which zone times are shown, and its `now`: when the store was read.
    """
    return environment().get_template(template).render(clock=clock, links=links, **values)


def stylesheet() -> str:
    """Return what stands between `<style>` and `</style>`, for a server that names its digest."""
    return environment().get_template("style.css").render()


@functools.cache
def environment() -> Environment:
    """Return the one environment of all templates."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "axis": charts.axis,
        "clock_said": _clock_said,
        "dated": _dated,
        "duration": _duration,
        "finding_look": finding_look,
        "host_look": host_look,
        "iso": _EXACT.seconds,
        "last_run": _last_run,
        "line_said": lambda line: charts.counts_said(line.counts),
        "listed": _listed,
        "look": look,
        "marked": _marked,
        "number": "{:,}".format,
        "said": charts.runs_said,
        "several": _several,
        "short": _short,
        "step": _step,
        "weeks": charts.calendar,
        "word": word,
        "words": charts.states_of,
        "worst": _worst,
    }
    found.globals |= {
        "bars": charts.bars,
        "most_hosts": _MOST_HOSTS,
        "bars_shown": charts.BARS,
        "lane": charts.lane,
        "most_missed": MISSED_AT_MOST,
    }
    return found


def _shown(value: Any) -> Any:
    """Return a value as a template shows it: a text without what would act, and not at any length."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value  # a template made it, or it is no text
    text = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    return visible(without_logins(text))


class Part(NamedTuple):
    """A part of the sentence at the top."""

    look: str
    text: str


def sentence(contents: Overview) -> list[Part]:
    """Return what is wrong with how many keys, the worst first; empty: all is well."""
    counts = Counter((finding_look(each), each.kind) for each in contents.problems)
    found = sorted(counts.items(), key=lambda each: (LOOKS.index(each[0][0]), -each[1]))
    parts = [Part(how, f"{many:,} {word(kind)}") for (how, kind), many in found]
    more = contents.more_problems
    return [*parts, *([Part(parts[0].look, f"{more:,} more")] if more else [])]


def finding_look(problem: Problem) -> str:
    """Return how a finding looks."""
    return "missed" if problem.kind in ("missed", "silent") else look(problem.state)


def host_look(host: Host) -> str:
    """Return how a host looks."""
    if host.silent_on:
        return "missed"
    is_odd = host.machines > 1 or abs(host.clock_ahead) > NOTABLE_CLOCK_SKEW
    return "warning" if is_odd else "paused" if host.drained_by else "well"


def _clock_said(host: Host) -> str:
    return f"{host.clock_ahead:+.1f}s".replace("-0.0", "+0.0")


def _worst(states: Sequence[tuple[str | None, int]]) -> str:
    return look(states[0][0]) if states else "nothing"


def _last_run(runs: Sequence[Run]) -> Run | None:
    return next((run for run in reversed(runs) if run.outcome not in ("running", "missed")), None)


def _dated(time: float, clock: Clock) -> str:
    there = datetime.fromtimestamp(time, UTC if clock.utc else None)
    return f"{there:%A}, {there.day} {there:%B %Y}, {there:%H:%M}"


def _short(time: float, clock: Clock) -> str:
    return tick_time(time // MINUTE * MINUTE, clock.now or time, clock)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return format_duration(round(seconds, 1 if seconds < 10 else None))  # noqa: PLR2004


def _step(grid: Grid) -> float:
    ends = (*grid.starts[1:], grid.until)
    return sorted(end - start for start, end in zip(grid.starts, ends, strict=True))[len(ends) // 2]


def _several(things: int | Sequence[Any], what: str) -> str:
    many = things if isinstance(things, int) else len(things)
    return f"{many:,} {what}{'s' * (many != 1)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join([*names[:_LISTED], *([f"{more:,} more"] if more > 0 else [])])


def _marked(text: str) -> Iterator[tuple[bool, str]]:
    for place, part in enumerate(re.split(r"`([^`]*)`", text)):
        if part:
            yield place % 2 == 1, part
