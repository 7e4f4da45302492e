"""tests/README.md lists the variables of the tests."""

import re

from documents import ROOT


def test_the_variables_of_the_tests_are_documented() -> None:
    """All of them and no others."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    shell = [ROOT / "tests" / name for name in ("run", "environment.sh")]
    sources = [*shell, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("plugins/*/tests/**/*.py")]
    used = {
        name
        for source in sources
        for name in re.findall(
            r"\bONCECRON_(?:TEST|REQUIRE)_[A-Z_]*[A-Z]\b", source.read_text(encoding="utf-8")
        )
    }
    assert set(re.findall(r"\bONCECRON_(?:TEST|REQUIRE)_[A-Z_]*[A-Z]\b", text)) == used
