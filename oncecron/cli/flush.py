"""`oncecron flush`: deliver the spooled records of this user to the store and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from oncecron.cli import output
from oncecron.cli.command import STORE_OPTIONS, TableCommand
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import EX_DATAERR, EX_TEMPFAIL, RecordRefusedError, StoreError
from oncecron.core.text import visible
from oncecron.core.timing import ASSUMED_TTL, RECORD_TIMEOUT
from oncecron.host.stderr import Patience, complain
from oncecron.run.spool import spool_of
from oncecron.stores import check_with_driver, open_lease_store
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from oncecron.run.spool import Spool
    from oncecron.stores.address import Address
    from oncecron.stores.api import LeaseStore

OPTIONS = STORE_OPTIONS
_FAILURES = 3  # in a row: then the store counts as unreachable


def _flush(given: dict[str, str], _words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    log = settings.log()
    stream = output.standard_output()
    status = _flush_one(settings.address(), settings["namespace"], stream, "")
    if log:
        status = max(status, _flush_one(log, settings["namespace"], stream, " to the log"))
    return status


def _flush_one(address: Address, namespace: str, stream: TextIO, whither: str) -> int:
    check_with_driver(address)  # an empty spool never connects
    spool = spool_of(address, namespace)
    spool.refuse_unsafe()
    error = None
    store = open_lease_store(address, namespace, ASSUMED_TTL)  # connects at the first record
    if spool.has():
        try:
            error = _deliver(spool, store, masked(address.target), stream, whither)
        finally:
            store.close()
    aside = spool.set_aside()
    for path, why in aside:
        if why is None:
            complain(f"unreadable record set aside: {path}; look at it, then delete it")
        else:
            complain(
                f"refused record set aside: {path}: {why}; delete it, or rename it to end in .json"
            )
    if error is None and spool.was_busy:
        complain(f"another process is delivering records of {spool.root}; retry later")
        return EX_TEMPFAIL
    if error is None:
        return EX_DATAERR if aside else 0
    kept = sum(1 for _ in spool.pending())
    complain(f"{error}; {kept} record{'s stay' if kept != 1 else ' stays'} in {spool.root}")
    return error.exit_status


def _deliver(
    spool: Spool, store: LeaseStore, shown: str, stream: TextIO, whither: str
) -> StoreError | None:
    """Deliver all records; return the last failure. One bad record does not block the others.

    A record that the store refuses is set aside. After a record without an answer, the later ones of its key wait:
    records of a key are delivered in order.
    """
    last: StoreError | None = None
    failures = 0
    patience = Patience()
    unanswered: set[str] = set()
    for path, record in spool.taken():
        if record["key"] in unanswered:
            continue
        patience.wait("answer", f"no answer from {shown} yet; each record has {RECORD_TIMEOUT:g} s")
        try:
            store.deliver(record, deadline=clock.lease_time(store.lease_clock) + RECORD_TIMEOUT)
        except RecordRefusedError as error:
            spool.refuse(record, str(error), path)
            continue
        except StoreError as error:
            last = error
            failures += 1
            if error.unanswered:
                unanswered.add(record["key"])
            store.close()
            if failures == _FAILURES:
                break
            continue
        finally:
            patience.over()
        failures = 0
        spool.remove(path)
        output.say(_line(record, whither), stream)
    return last


def _line(record: dict[str, Any], whither: str) -> str:
    what = record.get("outcome") or record.get("reason")
    return visible(f"delivered {record['key']} {record.get('tick') or '-'} {what}{whither}")


COMMAND = TableCommand(
    "flush", OPTIONS, _flush,
    about="Deliver the records that this user's firings on this host could not write while the store or the log was "
    "unreachable. The next firing of a key delivers its records too. Print each delivered record. If the store is "
    "still unreachable, keep the rest and exit with status 69. Set aside records that the store refuses, list them, "
    "and exit with status 65.",
    examples=("oncecron flush",),
)  # fmt: skip
