"""Links between README, docs/ and the other pages lead to a file, and to a heading in it."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def without_code(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: of its headings, as the repository makes them, and its own."""
    text = without_code(page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    bare = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {each.replace(" ", "-") for each in bare} | set(re.findall(r'<a id="([^"]+)">', text))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the anchor of each link that stays in the repository."""
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def test_links_lead_somewhere() -> None:
    """To a file that is there, and a heading that it has."""
    for page in PAGES:
        for path, anchor in links(page):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page}: {path}: no such file"
            if anchor:
                assert anchor in anchors(target), f"{page}: {path}#{anchor}: no such heading"
