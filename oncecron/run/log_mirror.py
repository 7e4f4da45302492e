"""The thread that writes a job's start, its end and skips to a separate log store (`--log`).

The lease store records all of this too, and it alone decides. An unreachable log store never stops or delays a run:

- The guard sends the first record after the claim is answered and the job, if any, has started; then the thread starts.
  A later attempt or shard may be forked while this thread holds a lock of a library. That is safe, because between fork
  and exec `process_tree.start` calls nothing that could wait for a lock. The runner of `each` is forked and executes
  nothing: it would wait for ever for a module that this thread is importing, or for a mutex of libpq. So the guard
  lets the thread rest meanwhile (`hold`).
- Records are delivered in order, and retried with jitter while the log store is unreachable. Spooled records of this
  key go first, and those of other keys follow while nothing else waits. The record of an end has everything that
  the record of its start has, and replaces it if that is still waiting.
- After a failed delivery only the newest `_MOST_WAITING` records stay in memory; the thread spools the others.
- At the very end the guard waits for the thread, at most `LOG_GOODBYE`, and spools what is not delivered.

Nothing waits for this thread before that, least of all a kill.
"""

from __future__ import annotations

import os
import threading

from oncecron.core import clock
from oncecron.core.errors import RecordRefusedError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.retry import Backoff
from oncecron.core.timing import ASSUMED_TTL, NEVER
from oncecron.host import stderr
from oncecron.run.spool import SpoolError
from oncecron.stores import open_lease_store, steady

if TYPE_CHECKING:
    from typing import Any

    from oncecron.run.spec import LogSpec, RunSpec
    from oncecron.stores.api import LeaseStore

LOG_GOODBYE = 2.0
"""A firing that ends waits this long for the log store: enough to connect to a distant server and to write one record,
and too short for two firings of a minutely line to overlap."""
_LOG_BACKLOG = LOG_GOODBYE / 2
"""The part of it for older spooled records; the rest is for the record of this firing."""
_LOG_RECORD_TIMEOUT = 5.0
"""The limit for one record to reach the log store."""
_LOG_IDLE = 10.0
"""After this long without a record the connection to the log store is closed: the job may run for hours."""
LOG_LONGEST_PAUSE = 30.0
"""The longest pause between two tries to reach the log store while the job runs."""
_LOG_LAST_PAUSE = 0.2
"""The longest pause between two tries when the firing waits only for the log store."""
_MOST_WAITING = 20
"""So many records stay in memory while the log store is away; each may have 1 MB of output."""


