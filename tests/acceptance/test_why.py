"""`oncecron why`: the true account of one tick in every situation, by the installed console script."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from answers import refused
from breakable import start_breakable
from log_of import LoggedRedis, SQLiteLog, Store
from servers import Journal, PgBouncer, eventually, job, skewed
from servers.oncecron import Oncecron, installed
from servers.process import kill_tree

Hosts = Callable[..., Oncecron]


def why(host: Oncecron, key: str, *arguments: object) -> dict[str, Any]:
    """Return the account as JSON, of which the sentences are what is printed otherwise."""
    ended = host("why", key, *arguments, "--json", "--utc")
    assert (ended.status, ended.err) == (0, "")
    found: dict[str, Any] = json.loads(ended.out)
    return found


def told(host: Oncecron, key: str, *arguments: object) -> str:
    ended = host("why", key, *arguments, "--utc")
    assert (ended.status, ended.err) == (0, "")
    return ended.out.decode()


def told_with(words: str, host: Oncecron, key: str, *arguments: object) -> str:
    """Wait until the account says something, as a log beside the store is told later; return it."""

    def look() -> str:
        text = told(host, key, *arguments)
        assert words in text, text
        return text

    return eventually(look, retry_on=AssertionError)


def test_won_and_succeeded(store: Store, new_host: Hosts) -> None:
    """Who ran it, when, and why the other host skipped."""
    a, b = new_host("host-a"), new_host("host-b")
    a.run("billing", "--tick", "t1", "--", "true", "two words")
    b.run("billing", "--tick", "t1", "--", "true")
    b.run("billing", "--tick", "t1", "--", "true")
    facts = eventually_told(b, "billing", "skips")
    assert (facts["key"], facts["tick"], facts["verdict"]) == ("billing", "t1", "succeeded")
    [execution], [skip] = facts["executions"], facts["skips"]
    assert (execution["host"], execution["attempt"], skip["reason"]) == ("host-a", 1, "done")
    if not isinstance(store, SQLiteLog):
        assert execution["fired_at"] <= execution["started_at"]
    text = told(b, "billing")
    assert text.startswith("Tick t1 of key billing succeeded on host-a.\n")
    assert "by the store's clock" in text
    assert "true 'two words'" in text
    assert "exit status 0" in text
    assert (
        f"host-b skipped 2 times: host-a (pid {execution['pid']}) had already run it (succeeded)"
        in text
    )


@pytest.mark.stores(2)
def test_a_run_that_failed_shows_the_end_of_its_output(store: Store, new_host: Hosts) -> None:
    """The last lines, as text, of the last attempt; nothing of one that succeeded."""
    host = new_host("host-a")
    script = "seq 30; printf 'no \\033[2Jscreen\\n'; exit 3"
    host.run("billing", "--tick", "t1", "--capture", "4k", "--", "sh", "-c", script)
    text = told_with("exit status 3", host, "billing")
    number = why(host, "billing")["executions"][0]["execution_id"]
    *before, last = text.splitlines()[-21:]
    assert before == [
        f"The end of its output (all that is kept: `oncecron history --id {number}`):",
        *(f"  | {line}" for line in range(12, 31)),
    ]
    assert last == r"  | no \x1b[2Jscreen"
    assert why(host, "billing")["output"].startswith("1\n2\n")
    host.run("billing", "--tick", "t1", "--again", "--capture", "4k", "--", "echo", "well")
    told_with("succeeded", host, "billing")
    assert why(host, "billing")["output"] is None


def eventually_told(host: Oncecron, key: str, name: str) -> dict[str, Any]:
    """Wait for a log that is beside the store."""

    def look() -> dict[str, Any]:
        facts = why(host, key)
        assert facts[name]
        return facts

    return eventually(look, retry_on=AssertionError)


@pytest.mark.quick
def test_lost_because_its_host_died_and_the_next_tick_takes_over(
    store: Store, new_host: Hosts, journal: Journal
) -> None:
    """Running without a lease; then lost, and where the key went on."""
    a, b = new_host("host-a"), new_host("host-b")
    firing = a.fire("billing", "--ttl", "6s", "--tick", "t1", "--", *job(journal, "--sleep", 60))
    eventually(lambda: journal.runs() != [])
    eventually(lambda: why(b, "billing")["executions"] != [])
    kill_tree(firing.process.pid)
    firing.wait()
    gone = "host-a has no end on record and its lease has expired"
    told_with(gone, b, "billing")
    assert b.run("billing", "--tick", "t2", "--", "true").status == 0
    text = told_with("declared lost", a, "billing", "--tick", "t1")
    assert text.startswith("Tick t1 of key billing was lost on host-a")
    assert "its lease had ended, and no end is on record" in text
    assert "host-b started the key's next run, tick t2, which has succeeded" in text
    assert "To run it again, as user " in text
    assert why(a, "billing", "--tick", "t1")["verdict"] == "lost"
    assert "Tick t2 of key billing succeeded on host-b" in told(a, "billing")


def test_nobody_fired(store: Store, host: Oncecron) -> None:
    """With what the schedule says of it, and what else could be."""
    host.run("billing", "--tick", "2025-03-01T02:00Z", "--", "true")
    host.run("billing", "--schedule", "*/5 * * * *", "--tz", "UTC", "--", "true")
    for wanted in ("2025-03-01T02:05Z", "2025-03-01T03:05+01:00"):
        has_it = "The key's last schedule has this tick."
        text = told_with(has_it, host, "billing", "--tick", wanted)
        assert "did not run: no firing is on record" in text
        assert "Hosts that have fired the key: host-a (last at " in text
        assert " on a host with its line: `oncecron again billing --tick 2025-03-01T02:05Z`" in text
        assert why(host, "billing", "--tick", wanted)["verdict"] == "not-fired"
    typed = ("--store", host.environment["ONCECRON_STORE"])
    text = told(host, "billing", "--tick", "2025-03-01T02:05Z", *typed)
    assert "`oncecron again billing --tick 2025-03-01T02:05Z --store " in text
    assert "`oncecron hosts --store " in text
    text = told(host, "billing", "--tick", "2025-03-01T02:07Z")
    assert text.startswith("Tick 2025-03-01T02:07Z of key billing is no tick of the key's last sch")
    assert text.endswith("*/5 * * * * (UTC); the last one before it is 2025-03-01T02:05Z.\n")
    text = told(host, "billing", "--tick", "2025-03-01 02:07", "--utc")
    assert text.startswith("2025-03-01T02:07:00Z is no tick of the key's schedule, */5 * * * * (UT")
    assert ". The first tick after it:\nTick 2" in text
    text = told(host, "billing", "--tick", "2025-03-01T01:00Z")
    assert (
        "is older than all records of the key.\nThe records of the key begin at 2025-03-01T02:00:00Z"
        in text
    )
    assert "is not due yet" in told(host, "billing", "--tick", "2199-01-01T00:00Z")


def test_a_name_typed_wrongly(store: Store, host: Oncecron) -> None:
    """Near names, of keys and of ticks."""
    host.run("billing", "--tick", "month-07", "--", "true")
    refused(host("why", "biling"), 66, "no host has fired key biling", "did you mean billing?")
    refused(host("why", "xyz"), 66, "`oncecron jobs` lists all keys")
    refused(host("why", "host-a"), 66, "host-a is a host, and no key", "`oncecron hosts host-a`")
    refused(host("why", "x y"), 64, "'x y' is not a valid key; use 1 to 200 of")
    refused(host("why", "billing", "--tick", ""), 64, "--tick is empty", "leave it out")
    host.run("mail", "--tick", "2026-11-20T02:00Z", "--", "true")
    refused(host("why", "mail", "--tick", "9999999999999d"), 64, "neither a tick on record nor")
    refused(host("why", "billing", "--tick", "month-7"), 64, "neither a tick on record nor")


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_store_was_away_on_one_host_and_its_record_is_still_spooled(
    kind: str, new_postgres: Any, new_redis: Any, public_path: Any
) -> None:
    """The host with the spool shows it; others say that there may be one."""
    at = start_breakable(kind, new_postgres, new_redis)
    a, b = (Oncecron(at.url(), public_path, name) for name in ("host-a", "host-b"))
    # For so long Redis waits when it is back.
    a.run("billing", "--ttl", "6s", "--tick", "t0", "--", "true")
    at.stop("kill")
    away = ("--ttl", "6s", "--connect-timeout", "1s", "--tick", "t1", "--", "true")
    assert b.run("billing", *away).status == 69
    at.server.start()
    _check_spooled(a, b)


def _check_spooled(a: Oncecron, b: Oncecron) -> None:
    facts = why(b, "billing")
    assert (facts["tick"], facts["verdict"]) == ("t1", "no-store")
    text = told(b, "billing")
    assert "host-b skipped: it could not reach the store" in text
    assert "still spooled on this host; to deliver it: `oncecron flush`" in text
    refused(a("why", "billing", "--tick", "t1"), 64, "neither a tick on record nor a time")
    a.run("billing", "--ttl", "6s", "--tick", "t1", "--", "true")
    assert told(b, "billing").startswith("Tick t1 of key billing succeeded on host-a.")
    assert b("flush").status == 0
    assert "host-b skipped: it could not reach the store" in told(a, "billing")


def test_a_reader_needs_no_more_than_the_read_role(
    database: Any, pgbouncer: PgBouncer, public_path: Any
) -> None:
    """Also behind a pooler."""
    ready = installed(database)
    runner = Oncecron(ready.url(via=pgbouncer), public_path)
    runner.run("billing", "--schedule", "* * * * *", "--", "true")
    reader = Oncecron(ready.url("reader", via=pgbouncer), public_path)
    assert why(reader, "billing")["verdict"] == "succeeded"
    assert reader("audit").status == 0
    [row] = json.loads(reader("jobs", "--json").out)
    assert (row["key"], row["outcome"]) == ("billing", "succeeded")


def test_pauses_and_leases_are_the_store_s_where_a_log_is_beside_it(
    request: pytest.FixtureRequest, public_path: Any
) -> None:
    """History is the log's."""
    log = request.getfixturevalue("ready")
    store = LoggedRedis(request.getfixturevalue("redis_server"), log)
    host = Oncecron(store.url, public_path, **store.environment)
    host.run("billing", "--tick", "t1", "--", "true")
    assert host("pause", "billing", "--reason", "moving").status == 0
    log.execute("update oncecron.job_execution set outcome = 'failed', exit_code = 9")
    assert "exit status 9" in told(host, "billing")
    [row] = json.loads(host("jobs", "--json").out)
    assert (row["exit_code"], row["paused_reason"]) == (9, "moving")


def at(host: Oncecron, when: str, *, minutes: int = 0) -> None:
    """Let the clock of a host, and of a store that is a file there, show a time in UTC from now on."""
    instant = datetime.fromisoformat(f"{when}+00:00").timestamp() + 60 * minutes
    host.environment = skewed(instant - time.time(), {**host.environment, "TZ": "UTC"})
