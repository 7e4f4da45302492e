"""`oncecron timeline`: what became of every tick, by the installed console script."""

import csv
import io
import json
from collections.abc import Callable

from answers import answer, refused
from log_of import Store
from servers import eventually
from servers.oncecron import Oncecron
from terminals import on_a_terminal

Hosts = Callable[..., Oncecron]
FIELDS = ["key", "host", "tick", "at", "outcome"]


def outcomes(host: Oncecron, *words: str) -> list[tuple[str, str | None, str | None, str]]:
    """Return key, host, tick and outcome of every row."""
    rows = answer(host, "timeline", *words)
    assert all([*row] == FIELDS for row in rows)
    return sorted(((row["key"], row["host"], row["tick"], row["outcome"]) for row in rows), key=str)


def test_ticks_by_key_and_by_host(store: Store, new_host: Hosts) -> None:
    """Which host ran it, which skipped it; the last attempt of a retry counts. Internal keys are shown on request."""
    a, b = new_host("host-a"), new_host("host-b")
    for tick, command in (("t1", "true"), ("t2", "false")):
        a.run("billing", "--tick", tick, "--", command)
        b.run("billing", "--tick", tick, "--", "true")
    flag = f"{a.environment['HOME']}/flag"
    once = f"test -e {flag} || {{ touch {flag}; exit 1; }}"
    a.run("retried", "--tick", "t", "--retries", "1", "--retry-delay", "0s", "--shell", once)
    a.run("oncecron/notify", "--tick", "t", "--", "true")
    eventually(lambda: len(store.executions("retried")) == 2)
    assert outcomes(a) == [
        ("billing", "host-a", "t1", "succeeded"),
        ("billing", "host-a", "t2", "failed"),
        ("retried", "host-a", "t", "succeeded"),
    ]
    assert ("oncecron/notify", "host-a", "t", "succeeded") in outcomes(a, "--all")
    assert outcomes(a, "billing") == [
        ("billing", "host-a", "t1", "succeeded"),
        ("billing", "host-a", "t2", "failed"),
        ("billing", "host-b", "t1", "skipped"),
        ("billing", "host-b", "t2", "skipped"),
    ]
    assert outcomes(a, "--until", "1h") == []
    found = list(csv.reader(io.StringIO(a("timeline", "--format", "csv", "--utc").out.decode())))
    assert found[0] == FIELDS
    assert len(found) == 4


def test_a_person_sees_what_is_wrong_first(new_host: Hosts) -> None:
    """On a terminal in the order of `jobs`, in a pipe by name and 100 columns wide; no name moves the cursor."""
    a, strange = new_host("host-a"), new_host("web\x1b[2J\u202e", LANG="C.UTF-8", PYTHONUTF8="1")
    a.run("alpha", "--no-tick", "--", "true")
    strange.run("zulu", "--tick", "t", "--", "false")
    seen = on_a_terminal(a, "timeline", NO_COLOR="1")[0].splitlines()
    assert [line.split()[0] for line in seen[2:4]] == ["zulu", "alpha"]
    assert seen[2].split()[1:] == ["✗", "1", "failed"] or seen[2].split()[1:] == [
        "F",
        "1",
        "failed",
    ]
    piped = a("timeline").out.decode().splitlines()
    assert [line.split()[0] for line in piped[2:4]] == ["alpha", "zulu"]
    assert max(map(len, piped)) <= 100
    of_hosts = a("timeline", "zulu").out.decode()
    assert "\\x1b[2J" in of_hosts
    assert of_hosts.replace("\n", "").isprintable()
    assert json.loads(a("timeline", "zulu", "--json").out)[0]["host"] == "web\x1b[2J\u202e"


def test_wrong_words_are_refused(new_host: Hosts) -> None:
    """With what is meant."""
    host = new_host("host-a")
    host.run("billing", "--tick", "t", "--", "true")
    refused(host("timeline", "biling"), 1, "no host has fired key biling; did you mean billing?")
    refused(host("timeline", "--until", "soon"), 64, "--until: 'soon' is not a time; write 90m")
    refused(host("timeline", "--since", "1h", "--until", "2h"), 64, "nothing lies between them")
    assert host("timeline", "--since", "1970-01-01").status == 0
    refused(host("timeline", "--since", "1969-01-01"), 64, "too far away; write a time from 1970")


def test_nothing_has_run_yet(new_host: Hosts) -> None:
    """A sentence, and no picture; machines get an empty answer."""
    host = new_host("host-a")
    assert host("init").status == 0
    assert host("timeline", "--json").out == b"[]\n"
    assert host("timeline").err == "oncecron: no host has fired a key yet\n"
