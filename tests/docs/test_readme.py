"""The README: its snippets are valid, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest
from documents import README, ROOT

from oncecron.config import file, run_parser

if TYPE_CHECKING:
    from pathlib import Path


def snippets(language: str) -> list[str]:
    """Return the fenced blocks of README in a language."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"README has no {language} snippet"
    return found


@pytest.mark.parametrize("snippet", snippets("sh"))
def test_a_shell_snippet_is_valid(snippet: str) -> None:
    """As far as `sh -n` can tell."""
    ended = subprocess.run(["sh", "-n"], input=snippet, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("snippet", snippets("crontab"))
def test_a_crontab_line_is_one_that_cron_runs(snippet: str, tmp_path: Path) -> None:
    """Five fields or @reboot, an absolute path, no bare %, and arguments of `run` that are understood."""
    import shlex

    for line in snippet.splitlines():
        command = line.split(None, 1 if line.startswith("@reboot ") else 5)[-1]
        assert not re.search(r"(?<!\\)%", command)
        words = shlex.split(command)
        assert words[0].startswith("/")
        parsed = run_parser.parse_run(words[2:])
        assert parsed is not None
        assert words[1] == "run"
        assert parsed.command[0].startswith("/")
        if "schedule" in parsed.given:
            assert parsed.given["schedule"] == " ".join(line.split(None, 5)[:5])


@pytest.mark.parametrize("snippet", snippets("toml"))
def test_a_configuration_example_is_accepted(snippet: str, tmp_path: Path) -> None:
    """By the reader of the configuration file itself."""
    tomllib.loads(snippet)
    path = tmp_path / "oncecron.toml"
    path.write_text(snippet, encoding="utf-8")
    assert file.read_file(str(path)).jobs


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
        assert not anchor or anchor in anchors, target
