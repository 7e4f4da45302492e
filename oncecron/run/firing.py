"""Carry out `oncecron run`: one firing, from its options to its exit status.

1. Read options, environment and file; check key and tick.
2. Derive the tick once, from the host's clock at the start of this process, and never again after a wait.
3. Wait for the host's own part of --spread.
4. Run the test of --only-if. If it fails, the firing is skipped as `unmet`, and nothing is claimed.
5. Check that the command exists and is executable. If not, the firing is skipped as `broken` (126 or 127) and nothing
   is claimed. Otherwise a broken host, which fails fastest, would win every tick.
6. Start wrapper and guard, which claim, start, renew, kill and record.
"""

from __future__ import annotations

import os
import time

from oncecron.core import clock, stderr
from oncecron.core.errors import (
    EX_NOT_EXECUTABLE,
    EX_NOT_FOUND,
    CommandError,
    shortage_of,
)
from oncecron.core.light_modules import sha256_digest
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import Refusal
from oncecron.core.timing import RECORD_TIMEOUT, SILENT_WAIT
from oncecron.core.units import format_duration
from oncecron.run import process_tree, spool_records
from oncecron.run.log import open_log
from oncecron.run.spec import RunSpec, make_spec, shell
from oncecron.run.spool import SpoolError
from oncecron.run.wrapper import spool_unstarted, supervise
from oncecron.stores import open_lease_store, steady
from oncecron.stores.address import shell_quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncecron.config.run_parser import ParsedRun
    from oncecron.stores.api import LeaseStore


def run(parsed: ParsedRun) -> int:
    """Carry out `oncecron run`; return the exit status. Raises `OncecronError` before anything runs."""
    return begin(make_spec(parsed), supervise)


def begin(spec: RunSpec, then: Callable[[RunSpec, Callable[[], LeaseStore]], int]) -> int:
    """Test the host and the command, and do what follows; return the exit status. Raises `CommandError`."""
    process_tree.refuse_core()
    if spec.spread:
        _wait_in_turn(spec)

    def open_store() -> LeaseStore:
        store = open_lease_store(spec.address, spec.namespace, spec.firing.ttl)
        return steady(store, spec.address, spec.reread_address)

    try:
        unmet = None if spec.only_if is None else _unmet(spec)
        if unmet:
            return _skip(spec, open_store(), unmet)
        program = look_up(spec.command[0], spec.shown_program)
    except CommandError as error:
        _record(spec, open_store(), Refusal("broken", detail=str(error)))
        raise
    except OSError as error:  # no process for the test
        if shortage_of(error):
            spool_unstarted(spec)
        raise
    return then(spec._replace(program=program), open_store)


def _wait_in_turn(spec: RunSpec) -> None:
    """Wait for the part of --spread that this host has at this tick; without a tick, at this time."""
    firing = spec.firing
    delay = spec.spread * turn(
        firing.key, firing.tick.text or str(firing.fired_at), firing.holder.host
    )
    if spec.verbose or (os.isatty(2) and delay > SILENT_WAIT):
        stderr.complain(f"key {firing.key}: waiting {format_duration(round(delay, 3))} (--spread)")
    time.sleep(delay)


def turn(key: str, tick: str, host: str) -> float:
    """Return a number from 0 up to 1, evenly spread over hosts and ticks, and always the same for the same three."""
    return int(sha256_digest(f"{key}\n{tick}\n{host}")[:8], 16) / (1 << 32)


def look_up(program: str, shown: str) -> str:
    """Return the path that will be executed; `shown`: the program in messages.

    Raises `CommandError` like a shell: 127, or 126.
    """
    if not program:
        raise CommandError("the command is empty", EX_NOT_FOUND)
    if "/" in program:
        candidates = [program]
    else:
        path = os.environ.get("PATH", os.defpath)
        candidates = [os.path.join(directory or ".", program) for directory in path.split(":")]
    found = [candidate for candidate in candidates if os.path.exists(candidate)]
    for candidate in found:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            _refuse_missing_interpreter(candidate)
            return candidate
    if found:
        kind = "a directory" if os.path.isdir(found[0]) else "not executable"
        raise CommandError(f"{found[0]} is {kind}", EX_NOT_EXECUTABLE)
    if any(letter in " \t\n|&;<>$`" for letter in program):  # a whole line as one word
        cure = f"to have a shell run it, use --shell {shell_quoted(shown)}"
        raise CommandError(f"{shown!r} was not found as a program; {cure}", EX_NOT_FOUND)
    where = "" if "/" in program else f" in PATH={os.environ.get('PATH', os.defpath)}"
    raise CommandError(f"{shown} was not found{where}", EX_NOT_FOUND)


def _refuse_missing_interpreter(path: str) -> None:
    """Raise `CommandError` if a script's `#!` line names a program that is not there (execve(2): ENOENT)."""
    try:
        with open(path, "rb") as file:
            first = file.read(256).partition(b"\n")[0]
    except OSError:  # executable and not readable: a binary
        return
    words = first[2:].split() if first.startswith(b"#!") else []
    if words and not os.path.exists(words[0]):
        interpreter = os.fsdecode(words[0])
        raise CommandError(
            f"{path}: its interpreter {interpreter} was not found", EX_NOT_EXECUTABLE
        )


def _unmet(spec: RunSpec) -> Refusal | None:
    """Return why --only-if keeps this host from the tick, None if it does not. Raises `CommandError`."""
    from oncecron.run.only_if import refusal_of  # noqa: PLC0415 - only a firing with the option pays

    return refusal_of(spec, look_up(shell(), shell()))


def _skip(spec: RunSpec, store: LeaseStore, refusal: Refusal) -> int:
    """Record and explain a skip that was decided before the claim; return the exit status."""
    if spec.verbose or os.isatty(2):
        from oncecron.run.skip_message import skip_message  # noqa: PLC0415 - cron never asks for it

        stderr.complain(skip_message(spec, spec.firing, refusal, waits=False))
    _record(spec, store, refusal)
    return spec.skip_exit


def _record(spec: RunSpec, store: LeaseStore, refusal: Refusal) -> None:
    log = open_log(spec)
    log.send(spool_records.skip_record(spec.firing, refusal))
    deadline = clock.lease_time(store.lease_clock) + min(spec.connect_timeout, RECORD_TIMEOUT)
    try:
        spool_records.tell_skip(store, spec.spool, spec.firing, refusal, deadline=deadline)
    except SpoolError as error:
        stderr.complain(f"a record is lost: {error}")
    finally:
        store.close()
        log.close()
