"""What all hosts have missed is made up by the next firing with --catch-up: in order, once, and through every fault."""

import json
import os
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import planting
import pytest
from breakable import start_breakable
from log_of import Store
from servers import (
    Journal,
    PostgresServer,
    RedisServer,
    assert_exclusive,
    assert_tokens_rise,
    eventually,
    job,
    skewed,
)
from servers.oncecron import SHORT_TTL, Oncecron
from servers.process import kill_tree

from oncecron.core.tick import instant_of, minute_tick

Hosts = Callable[..., Oncecron]
MINUTELY = ("--schedule", "* * * * *", "--tz", "UTC")
CATCH_UP = (*MINUTELY, "--catch-up", "1h")
WAITS = ("--wait", "30s")
"""For a firing right after a death: the next one of cron comes when the lease has ended."""
SHORT = ("--ttl", SHORT_TTL)
"""For a firing whose lease another one has to outwait."""
BEHIND = 290
"""Seconds that a host has been away: an outage of four minutes at least, and no wrong clock yet."""


def run_before(store: Store, past: Oncecron, key: str, *options: object) -> float:
    """Let a key run once, some minutes ago; return the instant of that tick."""
    past.environment = skewed(-BEHIND, past.environment)
    assert past.run(key, *MINUTELY, *options, "--", "true").status == 0
    planting.expect_since(store, key, "2026-01-01T00:00Z")
    return instant_of(store.executions(key)[0].tick) or 0.0


@pytest.fixture
def missed(store: Store, new_host: Hosts) -> Callable[..., float]:
    """Give a function that lets a key run some minutes ago."""
    return lambda key="k": run_before(store, new_host("host-past"), key)


def made_up(journal: Journal, first: float) -> list[float]:
    """Return the instants that were started, which are all from the first one on, in order, each once."""
    assert_tokens_rise(journal)
    instants = [instant_of(line.tick) or 0.0 for line in journal.starts()]
    assert [after - before for before, after in pairwise([first, *instants])] == [60.0] * len(
        instants
    )
    return instants


@pytest.mark.quick
def test_the_next_firing_makes_up_what_was_missed(
    store: Store, new_host: Hosts, journal: Journal, missed: Callable[..., float]
) -> None:
    """The oldest first, each with its own record, token and input; a failure does not keep the others."""
    first, host = missed(), new_host()
    dry = host.run("k", *CATCH_UP, "--dry-run", "--", "true").out.decode()
    assert "catch-up 1h00m\n" in dry
    daily = host.run("j", "--schedule", "@daily", "--catch-up", "6h", "--dry-run", "--", "true")
    assert b"catch-up 6h00m (the tick before is older than that)\n" in daily.out
    assert f"\ncatch-up   first {minute_tick(first + 60).text}, " in dry
    reader, writer = os.pipe()
    os.write(writer, b"input")
    os.close(writer)
    script = f'[ "$(cat)" = input ] && {" ".join(job(journal))}; [ $ONCECRON_TICK != {minute_tick(first + 120).text} ]'
    words = ("run", "--key", "k", "-v", *CATCH_UP, "--", "sh", "-c", script)
    told = host(*words, stdin=reader)
    instants = made_up(journal, first)
    assert len(instants) >= 4
    assert (told.status, "making up" in told.err) == (1, True)
    rows = store.executions("k")[1:]
    assert [row.cause for row in rows] == ["catch-up"] * (len(rows) - 1) + ["schedule"]
    assert [row.outcome for row in rows] == [
        "succeeded",
        "failed",
        *["succeeded"] * (len(rows) - 2),
    ]
    assert store.skips("k") == []


