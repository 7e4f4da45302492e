"""The page that `oncecron report` writes, in a browser: what it says, on every screen, and to everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pictures
import pytest
from hostile_texts import HOSTILE
from sample_pages import CLOCK
from sample_pages import shown as everything
from story_stores import rotated, seed

from oncecron.core.masking import visible
from oncecron.core.units import HOUR
from oncecron.watch.findings import finding, kinds
from oncecron_web.render import page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from browser import Shown
    from fleet import Fleet
    from playwright.sync_api import Browser, Locator

TEXTS = "all => all.map(each => each.textContent)"
LOOKS = (
    "all => all.map(each => [...each.querySelectorAll('path')].map(path => path.className.baseVal))"
)
SIZES = [
    (390, "light"),
    (390, "dark"),
    (800, "light"),
    (800, "dark"),
    (1400, "light"),
    (1400, "dark"),
]


@pytest.fixture(scope="session")
def overview(fleet: Fleet) -> str:
    """Write the page of the fleet and give its address."""
    return pictures.overview(fleet)


def test_it_says_first_what_is_wrong(show: Callable[..., Shown], overview: str) -> None:
    """The sentence, what is wrong with its account, and the rows in the order of their need."""
    page = show(overview).page
    assert page.inner_text("h1") == "14 keys, 1 failed, 1 missed, 1 slow; 3 hosts fire."
    assert page.title() == "1 failed, 1 missed, 1 slow · oncecron"
    wrong = [
        each.inner_text().split("\n")[0] for each in page.query_selector_all("article h3 .state")
    ]
    assert wrong == ["failed", "missed", "slow"]
    account = page.inner_text("article details[open]")
    assert "Tick 02:00 of key billing-nightly failed on worker1." in account
    assert "connection timed out" in account
    keys = page.eval_on_selector_all("table.keys .name", TEXTS)
    assert keys[:4] == ["billing-nightly", "reindex-search", "sync-warehouse", "export-accounting"]
    assert len(keys) == 14
    titles = page.eval_on_selector_all("table.keys svg title", TEXTS)
    assert titles[:3] == [
        "Last 30: 1 failed, 29 succeeded", "Last 30: 1 missed, 29 succeeded", "Last 30: 1 running, 29 succeeded",
    ]  # fmt: skip
    assert "by ann@web1: new mail server" in page.inner_text("table.keys")
    assert page.locator("table.keys path.missed").count() == 1
    assert page.locator("table.keys path.running").count() == 1


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_the_table_begins_within_the_second_screen(
    show: Callable[..., Shown], fleet: Fleet, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Also three hours after all crons have stopped; the worst is said first, and how many hosts fire."""
    monkeypatch.setattr(fleet, "_now", fleet._now + 3 * HOUR)
    page = show(pictures.overview(fleet, "late"), width).page
    assert page.inner_text("h1").startswith("14 keys, no host fires, ")
    assert page.inner_text("h1").endswith("; 0 of 3 hosts fire.")
    assert "no host has fired since 09:40" in page.locator("article").first.inner_text()
    box = page.locator("#keys").bounding_box()
    assert box
    assert box["y"] < 2 * 844


def test_the_charts_hide_nothing_bad(show: Callable[..., Shown], overview: str) -> None:
    """The tick that was missed is hollow in the timeline and in the calendar; hosts say who fired."""
    shown = show(overview)
    shown.open_details()
    page = shown.page
    names = page.eval_on_selector_all(".grid:first-of-type .label", TEXTS)
    lanes = page.eval_on_selector_all(".grid:first-of-type .lane", LOOKS)
    looks = dict(zip(names, lanes, strict=True))
    assert looks["reindex-search"] == ["well", "missed"]
    assert looks["billing-nightly"] == ["well", "bad"]
    assert looks["newsletter"] == ["paused", "well"]
    day = page.locator(".days input").last.get_attribute("aria-label")
    assert day is not None
    assert day.startswith("Fri 20 Nov: 1 failed, 1 missed, 1 running, ")
    assert page.locator(".days g").last.text_content() == "2"
    hosts = page.eval_on_selector_all(".of-hosts details:first-child .host", TEXTS)
    assert hosts == ["web1", "web2", "worker1"]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_everything_fits_and_can_be_read(
    show: Callable[..., Shown], overview: str, width: int, scheme: str
) -> None:
    """On a phone, a tablet and a screen, by day and by night, also with all details open."""
    shown = show(overview, width, scheme)
    assert (shown.faint_texts(), shown.cut_texts()) == ([], [])
    shown.open_details()
    assert (shown.faint_texts(), shown.cut_texts()) == ([], [])
    background = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(14, 18, 23)"}[scheme]


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1400, "dark")])
def test_each_finding_fits(
    show: Callable[..., Shown], tmp_path: Path, width: int, scheme: str
) -> None:
    """Alone at the top of the page and in its card, whatever its words."""
    for kind, each in kinds().items():
        key = "billing-nightly" if "{key}" in each.title else None
        found = finding(
            kind, key, 2, "all 12 hosts are drained: by ann@web1, by bob@web2", since=1.0
        )
        values = everything() | {"problems": [found], "explained": {}}
        file = tmp_path / f"{kind}.html"
        file.write_text(page("overview.html", CLOCK, **values), encoding="utf-8")
        shown = show(f"file://{file}", width, scheme)
        assert (shown.faint_texts(), shown.cut_texts()) == ([], []), kind
        shown.close()


