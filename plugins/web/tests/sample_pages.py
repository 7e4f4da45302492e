"""An overview in which each text is the same."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Any

from oncecron.core.text import Clock
from oncecron.log.grid import Grid, Line, Mark, Run
from oncecron.log.job_summary import JobSummary
from oncecron_web.contents import Day, Host, Job, Overview, Problem, Running

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
    }
    return JobSummary(
        **{**fields, **known, "started_at": NOW - 60, "settled": False, "state": "ok", **more}
    )


def line(name: str, *words: str | None) -> Line:
    """Return a line of a grid."""
    marks = [word and Mark(word, 1, ((word, 1),), NOW - 60, None, "h") for word in words]
    return Line(name, tuple(marks), tuple(Counter(filter(None, words)).items()))


def contents(text: str = "plain", keys: int = 1) -> Overview:
    """Return an overview with all kinds of parts, in which each text is the same."""
    starts = tuple(NOW - 3600 * (120 - place) for place in range(120))
    words = ["succeeded"] * 118 + ["failed", "missed"]
    job = summary(
        text,
        schedule=text,
        zone=text,
        paused_by=text,
        paused_reason=text,
        running_host=text,
        failures=1,
        exit_code=3,
    )
    runs = [Run(text, word, NOW - 60, 2.0, text, 1) for word in words[-30:]]
    return Overview(
        now=NOW,
        since=starts[0],
        namespace=text,
        version=text,
        made_on=text,
        keys=keys,
        problems=[
            Problem(
                "failed",
                "critical",
                text,
                None,
                text,
                NOW - 60,
                f"`{text}`",
                [text],
                f"{text}\n{text}",
            ),
            Problem("silent-host", "warning", None, text, text, None, text),
        ],
        jobs=[Job(job, [("failed", 0), ("missed", 2)], runs)] * keys,
        running=[Running(text, "1/2", text, 1, NOW - 5, 2.0, text)],
        hosts=[Host(text, NOW, text, 3.0, 1, 2, 3, text, [text, text], 2)],
        timeline=Grid(starts, NOW, (line(text, *words),) * keys),
        hosts_of=[Grid(starts, NOW, (line(text, *words),), text)],
        days=[
            Day(date(2026, 11, 20) - timedelta(89 - each), [("failed", 2)]) for each in range(90)
        ],
        unreadable=1,
    )
