"""Look once at a store for all that is wrong: as `check`, `metrics` and `notify` ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.reports.check import check
from oncecron.reports.jobs import jobs
from oncecron.reports.notify.notified import failing_channels

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from oncecron.core.log_rows import HostTicks
    from oncecron.core.text import Clock
    from oncecron.reports.check import Checked, Limits
    from oncecron.reports.jobs import JobSummary
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
    leases = store.leases()
    lists = store.item_lists()
    asked = jobs(store, log, now, keys or None, leases=leases, lists=lists, judged=judged)
    found = list(asked)
    others = () if keys else failing_channels(store.notices(channels), now)
    hosts, drained = _hosts(store, limits.states)
    checked = check(found, leases, spooled, limits, now, clock, hosts, drained, others, lists=lists)
    return Look(found, checked)


def _hosts(store: Inspector, states: Mapping[str, int]) -> tuple[Sequence[HostTicks], set[str]]:
    """Return the hosts of all keys, which may be many, if they are looked for; and the drained hosts."""
    if not states["silent-host"] and not states["clock"]:
        return (), set()
    drained = {pause.host for pause in store.pauses() if pause.host is not None}
    return store.host_ticks(), drained
