"""The watch over a store ends with the drill, whatever its last look meets."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from oncecron_drill import store_watch
from oncecron_drill.store_watch import Watch


def test_a_look_whose_session_is_closed_at_the_end_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was waited for; a driver may answer with any error then, which nobody is to read."""
    asked, closed = threading.Event(), threading.Event()
    said: list[Any] = []

    def look() -> None:
        asked.set()
        closed.wait()
        raise AttributeError("the socket is gone")

    monkeypatch.setattr(threading, "excepthook", said.append)
    monkeypatch.setattr(store_watch, "EACH", 0.01)
    monkeypatch.setattr(store_watch, "PATIENCE", 0.01)
    store: Any = SimpleNamespace(look=look)
    watch = Watch(store)
    watch.start()
    asked.wait()
    watch.stop()
    closed.set()
    watch._thread.join()
    assert said == []
