"""One process of the race: claims each tick until somebody has it, and writes what it does to a shared file.

The journal is opened for appending, so that its lines stand in the order in which they were written.
"""

import os
import random
import time
from collections.abc import Callable

from contract_stores import KINDS
from hosts import Host

from oncecron.core.model import AskAgain, Lease
from oncecron.core.tick import minute_tick


def race(host: Host, journal: int, first: int, ticks: int) -> None:
    """Go through the ticks; each is run by somebody before the next is asked for."""
    for number in range(ticks):
        tick = minute_tick(first + 60 * number)
        while True:
            answer = host.fire(tick)
            if isinstance(answer, Lease):
                os.write(journal, f"start {number} {answer.token}\n".encode())
                time.sleep(random.uniform(0, 0.002))  # the job
                os.write(journal, f"end {number} {answer.token}\n".encode())
                assert host.finish(answer)
                break
            if not isinstance(answer, AskAgain) and answer.reason in ("done", "passed"):
                break
            time.sleep(
                random.uniform(0.001, 0.01)
            )  # somebody runs: nothing tells when it has ended


def prepare(
    kind: str, address: str, path: str, name: str, first: str, ticks: str
) -> Callable[[], None]:
    """Return the race of one host for `ticks` ticks from the minute `first` on, written to the journal at `path`."""
    host = Host(KINDS[kind].connect(address), name)
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def run() -> None:
        race(host, journal, int(first), int(ticks))
        host.store.close()

    return run
