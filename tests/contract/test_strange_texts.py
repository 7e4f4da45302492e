"""Texts that are no valid UTF-8, or have a NUL: every store records them, live and through the spool, all alike."""

from typing import Any

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.model import Lease, Output, Refusal, Request
from oncecron.core.tick import named_tick

STRANGE = (
    ("a\udcffb", r"a\xffb"),  # a byte that is no UTF-8
    ("a\0b", r"a\x00b"),
    ("a\ud800b", r"a\ud800b"),  # a surrogate that stands for no byte
    ("\udcc3\udca9", "é"),  # UTF-8 that was read byte by byte
    ("ü\0\udc80\ud800", r"ü\x00\x80\ud800"),
    ("ü\n\t\x1b😀", "ü\n\t\x1b😀"),
)
"""Texts as a program may give them, and as they are recorded."""


@pytest.mark.parametrize("path", ["live", "delivered"])
@pytest.mark.parametrize("field", ["command", "host", "user", "note", "output", "requested_by"])
def test_an_execution_is_recorded(a: Host, log: Log, field: str, path: str) -> None:
    """A job ran and ended, and no text keeps that from the log."""
    for number, (given, recorded) in enumerate(STRANGE):
        firing = a.firing(minute(number))
        if field == "command":
            firing = firing._replace(command=given)
        elif field in ("host", "user"):
            firing = firing._replace(holder=firing.holder._replace(**{field: given}))
        told: dict[str, Any] = {"note": given} if field == "note" else {}
        if path == "live":
            lease = a.ask(firing)
            assert isinstance(lease, Lease)
            if field == "requested_by":
                asked = Request("stop", given, 15, None)
                assert log.people.request(firing.key, 0, lease.execution_id, asked)
            output = Output(given, 0) if field == "output" else None
            assert a.finish(lease, **told, output=output)
        else:
            told |= {"output": given, "output_cut": 0} if field == "output" else {}
            told |= {"request": "stop", field: given} if field == "requested_by" else {}
            a.deliver(execution_record(firing, None, **told))
        execution = log.newest()
        output = log.people.output(execution.execution_id)
        texts = {**execution._asdict(), "output": output and output.text}
        assert (execution.outcome, texts[field]) == ("succeeded", recorded)


@pytest.mark.parametrize("path", ["live", "delivered"])
@pytest.mark.parametrize("field", ["tick", "host", "detail", "holder_host"])
def test_a_skip_is_recorded(a: Host, log: Log, field: str, path: str) -> None:
    """So is what kept a job from its start."""
    for number, (given, recorded) in enumerate(STRANGE):
        refusal = Refusal("broken", holder=a.holder, detail="why")
        firing = a.firing(named_tick(f"t{number}"), key=f"k{number}")
        if field == "tick" and not recorded.isprintable():
            continue  # no tick has a control character: its list is a line of text for each
        if field == "tick":
            firing = firing._replace(tick=firing.tick._replace(text=given))
        elif field == "host":
            firing = firing._replace(holder=firing.holder._replace(host=given))
        elif field == "detail":
            refusal = refusal._replace(detail=given)
        else:
            refusal = refusal._replace(holder=a.holder._replace(host=given))
        if path == "live":
            a.store.skip(firing, refusal, deadline=a.deadline())
        else:
            assert refusal.holder
            host, pid, _ = refusal.holder
            told = {"detail": refusal.detail, "holder_host": host, "holder_pid": pid}
            a.deliver({**skip_record(firing, "broken", clock.wall()), **told})
        [skip] = [each for each in log.skips() if each.key == firing.key]
        assert getattr(skip, field) == recorded


@pytest.mark.parametrize("field", ["author", "reason"])
def test_a_pause_is_recorded(store: StoreKind, a: Host, field: str) -> None:
    """A firing of the key reads who paused it, and why."""
    people = store.people()
    for number, (given, recorded) in enumerate(STRANGE):
        told: dict[str, Any] = {"author": "root@db", "reason": None, field: given}
        people.pause(KEY, seconds=None, **told)
        [pause] = people.pauses()
        assert getattr(pause, field) == recorded
        assert recorded in (a.lose(minute(number)).detail or "")
