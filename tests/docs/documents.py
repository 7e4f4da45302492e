"""The documents, and their tables as the tests read them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
COMMANDS = ROOT / "docs" / "commands"


def pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def sources() -> list[Path]:
    """Return the modules of the core and of the plugins."""
    packages = [ROOT / "oncecron", *sorted(ROOT.glob("plugins/*/oncecron_*"))]
    return [path for package in packages for path in sorted(package.rglob("*.py"))]


def manual_pages() -> list[Path]:
    return sorted((ROOT / "man").iterdir())


def section(path: Path, title: str) -> str:
    """Return the text below a heading of the second level."""
    text = path.read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def first_column(text: str) -> list[str]:
    """Return what stands in the first cells of the tables of a text, in order, without their heads."""
    rows = re.findall(r"^\| (.*?) \|", re.sub(r".*\n\|[-:]", "", text), re.MULTILINE)
    return [name for cell in rows for name in re.sub("`", "", cell).split(", ")]
