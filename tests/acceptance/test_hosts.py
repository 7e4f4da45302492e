"""`oncecron hosts`: who fires which keys, by the installed console script."""

import json
from collections.abc import Callable
from typing import Any

from servers.oncecron import Oncecron
from servers.require import require_root

Hosts = Callable[..., Oncecron]


def shown(host: Oncecron, *names: str) -> dict[str, dict[str, Any]]:
    ended = host("hosts", "--json", *names)
    assert (ended.status, ended.err) == (0, "")
    return {each["host"]: each for each in json.loads(ended.out)}


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
