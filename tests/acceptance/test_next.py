"""`oncecron next` by the installed console script: where it finds a schedule, and that it needs no store."""

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import answer, refused
from log_of import Store
from servers.oncecron import Oncecron

SINCE = ("--since", "2027-03-27T00:00Z")
CONFIG = """\
[job.report]
schedule = "30 2 * * *"
tz = "Europe/Berlin"

[job."wrong.one"]
schedule = "5/10 * * * *"
"""


@pytest.fixture
def alone(public_path: Path) -> Oncecron:
    """Give a host without any store, in the zone of Kolkata."""
    (public_path / "oncecron.toml").write_text(CONFIG)
    host = Oncecron("", public_path, TZ="Asia/Kolkata")
    host.environment["ONCECRON_CONFIG"] = str(public_path / "oncecron.toml")
    return host


def test_a_key_that_was_claimed_with_a_schedule(
    store: Store, new_host: Callable[..., Oncecron]
) -> None:
    """The store has kept it, on every store; one that was claimed without has none."""
    host = new_host()
    host.run("billing", "--schedule", "15 4 * * *", "--tz", "Europe/Berlin", "--", "true")
    host.run("daemon", "--no-tick", "--", "true")
    (first,) = answer(host, "next", "billing", "--count", 1, *SINCE)
    assert (first["schedule"], first["zone"]) == ("15 4 * * *", "Europe/Berlin")
    assert first["tick"] == "2027-03-27T03:15Z"
    for key in ("daemon", "unknown"):
        refused(host("next", key), 66, f"no schedule on record for key {key}", "use --schedule")


def test_what_cannot_be_answered_is_refused(alone: Oncecron) -> None:
    """With one line and a cure."""
    either = "give either a KEY or a schedule"
    refused(alone("next"), 64, either)
    refused(alone("next", "report", "--schedule", "@daily"), 64, either)
    refused(alone("next", ""), 64, "the key is empty")
    refused(alone("next", "a,b"), 64, "'a,b' is not a valid key; use 1 to 200 of")
    refused(alone("next", "*/5 * * *"), 64, "schedule '*/5 * * *' has 4 fields")
    refused(
        alone("next", "wrong.one"),
        78,
        """oncecron.toml [job."wrong.one"] schedule: invalid minute '5/10'""",
    )
    refused(alone("next", "a/b"), 78, '[job."a/b"] sets no schedule')
    refused(alone("next", "other"), 78, "[job.other] sets no schedule", "no store is configured")
    refused(alone("next", "--schedule", "1#2 * * * *"), 64, "--schedule: invalid minute '1#2'")
    refused(alone("next", "--schedule", "@daily", "--tz", "Nowhere"), 64, "--tz: unknown time zone")
    refused(alone("next", "report", "--count", "0"), 64, "too small")
    refused(alone("next", "report", "--since", "soon"), 64, "--since: 'soon'")
    for since in ("9000-01-02", "0001-01-01T00:00Z"):
        refused(alone("next", "report", "--since", since), 64, "write a time from 1970 to 8999")


def test_it_ends_where_it_is_told(alone: Oncecron) -> None:
    """All ticks until then, which is counted from the beginning."""
    begin = ("next", "report", "--since", "2027-03-26T00:00Z", "--until")
    assert len(answer(alone, *begin, "3d")) == len(answer(alone, *begin, "2027-03-29")) == 3
    assert len(answer(alone, *begin, "3d", "--count", 2)) == 2
    refused(alone(*begin, "2027-03-25"), 64, "nothing lies between them")
