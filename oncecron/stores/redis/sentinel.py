"""Ask the sentinels for the master, in order, until one knows it."""

from __future__ import annotations

from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.redis.connection import Handshake, ServerConnection
from oncecron.stores.redis.resp import ReplyError, packed

if TYPE_CHECKING:
    from oncecron.stores.redis.address import Host, Target
    from oncecron.stores.redis.connection import Transport


def master(target: Target, transport: Transport, deadline: float) -> Host:
    """Return the master that the first sentinel to reply names.

    Raises `StoreRefusesError` when a sentinel replied, but none knows the master; else `StoreUnavailable`.
    """
    failures: list[str] = []
    answered = False
    for place in target.hosts:
        try:
            return _named_by(place, target, transport, deadline)
        except StoreError as error:
            answered = answered or isinstance(error, StoreRefusesError)
            failures.append(str(error).removeprefix(f"Redis {target.shown}: "))
    raise (StoreRefusesError if answered else StoreUnavailable)(
        f"Redis {target.shown}: {'; '.join(failures)}"
    )


def _named_by(place: Host, target: Target, transport: Transport, deadline: float) -> Host:
    where = transport.where(place)
    until = transport.server_deadline(deadline)
    handshake = Handshake(target.sentinel_username, target.sentinel_password, prefix="sentinel_")
    connection = ServerConnection(place, transport, handshake, until)
    try:
        question = packed(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master))
        reply = connection.ask(question, deadline=until)
    finally:
        connection.close()
    if isinstance(reply, ReplyError):
        raise _refused(reply, where)
    match reply:
        case [bytes(host), bytes(port)] if host and port.isdigit():
            return host.decode("ascii", "replace"), int(port)
    raise StoreRefusesError(
        f"{where}: this sentinel does not know the master {target.master!r}; list those it knows: "
        f"`redis-cli -h {place[0]} -p {place[1]} sentinel masters`"
    )


def _refused(error: ReplyError, where: str) -> StoreError:
    from oncecron.stores.redis.explain import of_sentinel  # noqa: PLC0415 - rarely needed

    return of_sentinel(error, where)