def test_each_has_its_attempts_its_place_its_time_and_its_output(
    store: Store, new_host: Hosts, missed: Callable[..., float], public_path: Path
) -> None:
    """As if it had been fired alone: a tick begins without a place, and a retry goes on."""
    first, seen = missed(), public_path / "seen"
    script = f'echo "$ONCECRON_TICK [$(cat "$ONCECRON_PLACE")]" | tee -a {seen}; echo 41 >"$ONCECRON_PLACE"; '
    script += f"[ $ONCECRON_TICK != {minute_tick(first + 60).text} ] || sleep 60; [ $ONCECRON_ATTEMPT = 2 ]"
    options = ("--timeout", "4s", "--retries", 1, "--retry-delay", "10ms", "--capture", "1k")
    told = new_host().run("k", *CATCH_UP, *options, "--", "sh", "-c", script)
    assert told.status == 124, told.err
    rows = store.executions("k")[1:]
    texts = [minute_tick(first + 60 * number).text for number in range(1, len(rows) // 2 + 1)]
    lines = [f"{text} [{place}]" for text in texts for place in ("", "41")]
    assert seen.read_text().splitlines() == told.out.decode().splitlines() == lines
    assert [row.cause for row in rows][:3] == ["catch-up", "retry", "catch-up"]
    assert [row.outcome for row in rows][:4] == ["timed-out", "timed-out", "failed", "succeeded"]


def test_only_the_newest_is_made_up_where_that_is_wanted(
    new_host: Hosts, journal: Journal, missed: Callable[..., float]
) -> None:
    """And nothing without the option, or what is older than it says."""
    missed("last")
    new_host().run("last", *MINUTELY, "--catch-up", "last", "--", *job(journal))
    ticks = [instant_of(line.tick) or 0.0 for line in journal.starts()]
    assert ticks[1] - ticks[0] == 60
    for key, options in (("none", ()), ("young", ("--catch-up", "50s"))):
        missed(key)
        new_host().run(key, *MINUTELY, *options, "--", *job(journal))
        assert len([line for line in journal.starts() if line.key == key]) == 1


def test_the_next_firing_goes_on_where_one_has_died(
    store: Store, new_host: Hosts, journal: Journal, missed: Callable[..., float]
) -> None:
    """Whatever was killed: what it ran is lost, and no tick is run twice, or out of order."""
    first = missed()
    for number, victim in enumerate(("all", "wrapper", "guard")):
        host = new_host(f"host-{number}")
        firing = host.fire("k", *CATCH_UP, *SHORT, *WAITS, "--", *job(journal, "--sleep", 60))
        journal.wait_for("start", number + 1)
        # A log of its own hears of it later.
        eventually(lambda rows=number + 2: len(store.executions("k")) >= rows)
        if victim == "all":
            kill_tree(firing.process.pid)
        else:
            os.kill((firing.guard() if victim == "guard" else firing.wrapper).pid, 9)
        firing.wait()
    last = new_host("host-last").run("k", *CATCH_UP, *WAITS, "--", *job(journal))
    assert last.status == 0, last.err
    instants = made_up(journal, first)
    assert len(instants) >= 4
    outcomes = [row.outcome for row in store.executions("k")[1:]]
    assert outcomes == [*outcomes[:3], *["succeeded"] * (len(instants) - 3)]
    assert {*outcomes[:3]} <= {"lost", "stopped"}
    assert_exclusive(journal)


def test_other_hosts_and_people_come_between(
    store: Store,
    new_host: Hosts,
    operator: Oncecron,
    journal: Journal,
    missed: Callable[..., float],
    public_path: Path,
) -> None:
    """A host that fires meanwhile is skipped; a pause ends it, and what it left is made up later."""
    first, host, go = missed(), new_host(), public_path / "go"
    slow = host.fire("k", *CATCH_UP, "--", *job(journal, "--sleep", 60, "--until", go))
    journal.wait_for("start")
    other = new_host("host-b").run("k", *CATCH_UP, "-v", "--skip-exit", 9, "--", *job(journal))
    assert (other.status, " is running on host-a " in other.err) == (9, True)
    assert operator("pause", "k").status == 0
    go.touch()
    assert slow.wait().status == 0
    assert len(journal.starts()) == 1
    assert {(skip.reason, skip.host) for skip in store.skips("k")} == {
        ("held", "host-b"),
        ("paused", "host-a"),
    }
    own = {skip.tick for skip in store.skips("k")}
    assert minute_tick(first + 120).text not in own  # what it would have made up was not skipped
    assert operator("resume", "k").status == 0
    time.sleep(60 - time.time() % 60)  # for another own tick than the one that was paused
    assert new_host("host-b").run("k", *CATCH_UP, "--", *job(journal)).status == 0
    ticks = [line.tick for line in journal.starts()]
    assert ticks[1] == minute_tick(first + 120).text
    assert own.isdisjoint(ticks)
    assert sorted(ticks) == ticks
    assert_tokens_rise(journal)


def test_who_is_asked_to_stop_as_a_run_ends_makes_up_no_more(
    store: Store,
    new_host: Hosts,
    operator: Oncecron,
    missed: Callable[..., float],
    public_path: Path,
) -> None:
    """Its job ignores the signal, or ends before the next heartbeat; the firing ends all the same."""
    missed()
    seen = public_path / "seen"
    script = f"trap '' HUP; echo $ONCECRON_TICK >>{seen}; sleep 3"
    firing = new_host().fire("k", *CATCH_UP, "--", "sh", "-c", script)
    eventually(seen.exists)
    assert operator("stop", "k", "--signal", "HUP").status == 0
    firing.wait()
    assert len(seen.read_text().splitlines()) == 1


def test_two_hosts_make_up_together(
    new_host: Hosts, journal: Journal, missed: Callable[..., float]
) -> None:
    """They fire at the same moment, and each starts what the other one has left."""
    first = missed()
    hosts = [new_host(f"host-{number}") for number in range(4)]
    firings = [host.fire("k", *CATCH_UP, "--", *job(journal, "--sleep", 0.2)) for host in hosts]
    assert {firing.wait().status for firing in firings} == {0}
    assert len(made_up(journal, first)) >= 4
    assert_exclusive(journal)


def test_what_is_too_much_is_told_once(any_store: Store, new_host: Hosts) -> None:
    """By one of the hosts that fire together, and not again for each shard."""
    hours = minute_tick(time.time() - 2 * 3600).text
    for key, shards in (("k", 1), ("parts", 2)):
        run_before(any_store, new_host("host-past"), key, "--shards", shards)
        planting.last_started(any_store, key, hours)
    firings = [
        new_host(f"host-{each}").fire("k", *MINUTELY, "--catch-up", "2h", "--", "true")
        for each in "abc"
    ]
    told = "".join(firing.wait().err for firing in firings)
    told += new_host().run("parts", *MINUTELY, "--catch-up", "2h", "--shards", 2, "--", "true").err
    keys = re.findall("key ([a-z]*): [0-9]* missed ticks before .* will not be made up", told)
    assert keys == ["k", "parts"], told


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_an_outage_of_the_store_is_made_up(
    kind: str,
    new_postgres: Callable[..., PostgresServer],
    new_redis: Callable[..., RedisServer],
    public_path: Path,
    journal: Journal,
) -> None:
    """It goes away in the middle of making up: nothing starts without it, and the next firing goes on."""
    at = start_breakable(kind, new_postgres, new_redis)
    hosts = [Oncecron(at.url(), public_path, f"host-{number}") for number in range(3)]
    # A Redis that has restarted waits for the longest ttl that it has granted.
    first = run_before(at.log, Oncecron(at.url(), public_path, "host-past"), "k", *SHORT)
    go = public_path / "go"
    command = job(journal, "--sleep", 60, "--until", go)
    firing = hosts[0].fire("k", *CATCH_UP, *SHORT, "--", *command)
    journal.wait_for("start")
    at.stop("kill")
    go.touch()
    assert "could not be recorded" in firing.wait().err
    away = hosts[1].run("k", *CATCH_UP, *SHORT, "--connect-timeout", "1s", "--", *job(journal))
    assert (away.status, len(journal.starts())) == (69, 1)
    at.server.start()
    told = hosts[0].run("k", *CATCH_UP, "--ttl", 6, *WAITS, "--", *job(journal))
    assert told.status == 0, told.err
    assert len(made_up(journal, first)) >= 4
    assert [row.outcome for row in at.log.executions("k")][1] == "succeeded"
    assert_exclusive(journal)


def test_people_are_told_what_will_be_made_up(
    store: Store, new_host: Hosts, journal: Journal
) -> None:
    """It is not missed yet, as long as the next firing makes it up. If that does not come either, it is."""
    host = reader = new_host()
    assert host.run("k", *MINUTELY, "--catch-up", "2h", "--", *job(journal)).status == 0
    tick = minute_tick(time.time() - 40 * 60).text or ""
    planting.last_started(store, "k", tick)
    oldest = minute_tick(time.time() - 39 * 60).text
    [state] = json.loads(reader("jobs", "k", "--json").out)
    assert (state["state"], state["missed"]) == ("missed", pytest.approx(29, abs=2))
    assert state["first_caught_up"] in (oldest, minute_tick(time.time() - 39 * 60).text)
    assert re.search(
        r"^k +missed \d+, catch-up (39|40|41) ", reader("jobs").out.decode(), re.MULTILINE
    )
    assert reader("check").status == 2
    late = ("--missed-after", "39m30s")
    assert b"missed=0;" in reader("check", *late).out
    assert b"the next firing makes them up (--catch-up)" in reader("why", "k").out
    of_one = reader("why", "k", "--tick", minute_tick(time.time() - 20 * 60).text).out
    assert b"the next firing makes them up (--catch-up)" in of_one
    assert b"oncecron again" not in of_one  # it would pass the older ones
    assert "the next firing makes them up (--catch-up)" in reader("next", "k", "--count", "1").err


@pytest.mark.turns(0)
def test_fifty_hosts_come_back_at_once(store: Store, new_host: Hosts, journal: Journal) -> None:
    """After an hour: all of them fire in the same second, and what was missed runs once and in order."""
    first = run_before(store, new_host("host-past"), "k")
    planting.last_started(store, "k", minute_tick(first - 55 * 60).text or "")
    hosts = [new_host(f"host-{number:02}") for number in range(50)]
    words = (*CATCH_UP, "--wait", "60s", "--spread", "1s", "--", *job(journal))
    firings = [host.fire("k", *words) for host in hosts]
    assert {firing.wait(300).status for firing in firings} == {0}
    instants = [instant_of(line.tick) or 0.0 for line in journal.starts()]
    assert len(instants) >= 55
    assert instants == sorted({*instants})
    assert {*map(float, range(int(instants[0]), int(instants[-1]) + 60, 60))} == {*instants, first}
    assert_exclusive(journal)
    assert_tokens_rise(journal)
