#!/usr/bin/env python3
"""Make the manual: fill the blocks of the pages below docs/, and make the manual pages from them.

    python tools/manual.py            write what has changed
    python tools/manual.py --check    name it instead; exit status 1 if there is any

Options are described by their tables in oncecron/ and plugins/, and by docs/commands/details.toml where a line is not
enough.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
sys.path[:0] = [str(TOOLS), str(ROOT), *map(str, ROOT.glob("plugins/*"))]

from man_page import Page, man_page  # noqa: E402 - they are beside this file
from option_blocks import commands, filled  # noqa: E402

from oncecron import __version__  # noqa: E402

_OVERVIEW = Page("docs/commands/overview.md", "oncecron", 1)
_RECORDS = Page("docs/commands/records.md", "oncecron-records", 7)
_SHELL = Page("docs/commands/shell.md", "oncecron-shell", 1)
_GUARANTEES = Page(
    "docs/guarantees.md",
    "oncecron-guarantees",
    7,
    "what oncecron promises, by which mechanism, and what breaks it",
)
_CRONS = Page(
    "docs/crons.md",
    "oncecron-crons",
    7,
    "what other cron daemons do otherwise, and what oncecron does about it",
)


def pages() -> list[Page]:
    """Return all manual pages."""
    of_commands = [
        Page(f"docs/commands/{command.page}.md", f"oncecron-{command.page}", 1)
        for command in commands()
    ]
    return [_OVERVIEW, *of_commands, _SHELL, _RECORDS, _GUARANTEES, _CRONS]


def made() -> dict[Path, str]:
    """Return the text of every file that is made, by its path."""
    markdown = {
        path: filled(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    found = pages()
    others = {page.source: page for page in found}
    manual = {
        ROOT / page.path: man_page(page, markdown[ROOT / page.source], __version__, others)
        for page in found
    }
    return markdown | manual


def stale() -> dict[Path, str | None]:
    """Return the files that are not as they would be made; None for one that nothing makes."""
    wanted: dict[Path, str | None] = {**made()}
    wanted |= {path: None for path in (ROOT / "man").iterdir() if path not in wanted}
    return {
        path: text
        for path, text in wanted.items()
        if text is None or not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Make the manual from docs/ and the option tables."
    )
    parser.add_argument("--check", action="store_true", help="name what is stale, write nothing")
    check = parser.parse_args().check
    changed = stale()
    for path, text in changed.items():
        print(
            path.relative_to(ROOT),
            "is stale" if check else "removed" if text is None else "written",
        )
        if check:
            continue
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
