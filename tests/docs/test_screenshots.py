"""docs/images shows what the commands print today."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "screenshots.py"


def test_the_screenshots_are_fresh() -> None:
    """Whoever changes a table draws them again."""
    check = [sys.executable, str(TOOL), "--check"]
    ended = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
