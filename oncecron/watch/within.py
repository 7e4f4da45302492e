"""Ask a server, and wait no longer than it may take.

A timeout of a socket begins anew with each packet, and the look-up of a name has none. So a thread asks.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Answer = TypeVar("Answer")


def within(seconds: float, ask: Callable[[], Answer], give_up: Callable[[], object]) -> Answer:
    """Return what `ask` returns, or raise what it raises.

    Raises `TimeoutError` after so many seconds: `give_up` is called, and what still hangs then stays in its thread.
    """
    ended: SimpleQueue[tuple[list[Answer], Exception | None]] = SimpleQueue()

    def asking() -> None:
        try:
            ended.put(([ask()], None))
        except Exception as error:  # noqa: BLE001 - raised below
            ended.put(([], error))

    Thread(target=asking, daemon=True).start()
    try:
        answer, error = ended.get(timeout=seconds)
    except Empty:
        give_up()
        raise TimeoutError from None
    try:
        if error is not None:
            raise error
        return answer[0]
    finally:
        error = None  # which refers to this frame: the process of pings collects no cycles
