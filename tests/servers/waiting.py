"""Wait for what is stated, not for time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.05


def eventually(
    assertion: Callable[[], T],
    deadline: float = 10,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
) -> T:
    """Call `assertion` until it holds, and return its answer.

    It holds when it neither returns False or None nor raises `retry_on`; a function made of
    `assert` lines therefore ends with a `return True`. After `deadline` seconds the last
    reason is raised as an AssertionError.
    """
    end = time.monotonic() + deadline
    pause = FIRST_PAUSE
    while True:
        reason: BaseException | None = None
        try:
            answer = assertion()
            if answer is not False and answer is not None:
                return answer
        except retry_on as error:
            reason = error
        if time.monotonic() >= end:
            raise AssertionError(f"not within {deadline} s: {reason or assertion}") from reason
        time.sleep(pause)  # between two looks, never instead of one
        pause = min(pause * 2, LONGEST_PAUSE)
