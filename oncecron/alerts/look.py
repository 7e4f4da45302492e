"""Look once at a store for all that is wrong: as `check`, `metrics` and `notify` ask."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from oncecron.alerts.findings import check, finding
from oncecron.alerts.notified import failing_channels
from oncecron.log.hosts import recent
from oncecron.log.jobs import jobs
from oncecron.log.wrong_times import after_their_ticks, of_the_future

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from oncecron.alerts.findings import Checked, Limits
    from oncecron.core.log_rows import HostTicks, Pause
    from oncecron.core.text import Clock
    from oncecron.log.jobs import JobSummary
    from oncecron.stores.api import Inspector


class Look(NamedTuple):
    """What one look has found."""

    jobs: Sequence[JobSummary]
    checked: Checked


def look(
    store: Inspector,
    log: Inspector,
    limits: Limits,
    now: float,
    clock: Clock,
    *,
    spooled: int = 0,
    keys: Collection[str] = (),
    channels: Collection[str] = (),
    judged: bool = True,
) -> Look:
    """Judge every key, or only `keys`. Raises `StoreError`.

    `spooled`: records that wait on this host; `channels`: those of `oncecron notify` that are configured.

    With `judged`, the jobs have only what findings need, see `jobs`.
    """
    leases, lists = store.leases(), store.item_lists()
    known = [each for each in store.job_keys() if not keys or each.key in keys]
    pauses = store.pauses()
    asked = functools.partial(jobs, leases=leases, lists=lists, known=known, pauses=pauses)
    found = list(asked(store, log, now, keys or None, judged=judged))
    others = [] if keys else list(failing_channels(store.notices(channels), now))
    hosts, drained = _hosts(store, pauses, limits.states)
    for kind, suspicions in (
        ("future", of_the_future(known, pauses, now, clock)),
        ("zone", after_their_ticks(log, known, recent(hosts, now))),
    ):
        if limits.states[kind]:
            others += [
                finding(kind, each.key, 1, f"{each.text}; {each.cure}")
                for each in suspicions
                if not keys or each.key in keys
            ]
    checked = check(found, leases, spooled, limits, now, clock, hosts, drained, others, lists=lists)
    return Look(found, checked)


def _hosts(
    store: Inspector, pauses: Sequence[Pause], states: Mapping[str, int]
) -> tuple[Sequence[HostTicks], set[str]]:
    """Return the hosts of all keys, which may be many, if they are looked for; and the drained hosts."""
    if not any(states[kind] for kind in ("silent-host", "clock", "zone", "same-name")):
        return (), set()
    return store.host_ticks(), {pause.host for pause in pauses if pause.host is not None}