class LogMirror:
    """The thread and its mailbox. Only `close` waits."""

    def __init__(self, spec: RunSpec, log: LogSpec) -> None:
        self._spec = spec
        self._log = log
        self._changed = threading.Condition()
        self._working = threading.Lock()
        """Held while the thread may hold a lock of a library."""
        self._is_held = self._is_hold_wanted = False
        self._waiting: list[dict[str, Any]] = []
        self._thread: threading.Thread | None = None
        self._closing = False
        self._backlog_until = NEVER
        self._error: Exception | None = None

    def send(self, record: dict[str, Any]) -> None:
        """Hand over a record; see `spool`."""
        with self._changed:
            others = [each for each in self._waiting if not _same_execution(each, record)]
            self._waiting = [*others, record]
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                # The user's limit of threads: the record is spooled at the end.
                self._error = error
                self._thread = None

    def hold(self) -> None:
        """Let the thread rest until `resume`, so that a fork finds no lock of a library held.

        Whoever still works after `LOG_GOODBYE` waits for the network, and holds none.
        """
        self._is_hold_wanted = True
        self._is_held = self._working.acquire(timeout=LOG_GOODBYE)

    def resume(self) -> None:
        """End the rest."""
        self._is_hold_wanted = False
        if self._is_held:
            self._is_held = False
            self._working.release()

    def close(self) -> None:
        """Let the thread deliver the last records; spool what it cannot."""
        with self._changed:
            self._closing = True
            self._backlog_until = _now() + _LOG_BACKLOG
            self._changed.notify_all()
        if self._thread:
            self._thread.join(LOG_GOODBYE)
        with self._changed:
            remaining, self._waiting = self._waiting, []
        if remaining:
            self._keep(remaining)

    def _keep(self, records: list[dict[str, Any]]) -> None:
        log, key = self._log, self._spec.firing.key
        lost = [record for record in records if not log.spool.keep(record)]
        if log.spool.note_unreachable(key) or self._spec.verbose or os.isatty(2):
            why = self._error or f"it did not answer within {LOG_GOODBYE:g} s"
            then = "" if lost else "; the record is spooled, and the next firing delivers it"
            stderr.complain(f"key {key}: log store unreachable: {why}{then}")

    # Everything below runs in the thread.

    def _run(self) -> None:
        log = self._log
        store: LeaseStore | None = None
        backoff = Backoff(cap=LOG_LONGEST_PAUSE)
        others_spooled = log.spool.has()
        while record := self._next(store):
            try:
                with self._working:
                    store = store or self._open()
                    self._deliver(store, record)
            except RecordRefusedError as error:
                self._set_aside(record, error)
                continue
            except Exception as error:  # noqa: BLE001 - the run continues without the log
                self._failed(error, store)
                self._wait(backoff.delay(), record)
                continue
            backoff.reset()
            if others_spooled and not self._busy():
                with self._working:
                    others_spooled = not log.spool.deliver(store, None, self._seconds_for_others)
        if store:
            store.close()

    def _open(self) -> LeaseStore:
        log, spec = self._log, self._spec
        store = open_lease_store(log.address, spec.namespace, ASSUMED_TTL)
        return steady(store, log.address, spec.reread_log)

    def _next(self, store: LeaseStore | None) -> dict[str, Any] | None:
        with self._changed:
            if not self._changed.wait_for(self._busy, _LOG_IDLE):
                if store:
                    store.close()
                self._changed.wait_for(self._busy)
            return self._waiting[0] if self._waiting else None

    def _deliver(self, store: LeaseStore, record: dict[str, Any]) -> None:
        log, key = self._log, self._spec.firing.key
        log.spool.deliver(store, key, self._seconds_for_older)
        deadline = clock.lease_time(store.lease_clock) + _LOG_RECORD_TIMEOUT
        store.deliver(record, deadline=deadline, retention=self._spec.retention)
        log.spool.note_reached(key)
        self._done_with(record)

    def _set_aside(self, record: dict[str, Any], error: RecordRefusedError) -> None:
        """Spool a record that the log refuses for a person, so that the later ones are delivered."""
        try:
            self._log.spool.refuse(record, str(error))
        except SpoolError as unwritten:
            stderr.complain(
                f"key {self._spec.firing.key}: a record for the log is lost: {error}; {unwritten}: {record}"
            )
        self._log.spool.report_aside()
        self._done_with(record)

    def _done_with(self, record: dict[str, Any]) -> None:
        with self._changed:
            self._waiting = [each for each in self._waiting if each is not record]

    def _failed(self, error: Exception, store: LeaseStore | None) -> None:
        self._error = error
        if self._spec.verbose:
            stderr.complain(
                f"key {self._spec.firing.key}: log store unreachable, retrying: {error}"
            )
        if store:
            store.close()
        with self._changed:
            older, self._waiting = self._waiting[:-_MOST_WAITING], self._waiting[-_MOST_WAITING:]
        if older:
            self._keep(older)

    def _wait(self, seconds: float, record: dict[str, Any]) -> None:
        with self._changed:
            if self._closing:
                self._changed.wait(min(seconds, _LOG_LAST_PAUSE))
            else:
                self._changed.wait_for(
                    lambda: self._closing or self._waiting[0] is not record, seconds
                )

    def _busy(self) -> bool:
        return self._closing or bool(self._waiting)

    def _seconds_for_older(self) -> float:
        """Return the time for a spooled record of this key: none once the guard waits for the thread to rest."""
        if self._is_hold_wanted:
            return 0.0
        return min(_LOG_RECORD_TIMEOUT, self._backlog_until - _now())

    def _seconds_for_others(self) -> float:
        return 0.0 if self._busy() else self._seconds_for_older()


def _now() -> float:
    return clock.lease_time(clock.MONOTONIC)


def _same_execution(record: dict[str, Any], later: dict[str, Any]) -> bool:
    same = all(record.get(field) == later.get(field) for field in ("kind", "owner", "shard"))
    return same and record["kind"] == "execution" and record["attempt"] == later["attempt"]
