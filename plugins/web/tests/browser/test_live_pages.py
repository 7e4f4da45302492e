"""The pages of `oncecron web` in a browser: on every screen, by keyboard alone, without script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from live_pages import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from browser import Shown
    from fleet import Fleet
    from playwright.sync_api import Browser

SIZES = [(390, "light"), (390, "dark"), (800, "light"), (1400, "light"), (1400, "dark")]
KEY = "/key?name=billing-nightly"
ADDRESSES = (
    "/",
    KEY,
    "/key?name=sync-warehouse&tick=2026-11-20T07:00Z",
    "/host?name=web1",
    "/key?name=bilings",
)


@pytest.fixture(scope="module")
def live(fleet: Fleet) -> Iterator[str]:
    """Serve the pages of the fleet, whose clock stands still."""
    with fleet.clock(), served(store=f"sqlite://{fleet.path}", utc="true") as url:
        yield url


@pytest.mark.turns(5)
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_everything_fits_and_can_be_read(
    show: Callable[..., Shown], live: str, address: str, width: int, scheme: str
) -> None:
    """On each page, also with all details open; nothing is refused by its own policy, nothing asked of others."""
    shown = show(live + address, width, scheme)
    shown.open_details()
    assert (shown.faint_texts(), shown.cut_texts(), shown.strangers) == ([], [], [])
    assert [each for each in shown.complaints if "404 (Not Found)" not in each] == []


def test_a_keyboard_suffices(show: Callable[..., Shown], live: str) -> None:
    """From the overview to what happened at a tick."""
    shown = show(live)
    page = shown.page
    stops = shown.tab_stops()
    places = [int(stop.split()[0]) for stop in stops]
    assert places == sorted(places)
    page.locator("table.keys a.name").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/key?name=billing-nightly")
    assert "Tick 02:00 of key billing-nightly failed on worker1." in page.inner_text("main")
    assert "309 are left" in page.inner_text(".output")
    page.locator("tr a", has_text="Thu 02:00").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**&tick=2026-11-19T02:00Z")
    assert "Tick Thu 02:00 of key billing-nightly succeeded" in page.inner_text("main")
    page.locator(".top a").click()
    page.wait_for_url(f"{live}/")


def test_filters_are_in_the_address(show: Callable[..., Shown], live: str) -> None:
    """So that a link can be sent; the form shows what was chosen."""
    page = show(live).page
    page.fill("input[name=q]", "R")
    page.select_option("select[name=outcome]", "failed")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**q=R&outcome=failed**")
    assert page.locator("table.keys tbody tr").count() == 0
    assert page.input_value("input[name=q]") == "R"
    page.get_by_role("link", name="all 14").click()
    page.wait_for_url(f"{live}/")
    page.goto(f"{live}/?outcome=failed")
    assert page.locator("table.keys tbody .name").all_inner_texts() == ["billing-nightly"]
    page.goto(f"{live}{KEY}&outcome=failed")
    assert {*page.locator("#runs ~ .card .state").all_inner_texts()} == {"failed"}


def test_marks_lead_to_their_ticks(show: Callable[..., Shown], live: str) -> None:
    """Each mark of a host has its tick in its title, and is a link."""
    page = show(live + KEY).page
    lanes = "all => all.map(lane => [lane, ...lane.querySelectorAll('path, rect')]"
    lanes += ".map(part => part.getBoundingClientRect()))"
    for lane, *parts in page.eval_on_selector_all("svg.lane", lanes):
        assert parts
        for part in parts:
            assert (
                lane["y"] - 1
                <= part["y"]
                <= part["y"] + part["height"]
                <= lane["y"] + lane["height"] + 1
            )
    mark = page.locator("svg.lane a").last
    assert "2026-11-20T02:00Z" in (mark.get_attribute("href") or "")
    assert re.search("02:00: ", mark.locator("title").text_content() or "")


def test_it_can_be_read_without_script(browser: Browser, live: str) -> None:
    """Nothing is missing but the refreshing."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live + KEY)
    assert "309 are left" in page.inner_text("main")
    page.locator(".top a").click()
    assert page.inner_text("h1").startswith("14 keys")
    context.close()
