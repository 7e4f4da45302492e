"""The number that wrapper and guard share, and the order of what happens before it."""

import mmap
import os

from oncecron.core.model import trust_after
from oncecron.core.timing import GUARD_KILLS_BEFORE, MINIMUM_TTL, TERM_BEFORE, WRAPPER_KILLS_BEFORE
from oncecron.run.job import NOTHING_TO_FENCE, Trust


def test_there_is_nothing_to_fence_at_first() -> None:
    """A new page says that no job runs."""
    assert Trust().until == NOTHING_TO_FENCE


def test_a_forked_process_writes_what_its_parent_reads() -> None:
    """The page is shared in both directions, not copied, and keeps a float to its last bit."""
    trust = Trust()
    trust.until = 1.0
    pid = os.fork()
    if pid == 0:
        seen = trust.until
        trust.until = 123456.789012345
        os._exit(seen != 1.0)
    assert os.waitpid(pid, 0)[1] == 0
    assert trust.until == 123456.789012345


def test_two_firings_share_nothing() -> None:
    """Each has a page of its own."""
    one, other = Trust(), Trust()
    one.until = 5.0
    assert other.until == NOTHING_TO_FENCE


def test_the_number_fits_the_page_and_is_aligned() -> None:
    """Eight aligned bytes are one store: nobody reads half of one number and half of the next."""
    page = Trust()._page
    assert (page.itemsize, page.nbytes) == (8, mmap.PAGESIZE)


def test_term_comes_before_the_guards_kill_before_the_wrappers_before_the_end() -> None:
    """Also with the shortest ttl each has time to act, and the margin for unequal clocks is left."""
    assert 1 / 2 > TERM_BEFORE > GUARD_KILLS_BEFORE > WRAPPER_KILLS_BEFORE > 0
    end = trust_after(0.0, MINIMUM_TTL)
    assert end < MINIMUM_TTL * 0.99
    assert MINIMUM_TTL * (GUARD_KILLS_BEFORE - WRAPPER_KILLS_BEFORE) >= 0.15
    assert MINIMUM_TTL * WRAPPER_KILLS_BEFORE >= 0.25
