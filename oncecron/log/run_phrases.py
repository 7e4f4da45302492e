"""Phrases about one execution: how it started and ended, and how long after its tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.light_modules import signal_name
from oncecron.core.text import visible
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import MINUTE, format_duration, plain_duration

if TYPE_CHECKING:
    from oncecron.core.log_rows import Execution, Traced


def delay(traced: Traced) -> float | None:
    """Return how long after its tick an execution was started, in seconds; None where its tick is no instant."""
    return None if traced.instant is None else traced.execution.started_at - traced.instant


def rounded(seconds: float) -> str:
    """Return seconds for people: below a minute to the tenth, else as `plain_duration`."""
    return format_duration(round(seconds, 1)) if seconds < MINUTE else plain_duration(seconds)


def end_time(execution: Execution) -> float:
    """Return when an execution ended; if the clock was set meanwhile, by the clock before."""
    started, ended, took = execution.started_at, execution.finished_at, execution.duration
    if ended is not None and took is not None and abs(ended - started - took) > MAX_CLOCK_SKEW:
        return started + took
    return ended or started


def after_phrase(execution: Execution) -> str:
    """Return how long it took."""
    return "" if execution.duration is None else f" after {format_duration(execution.duration)}"


def stop_phrase(execution: Execution) -> str:
    """Return why it was stopped."""
    if execution.outcome == "timed-out":
        return ", by --timeout"
    if execution.outcome != "stopped":
        return ""
    if execution.requested_by is not None:
        return f", as {visible(execution.requested_by)} had asked"
    return ", because oncecron was stopped or killed"


def in_brackets(*texts: str | None) -> str:
    """Return what is known as the end of a sentence."""
    known = "; ".join(visible(text) for text in texts if text)
    return f" ({known})" if known else ""


def status_phrase(execution: Execution) -> str:
    """Return its signal or exit status."""
    if execution.signal is not None:
        return f"signal {signal_name(execution.signal) or execution.signal}"
    return "" if execution.exit_code is None else f"exit status {execution.exit_code}"


def start_phrase(execution: Execution, before: Execution | None) -> str:
    """Return which attempt was started, and why there was a further one."""
    attempt = f"attempt {execution.attempt}"
    if execution.cause == "retry":
        return f"retried it, {attempt}"
    if execution.cause == "manual":
        return f"started {attempt}, requested by --again"
    if execution.cause == "takeover":
        last = f" from {visible(before.host)}" if before else ""
        return f"took over{last} with {attempt}"
    lease = " without a lease" if execution.outcome == "unclaimed" else ""
    return f"started {attempt if before or execution.attempt > 1 else 'it'}{lease}"
