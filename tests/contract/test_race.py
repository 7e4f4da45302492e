"""Many processes at once: the promise, proved from what the winners themselves wrote."""

import os
from collections import Counter
from pathlib import Path

import pytest
from contract_log import Log
from contract_stores import KINDS, StoreKind
from herd import run_at_once

from oncecron.core import clock

PROCESSES = int(os.environ.get("ONCECRON_TEST_RACE_PROCESSES", "20"))
TICKS = int(os.environ.get("ONCECRON_TEST_RACE_TICKS", "10"))


def race(kind: str, address: str, journal: Path) -> list[tuple[str, int, int]]:
    """Run the processes from one start; return what they wrote, in order: verb, tick, token."""
    first = int(clock.wall()) - 60 * TICKS
    words = [kind, address, str(journal)]
    herd = [[*words, f"host{number}", str(first), str(TICKS)] for number in range(PROCESSES)]
    run_at_once("racer", herd)
    lines = (line.split() for line in journal.read_text().splitlines())
    return [(verb, int(tick), int(token)) for verb, tick, token in lines]


@pytest.mark.parametrize("store_kind", [name for name in KINDS if KINDS[name].is_shared])
@pytest.mark.timeout(300 + PROCESSES * TICKS // 10)
def test_one_start_a_tick_and_never_two_at_a_time(
    store: StoreKind, store_kind: str, log: Log, tmp_path: Path
) -> None:
    """One winner per tick, tokens rising, no start before the last end.

    ONCECRON_TEST_RACE_PROCESSES (20) processes go through ONCECRON_TEST_RACE_TICKS (10) ticks, all
    asking for the same one until somebody has run it.
    """
    written = race(store_kind, store.address, tmp_path / "journal")
    starts = [(tick, token) for verb, tick, token in written if verb == "start"]
    assert Counter(tick for tick, _ in starts) == dict.fromkeys(range(TICKS), 1)
    tokens = [token for _, token in starts]
    assert tokens == sorted(set(tokens))
    for start, end in zip(written[::2], written[1::2], strict=True):
        assert (start, end) == (("start", *start[1:]), ("end", *start[1:]))
    assert log.outcomes()[-TICKS:] == ["succeeded"] * min(TICKS, 50)
