"""`oncecron why KEY`: explain what happened at one tick, on every host that fired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncecron.cli import output
from oncecron.cli.command import (
    JSON,
    STORE_OPTIONS,
    UTC,
    TableCommand,
    incomplete,
    spools,
    store_and_log,
)
from oncecron.cli.output import to_microseconds
from oncecron.cli.sentences import valid_key
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core import clock
from oncecron.core.errors import UsageError
from oncecron.core.text import Clock, visible
from oncecron.core.tick import named_tick
from oncecron.log.jobs import Sources
from oncecron.log.tick_history import facts_of
from oncecron.log.why import account

if TYPE_CHECKING:
    from oncecron.log.tick_history import Facts
    from oncecron.log.why import Account

OPTIONS = (
    Option(
        "tick", "text",
        "Explain this tick, written as in `oncecron history`, or as a time. Default: the newest tick.", "TICK",
        "Which tick",
    ),
    JSON._replace(help="Print all fields as one JSON object instead of sentences."),
    UTC,
    *STORE_OPTIONS,
)  # fmt: skip


def _explain(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    key, tick = valid_key(words[0]), _tick(settings)
    stream = output.standard_output()
    shown = Clock(settings["utc"])
    with store_and_log(settings) as (store, log):
        facts = facts_of(Sources(store, log, clock.wall()), key, tick, spools(settings))
    found = account(facts, shown)
    if settings["json"]:
        output.write_text(output.json_text(_record(facts, found, shown), 1), stream)
    else:
        output.say("\n".join(map(visible, found.sentences)), stream)
    return incomplete(store, log)


def _tick(settings: Settings) -> str | None:
    text: str | None = settings["tick"]
    if text == "":
        raise UsageError("--tick is empty (an unset variable?); leave it out for the newest")
    try:
        return None if text is None else named_tick(text).text
    except ValueError as error:
        raise UsageError(f"--tick: {error}") from error


def _record(facts: Facts, found: Account, shown: Clock) -> dict[str, Any]:
    return {
        "key": facts.key,
        "tick": facts.tick,
        "verdict": found.verdict,
        "account": found.sentences,
        "executions": [
            _times(
                {**each.execution._asdict(), "fired_at": each.fired_at, "lost_at": each.lost_at},
                shown,
            )
            for each in facts.executions
        ],
        "skips": [
            _times({**each.skip._asdict(), "fired_at": each.fired_at}, shown)
            for each in facts.skips
        ],
        "spooled": [_times(record, shown) for record in facts.spooled],
        "pauses": [_times(pause._asdict(), shown) for pause in facts.pauses],
        "near": list(facts.near),
        "due": _times(facts.due._asdict(), shown),
    }


def _times(fields: dict[str, Any], shown: Clock) -> dict[str, Any]:
    names = (
        "started_at", "finished_at", "fired_at", "lost_at", "at", "since", "until", "tick_instant", "next_at",
    )  # fmt: skip
    return {
        name: shown.exactly(value) if name in names else to_microseconds(value)
        for name, value in fields.items()
    }


COMMAND = TableCommand(
    "why", OPTIONS, _explain,
    about="Explain in sentences what happened at one tick of a key: which host ran it, why the others skipped it, "
    "how it ended, or why no host ran it. Records that are still spooled on this host are included.",
    examples=(
        "oncecron why billing-nightly",
        "oncecron why billing-nightly --tick 2026-11-20T02:00Z",
    ),
    words="KEY",
)  # fmt: skip
