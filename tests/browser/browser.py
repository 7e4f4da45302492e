"""A headless Chromium that shows pages, and what is asked of each: contrast, focus, nothing cut, no stranger."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pictures import SWITCHES
from playwright.sync_api import Browser, Page, sync_playwright
from servers.require import program

SCRIPT = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=[*SWITCHES])
        try:
            yield browser
        finally:
            browser.close()


class Shown:
    """A page as a person sees it, in one size and one colour scheme."""

    def __init__(self, browser: Browser, url: str, width: int, scheme: str = "light") -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=False
        )  # type: ignore[arg-type]  # a literal
        self.page: Page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.strangers: list[str] = []
        """What the page asked of others than its own host; none of it is answered."""
        self.complaints: list[str] = []
        """Errors of the console, also what a Content-Security-Policy has refused; and dialogs."""
        self._host = urlsplit(url)[:2]
        self.page.route("**/*", self._answer)
        self.page.on(
            "console",
            lambda each: self.complaints.append(each.text) if each.type == "error" else None,
        )
        self.page.on("pageerror", lambda each: self.complaints.append(str(each)))
        self.page.on("dialog", self._dialog)
        self.page.goto(url)

    def _answer(self, route: Any) -> None:
        url = route.request.url
        if urlsplit(url)[:2] == self._host or url.startswith("data:"):
            route.continue_()
        else:
            self.strangers.append(url)
            route.abort()

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def text(self) -> str:
        return str(self.page.inner_text("body"))

    def open_details(self) -> None:
        self.page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")

    def faint_texts(self) -> list[str]:
        """Return the texts whose contrast is below 4.5."""
        return self._look("faintTexts")

    def cut_texts(self) -> list[str]:
        """Return what does not fit: the page into its width, a text into its box, or two texts beside each other."""
        return self._look("cutTexts")

    def _look(self, name: str) -> list[str]:
        return list(self.page.evaluate(f"{SCRIPT}; {name}()"))

    def tab_stops(self, most: int = 400) -> list[str]:
        """Return what gets the focus by Tab, in this order; raise if one is not seen to have it."""
        found: list[str] = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            stop = self.page.evaluate(f"{SCRIPT}; focused()")
            if stop is None or stop in found:
                return found
            assert stop[-1] == "!", f"the focus cannot be seen: {stop}"
            found.append(stop)
        return found

    def close(self) -> None:
        self.page.context.close()
