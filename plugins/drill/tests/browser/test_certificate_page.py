"""The page of a drill's certificate, in a browser: it fits every screen, can be read, and speaks to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hostile_texts import HOSTILE
from sample_certificates import certificate
from story_stores import rotated, seed

from oncecron_drill.certificate import Finding
from oncecron_drill.certificate_page import as_html

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from browser import Shown

HISTORY = "\n".join(f"+{number:8.3f} s  firing {number} | {'host ' * 28}" for number in range(40))
FOUND = [
    Finding("double", "tick t4 of quick was started twice: attempt 1 and attempt 1", hole=False, timeline=HISTORY),
    Finding("overlap", "two trees of long lived at once", hole=True, timeline=HISTORY),
]  # fmt: skip


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("verdict", "scheme", "width"),
    [
        ("violated", "light", 390), ("violated", "dark", 390), ("violated", "light", 1400),
        ("clean", "light", 390), ("clean", "dark", 1400), ("not judged", "light", 1400), ("not judged", "dark", 390),
    ],
)  # fmt: skip
def test_it_fits_and_can_be_read(
    show: Callable[..., Shown], tmp_path: Path, verdict: str, scheme: str, width: int
) -> None:
    """By day and by night, on a phone too; a wide history scrolls within its box, also by keyboard."""
    file = tmp_path / "certificate.html"
    found = FOUND if verdict == "violated" else []
    file.write_text(as_html(certificate(verdict=verdict, violations=found)), encoding="utf-8")
    shown = show(f"file://{file}", width, scheme)
    assert verdict.capitalize() in shown.page.inner_text("h1")
    shown.open_details()
    cut = [text for text in shown.cut_texts() if "+" not in text]  # the histories scroll
    assert (shown.faint_texts(), cut) == ([], [])
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert sum(" pre " in stop for stop in shown.tab_stops()) == len(found)


def test_whatever_was_found_is_only_seen(show: Callable[..., Shown], tmp_path: Path) -> None:
    """Nothing of a text acts or asks another server."""
    for number, text in enumerate(rotated(HOSTILE, seed(), 3)):
        file = tmp_path / f"{number}.html"
        finding = Finding(text, text, hole=False, timeline=text)
        page = as_html(certificate(store=text, events=[(text, text)], violations=[finding]))
        file.write_text(page, encoding="utf-8")
        shown = show(f"file://{file}", 390)
        shown.open_details()
        assert (shown.strangers, shown.complaints) == ([], [])
        assert shown.page.locator("script, [onclick], img, iframe").count() == 0
        shown.close()
