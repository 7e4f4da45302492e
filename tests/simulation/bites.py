"""Which test finds what is broken on purpose.

`.venv-test/bin/python tests/simulation/bites.py` prints the table of docs/proof.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "proof"))

import broken  # noqa: E402 - found by the line above
import mutations  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_THERE = (
    *("no-lease-row", "takeover-while-alive", "asking-renews", "token-stands-still", "no-guard"),
    *("fence-asleep", "parts-share-a-tick", "kill-group-only", "doubt-drawn-again"),
)
"""They break the SQL and Lua of the stores, how a process is started, or `each`, which the simulator does not have."""
OF_ITEMS = ("failed_item_is_done", "doubt_is_run_again", "lost_draw_is_another")
"""They show where the keys have items."""
NAMES = [*mutations.ALL, *mutations.SIMULATED, *broken.ALL]
NOT_DRILLED = ("fence-asleep", "deadline-from-receipt")
MODELLED = {
    "no-lease-row": "NO_LEASE_ROW",
    "lock-without-tick": "NO_TICK",
    "release-before-dead": "RELEASE_BEFORE_DEAD",
    "deadline-from-receipt": "TRUST_FROM_RECEIPT",
    "retry-as-new-claim": "NEW_OWNER_ON_RETRY",
    "no-watchdog": "NO_WATCHDOG",
    "token-stands-still": "TOKEN_STAYS",
    "fence-asleep": "NO_FENCING",
    "never-renews": "LATE_HEARTBEATS",
    "done-goes-on": "ENDED_RESUMED",
    "starts_while_paused": "COMPARE_WITHOUT_PAUSE",
    "trust_without_margin": "NO_TRUST",
}
"""What the formal model breaks in the same way, and by which macro."""


class Bite(NamedTuple):
    """A row of the table; `rule` is empty if the simulator finds nothing."""

    name: str
    rule: str
    seed: str


def find(name: str, *options: str) -> tuple[Bite, str]:
    """Let the simulator look for one; return also what it printed."""
    items = ("--items", "--hours", "1") if name in OF_ITEMS else ()
    command = [sys.executable, str(HERE), "--broken", name, "--as-found", *items, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    found = re.search(r"^seed (\d+):.*\n    [\d.]+ ([\w -]+): ", said, re.MULTILINE)
    return Bite(name, found[2] if found else "", found[1] if found else ""), said


def rows(names: list[str]) -> Iterator[str]:
    """Yield the rows of the table."""
    yield "| broken | simulator | seed | CPU s | chaos | drill | model |"
    yield "|---|---|--:|--:|---|---|---|"
    for name in names:
        before = sum(os.times()[2:4])
        bite = Bite(name, "", "")
        if name not in NOT_THERE:
            bite, _ = find(name, "--seeds", "1000", "--seconds", "60")
        seconds = f"{sum(os.times()[2:4]) - before:.1f}" if bite.rule else "-"
        is_mutation = name in mutations.ALL
        drill = is_mutation and name not in NOT_DRILLED
        marks = ("yes" if is_mutation else "-", "yes" if drill else "-", MODELLED.get(name, "-"))
        yield f"| {' | '.join((name, bite.rule or '-', bite.seed or '-', seconds, *marks))} |"


def table(text: str) -> list[Bite]:
    """Return the rows of the table in a page."""
    found = re.findall(
        r"^\| ([\w-]+) \| (\w[\w -]*|-) \| (\d+|-) \| [\d.-]+ \|", text, re.MULTILINE
    )
    return [Bite(name, rule.strip("-"), seed.strip("-")) for name, rule, seed in found]


if __name__ == "__main__":
    for row in rows(sys.argv[1:] or NAMES):
        print(row, flush=True)
