"""No rule is excused by what happened at another time, on another host, or to another key, nor by what cannot do it."""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import excuses
import pytest

from oncecron_drill import rules
from oncecron_drill.checker import RULES
from oncecron_drill.rules.joined import Joined

WITHOUT_EXCUSE = {
    "fence", "running", "own_leases", "incomplete",
}  # fmt: skip
"""Rules that nothing excuses."""
ASKED = {
    "felt", "hits", "hits_of", "forgets", "could_not_act", "jointly_out", "out", "asked", "was_hindered",
}  # fmt: skip
"""How a rule asks for an excuse."""
TELLS = ("_unexcused", "_had_ended")
"""Functions that ask what had happened, and excuse nothing by it: they tell it, or doubt another excuse."""


def test_every_rule_has_its_excuses_here() -> None:
    """Or has none."""
    names = {rule.__name__ for rule in RULES}
    with_excuse = {each.rule.__name__ for each in excuses.ALL.values()}
    assert with_excuse | WITHOUT_EXCUSE == names
    assert not with_excuse & WITHOUT_EXCUSE


@pytest.mark.parametrize("name", excuses.ALL)
def test_a_cause_excuses(name: str) -> None:
    """Where it is of its time, its host and its key; without it the rule is broken."""
    excuse = excuses.ALL[name]
    joined, without = excuse.history("as it is"), excuse.history("gone")
    assert joined
    assert not excuse.breaks(joined)
    assert without
    assert excuse.breaks(without)


@pytest.mark.parametrize("move", list(excuses.MOVES)[2:])
@pytest.mark.parametrize("name", excuses.ALL)
def test_another_cause_excuses_nothing(name: str, move: str) -> None:
    """18 s before all that it could excuse, or 20 s after; on a host, or of a key, that has nothing to do with it."""
    excuse = excuses.ALL[name]
    joined = excuse.history(move)
    if joined is not None:
        assert excuse.breaks(joined) is (move not in excuse.still)


def places() -> Iterator[tuple[str, int, int, str]]:
    """Yield each place where a rule asks for an excuse: its file, first and last line, and how."""
    for path in sorted(Path(rules.__path__[0]).glob("*.py")):
        functions = ast.parse(path.read_text()).body if path.name != "joined.py" else []
        asking = [each for each in functions if getattr(each, "name", "") not in TELLS]
        for node in (node for function in asking for node in ast.walk(function)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                function = node.func
                if function.attr in ASKED and getattr(function.value, "id", "") == "joined":
                    yield path.name, node.lineno, node.end_lineno or node.lineno, function.attr


def test_every_place_that_asks_for_an_excuse_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no new excuse is written without its place here."""
    heard: set[tuple[str, int]] = set()

    def listening(original: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*values: Any, **named: Any) -> Any:
            answer = original(*values, **named)
            answer = list(answer) if isinstance(answer, Iterator) else answer
            if answer:
                frame = sys._getframe(1)
                heard.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
            return answer

        return asked

    for name in ASKED:
        monkeypatch.setattr(Joined, name, listening(getattr(Joined, name)))
    for excuse in excuses.ALL.values():
        joined = excuse.history("as it is")
        assert joined
        assert not excuse.breaks(joined)
    silent = [
        f"{file}:{first} {how}"
        for file, first, last, how in places()
        if not any(name == file and first <= line <= last for name, line in heard)
    ]
    assert silent == []
