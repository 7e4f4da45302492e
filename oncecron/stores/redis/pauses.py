"""Pauses and drained hosts on Redis: the one step that changes them, and how they are read."""

from __future__ import annotations

from oncecron.core.light import TYPE_CHECKING
from oncecron.core.log_rows import ALL_KEYS, Pause
from oncecron.stores.redis.control import change_pause
from oncecron.stores.redis.rows import decoded, json_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.scripts import Names

    Ask = Callable[[Sequence[tuple[Any, ...]]], list[Any]]


def listed(ask: Ask, names: Names) -> list[Pause]:
    """Return what refuses firings now: that of all keys first, the hosts last."""
    commands = [("HGETALL", names.of_namespace(name)) for name in ("pauses", "drains")]
    (now, _), keys, hosts = ask([("TIME",), *commands])
    paused = [_pause(field.decode(), None, text) for field, text in keys.items()]
    drained = [_pause(None, field.decode(), text) for field, text in hosts.items()]
    living = [pause for pause in paused if pause.until is None or pause.until > now]
    living.sort(key=lambda pause: (pause.key != ALL_KEYS, pause.key))
    return living + sorted(drained, key=lambda pause: pause.host or "")


def change(
    ask: Ask, target: Target, names: Names, what: dict[str, str | float | None]
) -> tuple[Pause | None, Pause | None]:
    """Put or take a pause: return what is there now, and what was there.

    Raises `StoreUnavailable` if fewer replicas have it than the address asks for: a failover might forget it.
    """
    answer = change_pause(ask, target, names, what)
    key, host = what.get("key"), what.get("drained")
    now, before = (_pause(key, host, text) if text else None for text in answer)
    return now, before


def _pause(key: Any, host: Any, text: bytes) -> Pause:
    row = decoded(json_of(text))
    return Pause(key, host, row["author"], row.get("reason"), row["at"], row.get("until"))
