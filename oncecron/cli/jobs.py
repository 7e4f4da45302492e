"""`oncecron jobs`: one line per key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from oncecron.cli import output, table
from oncecron.cli.command import (
    ALL,
    QUERY_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_and_log,
    writer,
)
from oncecron.cli.sentences import refuse_unknown_keys, valid_key
from oncecron.cli.table import Column, Kind
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.text import ABSENT, Clock
from oncecron.host.stderr import complain
from oncecron.log.job_summary import FIRST_LOOK, STREAK_AT_MOST, JobSummary
from oncecron.log.jobs import WRONG, in_words, jobs, severity, states
from oncecron.log.missed import MISSED_AT_MOST
from oncecron.log.sources import sources_of
from oncecron.log.state_kinds import kind_of
from oncecron.watch.findings import Situation
from oncecron.watch.standstill import as_a_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oncecron.cli.output import Writer
    from oncecron.log.sources import Sources


def _state(job: JobSummary, _clock: Clock) -> str:
    return ", ".join(
        f"{word} {_many(count, MISSED_AT_MOST)}" if count else word or ABSENT
        for word, count in states(job)
    )


def _in_a_row(job: JobSummary, _clock: Clock) -> str:
    if job.failures:
        return f"{_many(job.failures, STREAK_AT_MOST)} failed"
    return f"{_many(job.successes, FIRST_LOOK)} ok" if job.successes else ABSENT


def _many(count: int, at_most: int) -> str:
    return f"{count}{'+' * (count >= at_most)}"


def _running_on(job: JobSummary, _clock: Clock) -> str:
    return ",".join(job.running_on) or ABSENT


def _host(job: JobSummary, _clock: Clock) -> str:
    """Return where it runs, else where it ran last."""
    return _running_on(job, _clock) if job.running_on else job.host or ABSENT


def _paused(job: JobSummary, clock: Clock) -> str:
    if job.paused_by is None:
        return ABSENT
    until = f" until {clock.near(job.paused_until)}" if job.paused_until is not None else ""
    reason = f": {job.paused_reason}" if job.paused_reason else ""
    return f"by {job.paused_by}{until}{reason}"


_KEY, _STATE = table.key(), Column("STATE", _state, 0, 18, kind=kind_of)
_NEXT, _SCHEDULE = table.time("next_at", "NEXT", 2), table.field("schedule", "SCHEDULE", 4, 12)
_USUAL, _PROGRESS, _EXIT = (
    table.duration("usual_duration", "USUAL", 5),
    table.progress(6),
    table.exit_status(10),
)
_SUCCESS, _SINCE = table.time("succeeded_at", "SUCCESS", 7), table.time("running_since", "SINCE", 8)
_PLACE = table.field("place", "PLACE", 11, 12, is_optional=True)
_IN_A_ROW, _PAUSED = Column("IN A ROW", _in_a_row, 9, right=True), Column("PAUSED", _paused, 7, 20)
JOBS = Kind(
    JobSummary._fields, tuple(name for name in JobSummary._fields if name.endswith(("_at", "_since", "_until"))),
    (
        _KEY, _STATE, table.field("outcome", "LAST"), _EXIT, _SUCCESS, table.time("failed_at", "FAILURE"),
        Column("RUNNING", _running_on), _SINCE, _IN_A_ROW, _USUAL, _NEXT, _SCHEDULE, _PROGRESS, _PLACE, _PAUSED,
    ),
    screen=(
        _KEY, _STATE, table.time("started_at", "LAST", 1), _NEXT, _SCHEDULE, _USUAL, Column("HOST", _host, 3, 10),
        _PROGRESS, _SINCE, _IN_A_ROW, _SUCCESS, _EXIT, _PLACE, _PAUSED,
    ),
)  # fmt: skip
_BY_NEXT = tuple(JOBS.screen[at] for at in (3, 0, 1, 2, *range(4, len(JOBS.screen))))
OPTIONS = (
    Option("wrong", "flag", "Show only keys with something wrong.", group="Which records"),
    Option(
        "next", "flag", "Sort by the next tick: the soonest comes first.", group="Which records"
    ),
    ALL,
    *QUERY_OPTIONS,
)


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    keys = {valid_key(word) for word in words}
    answer = writer(JOBS._replace(screen=_BY_NEXT) if settings["next"] else JOBS, settings)
    is_watched = answer.is_watched and output_format(settings) == "table"
    with store_and_log(settings) as (store, log):
        sources = sources_of(settings, store, log)
        if keys:
            refuse_unknown_keys(keys, {shard.key for shard in sources.job_keys}, log)
        found: Iterable[JobSummary] = jobs(sources, keys, internal=settings["all"])
        if is_watched or settings["wrong"] or settings["next"]:
            found = list(found)
            still = list(_as_a_whole(sources, found, settings))
            summary = [*still, in_words(found, besides=bool(still))]
            found = _in_order(found, settings, answer if is_watched else None)
        shown = answer.write(found)
    if not shown and answer.is_watched and not sources.job_keys:
        complain("no host has fired a key yet")
    elif is_watched and not keys:
        for sentence in summary:
            output.say(sentence, output.standard_output())
    return incomplete(store, log)


def _as_a_whole(sources: Sources, found: Sequence[JobSummary], settings: Settings) -> Iterator[str]:
    situation = Situation(sources.now, found, hosts=sources.key_hosts, pauses=sources.pauses)
    for each in as_a_whole(situation, Clock(settings["utc"])):
        yield settings.named(each.reason)


def _in_order(
    found: Iterable[JobSummary], settings: Settings, screen: Writer | None
) -> list[JobSummary]:
    """Return the keys to show. What a person looks for comes first, or last where it would leave the screen."""
    wanted = [job for job in found if not settings["wrong"] or job.state in WRONG]
    sign = 1 if screen and screen.is_too_long(len(wanted)) else -1
    if settings["next"]:
        return sorted(wanted, key=lambda job: (-sign * (job.next_at or math.inf), job.key))
    return sorted(wanted, key=lambda job: severity(job, sign)) if screen else wanted


COMMAND = TableCommand(
    "jobs", OPTIONS, _show,
    about="Show one line per key, or only per named key: what is wrong with it, the last outcome, the last success, the"
    " host where it runs now, how many ticks in a row succeeded or failed, the usual duration, the next tick (if "
    "the key runs with --schedule), and who has paused it. On a terminal, what is wrong comes first; last if there are "
    "more keys than lines.",
    examples=("oncecron jobs", "oncecron jobs --wrong", "oncecron jobs billing-nightly --json"),
    words="[KEY...]",
)  # fmt: skip
