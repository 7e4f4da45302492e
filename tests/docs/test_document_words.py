"""The documents keep to the words of this field, one for one thing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from documents import CHANGELOG, README, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

AMBIGUOUS = re.compile(r"\b(?:mutex|leader|worker|task|job instance)s?\b", re.IGNORECASE)
STILTED = re.compile(
    r"\b(?:told|heard|stirs|stand(?:s|ing)? by|goes on|is done for|whoever|nobody who)\b",
    re.IGNORECASE,
)
OF_POSTGRES = re.compile(r"PostgreSQL|PgBouncer|pooler|advisory|session lock", re.IGNORECASE)


def blocks() -> Iterator[tuple[str, str]]:
    """Yield the paragraphs, items and rows of the pages with their names; not the help texts within them."""
    for page in pages():
        text = re.sub(r"(?s)<!-- options: .*?<!-- end -->", "", page.read_text(encoding="utf-8"))
        for block in re.split(r"\n\n|\n(?=[-|])", text):
            yield page.name, block


def test_one_word_means_one_thing() -> None:
    """The words that this field uses for too many things are not used; `session` only of PostgreSQL."""
    for page in (README, *pages()):
        for section in re.split(r"\n(?=#)", page.read_text(encoding="utf-8")):
            assert not AMBIGUOUS.search(section), f"{page.name}: {section!r}"
            if re.search(r"\bsessions?\b", section, re.IGNORECASE):
                assert OF_POSTGRES.search(section), f"{page.name}: 'session' in {section!r}"


def test_readers_do_not_stumble_over_words() -> None:
    """Those that a reader whose language is another one has to look up twice are not used."""
    for name, block in blocks():
        assert not STILTED.search(block), f"{name}: {block!r}"


def test_no_document_names_a_place_of_its_making() -> None:
    """No path of a developer's machine."""
    for path in (README, CHANGELOG, *pages()):
        assert not re.search(r"(?<![\w.])/(?:work|root)/", path.read_text(encoding="utf-8")), (
            path.name
        )
