"""`oncecron hosts`: one line per host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.cli import table
from oncecron.cli.command import QUERY_OPTIONS, TableCommand, incomplete, store_reader, writer
from oncecron.cli.sentences import unknown_host, valid_text
from oncecron.cli.table import Column, Kind
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.text import ABSENT
from oncecron.host.stderr import complain
from oncecron.log.hosts import HostSummary, clock_said, hosts

if TYPE_CHECKING:
    from oncecron.core.text import Clock
    from oncecron.log.state_kinds import StateKind


def _drained(host: HostSummary, _clock: Clock) -> str:
    return ABSENT if host.drained_by is None else f"by {host.drained_by}"


def _kind_of_drain(word: str) -> StateKind:
    return "nothing" if word == ABSENT else "paused"


def _kind_of_silence(word: str) -> StateKind:
    return "nothing" if word == ABSENT else "bad"


def _silent_on(host: HostSummary, clock: Clock) -> str:
    if 1 < host.keys <= len(host.silent_on):
        return f"all {host.keys} keys"
    return (", " if clock.now else ",").join(host.silent_on) or ABSENT


HOSTS = Kind(
    HostSummary._fields, ("seen_at",),
    (
        table.field("host", "HOST", 0, 16), table.time("seen_at", "SEEN", 1), table.field("version", "VERSION", 5),
        Column("CLOCK", lambda host, _clock: clock_said(host), 3, right=True),
        table.number("keys", "KEYS", 4), table.number("wins", "WINS", 4), table.number("skips", "SKIPS", 4),
        Column("DRAINED", _drained, 1, 12, kind=_kind_of_drain),
        Column("SILENT ON", _silent_on, 0, 14, folds=True, kind=_kind_of_silence),
        table.number("machines", "MACHINES", 6),
    ),
)  # fmt: skip
OPTIONS = QUERY_OPTIONS


def _show(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    why = "the host is empty (an unset variable?); leave it out to see all"
    wanted = {valid_text(word, why) for word in words}
    answer = writer(HOSTS, settings)
    with store_reader(settings) as store:
        found = [*hosts(store.key_hosts(), store.pauses(), clock.wall())]
        known = {each.host for each in found}
        for host in sorted(filter(None, wanted - known)):
            raise unknown_host(host, known)
        shown = answer.write(each for each in found if not wanted or each.host in wanted)
    if not shown and answer.is_watched:
        complain("no host has fired a key yet")
    return incomplete(store)


COMMAND = TableCommand(
    "hosts", OPTIONS, _show,
    about="Show one line per host, or only per named host: when its last firing reached the store, its version of "
    "oncecron, how far its clock is ahead of the store's, how many keys it fires, how many ticks it ran and "
    "skipped in the last 24 hours, and on which keys it is silent. A host is silent on a key when other hosts "
    "fired the last three ticks and it did not.",
    examples=("oncecron hosts", "oncecron hosts web2 --json"),
    words="[HOST...]",
)  # fmt: skip
