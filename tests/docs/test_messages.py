"""docs/messages.md has every message of the program, with its cause and its cure, and no other."""

from __future__ import annotations

import re

from documents import ROOT
from message_source import all_texts, parts_of_messages, split

SPAN = re.compile(r"^- (?:`` (.*) ``|`([^`]*)`)$", re.MULTILINE)
PAGE = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
PATTERNS = [one or other for one, other in SPAN.findall(PAGE)]


def pieces(part: str, texts: str) -> int:
    """Return of how many texts of the program a part is made, the longest first."""
    words, count = part.split(), 0
    while words:
        count += 1
        length = len(words)
        while length > 1 and " ".join(words[:length]) not in texts:
            length -= 1
        words = words[length:]
    return count


def test_every_message_has_an_entry() -> None:
    """Whoever adds or changes a message says there what it means and what to do."""
    shown = "\n".join(PATTERNS)
    missing = [
        f"{place}: {part}" for part, place in parts_of_messages().items() if part not in shown
    ]
    assert not missing, "docs/messages.md lacks:\n" + "\n".join(missing)


def test_every_entry_is_a_message() -> None:
    """An entry for what the program no longer prints goes; each stands once."""
    texts = all_texts()
    stale = [part for one in PATTERNS for part in split(one) if pieces(part, texts) > 3]
    assert not stale, "no text of the program is like:\n" + "\n".join(stale)
    assert len(set(PATTERNS)) == len(PATTERNS)


def test_every_entry_says_what_to_do() -> None:
    """Below the messages of each heading stand words."""
    titles, parts = (
        re.split(r"^### (.*)$", PAGE, flags=re.MULTILINE)[first::2] for first in (1, 2)
    )
    for title, part in zip(titles, parts, strict=True):
        entry = part.split("\n## ", 1)[0]
        assert SPAN.search(entry), title
        assert len(SPAN.sub("", entry).split()) >= 8, title
