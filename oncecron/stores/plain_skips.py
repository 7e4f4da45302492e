"""Plain skips (`oncecron.core.claim.plain_skip`) as Redis and SQLite keep them.

The skips of one host in one window of `PLAIN_WINDOW` minutes are one text: a word for each, CODE:EXECUTION, both
hexadecimal. CODE is the minute of the tick in its window, and then the 20 bits of `PlainSkip.code`. What is not in the
word is in the log: the execution is the holder's.
"""

from __future__ import annotations

from oncecron.core.claim import PLAIN_BITS, PLAIN_DONE
from oncecron.core.light_typing import NamedTuple
from oncecron.core.log_rows import Skip
from oncecron.core.tick import minute_tick
from oncecron.core.timing import PLAIN_SKIP_EARLY


class KeptSkips(NamedTuple):
    """The plain skips of a host in a window."""

    key: str
    shard: int
    host: str
    window: int
    words: str


class KeptSkip(NamedTuple):
    """One of them, and how often it happened."""

    of: KeptSkips
    tick: str
    reason: str
    at: float
    count: int  # type: ignore[assignment]  # as in `Skip`
    execution_id: int


class Window(NamedTuple):
    """The skips in a text: one for each tick and reason."""

    skips: tuple[KeptSkip, ...]


def window_of(kept: KeptSkips) -> Window:
    """Return the skips in a text. Raises `ValueError` for one that cannot be read."""
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    for word in kept.words.split():
        code, execution_id = (int(part, 16) for part in word.split(":"))
        which = (code >> PLAIN_BITS, code & PLAIN_DONE)
        count, newest, _ = found.get(which, (0, 0, 0))
        found[which] = count + 1, max(newest, code & PLAIN_DONE - 1), execution_id
    return Window(
        tuple(
            KeptSkip(
                *(
                    kept,
                    str(minute_tick((kept.window + minute) * 60).text),
                    "done" if done else "held",
                ),
                (kept.window + minute) * 60 - PLAIN_SKIP_EARLY + milliseconds / 1000,
                *(count, execution_id),
            )
            for (minute, done), (count, milliseconds, execution_id) in found.items()
        )
    )


def shown(kept: KeptSkip, holder: tuple[str, int, str] | None) -> Skip:
    """Return a skip; `holder`: host, pid and outcome on record, None where retention has removed them."""
    host, pid, outcome = holder or (None, None, None)
    return Skip(
        *(kept.of.key, kept.of.shard, kept.tick, kept.reason, host, pid),
        *(kept.of.host, None, kept.at, kept.count),
        outcome if kept.reason == "done" else None,
    )
