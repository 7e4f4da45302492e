"""How long work says how far it is: by a callable that a command may show as a bar. Most show nothing."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Progress(Protocol):
        """Is called now and then while a long work is done."""

        def __call__(self, done: int = 0, total: int | None = None, what: str = "") -> None:
            """Show how much is done, of how much if that is known; `what`: a few words about it."""


def no_progress(done: int = 0, total: int | None = None, what: str = "") -> None:
    """Show nothing."""
