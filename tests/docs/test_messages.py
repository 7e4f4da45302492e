"""docs/messages.md has every message of the program, with its cause and its cure, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import message_source
from message_source import HOLE, hollow, messages

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "messages.md"
SPAN = re.compile(r"^- (?:`` (.*) ``|`([^`]*)`)$", re.MULTILINE)
MESSAGES = messages()


def entries() -> dict[str, tuple[list[str], str]]:
    """Return the message patterns and the explanation below each heading of the third level."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^### (.*)$", text, flags=re.MULTILINE)[1:]
    found = {}
    for title, part in zip(parts[::2], parts[1::2], strict=True):
        below = part.split("\n## ", 1)[0]
        patterns = [match[1] or match[2] for match in SPAN.finditer(below)]
        found[title] = (patterns, SPAN.sub("", below).strip())
    return found


PATTERNS = [pattern for patterns, _ in entries().values() for pattern in patterns]


def matches(pattern: str, message: str) -> bool:
    """Return whether a pattern of the page stands for a message of the program."""
    expression = ".*".join(re.escape(part) for part in pattern.split(HOLE))
    return re.fullmatch(expression, message) is not None


def test_every_message_has_an_entry() -> None:
    """Whoever adds or changes a message says there what it means and what to do."""
    missing = [
        f"{message.place}: {message.text}"
        for message in MESSAGES
        if not any(matches(pattern, message.text) for pattern in PATTERNS)
    ]
    assert not missing, "docs/messages.md lacks:\n" + "\n".join(missing)


def test_every_entry_is_a_message() -> None:
    """An entry for what the program no longer prints goes; each stands once."""
    stale = [
        pattern
        for pattern in PATTERNS
        if not any(matches(pattern, message.text) for message in MESSAGES)
    ]
    assert not stale, "no message of the program is like:\n" + "\n".join(stale)
    assert len(set(PATTERNS)) == len(PATTERNS)


def test_every_entry_says_what_to_do() -> None:
    """Below the messages stand words; and no pattern is so wide that it stands for anything."""
    for title, (patterns, explanation) in entries().items():
        assert patterns, title
        assert len(explanation.split()) >= 8, title
    for pattern in PATTERNS:
        places = {message.place for message in MESSAGES if matches(pattern, message.text)}
        assert len(places) <= (2 if hollow(pattern) else 4), f"{pattern}: {places}"


def test_the_collector_sees_each_way_to_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot miss a kind of message in silence."""
    (tmp_path / "made.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(message_source, "PACKAGE", tmp_path)
    assert {message.text for message in message_source.messages()} == {
        "the file ... cannot be read",
        "... is a directory",
        "... is not executable",
        "the key is paused; resume it",
        "the key is drained; resume it",
        "the disk is full ...",
        "the disk is slow ...",
        "the host is gone since ...",
        "... may not be used here",
        "the answer is no",
    }


SOURCE = """
TABLE = {"a": "is paused", "b": "is drained"}
PAIRS = (("a", "is full"), ("b", "is slow"))

def plain(path): raise ConfigurationError(f"the file {path} cannot be read")

def choice(path): raise ValueError(f"{path} is {'a directory' if path else 'not executable'}")

def by_table(reason):
    what = TABLE[reason]
    complain(f"the key {what}; resume it")

def by_loop(text):
    for found, cure in PAIRS:
        if found in text: return StoreError(f"the disk {cure} {text}")

def returned(host): return f"the host is gone since {host}"

def through_a_function(host): complain(returned(host))

def hand_on(number, text): complain(text)

def handed_on(name): hand_on(1, f"{name} may not be used here")

def an_answer(): return False, "the answer is no"
"""
