"""What the channels of `oncecron notify` were notified of: a document for each, written by compare-and-set."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hostile_rows import judge

from oncecron.core.errors import RecordRefusedError
from oncecron_notify.notices import (
    LONGEST_DOCUMENT,
    MOST_CHANNELS,
    Notice,
    notices,
    other_notices,
    put_notice,
    remove_other_notices,
)

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

WRITERS = 8
NAMES = ("a-channel", "ops")


def test_a_channel_has_no_document_before_the_first_one(log: Log) -> None:
    """Only version 0 makes it."""
    assert list(notices(log.people, NAMES)) == []
    assert not put_notice(log.people, Notice("ops", 1, "{}"))
    assert list(notices(log.people, NAMES)) == []
    assert put_notice(log.people, Notice("ops", 0, "{}"))
    assert list(notices(log.people, NAMES)) == [Notice("ops", 1, "{}")]


def test_a_document_is_replaced_only_as_it_was_read(log: Log) -> None:
    """A writer that has read an older version changes nothing; channels are apart and come by name."""
    assert put_notice(log.people, Notice("ops", 0, "first"))
    assert put_notice(log.people, Notice("a-channel", 0, ""))
    assert put_notice(log.people, Notice("ops", 1, "second: 'ü' \\ \"\n{ns} %s"))
    for stale in (0, 1, 3):
        assert not put_notice(log.people, Notice("ops", stale, "late"))
    assert list(notices(log.people, NAMES)) == [
        Notice("a-channel", 1, ""),
        Notice("ops", 2, "second: 'ü' \\ \"\n{ns} %s"),
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_one_of_many_writers_succeeds(store: StoreKind, log: Log, version: int) -> None:
    """Whichever is the first; the others learn that they were late."""
    if version:
        assert put_notice(log.people, Notice("ops", 0, "before"))
    readers = [store.people() for _ in range(WRITERS)]
    ready, answers = threading.Barrier(WRITERS), dict.fromkeys(range(WRITERS), False)

    def write(number: int) -> None:
        ready.wait(30)
        notice = Notice("ops", version, f"by {number}")
        answers[number] = put_notice(readers[number], notice)

    for reader in readers:
        list(notices(reader, NAMES))  # connected
    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [winner] = [number for number, answer in answers.items() if answer]
    assert list(notices(log.people, NAMES)) == [Notice("ops", version + 1, f"by {winner}")]


def test_a_large_document_is_kept_and_a_larger_one_refused(log: Log) -> None:
    """Thousands of findings fit; nobody can fill the store with one document."""
    most = "x" * LONGEST_DOCUMENT
    assert put_notice(log.people, Notice("ops", 0, most))
    for notice in (
        Notice("ops", 1, most + "x"),
        Notice("o" * 201, 0, "{}"),
        Notice("ops", -1, "{}"),
    ):
        with pytest.raises(RecordRefusedError):
            put_notice(log.people, notice)
    assert list(notices(log.people, NAMES)) == [Notice("ops", 1, most)]


def test_other_channels_are_counted_and_not_read(log: Log) -> None:
    """Anybody who may write to the store can make them up; they go only where that is wanted."""
    for name in ("ops", "junk-1", "junk-2"):
        assert put_notice(log.people, Notice(name, 0, "{}"))
    assert list(notices(log.people, ["ops", "unknown"])) == [Notice("ops", 1, "{}")]
    assert other_notices(log.people, ["ops"]) == other_notices(log.people, ["ops"]) == 2
    assert remove_other_notices(log.people, ["ops"]) == 2
    assert other_notices(log.people, []) == 1
    assert list(notices(log.people, ["junk-1", "ops"])) == [Notice("ops", 1, "{}")]


def test_no_more_channels_than_a_file_has(log: Log) -> None:
    """A full store still takes what known channels are notified of, and says how it is emptied."""
    for number in range(MOST_CHANNELS):
        assert put_notice(log.people, Notice(f"junk-{number}", 0, "{}"))
    with pytest.raises(RecordRefusedError, match="`oncecron prune`"):
        put_notice(log.people, Notice("ops", 0, "{}"))
    assert put_notice(log.people, Notice("junk-7", 1, "{}"))
    assert remove_other_notices(log.people, []) == MOST_CHANNELS
    assert put_notice(log.people, Notice("ops", 0, "{}"))


def test_a_value_that_no_store_can_have_made(log: Log) -> None:
    """Of each column, and of each length of a row: named and left out."""
    assert put_notice(log.people, Notice("ops", 0, "{}"))
    judge(log.people, "notify/notices", lambda store: notices(store, ["ops"]))
