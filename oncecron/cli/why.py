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
from oncecron.cli.meant import wanted_outcomes
from oncecron.cli.output import to_microseconds
from oncecron.cli.sentences import valid_key
from oncecron.config.options import Option
from oncecron.config.settings import Settings
from oncecron.core.errors import UsageError
from oncecron.core.masking import valid
from oncecron.core.text import Clock, visible
from oncecron.log.jobs import jobs
from oncecron.log.output_tail import captured, failed_run, tail
from oncecron.log.run_phrases import delay
from oncecron.log.sources import sources_of
from oncecron.log.tick_history import facts_of, spooled_of
from oncecron.log.which_tick import WANTED, Ticks, wanted_tick
from oncecron.log.why import account
from oncecron.log.why import others as others_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncecron.core.log_rows import Traced
    from oncecron.log.tick_history import Facts
    from oncecron.log.which_tick import Choice
    from oncecron.log.why import Account

OPTIONS = (
    Option(
        "tick", "text",
        "Explain this tick: as `oncecron history` shows it, or the first one since a time: 14:47, yesterday, 3h. "
        "Default: what is wrong with the key, else its newest tick.", "TICK", "Which tick",
    ),
    Option(
        "outcome", "text", "Explain the newest tick with this outcome, such as lost, failed, missed or skipped. "
        "Several are joined by commas.", "OUTCOME,...", "Which tick", repeatable=True, completion=WANTED,
    ),
    JSON._replace(help="Print all fields as one JSON object instead of sentences."),
    UTC,
    *STORE_OPTIONS,
)  # fmt: skip


def _explain(given: dict[str, str], words: list[str]) -> int:
    settings = Settings(OPTIONS, given)
    key, text = valid_key(words[0]), _tick(settings)
    outcomes = wanted_outcomes(settings["outcome"], WANTED)
    if text is not None and outcomes:
        raise UsageError("--tick and --outcome each choose the tick; leave one of them out")
    stream = output.standard_output()
    shown = Clock(settings["utc"])
    with store_and_log(settings) as (store, log):
        sources = sources_of(settings, store, log)
        spooled = spooled_of(sources, key, spools(settings))
        ticks = Ticks(sources, key, spooled, shown)
        if outcomes:
            choice = ticks.newest_with(outcomes)
        elif text is not None:
            choice = ticks.named(text)
        else:
            choice = ticks.worst(next(jobs(sources, [key]), None))
        if choice.note:
            choice = choice._replace(note=settings.named(choice.note))
        judges = text is None and not outcomes
        facts = facts_of(sources, key, choice.which, spooled, judges=judges)
        found = account(facts, shown)
        found = found._replace(sentences=[*map(settings.named, found.sentences)])
        others = [
            {
                "because": because,
                "tick": tick,
                "verdict": of.verdict,
                "sentence": settings.named(of.sentences[0]),
            }
            for because, tick, of in others_of(sources, key, choice, spooled, shown)
        ]
        run = failed_run(facts, found.verdict)
        written = captured(log, run)
    if settings["json"]:
        record = _record(facts, found, choice, others, shown)
        record["output"] = written.text if written else None
        output.write_text(output.json_text(record, 1), stream)
    else:
        end = tail(written, run, settings.command) if written and run else ()
        lines = [choice.note, *found.sentences, *end, *(each["sentence"] for each in others)]
        output.say("\n".join(visible(line) for line in lines if line), stream)
    return incomplete(store, log)


def _tick(settings: Settings) -> str | None:
    text: str | None = settings["tick"]
    return None if text is None else valid(wanted_tick(text))


def _record(
    facts: Facts, found: Account, choice: Choice, others: Sequence[dict[str, Any]], shown: Clock
) -> dict[str, Any]:
    return {
        "key": facts.key,
        "tick": facts.tick,
        "verdict": found.verdict,
        "account": found.sentences,
        "executions": [_execution(each, shown) for each in facts.executions],
        "skips": [
            _times({**each.skip._asdict(), "fired_at": each.fired_at}, shown)
            for each in facts.skips
        ],
        "spooled": [_times(record, shown) for record in facts.spooled],
        "pauses": [_times(pause._asdict(), shown) for pause in facts.pauses],
        "due": _times(facts.due._asdict(), shown),
        "because": choice.because,
        "note": choice.note,
        "others": list(others),
        "holders": [_execution(each, shown) for each in facts.holders],
        "hosts": [_times({"host": row.host, "seen_at": row.seen_at}, shown) for row in facts.hosts],
    }


def _execution(traced: Traced, shown: Clock) -> dict[str, Any]:
    times = {"fired_at": traced.fired_at, "lost_at": traced.lost_at, "delay": delay(traced)}
    return _times({**traced.execution._asdict(), **times}, shown)


def _times(fields: dict[str, Any], shown: Clock) -> dict[str, Any]:
    names = (
        "started_at", "finished_at", "fired_at", "lost_at", "at", "since", "until", "tick_instant", "next_at",
        "silent_since", "seen_at",
    )  # fmt: skip
    return {
        name: shown.exactly(value) if name in names else to_microseconds(value)
        for name, value in fields.items()
    }


COMMAND = TableCommand(
    "why", OPTIONS, _explain,
    about="Explain in sentences what happened at one tick of a key: which host ran it, why the others skipped it, "
    "how it ended, or why no host ran it. Without options, it is the tick that `oncecron check` finds wrong, else the "
    "newest one. Records that are still spooled on this host are included.",
    examples=(
        "oncecron why billing-nightly",
        "oncecron why billing-nightly --outcome lost",
        "oncecron why billing-nightly --tick 'yesterday 02:00'",
    ),
    words="KEY",
)  # fmt: skip
