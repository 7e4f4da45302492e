"""`oncecron check`: what is wrong now, as a plugin of a monitoring system answers."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import click

from oncecron.cli.command import (
    JSON,
    KEYS,
    STORE_OPTIONS,
    UTC,
    TableCommand,
    incomplete,
    spools,
    store_and_log,
)
from oncecron.config.options import Option
from oncecron.core.timing import ANSWER_WITHIN, LONGEST_ANSWER, SHORTEST_ANSWER, SLOW_TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TextIO

    from oncecron.config.settings import Settings
    from oncecron.core.log_rows import KeyHost
    from oncecron.reports.check import Checked
    from oncecron.stores.api import Inspector

# ruff: noqa: PLC0415 - --help imports as little as it can

OPTIONS = (
    Option(
        "failures",
        "integer",
        "Report a key as failed after N ticks in a row that ended badly.",
        "N",
        "What counts",
        "1",
        minimum=1,
        maximum=100,
    ),
    Option(
        "slow",
        "integer",
        "Report a job as slow when it runs N times as long as usual, and a minute longer.",
        "N",
        "What counts",
        str(SLOW_TIMES),
        minimum=1,
        maximum=1000,
    ),
    Option(
        "min-hosts",
        "integer",
        "Report a key as `silent_host` if fewer than N hosts fired one of its last three ticks.",
        "N",
        "What counts",
        "1",
        minimum=1,
        maximum=10_000,
    ),
    Option(
        "warning",
        "text",
        "Let these findings be warnings, such as `failed,lost`.",
        "FINDING,...",
        "What counts",
        short="w",
    ),
    Option(
        "critical",
        "text",
        "Let these findings be critical, such as `slow,overrun`.",
        "FINDING,...",
        "What counts",
        short="c",
    ),
    Option(
        "ignore",
        "text",
        "Do not look for these findings.",
        "FINDING,...",
        "What counts",
    ),
    Option(
        "timeout",
        "duration",
        "Answer UNKNOWN after this long.",
        "DURATION",
        "What counts",
        ANSWER_WITHIN,
        short="t",
        minimum=SHORTEST_ANSWER,
        maximum=LONGEST_ANSWER,
    ),
    JSON._replace(help="Print all fields as one JSON object."),
    UTC,
    *STORE_OPTIONS,
)


def _check(given: dict[str, str], words: list[str]) -> int:
    from oncecron.cli import output
    from oncecron.config.settings import Settings
    from oncecron.core.errors import EX_UNKNOWN, OncecronError, UsageError

    stream = output.standard_output()
    as_json = "json" in given
    try:
        settings = Settings(OPTIONS, given)
        states = _states(settings)
        with _answer_in_time(settings["timeout"], stream, as_json=as_json):
            checked = _checked(settings, states, words)
    except UsageError:
        raise
    except OncecronError as error:
        _say_unknown(str(error), stream, as_json=as_json)
        return EX_UNKNOWN
    if as_json:
        output.write_text(_as_json(checked, settings["utc"]), stream)
    else:
        from oncecron.reports.check import lines

        output.say("\n".join(lines(checked, states)), stream)
    return checked.state


def _states(settings: Settings) -> Mapping[str, int]:
    """Return the state of each kind of finding. Raises `UsageError` for an unknown kind."""
    from oncecron.core.errors import UsageError
    from oncecron.reports.check import CRITICAL, KINDS, OK, WARNING

    states = dict(KINDS)
    given = {"warning": WARNING, "critical": CRITICAL, "ignore": OK}
    for option, state in given.items():
        for kind in (settings[option] or "").split(","):
            name = kind.strip()
            if name and name not in KINDS:
                raise UsageError(f"--{option}: no finding {name!r}; use {', '.join(KINDS)}")
            if name:
                states[name] = state
    return states


def _checked(settings: Settings, states: Mapping[str, int], words: list[str]) -> Checked:
    from oncecron.cli.pause import named_key, near
    from oncecron.core import clock
    from oncecron.core.errors import NotFoundError, StoreError
    from oncecron.core.text import Clock
    from oncecron.reports.check import Limits, check
    from oncecron.reports.jobs import jobs

    keys = {named_key(word) for word in words}
    now = clock.wall()
    with store_and_log(settings) as (store, log):
        leases = store.leases()
        found = list(jobs(store, log, now, keys or None, leases=leases))
        known = {job.key for job in found}
        for key in sorted(keys - known):
            every = {part.key for part in store.job_keys()}
            raise NotFoundError(f"no host has fired key {key}{near(key, every)}")
        hosts, drained = hosts_of_keys(store, states)
    limits = Limits(settings["failures"], settings["slow"], states, settings["min-hosts"])
    spooled, shown = spooled_records(settings), Clock(settings["utc"])
    checked = check(found, leases, spooled, limits, now, shown, hosts, drained)
    if not checked.state and incomplete(store, log):
        raise StoreError("a row of the store cannot be read; `oncecron jobs` names it")
    return checked


def hosts_of_keys(store: Inspector, states: Mapping[str, int]) -> tuple[Sequence[KeyHost], set[str]]:
    """Return the hosts of all keys, which may be many, if they are looked for; and the drained hosts."""
    if not states["silent_host"] and not states["clock"]:
        return (), set()
    drained = {pause.host for pause in store.pauses() if pause.host is not None}
    return store.key_hosts(), drained


def spooled_records(settings: Settings) -> int:
    """Return how many records wait in the spools of this user on this host."""
    return sum(1 for spool in spools(settings) for _ in spool.pending())


def _as_json(checked: Checked, utc: bool) -> str:
    from oncecron.cli import output
    from oncecron.core.text import Clock
    from oncecron.reports.check import STATES

    shown = Clock(utc)
    findings = [{**each._asdict(), "since": shown.exactly(each.since)} for each in checked.findings]
    answer = {
        "state": STATES[checked.state],
        "keys": checked.keys,
        "ok": checked.well,
        "findings": findings,
    }
    return output.json_text(answer, 1)


@contextlib.contextmanager
def _answer_in_time(seconds: float, stream: TextIO, *, as_json: bool) -> Iterator[None]:
    """Answer UNKNOWN and exit if the block has not ended by then, whatever this process waits for."""
    import threading

    from oncecron.core.errors import EX_UNKNOWN

    def give_up() -> None:
        _say_unknown(f"no answer from the store within {seconds:g} s", stream, as_json=as_json)
        os._exit(EX_UNKNOWN)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say_unknown(why: str, stream: TextIO, *, as_json: bool) -> None:
    from oncecron.cli import output

    if as_json:
        unknown: dict[str, object] = {
            "state": "unknown",
            "keys": None,
            "ok": None,
            "findings": [],
            "reason": why,
        }
        output.write_text(output.json_text(unknown, 1), stream)
    else:
        from oncecron.reports.check import without_bars

        output.say(without_bars(f"ONCECRON UNKNOWN: {why}"), stream)


COMMAND = TableCommand(
    "check",
    OPTIONS,
    _check,
    short="Check for a monitoring system whether all is well.",
    about="Check whether every key runs as it should, or only the named keys. Print one line with performance data, "
    "and one line per finding. The exit status is 0 (ok), 1 (warning), 2 (critical) or 3 (unknown), as Nagios, Icinga "
    "and others expect of a plugin.",
    examples=(
        "oncecron check",
        "oncecron check billing-nightly --failures 3",
        "oncecron check -c slow --json",
    ),
    words=click.Argument(["words"], metavar="[KEY...]", nargs=-1, shell_complete=KEYS),
)
