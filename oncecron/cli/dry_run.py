"""`oncecron run --dry-run`: what a firing would do now, by the same look and the same decision, and nothing else.

Nothing is started, not even the test of --only-if, and nothing is written: no key, no skip, no host, no schema.
"""

from __future__ import annotations

import os
import sys

from oncecron.core import clock
from oncecron.core.columns import fold
from oncecron.core.decision import Cut, Expire, Grant, LookCloser, Regain, State, decide
from oncecron.core.errors import EX_TEMPFAIL, UNREADABLE
from oncecron.core.facts import state_of
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import AskAgain, Behind, Refusal
from oncecron.core.text import Clock, listed, visible
from oncecron.core.tick import at
from oncecron.core.timing import CALL_TIMEOUT
from oncecron.core.units import format_duration
from oncecron.host.stderr import terminal_size
from oncecron.run.program import look_up
from oncecron.run.reporter import skip_message, waiting_message
from oncecron.run.spec import make_spec
from oncecron.stores import open_lease_store
from oncecron.stores.address import masked
from oncecron.stores.claim_loop import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.config.run_parser import ParsedRun
    from oncecron.core.model import Firing
    from oncecron.run.spec import RunSpec
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore

    Answer = Grant | Refusal | AskAgain | Behind

_FOR_ALL_SHARDS = ("paused", "drained")


def dry_run(parsed: ParsedRun) -> int:
    """Say what the firing would do; return 0 if it would start the command now. Raises `OncecronError`."""
    spec = make_spec(parsed)
    program = look_up(spec.command[0], spec.shown_program)
    store = open_lease_store(spec.address, spec.namespace, spec.firing.ttl)
    try:
        firing, answer = _answer_of_shards(spec, store)
        missed = _missed(firing, answer, store)
    finally:
        store.close()
    for name, text in (("answer", _sentence(spec, firing, answer)), *missed, *_plan(spec, program)):
        for number, line in enumerate(_lines(visible(text))):
            sys.stdout.write(f"{'' if number else name:9}  {line}\n")
    return 0 if isinstance(answer, Grant | Behind) else EX_TEMPFAIL


def _lines(text: str) -> list[str]:
    width = terminal_size(1)[0]
    return fold(text, width - len("directory  ")) if width else [text]


def _answer_of_shards(spec: RunSpec, store: LeaseStore) -> tuple[Firing, Answer]:
    for shard in range(spec.firing.shards):
        firing = spec.firing._replace(shard=shard)
        answer = foresee(firing, store)
        if isinstance(answer, Grant | Behind) or getattr(answer, "reason", "") in _FOR_ALL_SHARDS:
            break
    return firing, answer


def _missed(firing: Firing, answer: Answer, store: LeaseStore) -> list[tuple[str, str]]:
    if not isinstance(answer, Behind):
        return []
    from oncecron.run.catch_up import count_of, missed_ticks  # noqa: PLC0415 - of a firing that is behind

    deadline = clock.lease_time(store.lease_clock) + CALL_TIMEOUT
    instants, left = missed_ticks(store, firing, answer, deadline)
    texts = [str(at(each, "catch-up").text) for each in instants]
    older = f"; {count_of(left)} before will not be made up" if left else ""
    return [("catch-up", f"first {listed(texts)}{older}")] if texts else []


def foresee(firing: Firing, store: LeaseStore) -> Answer:
    """Return what a claim would be answered; a start stands for its grant. Raises `StoreError`."""
    deadline = clock.lease_time(store.lease_clock) + CALL_TIMEOUT
    try:
        facts = store.peek(firing, deadline=deadline)
        state = state_of(facts) if facts else State(None, clock.wall(), 0.0)
        answer = decide(state, firing)
        while not isinstance(answer, Grant | Refusal | AskAgain | Behind):
            state = _after(state, answer)
            answer = decide(state, firing)
    except UNREADABLE as error:
        raise unreadable(firing, error) from error
    return answer


def _after(state: State, step: Expire | Cut | Regain | LookCloser) -> State:
    lease, newest = state.lease, state.newest
    if isinstance(step, Cut) and lease is not None:
        return state._replace(lease=lease._replace(ends_in=lease.ttl))
    if isinstance(step, Expire):
        if newest is not None and newest.outcome == "running":
            newest = newest._replace(outcome="lost")
        state = state._replace(lease=None, running=False, newest=newest)
    return state._replace(lock="free")


def _sentence(spec: RunSpec, firing: Firing, answer: Answer) -> str:
    shard = f"shard {firing.shard}, " if firing.shards > 1 else ""
    if isinstance(answer, Grant):
        return f"would start now ({shard}attempt {answer.attempt})"
    if isinstance(answer, Behind):
        return f"would start now ({shard}attempt 1)"
    if isinstance(answer, AskAgain):
        return f"would wait: {waiting_message(spec, answer)}"
    way = answer.blocked_by
    waits = way is not None and ((firing.failover and way.same_tick) or spec.wait > 0)
    message = skip_message(spec, firing, answer, waits=waits)
    return f"would {'wait' if waits else 'be skipped'}: {message.partition(': ')[2]}"


def _plan(spec: RunSpec, program: str) -> Iterator[tuple[str, str]]:
    firing, policy = spec.firing, spec.retry_policy
    yield "key", firing.key
    yield "tick", _tick(firing)
    yield "store", _shown(spec.address, spec.namespace)
    if spec.log:
        yield "log", _shown(spec.log.address, spec.namespace)
    yield "command", firing.command
    yield "program", program
    yield "directory", os.getcwd()
    yield "user", f"{firing.holder.user}, on host {firing.holder.host}"
    if spec.only_if is not None:
        yield "only-if", f"{spec.only_if} (not run now)"
    options = {
        "ttl": format_duration(firing.ttl),
        "grace": format_duration(spec.grace),
        "timeout": spec.timeout and format_duration(spec.timeout),
        "wait": spec.wait and format_duration(spec.wait),
        "failover": firing.failover and "yes",
        "retries": policy.retries,
        "shards": firing.shards if firing.shards > 1 else None,
        "spread": spec.spread and f"{format_duration(round(spec.delay(), 1))} on this host",
        "capture": spec.capture and f"{spec.capture} bytes",
        "catch-up": _age(firing),
    }
    yield "options", ", ".join(f"{name} {value}" for name, value in options.items() if value)


def _age(firing: Firing) -> str | None:
    if firing.catch_up is None:
        return None
    age = format_duration(firing.catch_up) if firing.catch_up else "last"
    return age if firing.previous is not None else f"{age} (the tick before is older than that)"


def _tick(firing: Firing) -> str:
    tick = firing.tick
    if tick.text is None:
        return "none: it only prevents overlap"
    local = "" if tick.instant is None else f" ({Clock(utc=False).seconds(tick.instant)} here)"
    zone = f" in {firing.zone}" if firing.zone else ""
    return f"{tick.text}{local}" + (f", of {firing.schedule}{zone}" if firing.schedule else "")


def _shown(address: Address, namespace: str) -> str:
    scheme = "sqlite://" if address.kind == "sqlite" else ""
    return f"{scheme}{masked(address.target)}, namespace {namespace}"
