"""What people do to a holder on Redis: ask it for something, and free what it left behind."""

from __future__ import annotations

from oncecron.core.errors import StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.core.log_rows import Released
from oncecron.core.timing import REPLICA_TIMEOUT
from oncecron.stores.redis import scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from oncecron.core.model import Request
    from oncecron.stores.redis.address import Target

    Ask = Callable[[Sequence[tuple[Any, ...]]], list[Any]]


def request(
    ask: Ask, names: scripts.Names, part: str, execution_id: int, wanted: Request
) -> bool:  # fmt: skip
    """Ask the holder; return whether the execution still has its lease."""
    values = {"part": part, "execution_id": execution_id, **wanted._asdict()}
    [answer] = ask([_step("request", names, [part], values)])
    return bool(answer)


def release(
    ask: Ask, target: Target, names: scripts.Names, part: str, execution_id: int | None, author: str
) -> Released:
    """Free the part, if nobody has it any more."""
    values = {"part": part, "execution_id": execution_id, "author": author}
    state, ends_in = confirmed(ask, target, _step("release", names, [part], values))
    return Released(state.decode(), ends_in=float(ends_in))


def change_pause(
    ask: Ask, target: Target, names: scripts.Names, what: Mapping[str, str | float | None]
) -> Any:
    """Put or take a pause; return what is there now, and what was there, as they are kept."""
    return confirmed(ask, target, _step("pause", names, [], what))


def confirmed(ask: Ask, target: Target, step: tuple[Any, ...]) -> Any:
    """Return a step's answer.

    Raises `StoreUnavailable` if fewer replicas have it than the address asks for: a failover might forget it.
    """
    wait = [("WAIT", target.wait, round(REPLICA_TIMEOUT * 1000))] if target.wait else []
    answer, *acknowledged = ask([step, *wait])
    if acknowledged and acknowledged[0] < target.wait:
        raise StoreUnavailable(
            f"Redis {target.shown}: it is done, but only {acknowledged[0]} of {target.wait} replicas (?wait=) "
            "have it; a failover could forget it: do it again"
        )
    return answer


def _step(
    name: str, names: scripts.Names, parts: Sequence[str], values: Mapping[str, str | float | None]
) -> tuple[Any, ...]:
    keys = names.keys(*parts)
    return ("EVAL", scripts.text(name), len(keys), *keys, *scripts.arguments(values))
