"""Markdown becomes man(7): what is typed stays as it is, and what has a structure keeps it."""

from __future__ import annotations

import sys

from documents import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from man_page import Page, man_page

RUN = Page("docs/commands/run.md", "oncecron-run", 1)
LOCKS = Page("docs/commands/locks.md", "oncecron-locks", 1)
OTHERS = {page.source: page for page in (RUN, LOCKS)}


def lines(markdown: str) -> list[str]:
    """Return the lines of a page below its head."""
    page = man_page(RUN, f"# oncecron run\n\nRun it.\n\n## Options\n\n{markdown}", "1.0", OTHERS)
    return page.split('.SH "OPTIONS"\n', 1)[1].splitlines()


def test_the_head_is_name_and_synopsis() -> None:
    """From the title's paragraph and the block below it; comments are left out."""
    page = man_page(
        RUN,
        "# oncecron run\n\n<!-- synopsis: run -->\n\nRun it.\n\n```text\noncecron run [--key KEY]\n```\n\nMore.\n",
        "1.0",
        OTHERS,
    )
    assert page.splitlines()[1:] == [
        '.TH ONCECRON\\-RUN 1 "" "oncecron 1.0" "oncecron"',
        ".nr HY 0",
        ".nh",
        ".ad l",
        ".SH NAME",
        "oncecron\\-run \\- run it",
        ".SH SYNOPSIS",
        ".nf",
        "\\fBoncecron\\fR \\fBrun\\fR [\\fB\\-\\-key\\fR \\fIKEY\\fR]",
        ".fi",
        ".SH DESCRIPTION",
        "More.",
    ]


def test_what_is_typed_stays_as_it_is() -> None:
    """Groff would make quotes, hyphens and accents of these signs."""
    assert lines("Type `a-b '\\%' ~^`.") == ["Type \\fBa\\-b \\(aq\\e%\\(aq \\(ti\\(ha\\fR."]


def test_a_line_that_groff_would_take_for_a_request_is_text() -> None:
    """In prose and in examples."""
    assert lines("'a'") == ["\\&'a'"]
    example = lines("```sh\n.profile\n'x'\n```")
    assert example == [".RS 4", ".EX", "\\&.profile", "\\&\\(aqx\\(aq", ".EE", ".RE"]


def test_a_sentence_is_a_line() -> None:
    """As man wants it, whatever the lines of the Markdown are."""
    assert lines("One\nsentence. Another,\nlonger.") == ["One sentence.", "Another, longer."]


def test_an_item_that_begins_with_code_alone_is_a_tagged_paragraph() -> None:
    """Its further paragraphs are below it; other items have a bullet."""
    assert lines("- `-v`, `--wait TIME`\n\n    Wait.\n\n    Long.\n") == [
        ".TP",
        "\\fB\\-v\\fR, \\fB\\-\\-wait\\fR \\fITIME\\fR",
        "Wait.",
        ".IP",
        "Long.",
    ]
    assert lines("- `a` is code\n- b") == [".IP \\(bu 3", "\\fBa\\fR is code", ".IP \\(bu 3", "b"]


def test_a_table_becomes_tagged_paragraphs() -> None:
    """The titles of its columns are told where there is more than one to tell apart."""
    two = lines("| a | b |\n|---|---|\n| `x` | one |\n")
    assert two == [".TP", "\\fBx\\fR", "one"]
    three = lines("| a | on Redis | c |\n|---|---|---|\n| x | one | two |\n")
    assert three == [".TP", "x", "\\fIOn Redis\\fR: one", ".br", "\\fIC\\fR: two"]


def test_a_link_to_a_page_is_a_reference() -> None:
    """Other pages are named by where they are in the sources."""
    assert lines("[oncecron locks](locks.md#states)") == ["\\fBoncecron\\-locks\\fR(1)"]
    assert lines("[leases](locks.md)") == ["leases (\\fBoncecron\\-locks\\fR(1))"]
    assert lines("[ticks](../ticks.md)") == ["ticks (docs/ticks.md)"]
    assert lines("[below](#files)") == ["below"]


def test_other_signs_than_ascii_are_named() -> None:
    """So that groff needs no encoding."""
    assert lines("2 \N{MULTIPLICATION SIGN} 3") == ["2 \\[u00D7] 3"]
