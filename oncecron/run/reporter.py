"""What a firing tells: people by standard error, the store later by the spool, and the log beside it.

A record that the disk does not take either stands in a line on standard error.
"""

from __future__ import annotations

import os

from oncecron.core import stderr
from oncecron.core.light import TYPE_CHECKING
from oncecron.core.model import Ending, Refusal
from oncecron.run import spool_records
from oncecron.run.log_mirror import LogMirror
from oncecron.run.spool import SpoolError

if TYPE_CHECKING:
    from oncecron.core.errors import StoreUnavailable
    from oncecron.core.model import Firing
    from oncecron.run.spec import RunSpec


class Reporter:
    """The words of one firing, in the guard's process."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.log = LogMirror(spec)

    def say(self, text: str) -> None:
        """Write a line about the key to standard error; some errors name it themselves."""
        name = f"key {self._spec.firing.key}"
        named = text.startswith((f"{name}:", f"{name},"))
        stderr.complain(text if named else f"{name}: {text}")

    def refused(self, firing: Firing, refusal: Refusal, *, waits: bool) -> None:
        """Tell a person at a terminal, and the log beside the store; the store knows."""
        if self._spec.verbose or os.isatty(2):
            stderr.complain(stderr.refusal_sentence(firing, refusal, waits=waits))
        self.log.tell(spool_records.skip_record(firing, refusal))

    def no_store(self, error: StoreUnavailable) -> int:
        """Say and record that the store is away; return the exit status of a firing that starts nothing."""
        spec = self._spec
        if spec.spool.note_unreachable(spec.firing.key):
            self.say(str(error))
        if spec.on_store_error != "run":
            record = spool_records.skip_record(spec.firing, Refusal("no-store", detail=str(error)))
            self.spool(record)
            self.log.tell(record)
        return spec.skip_exit if spec.on_store_error == "skip" else error.exit_status

    def not_started(self, firing: Firing, why: str) -> None:
        """Keep the positive word that alone re-opens a tick, for a lease that may have been granted."""
        ending = Ending("not-started", None, None, 0.0, why)
        self.spool(spool_records.execution_record(firing, None, ending))

    def spool(self, record: dict[str, object]) -> None:
        """Keep a record for the store."""
        try:
            self._spec.spool.add(record)
        except SpoolError as error:
            self.say(f"a record is lost: {error}: {record}")
