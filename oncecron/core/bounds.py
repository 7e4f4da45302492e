"""The limits of the values in a record for a store: what no host can have made is refused.

On PostgreSQL the same limits are domains in `tables.sql`, because there another role may write its own arguments.
"""

from __future__ import annotations

from oncecron.core import clock
from oncecron.core.errors import RecordRefusedError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LONGEST_PLACE, is_key, recordable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_EXACT = (1 << 53) - 1
"""The largest integer up to which a double, as in Lua and JSON, has every integer."""
_LARGEST_PID = (1 << 31) - 1
_LONGEST = 1e10
"""317 years, in seconds."""
_LONGEST_WORD = 80
"""Of an owner, an outcome, ... in bytes."""
_LONGEST_SHOWN = 80
"""How much of a wrong value a message shows."""

_SECONDS: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(("fired_at", "started_at", "finished_at", "at", "tick_instant"), clock.is_time),
    "duration": lambda seconds: 0 <= seconds <= _LONGEST,
}
_WHOLE = {
    "shard": (0, 999), "shards": (1, 1000), "attempt": (1, 1_000_000), "retries": (0, 1000),
    "exit_code": (0, 255), "signal": (1, 64), "pid": (0, _LARGEST_PID), "holder_pid": (0, _LARGEST_PID),
    "fencing_token": (0, _EXACT), "output_cut": (0, _EXACT), "count": (0, _EXACT),
}  # fmt: skip
_LENGTHS = {
    "tick": 800, "host": 1020, "holder_host": 1020, "reason": 1020, "user": 4000, "requested_by": 4000,
    "command": 1 << 16, "note": 1 << 16, "detail": 1 << 16, "refused": 1 << 16, "output": 8 << 20,
    "place": 4 * LONGEST_PLACE,
}  # fmt: skip
"""In bytes of UTF-8. `output` has room for the most that `--capture` keeps (`LARGEST_SIZE`), each byte as an escape."""


def check(record: dict[str, Any]) -> None:
    """Raise `RecordRefusedError` if a value of the record is out of its limits."""
    for name, value in record.items():
        if not is_possible(name, value):
            shown = repr(value)
            shown = shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "..."
            raise RecordRefusedError(f"the record has a {name} that no host can have: {shown}")


def is_possible(name: str, value: Any) -> bool:
    """Return whether a value is one that the field of a record can have."""
    if value is None:
        return True
    if name == "late":
        return isinstance(value, bool)
    if name in _WHOLE:
        least, most = _WHOLE[name]
        return type(value) is int and least <= value <= most
    if name in _SECONDS:
        return type(value) in (int, float) and _SECONDS[name](value)
    return isinstance(value, str) and _is_possible_text(name, recordable(value))


def _is_possible_text(name: str, text: str) -> bool:
    if name == "key":
        return is_key(text)
    if len(text.encode()) > _LENGTHS.get(name, _LONGEST_WORD):
        return False
    return name != "tick" or not any(
        letter.isspace() or letter < " " or "\x7f" <= letter <= "\x9f" for letter in text
    )
