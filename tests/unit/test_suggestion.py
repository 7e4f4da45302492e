"""`core.suggestion`: which names are similar to one with a mistake, and the question about them."""

import time

import pytest

from oncecron.core.suggestion import (
    did_you_mean,
    not_one_of,
    similar,
    suggestion,
    unknown,
    unknown_key,
)

KEYS = ("billing-nightly", "billing-weekly", "backup.db", "Report", "web1", "web2", "a_b")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("biling-nightly", ["billing-nightly"]), ("BILLING-WEEKLY", ["billing-weekly"]), ("backup-db", ["backup.db"]),
        ("report", ["Report"]), ("wbe1", ["web1"]), ("ba", []), ("zzz", []), ("", []), ("web1", ["web2"]),
    ],
)  # fmt: skip
def test_the_most_similar_name_is_offered(typed: str, meant: list[str]) -> None:
    """In upper or lower case; never the name itself."""
    assert similar(typed, KEYS) == meant


def test_as_many_keys_as_a_store_takes_are_searched_at_once() -> None:
    """It takes two seconds where all of them are alike."""
    keys = [f"team{number % 50}.service-{number}.nightly-export" for number in range(20_000)]
    began = time.process_time()
    found = similar("team7.servce-1007.nightly-exprt", keys)
    assert found == ["team7.service-1007.nightly-export"]
    assert time.process_time() - began < 8


def test_a_key_of_wrap_is_meant_by_its_name_without_the_end() -> None:
    """As long as it is the only one."""
    keys = {"bill-dd3a3e5c", "bills", "mail-1", "mail-2"}
    assert str(unknown_key("bill", keys)).endswith("; did you mean bill-dd3a3e5c?")
    assert str(unknown_key("bil", {*keys, "mail"})).endswith("; did you mean bills?")


def test_the_question_has_one_wording() -> None:
    """With what to do where nothing is similar; control characters of a name are shown, not carried out."""
    assert did_you_mean("web3", ("web2",)) == "did you mean web2?"
    assert did_you_mean("x", ("a", "b")) == suggestion("x", ()) == ""
    assert suggestion("x", ("a",), "see y") == "; see y"
    assert suggestion("web1", ["web1\x1b[2J"]) == r"; did you mean web1\x1b[2J?"
    assert unknown("key", "x", ("a", "b")) == "unknown key 'x'; known keys: a, b"
    assert unknown("key", "retry", ("retries",)) == "unknown key 'retry'; did you mean retries?"
    assert not_one_of("jsn", ("csv", "json")) == "'jsn' is not one of csv, json; did you mean json?"


def test_a_command_is_suggested_for_what_is_nearer() -> None:
    """A wrong one would be typed."""
    assert unknown("key", "remove", ("resume",)).endswith("did you mean resume?")
    assert unknown("command", "remove", ("resume",)).endswith("; known commands: resume")
    assert unknown("command", "resme", ("resume",)).endswith("did you mean resume?")
