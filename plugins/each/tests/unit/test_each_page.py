"""The page that the processes of one `each` share."""

import os

from oncecron.core.model import REFUSAL_REASONS
from oncecron_each.item_model import ItemCounts
from oncecron_each.shared_page import VERDICTS, Page


def test_a_slot_is_seen_by_the_others() -> None:
    """And not by its own firing."""
    page = Page(3)
    page.begin_slot(1, 7)
    assert (page.is_taken(7, 0), page.is_taken(7, 1), page.is_taken(6, 0)) == (True, False, False)
    assert page.has_run(1)
    page.end_slot(1)
    assert (page.is_taken(7, 0), page.has_run(1)) == (False, True)


def test_another_process_reads_what_is_written() -> None:
    """A forked one, in both directions."""
    page = Page(1)
    counts = ItemCounts(50000, 1, 2, 41300, 3, 4, 5)
    pid = os.fork()
    if pid == 0:
        page.counts = counts
        page.judge(0, "interrupted", "ä" * 500)
        page.note_refusal("done", "first")
        page.note_refusal("held", "second")
        os._exit(0)
    os.waitpid(pid, 0)
    assert page.counts == counts
    assert (page.refusal, page.skip) == ("held", "first")
    verdict, note = page.verdict(0)
    assert (verdict, note) == ("interrupted", "ä" * 127)
    page.forget_refusals()
    assert (page.refusal, page.skip) == (None, "")


def test_every_reason_and_verdict_is_kept() -> None:
    """They are numbers on the page."""
    page = Page(1)
    for reason in REFUSAL_REASONS:
        page.note_refusal(reason, "")
        assert page.refusal == reason
    for verdict in VERDICTS:
        page.judge(0, verdict)
        assert page.verdict(0)[0] == verdict
