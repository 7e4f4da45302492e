"""Draw the pages of a made-up fleet in headless Chromium, as docs/images/*.png.

    python tools/pictures.py           write the pictures
    python tools/pictures.py --check   name those that show other words than the page does today; exit status 1

It needs the `test` extra and Debian's `chromium`. Another version of Chromium, or other fonts, draw other pixels: so a
picture has the words that it shows with it, and these are compared.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleet import Fleet
from playwright.sync_api import sync_playwright

from oncecron.cli.main import invoke

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Picture(NamedTuple):
    """A part of the overview."""

    width: int
    scheme: str
    first: str
    """The element at its top."""
    last: str
    """The element at its end."""
    opened: str | None = None
    """Which details are open; by themselves the first ones are."""


PICTURES = {
    "overview-light": Picture(1120, "light", ".top", "section:has(#keys)"),
    "overview-dark": Picture(1120, "dark", ".top", "section:has(#keys)"),
    "overview-charts": Picture(
        1200,
        "light",
        "section:has(#timeline)",
        "section:has(#hosts)",
        ".of-hosts details:first-child",
    ),
    "overview-phone": Picture(390, "light", ".top", "section:has(#running)"),
}
_MARGIN = 20


def overview(fleet: Fleet, name: str = "overview") -> str:
    """Write the overview of a fleet; return the address of the file."""
    path = f"{fleet.path}.{name}.html"
    with fleet.clock():
        assert invoke(["report", "--utc", "--html", path, "--store", f"sqlite://{fleet.path}"]) == 0
    return f"file://{path}"


def drawn(browser: Browser, url: str, wanted: Picture) -> tuple[bytes, str]:
    """Return a picture as PNG, and a digest of the words in it."""
    size = {"width": wanted.width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=wanted.scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    page.eval_on_selector_all("article details", "all => all.forEach(each => each.open = false)")
    if wanted.opened:
        page.eval_on_selector(wanted.opened, "each => each.open = true")
    top, end = _box(page, wanted.first), _box(page, wanted.last)
    begin = max(0.0, top["y"] - _MARGIN)
    clip = {
        "x": 0,
        "y": begin,
        "width": wanted.width,
        "height": end["y"] + end["height"] + _MARGIN - begin,
    }
    image = page.screenshot(clip=clip, full_page=True)  # type: ignore[arg-type]
    words = page.inner_text(wanted.first) + page.inner_text(wanted.last)
    context.close()
    return image, sha256(words.encode()).hexdigest()[:16]


def _box(page: Page, selector: str) -> dict[str, float]:
    box = page.locator(selector).bounding_box()
    assert box
    return dict(box)  # type: ignore[arg-type]


# PNG: https://www.w3.org/TR/png/#11tEXt

_END = b"\0\0\0\0IEND\xaeB`\x82"


def with_digest(image: bytes, digest: str) -> bytes:
    """Return a PNG with a digest as its comment."""
    chunk = b"tEXtComment\0" + digest.encode()
    packed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    assert image.endswith(_END)
    return image.removesuffix(_END) + packed + _END


def draw(browser: Browser, url: str, *, write: bool) -> list[str]:
    """Write the pictures of a page, or only compare them; return those that show other words."""
    stale = []
    for name, wanted in PICTURES.items():
        file = IMAGES / f"{name}.png"
        image, digest = drawn(browser, url, wanted)
        if not file.exists() or digest.encode() not in file.read_bytes():
            stale.append(file.name)
        if write:
            file.write_bytes(with_digest(image, digest))
    return stale


def main() -> int:
    """Write the pictures, or compare them."""
    is_check = "--check" in sys.argv
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        fleet = Fleet(f"{directory}/jobs.db")
        fleet.fill()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*SWITCHES])
        stale = draw(browser, overview(fleet), write=not is_check)
        browser.close()
    if is_check and stale:
        print("stale, run tools/pictures.py:", *stale)
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
