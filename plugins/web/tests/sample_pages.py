"""An overview in which each text is the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oncecron.core.log_rows import LeaseView, Told
from oncecron.core.text import Clock
from oncecron.core.units import DAY
from oncecron.log.grid import Grid, Line, Mark, Run
from oncecron.log.hosts import HostSummary
from oncecron.log.job_summary import JobSummary
from oncecron.watch.findings import Finding
from oncecron_web.store_questions import Coming

NOW = 1_795_000_000.0
CLOCK = Clock(utc=True, now=NOW)


def summary(key: str, **more: Any) -> JobSummary:
    """Return a key that is well, but for what is given."""
    fields = dict.fromkeys(JobSummary._fields)
    known = {
        "key": key,
        "outcome": "succeeded",
        "successes": 3,
        "failures": 0,
        "missed": 0,
        "overruns": 0,
        "running_on": (),
    }
    return JobSummary(
        **{**fields, **known, "started_at": NOW - 60, "settled": False, "state": "ok", **more}
    )


def line(name: str, *words: str | None) -> Line:
    """Return a line of a grid."""
    marks = [word and Mark(word, 1, ((word, 1),), NOW - 60, None, "h") for word in words]
    return Line(name, tuple(marks), tuple(Counter(filter(None, words)).items()))


def shown(text: str = "plain", keys: int = 1) -> dict[str, Any]:
    """Return what an overview with all kinds of parts shows, in which each text is the same."""
    starts = tuple(NOW - 3600 * (120 - place) for place in range(120))
    words = ["succeeded"] * 118 + ["failed", "missed"]
    job = summary(
        text,
        schedule=text,
        zone=text,
        paused_by=text,
        paused_reason=text,
        running_on=(text,),
        failures=1,
        exit_code=3,
    )
    failed = Finding("failed", "critical", text, None, 1, None, NOW - 60, text)
    silent = {
        "finding": "silent-host",
        "state": "warning",
        "key": None,
        "host": text,
        "since": None,
    }
    lease = LeaseView(text, 1, None, None, None, "held", text, 1, *(None,) * 7, shards=2)
    return {
        "now": NOW,
        "since": starts[0],
        "namespace": text,
        "made_on": text,
        "only": [],
        "keys": keys,
        "problems": [failed, failed._replace(**silent)],
        "more_problems": 0,
        "explained": {failed: ([text], f"{text}\n{text}")},
        "jobs": [job] * keys,
        "states": {text: [("failed", 0), ("missed", 2)]},
        "bars": {text: [Run(text, word, NOW - 60, 2.0, text, 1) for word in words[-30:]]},
        "running": [lease._replace(acquired_at=NOW - 5, progress=text)],
        "usual": {text: 2.0},
        "told": [("ops", Told(NOW - 30, "problem", "critical", "failed", text, text))],
        "coming": [Coming(text, NOW + 3600, 24)],
        "hosts": [HostSummary(text, NOW, text, 3.0, text, 1, 2, 3, (text, text), 2)],
        "timeline": Grid(starts, NOW, (line(text, *words),) * keys),
        "hosts_of": [Grid(starts, NOW, (line(text, *words),), text)],
        "days": days(*[(("failed", 2),)] * 90),
        "unreadable": 1,
    }


def days(*counts: tuple[tuple[str, int], ...], until: float = NOW) -> Grid:
    """Return what became of all ticks on each of the last days."""
    starts = tuple(until - DAY * left for left in range(len(counts), 0, -1))
    marks = [(each and Mark(each[0][0], 1, each, until, None, None)) or None for each in counts]
    in_all: Counter[str] = Counter()
    for each in counts:
        in_all.update(dict(each))
    return Grid(starts, until, (Line("", tuple(marks), tuple(in_all.items())),))
