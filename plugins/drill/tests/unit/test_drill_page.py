"""The certificate as a page: whatever a store or a job wrote is text, and nothing that was found is left out."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hostile_texts import HOSTILE, Tags
from sample_certificates import certificate

from oncecron_drill.certificate import FaultCount, Finding
from oncecron_drill.certificate_page import as_html


def every_text(text: str) -> dict[str, Any]:
    """Return the fields of a certificate in which each text is this one."""
    finding = Finding(text, text, hole=False, timeline=f"{text}\n{text}")
    return {
        "store": text, "store_version": text, "topology": [text], "oncecron": text, "python": text,
        "began_at": text, "skips": {text: 1}, "executions": {text: 1}, "faults": {text: FaultCount(1, 1)},
        "events": [(text, text)], "violations": [finding, dataclasses.replace(finding, hole=True)],
        "not_tried": [text], "why": text,
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_was_found_is_shown_as_text(text: str) -> None:
    """The tags are those of a page with a harmless word, nothing acts, and nobody is flooded."""
    page = as_html(certificate(**every_text(text)))
    assert Tags(page).tags == Tags(as_html(certificate(**every_text("harmless")))).tags
    assert len(page.encode("utf-8", "strict")) < 150_000
    shown = Tags(page).text
    assert not set(
        re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u2028-\u202e\u2066-\u2069]", shown)
    )
    assert shown.count("harmless") == 0
    assert {"script", "iframe", "img"} & {tag for tag, *_ in Tags(page).tags} == set()


def test_each_text_is_shown() -> None:
    """None of the fields is forgotten, and each finding has its rule, its sentence and its history."""
    texts = every_text("")
    for name in texts:
        shown = Tags(as_html(certificate(**{name: every_text("harmless")[name]}))).text
        assert "harmless" in shown, name
    shown = Tags(as_html(certificate(**every_text("harmless")))).text
    assert shown.count("harmless") >= 2 * 4


def test_numbers_are_shown() -> None:
    """A field that is a number is on the page."""
    numbers = {
        "seed": 4711,
        "hosts": 4712,
        "keys": 4713,
        "takeovers": 714,
        "starts": 715,
        "firings": 716,
    }
    shown = Tags(as_html(certificate(**numbers, longest_without_runner=7.3, minutes=71.8))).text
    for number in (*numbers.values(), "7.3s", "71.8"):
        assert str(number) in shown, number
    assert "95 % within 43 ms" in Tags(as_html(certificate(latency={"p95": 0.043}))).text


@pytest.mark.parametrize(
    ("verdict", "mark"), [("clean", "✓"), ("violated", "✗"), ("not judged", "?")]
)
def test_the_verdict_comes_first(verdict: str, mark: str) -> None:
    """In words and with a mark, for those who see no colors; and why."""
    page = as_html(certificate(verdict=verdict, why="For a reason."))
    shown = Tags(page).text.partition("Not tried")[0]
    assert f"{mark} {verdict.capitalize()}: " in shown
    assert "For a reason." in shown
    assert re.search("<title>" + verdict, page)


def test_a_password_in_a_sentence_is_masked() -> None:
    """It may come in the error of a server."""
    sentence = "no answer from postgresql://cron:hunter2@db.example.com/oncecron"
    page = as_html(
        certificate(violations=[Finding("blocked", sentence, hole=False, timeline=sentence)])
    )
    assert "hunter2" not in page
    assert page.count("db.example.com") >= 2


def test_a_page_that_stands_alone_asks_nobody() -> None:
    """No script, no address of another file."""
    page = as_html(certificate())
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:,)", page)
    assert "url(" not in page


def test_a_long_history_is_cut() -> None:
    """The page says how much is missing; --json has all."""
    long = Finding("double", "Twice.", hole=False, timeline="\n".join(map(str, range(1000))))
    shown = Tags(as_html(certificate(violations=[long]))).text
    assert "\n199\n… 800 more lines" in shown
