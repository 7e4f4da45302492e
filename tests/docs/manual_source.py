"""The source of a manual page in man(7), taken apart: sections, tagged paragraphs, plain text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


def plain(source: str) -> str:
    """Return man(7) source as the text of its lines: no requests, no fonts, no escapes."""
    source = re.sub(r'^\.\\".*\n', "", source, flags=re.MULTILINE)
    source = re.sub(r"^\.[A-Z]{1,2} ?", "", source, flags=re.MULTILINE)
    for escape, sign in (
        (r"\-", "-"),
        (r"\(aq", "'"),
        (r"\(dq", '"'),
        (r"\(ti", "~"),
        (r"\e", "\\"),
    ):
        source = source.replace(escape, sign)
    return re.sub(r' ?"( ?)', r"\1", re.sub(r"\\f[A-Z]|\\\(..|\\&", "", source))


class Paragraph(NamedTuple):
    """What a page says of one option, status or file."""

    tag: str
    text: str

    @property
    def option(self) -> str | None:
        """The long name, without dashes."""
        found = re.search(r"--([a-z][a-z-]*)", self.tag)
        return found[1] if found else None

    def stated(self, what: str) -> str | None:
        """Return what stands behind a word and a colon, as in `Default: 30s`."""
        found = re.search(rf"\b{what}:\s*(\S+?)[\s.]*(?:\n|$)", self.text)
        return found[1].lstrip("$") if found else None


def sections(page: Path) -> dict[str, str]:
    """Return the source below each heading, without that of the headings below it."""
    parts = re.split(r"^\.S[HS] (.*)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        title.strip('"').replace("\\-", "-"): source
        for title, source in zip(parts[1::2], parts[2::2], strict=True)
    }


def paragraphs(source: str) -> list[Paragraph]:
    """Return the tagged paragraphs."""
    found = []
    for part in re.split(r"^\.TP.*\n", source, flags=re.MULTILINE)[1:]:
        tag, _, text = re.split(r"^\.(?:PP|SH|SS)\b", part, flags=re.MULTILINE)[0].partition("\n")
        found.append(Paragraph(plain(tag), plain(text)))
    return found
