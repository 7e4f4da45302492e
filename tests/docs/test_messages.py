"""docs/messages.md has every message of the program, with its cause and its cure, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from message_source import HOLE, hollow, messages

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


@pytest.mark.parametrize(
    "known",
    [
        "no store is configured; set --store, ...",  # a plain raise
        "... is not executable",  # one of two words, looked up in its function
        "key ... has been run...; --again runs it once more",  # from a table
        "Redis ...: ...; another program uses these names: choose another --namespace",  # by a loop
        "key ...: not renewed yet: ...",  # printed, not raised
    ],
)
def test_the_collector_sees_each_way_to_print(known: str) -> None:
    """It cannot miss a kind of message in silence."""
    assert any(matches(known, message.text) for message in MESSAGES)
