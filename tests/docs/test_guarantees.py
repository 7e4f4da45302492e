"""The arithmetic of the guarantees is that of the code, and the tests that prove them exist."""

import re

from documents import ROOT

from oncecron.core import model, timing

MOST_WORDS = 2550


def test_the_trust_window_is_stated_as_it_is() -> None:
    """Seconds of a ttl of one minute, and the parts of any ttl."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    end = model.trust_after(0, 60)
    for part in (timing.TERM_BEFORE, timing.GUARD_KILLS_BEFORE, timing.WRAPPER_KILLS_BEFORE):
        assert f"{end - 60 * part:.3f}" in text
        assert f"ttl/{1 / part:g}" in text
    assert f"{end:.3f}" in text
    assert f"ttl/{timing.HEARTBEATS_PER_TTL}" in text
    assert f"{timing.MAX_CLOCK_SKEW / 60:g} minutes" in text


def test_a_promise_names_tests_that_exist() -> None:
    """By their files."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w./]+)`", text))
    assert len(named) > 4
    assert {each for each in named if not (ROOT / each).is_file()} == set()


def test_the_page_is_short_enough_to_be_read() -> None:
    """In words, with its tables: what another page says is a link."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
