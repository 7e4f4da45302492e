"""Where a timeline on Redis begins: by looks at a few of many executions, of which some are gone, and some late."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from oncecron.stores.redis import views
from oncecron.stores.redis.rows import StoredExecution
from oncecron.stores.redis.views import RedisViews

PAGE = 16


class Executions(RedisViews):
    """Those of a server, by id; each look is counted."""

    def __init__(self, starts: dict[int, float], late: frozenset[int], last: int) -> None:
        self.looks = 0
        self._starts, self._late, self._last = starts, late, last
        self._names = views.scripts.Names("oncecron")

    def _ask(self, *words: Any) -> Any:
        assert words[0] == "HGET"
        return b"%d" % self._last

    def _stored(self, ids: Sequence[Any], since: float | None = None) -> Iterator[StoredExecution]:
        del since
        self.looks += 1
        for number in ids:
            if number in self._starts:
                late = "recorded later" if number in self._late else None
                yield StoredExecution(
                    (), number, "k#0", "t", "succeeded", self._starts[number], "o", late
                )


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a log of a few hundred be a large one."""
    monkeypatch.setattr(views, "_PAGE", PAGE)
    monkeypatch.setattr(views, "_LOOKS", 8)


def made_up(rng: random.Random) -> tuple[Executions, dict[int, float], frozenset[int]]:
    """Make up a log: the older an id, the rarer; some starts are equal, some were recorded late."""
    last = rng.choice([0, 1, PAGE, 300, 5000])
    kept = rng.choice([0.02, 0.3, 1.0])
    starts, at = {}, 1000.0
    late = frozenset(number for number in range(1, last + 1) if rng.random() < 0.1)
    for number in range(1, last + 1):
        at += rng.choice([0.0, 0.5, 3.0])
        if rng.random() < kept or number > last - 20:
            starts[number] = at - 500.0 if number in late else at
    return Executions(starts, late, last), starts, late


@pytest.mark.parametrize("seed", range(60))
def test_nothing_has_started_since_up_to_there(seed: int) -> None:
    """What is late was recorded before that time too; and few that started before are left to be read."""
    rng = random.Random(seed)
    store, starts, late = made_up(rng)
    times = [0.0, 1e9, *rng.sample([*starts.values()], min(20, len(starts)))]
    for time in times:
        store.looks = 0
        found = store._started_before(time)
        on_time = {each: at for each, at in starts.items() if each not in late}
        assert not [each for each, at in on_time.items() if each <= found and at >= time]
        before = [each for each, at in on_time.items() if found < each and at < time]
        assert len(before) <= PAGE or len(starts) < store._last
        assert store.looks <= 10
