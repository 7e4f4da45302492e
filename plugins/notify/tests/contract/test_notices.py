"""What the channels of `oncecron notify` were notified of: a document for each, written by compare-and-set."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from oncecron.core.bounds import LONGEST_DOCUMENT
from oncecron.core.errors import RecordRefusedError
from oncecron.core.log_rows import Notice
from oncecron.core.model import MOST_CHANNELS

if TYPE_CHECKING:
    from conftest import Log
    from contract_stores import StoreKind

WRITERS = 8
NAMES = ("a-channel", "ops")


def test_a_channel_has_no_document_before_the_first_one(log: Log) -> None:
    """Only version 0 makes it."""
    assert list(log.people.notices(NAMES)) == []
    assert not log.people.put_notice(Notice("ops", 1, "{}"))
    assert list(log.people.notices(NAMES)) == []
    assert log.people.put_notice(Notice("ops", 0, "{}"))
    assert list(log.people.notices(NAMES)) == [Notice("ops", 1, "{}")]


def test_a_document_is_replaced_only_as_it_was_read(log: Log) -> None:
    """A writer that has read an older version changes nothing; channels are apart and come by name."""
    assert log.people.put_notice(Notice("ops", 0, "first"))
    assert log.people.put_notice(Notice("a-channel", 0, ""))
    assert log.people.put_notice(Notice("ops", 1, "second: 'ü' \\ \"\n{ns} %s"))
    for stale in (0, 1, 3):
        assert not log.people.put_notice(Notice("ops", stale, "late"))
    assert list(log.people.notices(NAMES)) == [
        Notice("a-channel", 1, ""),
        Notice("ops", 2, "second: 'ü' \\ \"\n{ns} %s"),
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_one_of_many_writers_succeeds(store: StoreKind, log: Log, version: int) -> None:
    """Whichever is the first; the others learn that they were late."""
    if version:
        assert log.people.put_notice(Notice("ops", 0, "before"))
    readers = [store.people() for _ in range(WRITERS)]
    ready, answers = threading.Barrier(WRITERS), dict.fromkeys(range(WRITERS), False)

    def write(number: int) -> None:
        ready.wait(30)
        notice = Notice("ops", version, f"by {number}")
        answers[number] = readers[number].put_notice(notice)

    for reader in readers:
        list(reader.notices(NAMES))  # connected
    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [winner] = [number for number, answer in answers.items() if answer]
    assert list(log.people.notices(NAMES)) == [Notice("ops", version + 1, f"by {winner}")]


def test_a_large_document_is_kept_and_a_larger_one_refused(log: Log) -> None:
    """Thousands of findings fit; nobody can fill the store with one document."""
    most = "x" * LONGEST_DOCUMENT
    assert log.people.put_notice(Notice("ops", 0, most))
    for notice in (
        Notice("ops", 1, most + "x"),
        Notice("o" * 201, 0, "{}"),
        Notice("ops", -1, "{}"),
    ):
        with pytest.raises(RecordRefusedError):
            log.people.put_notice(notice)
    assert list(log.people.notices(NAMES)) == [Notice("ops", 1, most)]


def test_other_channels_are_counted_and_not_read(log: Log) -> None:
    """Anybody who may write to the store can make them up; they go only where that is wanted."""
    for name in ("ops", "junk-1", "junk-2"):
        assert log.people.put_notice(Notice(name, 0, "{}"))
    assert list(log.people.notices(["ops", "unknown"])) == [Notice("ops", 1, "{}")]
    assert log.people.other_notices(["ops"]) == log.people.other_notices(["ops"]) == 2
    assert log.people.other_notices(["ops"], remove=True) == 2
    assert log.people.other_notices([]) == 1
    assert list(log.people.notices(["junk-1", "ops"])) == [Notice("ops", 1, "{}")]


def test_no_more_channels_than_a_file_has(log: Log) -> None:
    """A full store still takes what known channels are notified of, and says how it is emptied."""
    for number in range(MOST_CHANNELS):
        assert log.people.put_notice(Notice(f"junk-{number}", 0, "{}"))
    with pytest.raises(RecordRefusedError, match="`oncecron prune`"):
        log.people.put_notice(Notice("ops", 0, "{}"))
    assert log.people.put_notice(Notice("junk-7", 1, "{}"))
    assert log.people.other_notices([], remove=True) == MOST_CHANNELS
    assert log.people.put_notice(Notice("ops", 0, "{}"))
