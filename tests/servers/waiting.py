"""Wait for what is stated, not for time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.25
PAUSE_PER_WAITED = 0.1
"""The pause after a look as a share of what has been waited: who waits for long leaves the processors to others."""
PAUSE_PER_LOOK = 2
"""So many times as long as a look took is the pause after it: one that starts a process takes no processor alone."""


def eventually(
    assertion: Callable[[], T],
    deadline: float = 30,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
) -> T:
    """Call `assertion` until it holds, and return its answer.

    It holds when its answer is true, so neither empty nor zero, and it does not raise `retry_on`; a function made of
    `assert` lines therefore ends with a `return True`. After `deadline` seconds the last
    reason is raised as an AssertionError.
    """
    start = time.monotonic()
    while True:
        reason: BaseException | None = None
        began = time.monotonic()
        try:
            answer = assertion()
            if answer:
                return answer
        except retry_on as error:
            reason = error
        now = time.monotonic()
        if now >= start + deadline:
            raise AssertionError(f"not within {deadline} s: {reason or assertion}") from reason
        # Between two looks, never instead of one.
        pause = min(max(PAUSE_PER_WAITED * (now - start), FIRST_PAUSE), LONGEST_PAUSE)
        time.sleep(max(pause, PAUSE_PER_LOOK * (now - began)))
