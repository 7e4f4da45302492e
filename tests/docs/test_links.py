"""The links of the README lead somewhere; those of docs/ are checked when the site is built."""

import re

from documents import README, ROOT


def test_links_lead_somewhere() -> None:
    """Relative ones to a file of the repository, anchors to a heading."""
    text = README.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        assert not path or (ROOT / path).exists(), target
        assert path or not anchor or anchor in anchors, target
