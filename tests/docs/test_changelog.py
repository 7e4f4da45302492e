"""The changelog says what the program is, and is kept as Keep a Changelog asks."""

import re

from documents import CHANGELOG

from oncecron import __version__


def test_the_changelog_is_kept() -> None:
    """Newest first: this version on top, in known kinds of change; a page at most for a version."""
    text = CHANGELOG.read_text(encoding="utf-8")
    [_, *versions] = re.split(r"^## ", text, flags=re.MULTILINE)
    assert versions[0].startswith(f"[{__version__}]")
    assert all(len(each.splitlines()) <= 60 for each in versions)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
