"""The same program on every kind of store at once: the answers, the records and their words are the same.

PostgreSQL is asked in one way, which the seed chooses; in all ways in the long form. A failure shows the shortest
program that was found, step by step. ONCECRON_TEST_PROGRAMS says how many are tried.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import story_stores
from contract_stores import KINDS
from hypothesis import HealthCheck, Phase, given, seed, settings
from programs import PROGRAMS, Program, Step
from worlds import World

PROGRAMS_TRIED = int(os.environ.get("ONCECRON_TEST_PROGRAMS", "20"))


@pytest.fixture
def worlds(request: pytest.FixtureRequest, sessions_end: None) -> Iterator[dict[str, World]]:
    """Make each store once."""
    del sessions_end
    alike = story_stores.ALIKE
    if story_stores.wanted() != "all":
        alike = story_stores.rotated(alike, story_stores.seed(), 1)
    names = [name for name in KINDS if name in alike or name not in story_stores.ALIKE]
    made = {name: World(KINDS[name](request)) for name in names}
    yield made
    for world in made.values():
        world.kind.close()


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[], None]:
    """Give a function to call for each program: a long run then says every hundred how far it is."""
    numbers = itertools.count(1)

    def tell() -> None:
        if (number := next(numbers)) % 100 == 0:
            with capsys.disabled():
                print(f"\n{number} programs", end="", flush=True)

    return tell


@pytest.mark.slow
@pytest.mark.timeout(900 + 3 * PROGRAMS_TRIED)  # a failure is made short
@seed(story_stores.seed())
@settings(
    max_examples=PROGRAMS_TRIED,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
@given(steps=PROGRAMS)
def test_every_store_answers_the_same(
    worlds: dict[str, World], tell: Callable[[], None], steps: list[Step]
) -> None:
    """A claim is one algorithm, and so is all that follows it."""
    tell()
    program, lines = Program(), []
    for world in worlds.values():
        world.begin()
    for number, step in enumerate(steps, 1):
        firing = program.given(step)
        answers = {name: world.do(step, firing) for name, world in worlds.items()}
        lines.append(f"{number:2} {step}\n     {answers['sqlite']}")
        _compare(lines, answers)
    recorded = {name: world.recorded() for name, world in worlds.items()}
    for what in recorded["sqlite"]:
        _compare([*lines, f"   {what}"], {name: each[what] for name, each in recorded.items()})


def _compare(lines: list[str], answers: dict[str, Any]) -> None:
    first = next(iter(answers.values()))
    if all(answer == first for answer in answers.values()):
        return
    shown = [f"     {name:8} {answer}" for name, answer in answers.items()]
    hypothesis.note("\n".join([*lines, *shown]))
    differing = {name: answer for name, answer in answers.items() if answer != first}
    pytest.fail("\n".join([*lines, *shown, *_differences(first, differing)]), pytrace=False)


def _differences(first: Any, others: dict[str, Any]) -> list[str]:
    return [f"     {name:8} differs in {_where(first, other)}" for name, other in others.items()]


def _where(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            if name not in one or name not in other or one[name] != other[name]:
                return _where(one.get(name), other.get(name), f"{path}.{name}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            if pair[0] != pair[1]:
                return _where(*pair, path=f"{path}[{index}]")
    return f"{path}: {one!r}, {other!r}"
