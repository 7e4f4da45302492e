"""Which options of `run` exclude or need each other: one check for `run`, for crontab comments and for lint.

Typed options win over configured ones. A configured option that does not fit the typed ones is ignored; the same
option typed is an error.
"""

from __future__ import annotations

from oncecron.config.options import AUTO_KEY
from oncecron.core import tick
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

_RULES = ("schedule", "tick", "no-tick")


class Conflict(NamedTuple):
    """Why options cannot be given together."""

    names: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        """Return the options and why."""
        return f"{' and '.join(f'--{name}' for name in self.names)}: {self.why}"


AUTO_WITHOUT_COMMAND = Conflict(
    ("key",),
    "auto derives the key from the command, which is not given; write it after --, or use --shell STRING",
)


def conflicts(
    value: Callable[[str], Any], is_typed: Callable[[str], bool], words: Sequence[str] = ()
) -> Iterator[Conflict]:
    """Yield the conflicts. `value` returns an option's converted value by name, `words` are the command."""
    if value("shell") == "":
        yield Conflict(("shell",), "the command is empty (an unset variable?)")
    if value("shell") is not None and words:
        yield Conflict(
            ("shell",), "this is the command, and COMMAND is given as well; leave one of them out"
        )
    if is_typed("pipefail") and words:
        yield Conflict(
            ("pipefail",), "is for the pipes of --shell STRING; leave it out for COMMAND"
        )
    if value("key") == AUTO_KEY and not (words or value("shell")):
        yield AUTO_WITHOUT_COMMAND
    rules = tick_rules(value, is_typed)
    if len(rules) > 1:
        yield Conflict(
            (rules[0], rules[1]), "only one of them can set the tick; leave the other out"
        )
        return
    yield from _with_the_tick(rules[0] if rules else "minute", value, is_typed)
    for name in ("retry-delay", "no-retry-on"):
        if is_typed(name) and not value("retries"):
            yield Conflict((name,), "needs --retries N, which is not given")
    yield from _with_the_store_away(value)
    if value("failover") and value("retries") == 0:
        yield Conflict(
            ("failover", "retries"),
            "running a lost tick again counts as a retry; use --retries 1 or more",
        )


def tick_rules(value: Callable[[str], Any], is_typed: Callable[[str], bool]) -> list[str]:
    """Return the options that set the tick; typed ones win over configured ones."""
    rules = [name for name in _RULES if value(name) not in (None, False)]
    return [name for name in rules if is_typed(name)] or rules


def _with_the_tick(
    rule: str, value: Callable[[str], Any], is_typed: Callable[[str], bool]
) -> Iterator[Conflict]:
    if is_typed("tz") and rule != "schedule":
        yield Conflict(("tz",), "this is the zone of --schedule, which is not given")
    if is_typed("min-gap") and rule in ("schedule", "tick"):
        yield Conflict(
            ("min-gap",), "works without --schedule and --tick, or with --no-tick; leave it out"
        )
    if is_typed("starting-deadline") and not _has_instant(rule, value):
        yield Conflict(
            ("starting-deadline",),
            "counts from a scheduled time, and this tick has none; leave it out",
        )
    if is_typed("catch-up") and rule != "schedule":
        yield Conflict(
            ("catch-up",), "needs --schedule, which says what was missed; add it, or leave this out"
        )
    deadline = value("starting-deadline") if _has_instant(rule, value) else None
    if deadline is not None and value("spread") >= deadline:
        yield Conflict(
            ("spread", "starting-deadline"),
            "a host may wait longer than a firing may be late; use a shorter --spread",
        )
    if value("shards") > 1 and rule == "no-tick":
        yield Conflict(
            ("shards", "no-tick"),
            "shards need a tick to complete; use --schedule or --tick instead of --no-tick",
        )


def _has_instant(rule: str, value: Callable[[str], Any]) -> bool:
    if rule != "tick":
        return rule != "no-tick"
    try:
        return tick.named_tick(value("tick")).instant is not None
    except ValueError:
        return True  # not a valid name, which is reported elsewhere


def _with_the_store_away(value: Callable[[str], Any]) -> Iterator[Conflict]:
    if value("on-store-error") != "run":
        return
    if value("shards") > 1:
        yield Conflict(
            ("shards", "on-store-error"),
            "without the store no host knows which shard to run; use fail or skip",
        )
    if value("failover"):
        yield Conflict(
            ("failover", "on-store-error"),
            "a waiting host would start beside the running one; use fail or skip",
        )
