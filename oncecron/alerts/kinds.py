"""The kinds of findings of `check` and `notify`, and the options that say what counts as one."""

from __future__ import annotations

from oncecron.config.options import Option
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import SLOW_TIMES

if TYPE_CHECKING:
    from collections.abc import Mapping

OK, WARNING, CRITICAL = range(3)
"""The exit statuses of a monitoring plugin; `EX_UNKNOWN` is the fourth."""

STATES = ("ok", "warning", "critical")

KINDS = {
    "missed": CRITICAL,
    "silent": CRITICAL,
    "failed": CRITICAL,
    "lost": CRITICAL,
    "expired": CRITICAL,
    "in-doubt": CRITICAL,
    "channel": CRITICAL,
    "left": WARNING,
    "slow": WARNING,
    "overrun": WARNING,
    "spooled": WARNING,
    "silent-host": WARNING,
    "clock": WARNING,
    "future": WARNING,
    "zone": WARNING,
    "same-name": WARNING,
}
"""The kinds of findings, and the state that each has by default."""

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
        "Report a key as `silent-host` if fewer than N hosts fired one of its last three ticks.",
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
)

_STATE_OF = {"warning": WARNING, "critical": CRITICAL, "ignore": OK}


def states_of(given: Mapping[str, str | None]) -> dict[str, int]:
    """Return the state of each kind of finding by the options `warning`, `critical` and `ignore`.

    Raises `ValueError` for an unknown kind, with the name of the option in front.
    """
    states = dict(KINDS)
    for option, state in _STATE_OF.items():
        for kind in (given.get(option) or "").split(","):
            name = kind.strip()
            if name and name not in KINDS:
                raise ValueError(f"{option}: no finding {name!r}; use {', '.join(KINDS)}")
            if name:
                states[name] = state
    return states
