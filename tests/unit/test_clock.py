"""The clocks of this host."""

import builtins
import time
from types import SimpleNamespace
from typing import IO, Any

import pytest

from oncecron.core import clock


def test_a_process_that_is_held_up_at_its_start_names_the_same_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it reads the process table half a minute passes: it started when it started."""
    expected, late, real = clock.process_started(), 0.0, builtins.open

    def slow(*arguments: Any, **options: Any) -> IO[Any]:
        nonlocal late
        late += 30.0
        return real(*arguments, **options)

    clocks = SimpleNamespace(
        time=lambda: time.time() + late, clock_gettime=lambda of: time.clock_gettime(of) + late
    )
    with monkeypatch.context() as patch:
        patch.setattr(clock, "time", clocks)
        patch.setattr(builtins, "open", slow)
        found = clock.process_started()
    assert (late, found) == (30.0, pytest.approx(expected, abs=1))
