"""The wrapper's look at the clock, where its process is stopped in the middle of it."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from oncecron.run.wrapper import Wrapper


class Stopped(Wrapper):
    """A wrapper that is stopped for a minute behind one of its steps, while its guard leaves."""

    time = 96.9  # the trust ends at 100, and the wrapper kills at 97

    def __init__(self, behind: str) -> None:
        reader, self._guards_end = os.pipe()
        spec: Any = SimpleNamespace(firing=SimpleNamespace(ttl=60.0, key="k"))
        signals: Any = SimpleNamespace(fd=os.pipe()[0], read=list)
        tree: Any = SimpleNamespace(reap=lambda: None, awaited=set())
        super().__init__(spec, self, signals, tree, 1, os.pipe()[1], reader)  # type: ignore[arg-type]
        self._behind, self._looks = behind, 0

    @property
    def until(self) -> float:
        """The end of trust: a guard that leaves has renewed before."""
        self._looks += 1
        return self._stop("trust", 100.0)

    def _now(self) -> float:
        return self._stop("clock", self.time)

    def _read_reports(self) -> bytes | None:
        return self._stop("reports", super()._read_reports())

    def _stop(self, step: str, value: Any) -> Any:
        if step == self._behind and self._looks > 1:  # not while it computes how long to sleep
            self._behind, self.time = "", self.time + 60
            os.write(self._guards_end, b"exit 3\n")
        return value

    def _fence(self, why: str, _: object) -> int:
        raise AssertionError(why)


@pytest.mark.parametrize("behind", ["clock", "trust", "reports"])
def test_a_guard_that_left_meanwhile_did_not_hang(behind: str) -> None:
    """Its last word counts, whatever the clock says when the wrapper goes on."""
    assert Stopped(behind).watch() == 3
