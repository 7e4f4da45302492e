"""Explain on one line why a firing started nothing, and what a person can do about it."""

from __future__ import annotations

import time

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.units import format_duration

if TYPE_CHECKING:
    from oncecron.core.model import AskAgain, Firing, Refusal
    from oncecron.run.spec import RunSpec


WAITS = {
    "contended": "another host is claiming or releasing the key; it is asked again for {budget} (--connect-timeout)",
    "orphaned": "its holder seems dead, but the lease has not expired yet; it ends in {ends_in}",
    "stale": "the lease has expired, but a session still holds its lock; it is taken over in {ends_in}",
    "fenced": "a transaction of the last attempt still holds the fence; to end it: {release}",
    "recovering": "the store may have forgotten a lease; every lease that it may have granted must expire: {ends_in}; "
    "a new Redis is used at once if its redis.conf has `appendonly yes`",
}
"""What a firing waits for when the store cannot decide yet, by `AskAgain.why`: how long, and the cure."""


def waiting_message(spec: RunSpec, answer: AskAgain) -> str:
    """Return the line for an answer of a store that cannot decide yet."""
    return WAITS[answer.why].format(
        budget=format_duration(spec.connect_timeout),
        ends_in=format_duration(max(1, round(answer.ends_in or answer.after))),
        release=spec.command_line(f"release --force {spec.firing.key}"),
    )


def skip_message(spec: RunSpec, firing: Firing, refusal: Refusal, *, waits: bool) -> str:
    """Return the line for a refusal of `firing`, a shard of the firing in `spec`.

    `waits`: the shard is claimed again later.
    """
    part = f" shard {firing.shard}" if firing.shards > 1 else ""
    key = firing.key + part
    tick = f"{firing.key} tick {firing.tick.text}{part}" if firing.tick.text else key
    on = f" on {refusal.holder.host} (pid {refusal.holder.pid})" if refusal.holder else ""
    at = ""
    if refusal.since is not None:
        at = time.strftime(" %Y-%m-%dT%H:%M:%SZ", time.gmtime(refusal.since))
    since, when = at and f" since{at}", at and f" at{at}"
    detail = f" ({refusal.detail})" if refusal.detail else ""
    by = f" {refusal.detail}" if refusal.detail else ""
    resume = spec.command_line(f"resume {firing.key}")
    why = {
        "held": f"{key} is running{on}{since}{detail}",
        "done": f"{tick} has already run{on}{when}{detail}; to run it again: --again",
        "passed": f"{tick} is older than the newest claimed tick{detail}; to run it anyway: --again",
        "recent": f"{key} started{on}{when}, which is too recent{detail}; to run it anyway: --again",
        "exhausted": f"{tick} has no attempts left; the last one ran{on}{when}{detail}; "
        "to run it again: --again",
        "unmet": f"{tick}: this host does not meet --only-if{detail}",
        "late": f"{tick} is later than --starting-deadline allows",
        "paused": f"{firing.key} is paused{since}{by}; resume it: {resume}, "
        f"or {spec.command_line('resume --all')} if all keys are paused",
        "drained": f"{firing.key}: host {firing.holder.host} is drained{since}{by}; "
        f"undrain it: {spec.command_line('undrain ' + firing.holder.host)}",
    }.get(refusal.reason, f"{tick}: {refusal.reason}{on}{when}{detail}")
    if refusal.reason == "held" and not waits:
        why += "; to wait for it: --wait DURATION"
    return f"{'waiting' if waits else 'skipped'}: {why}"
