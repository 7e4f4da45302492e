"""Where reports read: the store, its log, and what the configuration file expects."""

from __future__ import annotations

import itertools
import os
from functools import cached_property
from typing import TYPE_CHECKING

from oncecron.config.options import AUTO_KEY
from oncecron.core import clock
from oncecron.core.log_rows import Expectation, HistoryQuery, JobKey, is_internal
from oncecron.core.units import parse_duration
from oncecron.log.job_summary import by_key
from oncecron.log.missed import MISSED_AT_MOST, as_configured, as_fired, unstarted
from oncecron.plugins import work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import Execution, KeyHost, LeaseView, Pause, Skip
    from oncecron.plugins import Work
    from oncecron.stores.reader import Reader

    Found = TypeVar("Found")

_UNSTARTED_AT_MOST = 100
"""Keys that were never started whose skips are read; a role that may fire can make up thousands."""
_LOOKED_AT = 1000
"""Attempts of a tick among which one is looked for."""


class Sources:
    """Where reports read. What concerns all keys is read once, however many keys or ticks are looked up."""

    def __init__(
        self, store: Reader, log: Reader, now: float, configured: Collection[JobKey] = ()
    ) -> None:
        """Read nothing yet. `log` is the same as `store` unless --log names another one.

        `configured`: what the configuration file expects.
        """
        self.store = store
        self.log = log
        self.now = now
        self._configured = configured
        self._read: dict[Callable[[Reader], Any], Any] = {}

    def once(self, read: Callable[[Reader], Found]) -> Found:
        """Return what a function reads of the store, which is read once."""
        if read not in self._read:
            self._read[read] = read(self.store)
        found: Found = self._read[read]
        return found

    @cached_property
    def work(self) -> Work:
        """How far the work of runs is, as the plugins know it."""
        return work_of(self)

    def progressing(self) -> Iterator[LeaseView]:
        """Yield the leases of all keys with how far their work is."""
        for lease in self.leases:
            told = self.work.of_tick(lease.key, lease.tick) if lease.tick else None
            yield lease._replace(progress=told)

    def place_of(self, execution: Execution) -> str | None:
        """Return the place of an execution. A log beside the store has none that only a heartbeat has brought."""
        if self.log is not self.store and execution.outcome in ("running", "lost"):
            query = HistoryQuery(key=execution.key, tick=execution.tick, limit=_LOOKED_AT)
            for each in self.store.history(query):  # which has ids of its own
                if each.fencing_token == execution.fencing_token:
                    return each.place
        found = self.log.execution(execution.execution_id)
        return found and found.place

    @cached_property
    def leases(self) -> Sequence[LeaseView]:
        """The leases of all keys."""
        return self.store.leases()

    @cached_property
    def pauses(self) -> Sequence[Pause]:
        """The pauses of all keys, and the drained hosts."""
        return self.store.pauses()

    @cached_property
    def key_hosts(self) -> Sequence[KeyHost]:
        """The hosts that fire each key. There may be tens of thousands."""
        return self.store.key_hosts()

    @cached_property
    def store_keys(self) -> Sequence[JobKey]:
        """The shards of all keys that were claimed in the store."""
        return self.store.job_keys()

    @cached_property
    def _recorded_keys(self) -> Sequence[JobKey]:
        of_log = () if self.log is self.store else self.log.job_keys()
        return [*self.store_keys, *of_log]

    @cached_property
    def in_vain(self) -> Mapping[str, Sequence[Skip]]:
        """The newest skips of the keys that were never started, as `log.missed` judges them."""
        keys = itertools.islice(sorted(unstarted(self._recorded_keys).items()), _UNSTARTED_AT_MOST)
        found = {
            key: [skip for skip in self._skips(key) if skip.at > forgotten]
            for key, forgotten in keys
        }
        return {key: skips for key, skips in found.items() if skips}

    def _skips(self, key: str) -> Iterator[Skip]:
        return self.log.skips(HistoryQuery(key=key, limit=MISSED_AT_MOST))

    def shards(self, keys: Collection[str], *, internal: bool) -> dict[str, list[JobKey]]:
        """Return the shards of some keys, or of all, by key; `internal`: also what oncecron runs for itself."""
        return by_key(
            each
            for each in self.job_keys
            if (each.key in keys if keys else internal or not is_internal(each.key))
        )

    @cached_property
    def job_keys(self) -> Sequence[JobKey]:
        """The shards of all keys, on either store, and those that only the configuration file knows."""
        rows = self.key_hosts if self.in_vain else ()
        return as_configured(as_fired(self._recorded_keys, self.in_vain, rows), self._configured)


def sources_of(settings: Settings, store: Reader, log: Reader) -> Sources:
    """Return where reports read now, with the keys that the configuration file expects."""
    return Sources(store, log, clock.wall(), configured_keys(settings))


def configured_keys(settings: Settings) -> Sequence[JobKey]:
    """Return the keys that the configuration file gives a schedule: they are expected from its last change on.

    None where another store is named than that of the file.
    """
    file = settings.file
    if file.path is None or _is_elsewhere(settings):
        return ()
    try:
        changed = os.stat(file.path).st_ctime  # not st_mtime, which a copy may keep
    except OSError:
        return ()
    return [
        JobKey(key, 0, _configured(job, changed))
        for key, job in file.jobs.items()
        if key != AUTO_KEY and "schedule" in job and not {"store", "namespace"} & job.keys()
    ]


def _is_elsewhere(settings: Settings) -> bool:
    file, variables = settings.file, ("ONCECRON_STORE", "ONCECRON_STORE_FILE", "ONCECRON_NAMESPACE")
    names_one = bool({"store", "namespace"} & file.values.keys()) or file.store_file is not None
    is_typed = any(map(settings.is_typed, ("store", "namespace")))
    return is_typed or (names_one and any(map(os.environ.get, variables)))


def _configured(job: Mapping[str, str], since: float) -> Expectation:
    deadline = job.get("starting-deadline")
    within = None if deadline is None else parse_duration(deadline)
    return Expectation(job["schedule"], job.get("tz"), 1, within, since)
