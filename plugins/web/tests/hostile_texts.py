"""Texts by which somebody means harm to a page, and what a page is made of."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus='alert(1)",
    "</svg></style></title><iframe src=//evil.example>",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202egnp.exe\u2066b",
    "\x1b[31mred\x00\x07\r\n\u2028",
    "javascript:alert(1)",
    "\udc80 no text",
    "k" * 10_000,
]


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        """Keep it."""
        self.text += data
