"""Render pages: the templates of this folder, with every text escaped.

A key, a host, a reason or an output may be whatever somebody wrote into the store or a job printed. So each text that a
template shows is made visible (`host.stderr`), cut, and escaped by jinja2. No template trusts a text.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

from oncecron import __version__
from oncecron.config.options import NAMESPACE
from oncecron.config.settings import read_elsewhere
from oncecron.core.columns import COMMAND
from oncecron.core.masking import visible, without_logins
from oncecron.core.text import Clock, listed, tick_time
from oncecron.core.timing import NOTABLE_CLOCK_SKEW
from oncecron.core.units import MINUTE, format_duration
from oncecron.host.local_time import zone_name
from oncecron.log.hosts import clock_said
from oncecron.log.missed import MISSED_AT_MOST
from oncecron.watch.findings import cure, is_of_all, title
from oncecron.watch.standstill import firing
from oncecron_web import charts
from oncecron_web.addresses import host_address, key_address, run_address
from oncecron_web.cards import began, cards
from oncecron_web.looks import look, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2.runtime import Context

    from oncecron.log.grid import Grid, Run
    from oncecron.log.hosts import HostSummary
    from oncecron.watch.findings import Finding

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")
_LONGEST_TEXT = 2000
"""Characters of a text that are shown; a command or a reason may have thousands."""
_MOST_HOSTS = 500
_CARDS, _KEYS_OF_CARD = 4, 3
"""Shown without being opened, and of each so many keys: so the table of keys begins within the second screen."""
_COMING = 12
_EXACT = Clock(utc=True)


def page(template: str, clock: Clock, *, is_live: bool = False, **values: Any) -> str:
    """Return the page of a template; each text in `values` is shown as text.

    `clock`: in which zone times are shown. `is_live`: keys and hosts have pages of their own, to which it links.
    `whole`, among the values: what there is, where the others are what a filter shows of it.
    """
    clock = clock._replace(now=values.get("now"))
    known = {"namespace": NAMESPACE.default, "whole": values, **values}
    return environment().get_template(template).render(clock=clock, is_live=is_live, **known)


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
        "bars": charts.bars,
        "cards": cards,
        "clock_said": clock_said,
        "cure": cure,
        "dated": _dated,
        "duration": _duration,
        "finding_look": lambda found: _kind_look(found.finding, found.state),
        "heading": _heading,
        "host_address": host_address,
        "host_look": _host_look,
        "iso": _EXACT.seconds,
        "key_address": key_address,
        "kind_look": _kind_look,
        "lane": charts.lane,
        "last_run": _last_run,
        "listed": listed,
        "look": look,
        "marked": _marked,
        "number": "{:,}".format,
        "rate": charts.rate,
        "rate_said": charts.rate_said,
        "run_address": run_address,
        "said": charts.runs_said,
        "counts_said": charts.counts_said,
        "sentence": _sentence,
        "firing": firing,
        "several": _several,
        "short": _short,
        "since": began,
        "spots": charts.spots,
        "step": _step,
        "totals": charts.totals,
        "weeks": charts.calendar,
        "word": word,
        "zone_name": zone_name,
    }
    found.globals |= {
        "bars_shown": charts.BARS,
        "cards_shown": _CARDS,
        "coming_shown": _COMING,
        "keys_of_card": _KEYS_OF_CARD,
        "most_hosts": _MOST_HOSTS,
        "most_missed": MISSED_AT_MOST,
        "version": __version__,
    }
    return found


def _shown(value: Any) -> Any:
    """Return a value as a template shows it: a text without what would act, and not at any length."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value  # a template made it, or it is no text
    text = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    return visible(without_logins(text))


def _sentence(problems: Sequence[Finding], more: int) -> list[tuple[str, str]]:
    """Return what is wrong with how many keys, the worst first, and how it looks; empty: all is well."""
    counts: Counter[tuple[str, str]] = Counter()
    for card in cards(problems):
        first = card.first
        counts[_kind_look(first.finding, first.state), first.finding] += len(card.findings)
    of_all = {each.finding: title(each) for each in problems if is_of_all(each)}
    parts = [
        (how, of_all.get(kind) or f"{many:,} {_kind_word(kind)}")
        for (how, kind), many in counts.items()
    ]
    return [*parts, *([(parts[0][0], f"{more:,} more")] if more else [])]


def _kind_word(kind: str) -> str:
    """Return the word of a finding; what people hold back is no run that one of them has stopped."""
    return "held back" if kind == "stopped" else word(kind)


def _heading(problem: Finding) -> str:
    """Return the head of its card: of what is about no key and no host it says all."""
    return title(problem) if is_of_all(problem) else _kind_word(problem.finding)


def _kind_look(kind: str, state: str) -> str:
    return "missed" if kind in ("missed", "silent") else look(state)


def _host_look(host: HostSummary) -> str:
    if host.silent_on:
        return "missed"
    is_odd = host.machines > 1 or abs(host.clock_ahead) > NOTABLE_CLOCK_SKEW
    return "warning" if is_odd else "paused" if host.drained_by else "well"


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
    return format_duration(seconds)


def _step(grid: Grid) -> float:
    ends = (*grid.starts[1:], grid.until)
    return sorted(end - start for start, end in zip(grid.starts, ends, strict=True))[len(ends) // 2]


def _several(things: int | Sequence[Any], what: str) -> str:
    many = things if isinstance(things, int) else len(things)
    return f"{many:,} {what}{'s' * (many != 1)}"


@pass_context
def _marked(page: Context, text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a text, and whether each is a command to be pasted."""
    text = read_elsewhere(text, page["namespace"])
    for place, part in enumerate(re.split(f"({COMMAND})", text)):
        if part:
            yield place % 2 == 1, part[1:-1] if place % 2 else part
