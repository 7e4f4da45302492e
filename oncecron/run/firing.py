"""Carry out `oncecron run`: one firing, from its options to its exit status.

1. Read options, environment and file; check key and tick.
2. Derive the tick once, from the host's clock at the start of this process, and never again after a wait.
3. Wait for the host's own part of --spread.
4. Run the test of --only-if. If it fails, the firing is skipped as `unmet`, and nothing is claimed.
5. Check that the command exists and is executable. If not, the firing is skipped as `broken` (126 or 127) and nothing
   is claimed. Otherwise a broken host, which fails fastest, would win every tick.
6. Become the wrapper and fork the guard, which claims, starts, renews, kills and records.

A signal that ends the firing in steps 3 and 4 is recorded as a skip, `interrupted`.
"""

from __future__ import annotations

import os
import time

from oncecron.core import clock
from oncecron.core.errors import CommandError, StoreError, shortage_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import RECORD_TIMEOUT, SILENT_WAIT, SKIP_TIMEOUT
from oncecron.core.units import format_duration
from oncecron.host import stderr
from oncecron.run import process_tree
from oncecron.run.job import signal_note
from oncecron.run.program import look_up, shell
from oncecron.run.reporter import open_log, skip_message
from oncecron.run.spec import RunSpec, make_spec
from oncecron.run.spool import skip_record
from oncecron.run.wrapper import spool_unstarted, supervise
from oncecron.stores import open_lease_store, steady

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.config.run_parser import ParsedRun
    from oncecron.run.seams import Observer
    from oncecron.stores.api import LeaseStore


def run(parsed: ParsedRun, observe: Callable[[RunSpec], Observer | None] | None = None) -> int:
    """Carry out `oncecron run`; return the exit status. Raises `OncecronError` before anything runs."""
    return begin(make_spec(parsed)._replace(observe=observe), supervise)


def begin(spec: RunSpec, then: Callable[[RunSpec, Callable[[], LeaseStore]], int]) -> int:
    """Take steps 3 to 5, then the next one; return the exit status. Raises `CommandError`.

    `then`: `supervise`, or what `each` does instead, with the spec and what opens the store.
    """
    process_tree.refuse_core()

    def open_store() -> LeaseStore:
        store = open_lease_store(spec.address, spec.namespace, spec.firing.ttl)
        return steady(store, spec.address, spec.reread_address)

    try:
        if spec.spread:
            _wait_in_turn(spec)
        unmet = None if spec.only_if is None else _host_refusal(spec)
        if unmet:
            return _skip(spec, open_store(), unmet)
        line = spec.shown_program if len(spec.command) == 1 else spec.firing.command
        program = look_up(spec.command[0], spec.shown_program, line)
    except CommandError as error:
        _record(spec, open_store(), Refusal("broken", detail=str(error)))
        raise
    except process_tree.Interrupted as ended:
        refusal = Refusal("interrupted", detail=signal_note(ended.number))
        _record(spec, open_store(), refusal, within=SKIP_TIMEOUT)
        process_tree.end_by(ended.number)
    except OSError as error:  # no process for the test
        if shortage_of(error):
            spool_unstarted(spec)
        raise
    return then(spec._replace(program=program), open_store)


def _wait_in_turn(spec: RunSpec) -> None:
    """Wait for the part of --spread that this host has. Raises `Interrupted`."""
    delay = spec.delay()
    if spec.verbose or (os.isatty(2) and delay > SILENT_WAIT):
        stderr.complain(
            f"key {spec.firing.key}: waiting {format_duration(round(delay, 3))} (--spread)"
        )
    signals = process_tree.Signals()
    try:
        deadline = time.monotonic() + delay
        while (remaining := deadline - time.monotonic()) > 0:
            signals.wait(remaining)
    finally:
        signals.close()


def _host_refusal(spec: RunSpec) -> Refusal | None:
    """Return why --only-if keeps this host from the tick, None if it does not. Raises `CommandError`."""
    from oncecron.run.only_if import refusal_of  # noqa: PLC0415 - only a firing with the option pays

    return refusal_of(spec, look_up(shell(), shell()))


def _skip(spec: RunSpec, store: LeaseStore, refusal: Refusal) -> int:
    if spec.verbose or os.isatty(2):
        stderr.complain(skip_message(spec, spec.firing, refusal, waits=False))
    _record(spec, store, refusal)
    return spec.skip_exit


def _record(
    spec: RunSpec, store: LeaseStore, refusal: Refusal, *, within: float = RECORD_TIMEOUT
) -> None:
    """Record a skip that the store did not decide, or spool it: that never changes the decision."""
    log, record = open_log(spec), skip_record(spec.firing, refusal)
    log.send(record)
    deadline = clock.lease_time(store.lease_clock) + min(spec.connect_timeout, within)
    try:
        store.skip(spec.firing, refusal, deadline=deadline)
    except StoreError:
        spec.spool.keep(record)
    finally:
        store.close()
        log.close()
