"""What a firing tells: people by standard error, the store later by the spool, and the log beside it.

A record that the disk does not take either stands in a line on standard error.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oncecron import messages, records
from oncecron.joblog import JobLog
from oncecron.model import Ending, Refusal
from oncecron.spool import SpoolError

if TYPE_CHECKING:
    from oncecron.errors import StoreUnavailable
    from oncecron.model import Firing
    from oncecron.plan import Plan


class Telling:
    """The words of one firing, in the guard's process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.log = JobLog(plan)

    def say(self, text: str) -> None:
        """Write a line about the key to standard error; some errors name it themselves."""
        name = f"key {self._plan.firing.key}"
        named = text.startswith((f"{name}:", f"{name},"))
        messages.complain(text if named else f"{name}: {text}")

    def refused(self, firing: Firing, refusal: Refusal, *, waits: bool) -> None:
        """Tell a person at a terminal, and the log beside the store; the store knows."""
        if self._plan.verbose or os.isatty(2):
            messages.complain(messages.refusal_sentence(firing, refusal, waits=waits))
        self.log.tell(records.skip_record(firing, refusal))

    def no_store(self, error: StoreUnavailable) -> int:
        """Say and record that the store is away; return the exit status of a firing that starts nothing."""
        plan = self._plan
        if plan.spool.note_unreachable(plan.firing.key):
            self.say(str(error))
        if plan.on_store_error != "run":
            record = records.skip_record(plan.firing, Refusal("no-store", detail=str(error)))
            self.spool(record)
            self.log.tell(record)
        return plan.skip_exit if plan.on_store_error == "skip" else error.exit_status

    def not_started(self, firing: Firing, why: str) -> None:
        """Keep the positive word that alone re-opens a tick, for a lease that may have been granted."""
        ending = Ending("not-started", None, None, 0.0, why)
        self.spool(records.execution_record(firing, None, ending))

    def spool(self, record: dict[str, object]) -> None:
        """Keep a record for the store."""
        try:
            self._plan.spool.add(record)
        except SpoolError as error:
            self.say(f"a record is lost: {error}: {record}")
