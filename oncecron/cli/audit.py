"""`oncecron audit`: check the log for overlapping, duplicate and missed runs."""

from __future__ import annotations

import contextlib
import itertools
import math
import select
import time
from typing import TYPE_CHECKING

from oncecron.cli import table
from oncecron.cli.command import (
    QUERY_OPTIONS,
    SINCE,
    UNTIL,
    TableCommand,
    incomplete,
    span_of,
    store_and_log,
    writer,
)
from oncecron.cli.progress_bar import progress_bar
from oncecron.cli.sentences import known_keys, refuse_unknown_keys, valid_key
from oncecron.cli.table import Kind
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import EX_FOUND
from oncecron.core.text import Clock
from oncecron.host.stderr import Patience, complain
from oncecron.log.audit import Question, audit
from oncecron.log.protocol import Breach
from oncecron.log.sources import configured_keys
from oncecron.plugins import brought

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOG_CATCHES_UP = 5.0
"""`audit` waits this long for the log store, to which firings write for up to `LOG_GOODBYE` before they spool."""


FINDINGS = Kind(
    Breach._fields, ("at",),
    (
        table.key(12), table.tick(1), table.tick(2, "last_tick", "LAST"),
        table.number("count", "TICKS", 3), table.state("finding"), table.field("reason", "REASON", 0, 18, folds=True),
    ),
)  # fmt: skip

OPTIONS = (
    SINCE,
    UNTIL,
    *QUERY_OPTIONS,
)  # fmt: skip


def _audit(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    keys = {valid_key(word) for word in words}
    since, until = span_of(settings, time.time())
    answer = writer(FINDINGS, settings)
    with store_and_log(settings) as (store, log):
        if keys:
            refuse_unknown_keys(keys, known_keys(store) | known_keys(log), log)
        with contextlib.ExitStack() as shown:
            question = Question(
                log=log,
                store=store,
                since=since,
                until=until if settings.is_typed("until") else math.inf,
                keys=keys,
                configured=configured_keys(settings),
                kept=settings.file.retention.executions,
                now=clock.wall(),
                clock=Clock(settings["utc"]),
                wait=_no_wait if log is store else _wait_for_the_log,
                progress=shown.enter_context(progress_bar("audit")),
            )
            findings: Iterator[Breach] = itertools.chain(
                audit(question), brought(lambda each: each.audited(question))
            )
            findings = (each._replace(reason=settings.named(each.reason)) for each in findings)
            if answer.is_watched:  # the table and the bar cannot share a line
                findings = iter([*findings])
                shown.close()
            found = answer.write(findings)
    if not found and not incomplete(store, log) and answer.is_watched:
        complain("no problems found")
    return EX_FOUND if found else incomplete(store, log)


def _no_wait() -> None:
    """Do not wait: the store writes an end and its lease in one step."""


def _wait_for_the_log() -> None:
    patience = Patience()
    patience.wait("log", f"firings may still write to the log; it has {_LOG_CATCHES_UP:g} s")
    select.select((), (), (), _LOG_CATCHES_UP)  # not time.sleep: libfaketime


COMMAND = TableCommand(
    "audit", OPTIONS, _audit,
    about="Check in the log that each tick ran once, of all keys or of the named ones: report overlaps, ticks that ran "
    "twice without --again, scheduled ticks without a start, executions without an end, and what the store should not "
    "have allowed, such as a fencing token that does not rise. Print one line per finding; exit with status 1 if there "
    "is any.",
    examples=("oncecron audit --since 7d", "oncecron audit billing-nightly"),
    words="[KEY...]",
)  # fmt: skip
