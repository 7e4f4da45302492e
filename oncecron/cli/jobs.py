"""`oncecron jobs`: one line per key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import (
    ALL,
    QUERY_OPTIONS,
    TableCommand,
    incomplete,
    output_format,
    store_and_log,
    writer,
)
from oncecron.cli.gather import every_job
from oncecron.cli.output import Column, Kind
from oncecron.cli.sentences import refuse_unknown_keys, valid_key
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.job_summary import FIRST_LOOK, STREAK_AT_MOST, JobSummary
from oncecron.core.missed import MISSED_AT_MOST
from oncecron.core.stderr import complain
from oncecron.core.text import ABSENT
from oncecron.log.jobs import WRONG, Sources, states

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncecron.core.text import Clock


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


def _paused(job: JobSummary, clock: Clock) -> str:
    if job.paused_by is None:
        return ABSENT
    until = f" until {clock.seconds(job.paused_until)}" if job.paused_until is not None else ""
    reason = f": {job.paused_reason}" if job.paused_reason else ""
    return f"by {job.paused_by}{until}{reason}"


JOBS = Kind(
    JobSummary._fields, tuple(name for name in JobSummary._fields if name.endswith(("_at", "_since", "_until"))),
    (
        output.field("key"), Column("STATE", _state, is_state=True),
        output.field("outcome", "LAST"), output.EXIT, output.time("succeeded_at", "SUCCESS"),
        output.time("failed_at", "FAILURE"), output.field("running_host", "RUNNING"),
        output.time("running_since", "SINCE"), Column("IN A ROW", _in_a_row, right=True),
        output.duration("usual_duration", "USUAL"), output.time("next_at", "NEXT"),
        output.field("schedule"), output.ITEMS, Column("PAUSED", _paused),
    ),
)  # fmt: skip
OPTIONS = (ALL, *QUERY_OPTIONS)


def _severity(job: JobSummary) -> tuple[int, bool, str]:
    """Return where a person wants to see a key: what is wrong comes first, and then what runs."""
    return -WRONG.get(str(job.state), 0), job.running_host is None, job.key


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    keys = {valid_key(word) for word in words}
    answer = writer(JOBS, settings)
    with store_and_log(settings) as (store, log):
        sources = Sources(store, log, clock.wall())
        if keys:
            refuse_unknown_keys(keys, {shard.key for shard in sources.job_keys})
        internal = settings["all"] or False
        found: Iterable[JobSummary] = every_job(sources, keys, internal=internal)
        if answer.is_watched and output_format(settings) == "table":
            found = sorted(found, key=_severity)
        shown = answer.write(found)
    if not shown and answer.is_watched and not sources.job_keys:
        complain("no host has fired a key yet")
    return incomplete(store, log)


COMMAND = TableCommand(
    "jobs", OPTIONS, _show,
    about="Show one line per key, or only per named key: what is wrong with it, the last outcome, the last success, the"
    " host where it runs now, how many ticks in a row succeeded or failed, the usual duration, the next tick (if "
    "the key runs with --schedule), and who has paused it. On a terminal, what is wrong comes first.",
    examples=("oncecron jobs", "oncecron jobs billing-nightly --json"),
    words="[KEY...]",
)  # fmt: skip
