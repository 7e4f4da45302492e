"""`oncecron check`: what is wrong now, as a plugin of a monitoring system answers."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from oncecron.cli import output
from oncecron.cli.command import (
    JSON,
    STORE_OPTIONS,
    UTC,
    TableCommand,
    spooled_records,
    store_and_log,
)
from oncecron.cli.sentences import unknown_key, valid_key
from oncecron.cli.terminal import style_for
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.errors import EX_UNKNOWN, OncecronError, StoreError, UsageError
from oncecron.core.text import Clock
from oncecron.log.sources import sources_of
from oncecron.log.state_kinds import kind_of
from oncecron.plugins import problems_of
from oncecron.watch.findings import OPTIONS as WHAT_COUNTS
from oncecron.watch.findings import STATES, check, limits_of, lines, states_of, without_bars
from oncecron.watch.situation import situation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

    from oncecron.cli.terminal import Style
    from oncecron.watch.findings import Checked

_ANSWER_WITHIN = "10s"
"""`check` answers within this time: monitoring systems end a plugin after 10 s to a minute, without a word."""
_SHORTEST_ANSWER, _LONGEST_ANSWER = 1.0, 3600.0
"""The bounds of `check --timeout`."""

OPTIONS = (
    *WHAT_COUNTS,
    Option(
        "timeout", "duration", "Answer UNKNOWN after this long.", "DURATION", "What counts", _ANSWER_WITHIN, short="t",
        minimum=_SHORTEST_ANSWER, maximum=_LONGEST_ANSWER,
    ),
    JSON._replace(help="Print all fields as one JSON object."),
    UTC,
    *STORE_OPTIONS,
)  # fmt: skip


def _check(given: dict[str, str], words: list[str]) -> int:
    stream = output.standard_output()
    as_json = "json" in given
    try:
        settings = Settings(OPTIONS, given)
        states = _states(settings)
        with _answer_in_time(settings["timeout"], stream, as_json=as_json):
            checked = _checked(settings, states, words)
    except UsageError:
        raise  # 64: a wrong command line is not an answer about the keys
    except OncecronError as error:
        _say_unknown(str(error), stream, as_json=as_json)
        return EX_UNKNOWN
    if as_json:
        output.write_text(_as_json(checked, settings["utc"]), stream)
    else:
        style = style_for(stream, "table", utc=False)
        said = [*lines(checked, states, for_people=style.terminal)]
        if style.is_too_long(len(said)):
            said[1:-1] = reversed(said[1:-1])  # the worst stays on the screen
        output.say("\n".join(said), stream, lambda line: _painted(line, style))
    return checked.state


def _painted(line: str, style: Style) -> str:
    if not style.terminal:  # a plugin's answer has no colours, whatever the environment says
        return line
    if line.startswith("|"):
        return style.dim(line)
    state, colon, rest = line.partition(":")
    return style.paint(state, kind_of(state.removeprefix("ONCECRON "))) + colon + rest


def _states(settings: Settings) -> Mapping[str, int]:
    """Return the state of each kind of finding. Raises `UsageError` for an unknown kind."""
    given = {name: settings[name] for name in ("warning", "critical", "ignore")}
    for name, text in given.items():
        if text is not None and text.isdecimal():
            raise UsageError(
                f"--{name} takes findings, such as missed; for a count: --failures {text}"
            )
    try:
        return states_of(given)
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _checked(settings: Settings, states: Mapping[str, int], words: list[str]) -> Checked:
    keys = {valid_key(word) for word in words}
    limits = limits_of({option.name: settings[option.name] for option in WHAT_COUNTS}, states)
    with store_and_log(settings) as (store, log):
        sources = sources_of(settings, store, log)
        waiting = spooled_records(settings)
        situation = situation_of(sources, settings.file, limits, keys=keys, spooled=waiting)
        for key in sorted(keys - {job.key for job in situation.jobs}):
            known = {part.key for part in sources.store_keys}
            raise unknown_key(key, known, (row.host for row in sources.key_hosts))
    mistakes = [str(each) for each in problems_of(settings.file) if not each.private]
    situation = situation._replace(mistakes=mistakes)
    checked = check(situation, limits, Clock(settings["utc"]))
    told = [each._replace(reason=settings.named(each.reason)) for each in checked.findings]
    checked = checked._replace(findings=told)
    if not checked.state and not situation.is_complete:
        raise StoreError("a row of the store cannot be read; `oncecron jobs` names it")
    return checked


def _as_json(checked: Checked, utc: bool) -> str:
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

    def give_up() -> None:
        _say_unknown(f"no answer from the store within {seconds:g} s", stream, as_json=as_json)
        os._exit(EX_UNKNOWN)  # the main thread may be in getaddrinfo, which no exception ends

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say_unknown(why: str, stream: TextIO, *, as_json: bool) -> None:
    if as_json:
        unknown = {"state": "unknown", "keys": None, "ok": None, "findings": (), "reason": why}
        output.write_text(output.json_text(unknown, 1), stream)
    else:
        output.say(without_bars(f"ONCECRON UNKNOWN: {why}"), stream)


COMMAND = TableCommand(
    "check", OPTIONS, _check,
    about="Check whether every key runs as it should, or only the named keys. Print one line with performance data, "
    "and one line per finding. The exit status is 0 (ok), 1 (warning), 2 (critical) or 3 (unknown), as Nagios, "
    "Icinga and others expect of a plugin.",
    examples=(
        "oncecron check",
        "oncecron check billing-nightly --failures 3",
        "oncecron check -c slow --json",
    ),
    words="[KEY...]",
)  # fmt: skip
