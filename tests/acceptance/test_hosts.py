"""`oncecron hosts`: who fires which keys, by the installed console script."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from answers import refused
from log_of import Store
from servers.oncecron import Oncecron
from servers.require import require_root
from terminals import on_a_terminal

from oncecron import __version__

Hosts = Callable[..., Oncecron]
FIELDS = [
    *("host", "seen_at", "version", "clock_ahead", "drained_by"),
    *("keys", "wins", "skips", "silent_on", "machines"),
]


def shown(host: Oncecron, *names: str) -> dict[str, dict[str, Any]]:
    """Return the hosts by name."""
    ended = host("hosts", "--json", *names)
    assert (ended.status, ended.err) == (0, "")
    return {each["host"]: each for each in json.loads(ended.out)}


def test_hosts_at_a_glance(new_host: Hosts) -> None:
    """Each with what it did; one that has just stopped to fire a key may be rebooting."""
    a, b = new_host("host-a"), new_host("host-b")
    before = time.time()
    for tick in ("1", "2"):
        for host in (a, b):
            host.run("k", "--tick", tick, "--", "true")
    b.run("only-b", "--no-tick", "--", "true")
    found = shown(a)
    assert list(found) == ["host-a", "host-b"]
    assert list(found["host-a"]) == FIELDS
    assert (found["host-a"]["keys"], found["host-a"]["wins"], found["host-a"]["skips"]) == (1, 2, 0)
    assert (found["host-b"]["keys"], found["host-b"]["wins"], found["host-b"]["skips"]) == (2, 1, 2)
    assert list(shown(a, "host-b")) == ["host-b"]
    refused(a("hosts", "host-b", "host-x"), 1, "host host-x has fired no key; did you mean host-")
    for each in found.values():
        assert each["version"] == __version__
        assert abs(each["clock_ahead"]) < 5
        assert (each["silent_on"], each["drained_by"], each["machines"]) == (None, None, 1)
        assert before - 60 < datetime.fromisoformat(each["seen_at"]).timestamp() < time.time() + 60
    for tick in ("3", "4", "5"):
        assert shown(a)["host-b"]["silent_on"] is None
        a.run("k", "--tick", tick, "--", "true")
    assert shown(a)["host-b"]["silent_on"] is None


def test_two_machines_of_one_name_are_told_apart(new_host: Hosts, operator: Oncecron) -> None:
    """Here two containers of one kernel: who asks about hosts, or drains one, is told."""
    require_root("a namespace for the name of a host")
    one, other = new_host("localhost"), new_host("localhost")
    other.prefix = ["unshare", "--uts", "--"]
    for tick, machines in (("1", 1), ("2", 2)):
        for host in (one, other):
            assert host.run("k", "--tick", tick, "--", "true").status == 0
        assert shown(one)["localhost"]["machines"] == machines
    found = json.loads(one("check", "--json").out)["findings"]
    assert [(each["finding"], each["key"], each["host"]) for each in found] == [
        ("same-name", None, "localhost")
    ]
    [named] = [
        each for each in json.loads(one("doctor", "--json").out) if each["subject"] == "names"
    ]
    assert named["state"] == "warn"
    assert "localhost is the name of two machines" in named["text"]
    _, noted = on_a_terminal(one, "history")
    assert "localhost is the name of two machines or more, which have fired the same" in noted
    drained = operator("drain", "localhost")
    assert drained.status == 0
    assert "two machines or more: all of them are drained" in drained.err


def test_a_host_that_cannot_start_the_command_is_seen(new_host: Hosts) -> None:
    """It skips before it claims. Before the first firing there is nothing to show."""
    host = new_host("host-a")
    assert host("init").status == 0
    assert host("hosts", "--json") == (0, b"[]\n", "")
    assert host.run("k", "--tick", "1", "--", "/no/such/program").status == 127
    assert (shown(host)["host-a"]["keys"], shown(host)["host-a"]["skips"]) == (1, 1)


def test_a_retired_host_is_forgotten(store: Store, new_host: Hosts) -> None:
    """Its silence ends; a wrong name is refused with the right one."""
    a, b = new_host("host-a"), new_host("host-b")
    b.run("k", "--tick", "1", "--", "true")
    for tick in ("2", "3", "4"):
        a.run("k", "--tick", tick, "--", "true")
    operator = ("--store", store.operator_url)
    ended = a("forget", "--host", "host-bb", *operator)
    refused(ended, 1, "host host-bb has fired no key; did you mean host-b")
    ended = a("forget", "--host", "host-b", *operator)
    assert ended == (
        0,
        b"forgot host host-b: no firing of it is expected until it fires a key\n",
        "",
    )
    assert list(shown(a)) == ["host-a"]
