"""docs/ builds as a site: every page is in its navigation, every link and anchor leads somewhere."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """With `--strict`: what mkdocs warns of is an error."""
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    page = (tmp_path / "site" / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert "http://" not in page.split("<main", 1)[0].replace("http://www.w3.org", "")
