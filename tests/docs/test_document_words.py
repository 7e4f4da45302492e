"""The documents are for their readers."""

import re

from documents import CHANGELOG, README, pages


def test_no_document_names_a_place_of_its_making() -> None:
    """No path of a developer's machine."""
    for path in (README, CHANGELOG, *pages()):
        assert not re.search(r"(?<![\w.])/(?:work|root)/", path.read_text(encoding="utf-8")), (
            path.name
        )
