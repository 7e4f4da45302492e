"""Ask the sentinels where the master is: in their order, until one knows."""

from __future__ import annotations

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.stores.redis.connection import Introduction, Session
from oncecron.stores.redis.resp import ReplyError, packed

if TYPE_CHECKING:
    from oncecron.stores.redis.address import Host, Target
    from oncecron.stores.redis.connection import Way


def master(target: Target, way: Way, deadline: float) -> Host:
    """Return the master that the first sentinel to answer names.

    Raises `StoreRefusesError` when all that answer do not know it or refuse us, else `StoreUnavailable`.
    """
    failures: list[str] = []
    answered = False
    for place in target.hosts:
        try:
            return _told(place, target, way, deadline)
        except StoreError as error:
            answered = answered or isinstance(error, StoreRefusesError)
            failures.append(str(error).removeprefix(f"Redis {target.shown}: "))
    raise (StoreRefusesError if answered else StoreUnavailable)(
        f"Redis {target.shown}: {'; '.join(failures)}"
    )


def _told(place: Host, target: Target, way: Way, deadline: float) -> Host:
    where = way.where(place)
    until = way.soon(deadline)
    introduction = Introduction(
        target.sentinel_username, target.sentinel_password, whose="sentinel_"
    )
    session = Session(place, way, introduction, until)
    try:
        question = packed(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master))
        reply = session.ask(question, deadline=until)
    finally:
        session.close()
    if isinstance(reply, ReplyError):
        raise _refused(reply, where)
    match reply:
        case [bytes(host), bytes(port)] if host and port.isdigit():
            return host.decode("ascii", "replace"), int(port)
    raise StoreRefusesError(
        f"{where}: this sentinel knows no master {target.master!r}; "
        f"`redis-cli -h {place[0]} -p {place[1]} sentinel masters` names those that it knows"
    )


def _refused(error: ReplyError, where: str) -> StoreError:
    from oncecron.stores.redis.explain import of_sentinel  # noqa: PLC0415 - rarely needed

    return of_sentinel(error, where)
