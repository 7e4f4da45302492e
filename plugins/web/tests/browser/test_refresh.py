"""The script that refreshes the pages of `oncecron web`: without a blink, and safe whatever is new."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from live_pages import served
from servers.oncecron import Oncecron

from oncecron.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from browser import Shown
    from playwright.sync_api import Page

EVERY = 5000
"""Milliseconds between two looks of the script."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Oncecron:
    """Give a host of a store in which little has happened; pages are read anew each time."""
    for name in ("PAGE_KEPT", "PAGE_PER_QUERY", "PAGE_KEPT_TIMES", "PAGE_ERROR_KEPT"):
        monkeypatch.setattr(f"oncecron_web.shared_readings.{name}", 0)
    (tmp_path / "store").mkdir(mode=0o700)
    host = Oncecron(f"sqlite://{tmp_path}/store/x.db", tmp_path, "web1")
    for key in ("alpha", "beta", "gamma"):
        host.run(key, "--tick", "1", "--capture", "1K", "--", "sh", "-c", "seq 40; exit 1")
    return host


def opened(show: Callable[..., Shown], url: str) -> Page:
    """Show a page with a clock of its own, and remember the document that it is."""
    page = show(f"{url}/robots.txt").page
    page.clock.install()
    page.goto(url)
    page.evaluate("window.isThisDocument = true; document.body.dataset.marked = 1")
    return page


def refresh(page: Page) -> None:
    """Let the script look again."""
    with page.expect_response(lambda answer: "refresh.js" not in answer.url):
        page.clock.run_for(EVERY + 100)


def test_it_refreshes_without_a_blink(show: Callable[..., Shown], store: Oncecron) -> None:
    """What has changed changes; opened details, focus, a selection, the place and what is typed stay."""
    with served(store=store.environment["ONCECRON_STORE"]) as url:
        page = opened(show, url)
        assert page.locator("article li:has(> .name)").count() == 3
        page.locator("article summary").nth(1).click()
        page.locator("article summary").nth(0).click()
        page.fill("input[name=q]", "typ")
        page.locator("table.keys a.name", has_text="beta").focus()
        page.evaluate(
            "scrollTo(0, 120); getSelection().selectAllChildren(document.querySelector('#keys'))"
        )
        page.evaluate("window.row = document.querySelector('table.keys tbody').lastElementChild")
        looks = "() => [scrollY, getSelection().toString(), document.activeElement.textContent]"
        before = page.evaluate(looks)
        store.run("alpha", "--tick", "2", "--", "true")
        store.run("delta", "--tick", "2", "--", "true")
        refresh(page)
        page.locator("table.keys .name", has_text="delta").wait_for()
        assert page.locator("h1").inner_text().startswith("4 keys, 2 failed")
        opens = page.locator("article li:has(> .name)").evaluate_all(
            "all => all.map(each => [each.querySelector('.name').textContent, each.querySelector('details').open])"
        )
        assert opens == [["beta", True], ["gamma", False]]
        assert page.input_value("input[name=q]") == "typ"
        assert page.evaluate(looks)[1:] == before[1:]
        assert page.evaluate("window.isThisDocument && document.body.dataset.marked") == "1"
        assert page.evaluate("window.row.isConnected")
        rows = page.locator("table.keys tbody tr .name").all_inner_texts()
        page.reload()
        assert page.locator("table.keys tbody tr .name").all_inner_texts() == rows


def test_it_says_when_it_is_not_fresh(
    show: Callable[..., Shown], store: Oncecron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since when, and why; the page stays, and goes on by itself. A tab that nobody sees asks for nothing."""
    with served(store=store.environment["ONCECRON_STORE"]) as url:
        page = opened(show, url)
        refresh(page)
        assert page.locator(".not-refreshed").is_hidden()
        with monkeypatch.context() as broken:

            def refuse(*_: Any) -> None:
                raise StoreUnavailable("connection refused")

            broken.setattr("oncecron_web.source.open_reader", refuse)
            refresh(page)
            note = page.locator(".not-refreshed")
            note.wait_for()
            assert re.match(
                r"not refreshed since \d+:\d\d.*: No answer from the store since 20",
                note.inner_text(),
            )
            assert page.locator("article li:has(> .name)").count() == 3
            page.reload()
            assert page.inner_text("h1").strip().startswith("No answer from the store since 20")
        refresh(page)
        page.locator("article").first.wait_for()
        assert page.locator(".not-refreshed").is_hidden()
        asked: list[str] = []
        page.on("request", lambda each: asked.append(each.url))
        hide = (
            "is => { Object.defineProperty(document, 'hidden', {value: is, configurable: true}); "
        )
        hide += "document.dispatchEvent(new Event('visibilitychange')) }"
        page.evaluate(hide, True)
        page.clock.run_for(20 * EVERY)
        assert asked == []
        with page.expect_response("**/*"):
            page.evaluate(hide, False)


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


def test_hostile_texts_are_texts(show: Callable[..., Shown], store: Oncecron) -> None:
    """Of a host, an output, a reason and a command; shown as they are, on each page, also after it is refreshed."""
    store.environment["ONCECRON_HOST"] = HOSTILE
    store.run(
        "alpha",
        "--tick",
        "9",
        "--capture",
        "1K",
        "--",
        "sh",
        "-c",
        f"cat <<'X'\n{HOSTILE}\nX\nexit 3",
    )
    store("pause", "beta", "--reason", HOSTILE)
    with served(store=store.environment["ONCECRON_STORE"]) as url:
        page = opened(show, url)
        complaints: list[str] = []
        page.on("console", lambda each: complaints.append(each.text))
        page.on("dialog", lambda each: complaints.append(each.message))
        hosts = page.locator("#hosts ~ .card .name a")
        address = hosts.filter(has_text=HOSTILE).get_attribute("href")
        assert address
        for path in ("./", "key?name=alpha", "key?name=beta", address):
            page.goto(f"{url}/{path}")
            assert HOSTILE in page.inner_text("main")
            refresh(page)
            assert page.locator("main script, main img").count() == 0
        assert complaints == []
