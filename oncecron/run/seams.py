"""The seams of a firing, and all that leads out of it: what runs in the job's place, and who hears of it.

What is above `run` implements them and passes them in (`RunSpec.body`, `RunSpec.observe`). A firing of `oncecron run`
has no body, and no observer unless its key is pinged; then nothing is imported for them. Capture is no observer: it
gives the job its outputs, and its end waits for them.

What lies below a firing has two: the calls of `core.system`, and `Processes`. Only a simulation fills them otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from oncecron.core.model import Ending, Firing, Lease, RefusalReason
    from oncecron.run import process_tree
    from oncecron.run.spec import RunSpec

EventKind = Literal["start", "keep", "end", "lost"]
"""`start`: an attempt has started. `keep`: it has ended, and another is to follow. `end`: none follows.

`lost`: a claim has declared the run of another firing lost, and does not take it over.
"""


class Processes(Protocol):
    """How a process of a firing sets itself up, and starts the job, as the module `process_tree` does it."""

    def Signals(self) -> process_tree.Signals:  # noqa: N802 - it is a class there
        """Return the signals of this process, and of those that are forked from it, each its own."""

    def become_subreaper(self) -> None:
        """Adopt every descendant that loses its parent. Raises `OSError`."""

    def become_guard(self, *, terminal: bool) -> None:
        """Do what a process that owns a job must do first. Raises `OSError`."""

    def start(
        self,
        program: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        process_group: int | None,
        signal_mask: Iterable[int],
        streams: Iterable[tuple[int, int]] = (),
        body: Callable[[], int] | None = None,
    ) -> int:
        """Start the job; return its pid. Raises `OSError`."""


class Body(Protocol):
    """What runs in the place of a command, in a process that is forked from the guard and executes nothing itself."""

    @property
    def shards(self) -> Sequence[int]:
        """The shards that the firing claims, in turn."""

    def skips(self, firing: Firing) -> bool:
        """Return whether there is no reason to claim a shard now."""

    def begin(
        self, spec: RunSpec, lease: Lease, environment: Mapping[str, str]
    ) -> Callable[[], int]:
        """Return the function that the process calls; it returns the exit status, and never raises.

        In the guard, before the fork: what is to be imported is imported here.
        """

    def judge(self, ending: Ending) -> Ending:
        """Return the end to record, from that of the process; its tree is gone."""

    def refuse(self, reason: RefusalReason, message: str) -> None:
        """Take the last refusal of a shard; the message is empty if nobody wants it."""


class Observer(Protocol):
    """Who hears of starts and ends. No method but `close` waits, and none raises: the job depends on no observer.

    `RunSpec.observe` makes it in the wrapper, while that has no thread and is no subreaper; the guard is forked later.
    """

    def send(self, kind: EventKind, record: dict[str, Any]) -> None:
        """Take an event with the record of its execution: in the guard, or in the wrapper when the guard is gone.

        The store thread of the guard sends `lost`, while another thread may send.
        """

    def close(self, signals: process_tree.Signals) -> None:
        """Let go: in the wrapper, when the guard has exited. A signal that ends the firing ends a wait."""
