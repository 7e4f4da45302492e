"""The blocks of the pages say what the option tables say."""

from __future__ import annotations

import sys

import pytest
from documents import ROOT

from oncecron.config.options import RUN_OPTIONS, Option

sys.path.insert(0, str(ROOT / "tools"))
import option_blocks


def test_what_is_typed_in_a_help_text_is_code() -> None:
    """Options, variables, addresses and paths; what stands in backquotes already is left alone."""
    text = "Like --wait, not `--wait N`: set $ONCECRON_LOG to sqlite:///PATH, /etc/x.toml, * or [job.KEY]."
    assert option_blocks.prose(text) == (
        "Like `--wait`, not `--wait N`: set `$ONCECRON_LOG` to `sqlite:///PATH`, `/etc/x.toml`, \\* or `[job.KEY]`."
    )


def test_an_option_has_all_facts_of_its_table() -> None:
    """Default, bounds, environment variable, place in the file."""
    option = Option(
        "hold", "duration", "Wait.", "TIME", "Where", "9s", "ONCECRON_HOLD", "anywhere", minimum=6
    )
    assert option_blocks.facts(option) == (
        "Default: `9s`. At least 6s. Environment: `ONCECRON_HOLD`. Also in the configuration file."
    )
    bounded = Option("n", "integer", "Count.", "N", config="job", minimum=0, maximum=255)
    assert option_blocks.facts(bounded) == (
        "From 0 to 255. Also in `[job.KEY]` of the configuration file."
    )


def test_the_configuration_lists_what_the_file_may_set() -> None:
    """By the names that the file uses."""
    page = option_blocks.filled("<!-- options: configuration -->\n<!-- end -->\n")
    for option in RUN_OPTIONS:
        assert (f"| `{option.name.replace('-', '_')}` |" in page) == (option.config != "never")


def test_a_block_that_is_filled_stays_as_it_is() -> None:
    """However often."""
    once = option_blocks.filled("a\n\n<!-- options: locks -->\n<!-- end -->\n\nb\n")
    assert "- `--pauses`\n" in once
    assert option_blocks.filled(once) == once


def test_a_block_of_nothing_is_refused() -> None:
    """A command that is not there has no options."""
    with pytest.raises(ValueError, match="there is no such block"):
        option_blocks.filled("<!-- options: status -->\n<!-- end -->\n")
