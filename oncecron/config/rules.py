"""Which options of `run` exclude or need each other: one check for `run`, for comments in crontabs, and for lint.

What is typed wins over what is configured. So a configured option that belongs to another rule of the tick, or waits
for --retries, does not apply, and only the same one typed is an error.
"""

from __future__ import annotations

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


def conflicts(
    value: Callable[[str], Any], typed: Callable[[str], bool], words: Sequence[str] = ()
) -> Iterator[Conflict]:
    """Yield what is wrong: `value` gives an option's converted value by its name, `words` are the command."""
    if value("shell") == "":
        yield Conflict(("shell",), "the command is empty (an unset variable?)")
    if value("shell") is not None and words:
        yield Conflict(("shell",), "it is the command, and another one follows: choose one")
    rules = tick_rules(value, typed)
    if len(rules) > 1:
        yield Conflict((rules[0], rules[1]), "only one rule can name the tick")
        return
    yield from _with_the_tick(rules[0] if rules else "minute", value, typed)
    for name in ("retry-delay", "no-retry-on"):
        if typed(name) and not value("retries"):
            yield Conflict((name,), "it belongs to --retries N, which is not given")
    yield from _with_the_store_away(value)
    if value("failover") and value("retries") == 0:
        yield Conflict(
            ("failover", "retries"),
            "to go on with a lost attempt is a further attempt: allow at least 1",
        )


def tick_rules(value: Callable[[str], Any], typed: Callable[[str], bool]) -> list[str]:
    """Return the options that name the tick; typed ones win over configured ones."""
    rules = [name for name in _RULES if value(name) not in (None, False)]
    return [name for name in rules if typed(name)] or rules


def _with_the_tick(
    rule: str, value: Callable[[str], Any], typed: Callable[[str], bool]
) -> Iterator[Conflict]:
    if typed("tz") and rule != "schedule":
        yield Conflict(("tz",), "it is the zone of --schedule, which is not given")
    if typed("min-gap") and rule in ("schedule", "tick"):
        yield Conflict(
            ("min-gap",), "it belongs to the default rule and to --no-tick, not to a named tick"
        )
    if typed("starting-deadline") and not _has_instant(rule, value):
        yield Conflict(
            ("starting-deadline",), "it counts from a scheduled time, and this tick has none"
        )
    if value("shards") > 1 and rule == "no-tick":
        yield Conflict(
            ("shards", "no-tick"),
            "without a tick shards are never done: name the tick by --schedule or --tick",
        )


def _has_instant(rule: str, value: Callable[[str], Any]) -> bool:
    if rule != "tick":
        return rule != "no-tick"
    try:
        return tick.named_tick(value("tick")).instant is not None
    except ValueError:
        return True  # it is no name, which is told elsewhere


def _with_the_store_away(value: Callable[[str], Any]) -> Iterator[Conflict]:
    if value("on-store-error") != "run":
        return
    if value("shards") > 1:
        yield Conflict(
            ("shards", "on-store-error"),
            "without the store nobody knows which shard to run: use fail or skip",
        )
    if value("failover"):
        yield Conflict(
            ("failover", "on-store-error"),
            "a host that waits would start beside the one that runs: use fail or skip",
        )
