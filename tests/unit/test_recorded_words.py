"""The words that stand in records."""

import ast
import inspect

import pytest

from oncecron.core import model


def literals(name: str) -> tuple[str, ...]:
    """Return the words of a type that exists for the checker alone, from the source."""
    for node in ast.walk(ast.parse(inspect.getsource(model))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return tuple(
                word.value for word in ast.walk(node.value) if isinstance(word, ast.Constant)
            )
    raise AssertionError(f"core.model has no {name}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RefusalReason", model.REFUSAL_REASONS),
        ("Outcome", model.OUTCOMES),
        ("Cause", model.CAUSES),
        ("LostByStore", model.LOST_BY_STORE),
        ("LostByHolder", model.LOST_BY_HOLDER),
    ],
)
def test_the_words_at_run_time_are_those_that_the_checker_knows(
    name: str, words: tuple[str, ...]
) -> None:
    """All of them, each once, in the same order."""
    assert words == literals(name)
