"""A clock that was ahead once, and a zone that is not cron's: no key is silenced, and both are named."""

import json
import time
from collections.abc import Callable

from servers import skewed
from servers.oncecron import Oncecron

from oncecron.core.units import DAY

Hosts = Callable[..., Oncecron]
MINUTELY = ("--schedule", "* * * * *", "--tz", "UTC")
AHEAD = 40 * DAY


def found(host: Oncecron, *words: object) -> list[tuple[str, str | None, str]]:
    """Return kind, key and reason of what `check` finds."""
    findings = json.loads(host("check", "--json", *words).out)["findings"]
    return [(each["finding"], each["key"], each["reason"]) for each in findings]


def at(host: Oncecron, instant: float) -> None:
    """Let the clock of a host show this time from now on."""
    host.environment = skewed(instant - time.time(), host.environment)


def test_a_clock_that_was_ahead_silences_no_key(new_host: Hosts) -> None:
    """On one machine the store's clock is the same wrong clock."""
    wrong, host = new_host("host-a"), new_host("host-a")
    at(wrong, time.time() + AHEAD)
    for options in (MINUTELY, ("--no-tick", "--min-gap", "12h")):
        key = options[0].strip("-")
        assert wrong.run(key, *options, "--", "true").status == 0
        [(kind, named, reason)] = found(host)
        assert (kind, named) == ("future", key)
        assert reason.endswith(f"`oncecron release {key}` removes it")
        assert host.run(key, *options, "--", "echo", "runs").out == b"runs\n"
        assert host.run(key, *options, "--", "echo", "runs").out == b""
        assert found(host) == []
        [newest] = json.loads(host("why", key, "--json").out)["executions"]
        assert newest["command"] == "echo runs"
    assert json.loads(host("audit", "--json").out) == []


def test_a_pause_by_a_clock_that_was_ahead_is_named(new_host: Hosts) -> None:
    """It lasts, because a person wanted it; but it would last for 40 days without a word."""
    host, wrong = new_host("host-a"), new_host("host-a")
    host.run("k", "--tick", "1", "--", "true")
    at(wrong, time.time() + AHEAD)
    for key, words in (("k", ["k"]), (None, ["--all"])):
        assert wrong("pause", *words, "--for", "2h").status == 0
        [(kind, named, reason)] = found(host)
        assert (kind, named) == ("future", key)
        assert f"`oncecron resume {words[0]}` ends the pause" in reason
        assert host("resume", *words).status == 0
        assert found(host) == []
