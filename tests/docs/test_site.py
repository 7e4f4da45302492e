"""docs/ builds as a site: every page is in its navigation, every link and anchor leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of the site, built with `--strict`: what mkdocs warns of is an error."""
    directory = tmp_path_factory.mktemp("built") / "site"
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return directory


def test_the_site_builds_without_a_warning(site: Path) -> None:
    """And asks nobody else for anything."""
    page = (site / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert "http://" not in page.split("<main", 1)[0].replace("http://www.w3.org", "")


def test_the_site_has_all_pages_as_plain_text(site: Path) -> None:
    """A list of them, whose links lead to pages of the site, and one file of all, with their links and without ours."""
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    targets = re.findall(r"^- \[.+\]\((.+)\): \S", listed, re.MULTILINE)
    assert len(targets) == len(set(targets)) == len(pages())
    for target in targets:
        assert (site / target / "index.html").exists(), target
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    names = re.findall(r"^<!-- (.+\.md) -->\n# ", whole, re.MULTILINE)
    assert sorted(names) == sorted(str(page.relative_to(ROOT / "docs")) for page in pages())
    for target in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+\.md)", whole):
        assert (ROOT / "docs" / target).exists(), target
    assert "<!-- test:" not in whole
