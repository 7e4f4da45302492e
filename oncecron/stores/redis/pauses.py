"""Read and change pauses and drained hosts on Redis."""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import ALL_KEYS, Pause
from oncecron.stores.redis.rows import decoded, json_of

if TYPE_CHECKING:
    from typing import Any

    from oncecron.core.readable import Unreadable
    from oncecron.stores.redis.people_client import PeopleClient


def listed(pipeline: PeopleClient, unreadable: Unreadable) -> list[Pause]:
    """Return the pauses, that of all keys first, then the drained hosts."""
    names = [pipeline.names.of_namespace(name) for name in ("pauses", "drains")]
    (now, _), keys, hosts = pipeline.ask([("TIME",), *(("HGETALL", name) for name in names)])
    paused = (_pause(unreadable, field, None, text) for field, text in keys.items())
    drained = (_pause(unreadable, None, field, text) for field, text in hosts.items())
    living = [
        pause for pause in paused if pause and (pause.until is None or pause.until > int(now))
    ]
    living.sort(key=lambda pause: (pause.key != ALL_KEYS, pause.key))
    return living + sorted(filter(None, drained), key=lambda pause: pause.host or "")


def change(
    pipeline: PeopleClient, what: dict[str, str | float | None], unreadable: Unreadable
) -> tuple[Pause | None, Pause | None]:
    """Set or remove a pause; return the pause that is there now and the one that was there before.

    Raises `StoreUnavailable` if fewer replicas have it than `?wait=` asks for: a failover could undo it.
    """
    answer = pipeline.confirmed_step("pause", [], what)
    key, host = what.get("key"), what.get("drained")
    now, before = (_pause(unreadable, key, host, text) if text else None for text in answer)
    return now, before


def _pause(unreadable: Unreadable, key: Any, host: Any, text: bytes) -> Pause | None:
    key, host = _text(key), _text(host)

    def pause() -> Pause:
        row = decoded(json_of(text))
        return Pause(key, host, row["author"], row.get("reason"), row["at"], row.get("until"))

    return unreadable.read(f"the pause of {key or host}", pause)


def _text(name: Any) -> Any:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
