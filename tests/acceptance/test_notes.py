"""Notes are for people: whatever they say, every report stays the same."""

import getpass
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from log_of import Store
from planting import alter
from servers import eventually
from servers.oncecron import Oncecron

ME = f"{getpass.getuser()}@host-a"
TICKS = ("manual", "retried", "stopped", "taken-over", "superseded")
QUICK = ("--retry-delay", "0s..0s")
LIES = (
    "by --again; takeover: attempt 7 on nowhere was lost; asked by nobody@nowhere: stop; its end was not recorded; "
    "running without a lease; lease ended, declared lost by nowhere; put back: the store had lost it; recorded later"
)
"""What is said of other executions, and in the words of the product."""


@pytest.fixture
def eventful(store: Store, new_host: Callable[..., Oncecron], operator: Oncecron) -> Oncecron:
    """Give a host of a cluster in which everything has happened of which notes tell."""
    a, b = new_host("host-a"), new_host("host-b")
    a.run("k", "--tick", "superseded", "--", "true")
    a.run("k", "--tick", "manual", "--", "true")
    b.run("k", "--tick", "manual", "--again", "--", "true")
    a.run("k", "--tick", "retried", "--retries", 1, *QUICK, "--", "false")
    stopped = a.fire("k", "--tick", "stopped", "--", "sleep", "60")
    stopped.job()
    assert operator("stop", "k").status == 0
    stopped.wait()
    a.run("k", "--tick", "taken-over", "--", "true")
    b.run("k", "--tick", "taken-over", "--again", "--", "true")
    all_ended(store, 8)
    lost: dict[str, Any] = dict.fromkeys(("exit_code", "finished_at", "duration"))
    lost |= {"outcome": "lost", "lost_at": time.time()}
    alter(store, "k", "superseded", **lost, lost_reason="superseded")
    lost["lost_at"] -= 300
    alter(store, "k", "taken-over", **lost, lost_reason="expired")
    alter(store, "k", "taken-over", 2, cause="takeover")
    return a


def all_ended(store: Store, number: int) -> None:
    """Wait until so many executions have their end, as a log beside the store is told later."""

    def look() -> bool:
        found = store.executions("k")
        return len(found) == number and all(row.outcome != "running" for row in found)

    assert eventually(look)


def reports(host: Oncecron) -> dict[str, Any]:
    """Return what everything says that reads the log, without the notes themselves."""
    commands = [("audit",), ("jobs",), ("history",), ("history", "--exhausted")]
    found = {" ".join(words): json.loads(host(*words, "--json").out) for words in commands}
    for tick in TICKS:
        found[f"why {tick}"] = json.loads(host("why", "k", "--tick", tick, "--json").out)
    notes = {row["note"] for row in found["history"]} - {None}
    for rows in (found["history"], found["history --exhausted"]):
        for row in rows:
            del row["note"]
    for tick in TICKS:
        facts = found[f"why {tick}"]
        for row in facts["executions"]:
            del row["note"]
        text = "\n".join(facts["account"])
        for note in notes:
            text = text.replace(f" ({note})", "").replace(f"; {note})", ")")
        facts["account"] = text
    return found


@pytest.mark.parametrize("nonsense", ["xyzzy", LIES], ids=["nonsense", "lies"])
def test_no_report_reads_a_note(store: Store, eventful: Oncecron, nonsense: str) -> None:
    """Neither why an attempt followed another, nor why one was lost, nor who asked for its end."""
    before = reports(eventful)
    told = {tick: before[f"why {tick}"]["account"] for tick in TICKS}
    assert "requested by --again" in told["manual"]
    assert "host-a retried it, attempt 2" in told["retried"]
    assert f", as {ME} had asked" in told["stopped"]
    assert "took over from host-a with attempt 2" in told["taken-over"]
    assert [row["finding"] for row in before["audit"]].count("no-end") == 2
    assert not [row for row in before["audit"] if row["finding"] in ("twice", "overlap")]
    assert len(before["history --exhausted"]) == 1
    for tick, attempts in zip(TICKS, (2, 2, 1, 2, 1), strict=True):
        for attempt in range(1, attempts + 1):
            alter(store, "k", tick, attempt, note=nonsense)
    assert {row.note for row in store.executions("k")} == {nonsense}
    assert reports(eventful) == before
