"""The two seams of a firing, and all that leads out of it: what runs in the job's place, and who hears of it.

What is above `run` implements them and passes them in (`RunSpec.body`, `RunSpec.observe`). A firing of `oncecron run`
has no body, and no observer unless its key is pinged; then nothing is imported for them. Capture is no observer: it
gives the job its outputs, and its end waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from oncecron.core.model import Ending, Firing, Lease, RefusalReason
    from oncecron.run.process_tree import Signals
    from oncecron.run.spec import RunSpec

EventKind = Literal["start", "keep", "end", "lost"]
"""`start`: an attempt has started. `keep`: it has ended, and another is to follow. `end`: none follows.

`lost`: a claim has declared the run of another firing lost, and does not take it over.
"""


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

    def close(self, signals: Signals) -> None:
        """Let go: in the wrapper, when the guard has exited. A signal that ends the firing ends a wait."""
