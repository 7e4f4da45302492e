"""The documents are for their readers."""

import re

from documents import CHANGELOG, README, ROOT, manual_pages, pages, sources

INSTALL = ROOT / "docs" / "install.md"


def test_no_document_names_a_place_of_its_making() -> None:
    """No path of a developer's machine."""
    for path in (README, CHANGELOG, *pages()):
        assert not re.search(r"(?<![\w.])/(?:work|root)/", path.read_text(encoding="utf-8")), (
            path.name
        )


def test_oncecron_is_where_a_package_puts_it() -> None:
    """In every line that a reader copies; the page of the installation names the other places."""
    for path in (README, *pages(), *manual_pages(), *sources()):
        text = path.read_text(encoding="utf-8")
        programs = set(re.findall(r"/(?:[\w.]+/)*s?bin/oncecron(?!\w)", text))
        programs -= {"/opt/oncecron/bin/oncecron"}  # of a virtual environment, whose link it is
        if path != INSTALL:
            assert programs <= {"/usr/bin/oncecron"}, path.name


def test_the_page_of_the_installation_names_each_place() -> None:
    """A package, a virtual environment, and one of a user: what a crontab has to name after each."""
    text = INSTALL.read_text(encoding="utf-8")
    assert "all pages write `/usr/bin/oncecron`" in text
    written = set(re.findall(r"[Ii]n .*crontabs?, write `(.*?)`", text))
    assert written == {"/usr/local/bin/oncecron", "/home/ann/.local/bin/oncecron"}
