"""Format texts for a terminal: times, column widths, and no control characters."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from oncecron.core.light_typing import NamedTuple
from oncecron.core.stderr import visible as visible  # noqa: PLC0414 - one of the formats
from oncecron.core.tick import instant_of
from oncecron.core.time_zone import find_zone

ABSENT = "-"


class Clock(NamedTuple):
    """How times are shown: in UTC, in the zone of this host, or in another zone with the UTC beside it."""

    utc: bool
    zone: str | None = None
    """The name of the other zone."""

    def seconds(self, time: float | None) -> str:
        """Return RFC 3339 to the second, or `ABSENT`."""
        return ABSENT if time is None else self._text(time, "seconds")

    def exactly(self, time: float | None) -> str | None:
        """Return RFC 3339 to the millisecond, or None."""
        return None if time is None else self._text(time, "milliseconds")

    def tick(self, text: str | None) -> str:
        """Return a tick: its text, and in another zone its time if it has one."""
        instant = None if self.zone is None or text is None else instant_of(text)
        return text or ABSENT if instant is None else self.seconds(instant)

    def _text(self, time: float, precision: str) -> str:
        if self.zone is not None:
            return self._in_zone(time, self.zone)
        if self.utc:
            text = datetime.fromtimestamp(time, UTC).isoformat(timespec=precision)
            return text.removesuffix("+00:00") + "Z"
        return datetime.fromtimestamp(time).astimezone().isoformat(timespec=precision)

    @staticmethod
    def _in_zone(time: float, zone: str) -> str:
        there, utc = (datetime.fromtimestamp(time, each) for each in (find_zone(zone) or UTC, UTC))
        beside = f"{utc:%H:%M}Z" if utc.date() == there.date() else f"{utc:%Y-%m-%d %H:%M}Z"
        return f"{there:%Y-%m-%d %H:%M:%S %Z} ({beside})"


def part_of(shard: int, shards: int) -> str:
    """Return SHARD/SHARDS, or `ABSENT` for a key with one shard."""
    return ABSENT if shards == 1 else f"{shard}/{shards}"


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int, encoding: str | None) -> str:
    """Return a text of at most `width` columns, but of at least ten."""
    width = max(width, 10)
    if display_width(text) <= width:
        return text
    mark = "…" if (encoding or "").lower().startswith("utf") else ">"
    kept = ""
    for letter in text:
        width -= _letter_width(letter)
        if width < 1:
            break
        kept += letter
    return kept + mark