def test_a_keyboard_suffices(show: Callable[..., Shown], overview: str) -> None:
    """Tab goes through all that can be opened, in the order of the page, and Enter opens it."""
    shown = show(overview)
    stops = shown.tab_stops()
    places = [int(stop.split()[0]) for stop in stops]
    assert places == sorted(places)
    assert (
        len([stop for stop in stops if " summary " in stop])
        == shown.page.locator("summary").count()
        == 6
    )
    closed = shown.page.locator("article details:not([open]) summary").first
    closed.focus()
    shown.page.keyboard.press("Enter")
    assert "no firing is on record" in shown.page.locator("article").nth(1).inner_text()


def labels_of(marks: Locator) -> list[str]:
    """Return what each mark of a chart says."""
    return list(marks.evaluate_all("all => all.map(each => each.ariaLabel)"))


def assert_asked(marks: Locator, *, hovered: int, touched: int) -> None:
    """Ask marks of a chart at the pointer, at the keyboard and by a touch; each says its label."""
    page, said = marks.page, labels_of(marks)
    asked = "document.querySelector('.spots input:hover, .spots input:focus, .days input:hover, .days input:focus')"
    shown = f"getComputedStyle({asked}, '::after').content"
    marks.nth(hovered).hover()
    assert page.evaluate(shown) == f'"{said[hovered]}"'
    page.mouse.move(0, 0)
    marks.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(shown) == f'"{said[1]}"'
    marks.nth(touched).click()
    page.mouse.move(0, 0)
    assert page.evaluate(shown) == f'"{said[touched]}"'


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_each_day_can_be_asked(
    show: Callable[..., Shown], overview: str, width: int, scheme: str
) -> None:
    """Likewise, and each lies on its square."""
    shown = show(overview, width, scheme)
    page = shown.page
    days = page.locator(".days input")
    boxes = "all => all.map(each => each.getBoundingClientRect()).map(box => [box.x, box.y, box.width].map(Math.round))"
    assert days.evaluate_all(boxes) == page.locator(".days rect").evaluate_all(boxes)
    assert_asked(days, hovered=20, touched=-1)
    assert shown.cut_texts() == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_each_mark_can_be_asked(
    show: Callable[..., Shown], overview: str, width: int, scheme: str
) -> None:
    """At the pointer, at the keyboard (Tab to a key, then the arrows) and at a touch, without a script."""
    page = show(overview, width, scheme).page
    of_key = page.locator("#timeline ~ .grid .line", has_text="export-accounting")
    marks = of_key.locator(".spots input")
    assert labels_of(marks)[-1] == "06:00: succeeded on worker1"
    assert_asked(marks, hovered=3, touched=5)


def test_it_needs_nothing_else(show: Callable[..., Shown], overview: str) -> None:
    """No script, and no request to anywhere."""
    shown = show(overview)
    shown.open_details()
    shown.page.wait_for_load_state("networkidle")
    assert (shown.strangers, shown.complaints) == ([], [])
    assert shown.page.locator("script, [style], [onclick], img, iframe").count() == 0


def test_who_means_harm_is_only_seen(show: Callable[..., Shown], tmp_path: Path) -> None:
    """On a phone: nothing of a text acts, asks another server, turns other texts around, or widens the page."""
    for number, text in enumerate(rotated(HOSTILE, seed(), 3)):
        file = tmp_path / f"{number}.html"
        file.write_text(page("overview.html", CLOCK, **everything(text)), encoding="utf-8")
        shown = show(f"file://{file}", 390)
        shown.open_details()
        assert (shown.strangers, shown.complaints) == ([], [])
        assert shown.cut_texts() == []
        assert shown.page.inner_text("table.keys .name") == shown_as(text)
        assert shown.page.evaluate("document.activeElement === document.body")
        shown.close()


def shown_as(text: str) -> str:
    """Return a text as a page shows it, without what is at its end if it is long."""
    cut = text if len(text) <= 2000 else f"{text[:2000]}…"
    return " ".join(visible(cut).split(" "))


@pytest.mark.turns(0)
def test_the_pictures_are_fresh(browser: Browser, overview: str) -> None:
    """Whoever changes the words of the page draws them again: tools/pictures.py."""
    assert pictures.draw(browser, overview, write=False) == []
