"""`oncecron jobs`: one line per key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import QUERY_OPTIONS, TableCommand, incomplete, store_and_log, writer
from oncecron.cli.gather import every_job
from oncecron.cli.output import Column, Kind
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.job_summary import FIRST_LOOK, STREAK_AT_MOST, JobSummary
from oncecron.core.missed import MISSED_AT_MOST
from oncecron.core.stderr import complain
from oncecron.core.text import ABSENT
from oncecron.log.jobs import Sources

if TYPE_CHECKING:
    from oncecron.core.text import Clock


def _streak(job: JobSummary, _clock: Clock) -> str:
    if not job.streak:
        return ABSENT
    counted = FIRST_LOOK if job.outcome == "succeeded" else STREAK_AT_MOST
    return f"{job.streak}{'+' * (job.streak >= counted)}"


def _due(job: JobSummary, _clock: Clock) -> str:
    texts = (
        (job.missed > 0, f"missed {job.missed}{'+' * (job.missed >= MISSED_AT_MOST)}"),
        (job.overdue is not None, "overdue"),
        (job.overruns > 0, f"overruns {job.overruns}"),
        (job.silent_since is not None, "silent"),
    )
    return ", ".join(text for is_so, text in texts if is_so) or ABSENT


def _paused(job: JobSummary, clock: Clock) -> str:
    if job.paused_by is None:
        return ABSENT
    until = f" until {clock.seconds(job.paused_until)}" if job.paused_until is not None else ""
    reason = f": {job.paused_reason}" if job.paused_reason else ""
    return f"by {job.paused_by}{until}{reason}"


JOBS = Kind(
    JobSummary._fields, tuple(name for name in JobSummary._fields if name.endswith(("_at", "_since", "_until"))),
    (
        *output.fields("key", "outcome"), output.EXIT, output.time("succeeded_at", "SUCCESS"),
        output.time("failed_at", "FAILURE"), output.field("running_host", "RUNNING"),
        output.time("running_since", "SINCE"), Column("STREAK", _streak, right=True),
        output.duration("usual_duration", "USUAL"), output.time("next_at", "NEXT"),
        Column("DUE", _due), output.field("schedule"), output.ITEMS, Column("PAUSED", _paused),
    ),
)  # fmt: skip
OPTIONS = QUERY_OPTIONS


def _show(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    answer = writer(JOBS, settings)
    with store_and_log(settings) as (store, log):
        shown = answer.write(every_job(Sources(store, log, clock.wall())))
    if not shown and answer.is_watched:
        complain("no host has fired a key yet")
    return incomplete(store, log)


COMMAND = TableCommand(
    "jobs", OPTIONS, _show,
    about="Show one line per key: the last outcome, the last success, the host where it runs now, how many runs in a "
    "row succeeded or failed, the usual duration, the next tick (if the key runs with --schedule), and who has "
    "paused it.",
    examples=("oncecron jobs", "oncecron jobs --json"),
)  # fmt: skip
