"""The changelog is kept as Keep a Changelog asks."""

import re

from documents import CHANGELOG


def test_the_changelog_is_kept() -> None:
    """Newest first, known kinds of change, `Unreleased` on top."""
    text = CHANGELOG.read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
