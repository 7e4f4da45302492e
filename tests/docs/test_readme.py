"""README is one screen after the other: short, narrow, in order, and with the figures of the pages that it links."""

import re

import pytest
from documents import README, ROOT
from snippet_source import PROMPT, blocks_of

TEXT = README.read_text(encoding="utf-8")
MOST_WORDS, MOST_LINES, MOST_COLUMNS = 900, 120, 80


def page(path: str) -> str:
    """Return a page, whose sentences may be broken into lines anywhere."""
    return " ".join((ROOT / "docs" / path).read_text(encoding="utf-8").split())


def test_it_is_short() -> None:
    """In words, with all its code, and in lines."""
    assert len(TEXT.split()) <= MOST_WORDS
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_its_output_and_its_tables_fit_a_terminal() -> None:
    """What is typed may be longer."""
    shown = [
        line
        for block in blocks_of(README, TEXT)
        if block.language in ("console", "text")
        for line in block.text.splitlines()
        if not PROMPT.fullmatch(line)
    ]
    tables = re.findall(r"^\|.*$", TEXT, re.MULTILINE)
    assert len(shown) > len("run")
    assert len(tables) > len("row")
    assert [line for line in (*shown, *tables) if len(line) > MOST_COLUMNS] == []


def test_it_says_first_what_is_needed_first() -> None:
    """What it does and needs, a try, how it is installed, the store, the crontab, trouble, the promise, the proof."""
    order = (
        "/usr/local/bin/import-orders\n*/5", "why import-orders", "It needs Linux", "not for\n", "./try\n",
        "apt-get install", "pip install", "postgresql.sh", "oncecron init", "run --key hello", "`oncecron doctor`",
        "--install --check", "unwrap", "oncecron why KEY", "oncecron again KEY", "[notify.channel", "at most once",
        "| CronJob |", "images/overview", "docs/proof.md", "docs/drill.md",
    )  # fmt: skip
    found = [(words, TEXT.find(words)) for words in order]
    assert [words for words, place in found if place < 0] == []
    assert found == sorted(found, key=lambda each: each[1])


def test_what_a_firing_costs_is_that_of_the_page() -> None:
    """From the least to the greatest CPU time of a firing, whether it runs or is skipped, on whatever store."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = text.split("numbers of tests/benchmarks: begin -->\n")[1].partition("| dislock |")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    columns = slice(rows[0].index("CPU: run"), rows[0].index("CPU: run") + 2)
    times = [int(cell) for row in rows[2:] for cell in row[columns]]
    assert f"[{min(times)} to {max(times)} ms](docs/performance.md#measured) of CPU" in TEXT


def test_the_strength_of_a_drill_is_that_of_the_page() -> None:
    """The sentence of the certificate, whole."""
    [said] = re.findall(r"\*(.*?faults.*?)\*", TEXT)
    assert said in page("drill.md")


@pytest.mark.parametrize("words", ["Linux 5.3", "Python 3.11 or newer", "/usr/bin/oncecron"])
def test_what_it_needs_is_what_the_page_of_the_installation_says(words: str) -> None:
    """Word by word."""
    assert words in TEXT
    assert words in page("install.md")


def test_each_cell_of_the_comparison_stands_on_its_page() -> None:
    """Each row is one of the page, in its order, with as many columns."""
    rows = [
        [line for line in text.splitlines() if line.startswith("| ")]
        for text in (TEXT, (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8"))
    ]
    assert [len(row.split("|")) for row in rows[0]] == [len(row.split("|")) for row in rows[1]]
    assert "](docs/comparison.md)" in TEXT
