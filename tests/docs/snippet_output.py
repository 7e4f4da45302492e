"""Whether a command's output is what a page shows, but for what differs from run to run."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

WINDOW = timedelta(days=2)
"""A time this near to the run may be another one on the page; every other time must be the one that is shown."""
_INSTANT = r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?"
_VARIES = re.compile(
    rf"""(?P<instant>(?<![\d-]){_INSTANT}(?![\d-]))
    | (?P<clock>(?<![\d:])\d\d:\d\d:\d\d(?![\d:]))
    | (?P<uuid>[0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}})
    | (?P<token>(?<!\d)\d{{13,}}(?!\d))
    | (?P<measured>(?<![\w.-])(?:\d+\.\d+(?:ms|s)?|\d+m?s)(?!\w|\.\d))
    | (?<=pid\ )(?P<pid>\d+) | (?<=backend\ )(?P<backend>\d+)
    | (?<=[a-z0-9]/)(?P<holder>\d+)(?=\s|$|,|\))
    | (?P<number>(?<=\ )\d+(?=\ |$))
    | (?P<age>(?<![\w.])\d+(?=\ ?s\ (?:ago|left)))
    """,
    re.VERBOSE,
)


_LATE = re.compile(r" [\w.]+ (?:after|before) its tick(?= \(pid )")


class Part(NamedTuple):
    """A piece of a line: of a kind that varies, or a text that does not."""

    kind: str
    text: str


def differences(shown: Sequence[str], printed: Sequence[str], now: datetime) -> list[str]:
    """Return both outputs if they differ, else nothing; a shown line `...` stands for any lines."""
    expected, found = [[_parts(line) for line in _trimmed(lines)] for lines in (shown, printed)]
    if _alike(expected, found, now):
        return []
    told = [f"  {line}" for line in shown], [f"  {line}" for line in printed]
    return ["shown:", *told[0], "printed:", *told[1]]


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Return the lines with single blanks, without empty ones at both ends, and without how late a page is tested."""
    joined = "\n".join(" ".join(line.split()) for line in lines).strip("\n")
    return _LATE.sub("", joined).splitlines()


def _alike(shown: list[list[Part]], printed: list[list[Part]], now: datetime) -> bool:
    if not shown:
        return not printed
    if shown[0] == [Part("", "...")]:
        rest = range(len(printed) + 1)
        return any(_alike(shown[1:], printed[skipped:], now) for skipped in rest)
    return (
        bool(printed)
        and len(shown[0]) == len(printed[0])
        and all(_same(*pair, now) for pair in zip(shown[0], printed[0], strict=True))
        and _alike(shown[1:], printed[1:], now)
    )


def _parts(line: str) -> list[Part]:
    parts, end = [], 0
    for found in _VARIES.finditer(line):
        parts += [Part("", line[end : found.start()]), Part(str(found.lastgroup), found[0])]
        end = found.end()
    return [*parts, Part("", line[end:])]


def _same(shown: Part, printed: Part, now: datetime) -> bool:
    if shown == printed:
        return True
    if not shown.kind or shown.kind != printed.kind:
        return False
    if shown.kind == "measured":  # 60s may be a setting
        return any("." in part.text or "ms" in part.text for part in (shown, printed))
    if shown.kind == "number":  # a pid in a table; statuses and ids are smaller
        return len(shown.text) >= len("1000")
    if shown.kind != "instant":
        return True
    shapes = [re.sub(r"\.\d+", "", re.sub(r"\d", "0", part.text)) for part in (shown, printed)]
    return shapes[0] == shapes[1] and _is_recent(printed.text, now)


def _is_recent(text: str, now: datetime) -> bool:
    at = datetime.fromisoformat(text)
    return abs(at.replace(tzinfo=at.tzinfo or UTC) - now) <= WINDOW
