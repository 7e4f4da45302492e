"""What a refusal or a failure of Redis means, and what cures it: sentences of one line, never a password."""

from __future__ import annotations

from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.address import masked

if TYPE_CHECKING:
    from oncecron.core.errors import StoreError
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import ReplyError

# The server says that it did not execute the command, and that a later one may be.
_TEMPORARY = {
    "LOADING": "it is still loading its data",
    "BUSY": "a script keeps it busy; `redis-cli script kill` ends one that does not end by itself",
    "CLUSTERDOWN": "the cluster is down; see `redis-cli cluster info`",
    "MASTERDOWN": "this replica has lost its master",
    "TRYAGAIN": "the slot is on its way to another node",
}
_LOGIN = "in the store's URL, in store_file or under [redis]"
_CURES = {
    "WRONGPASS": f"check {{}}username and {{}}password {_LOGIN}",
    "NOAUTH": f"give {{}}username and {{}}password {_LOGIN}",
    "NOPERM": "allow the user to log in and to use this database (ACL: +select)",
    "DENIED": "give the server a password (requirepass), or let it listen on the address meant for its clients",
}
ACL_RULE = (
    "ACL SETUSER oncecron on >PASSWORD ~oncecron:* &oncecron:* "
    "+@read +@write +eval +evalsha +info +time +wait +select +client|setname +subscribe +publish"
)
"""What a firing's user needs, for the namespace `oncecron`."""

_STEP_REFUSED = {
    "NOPERM": f"give the user what it needs: {ACL_RULE}",
    "The user executing the script can't": f"give the user what it needs: {ACL_RULE}",
    "ACL failure in script": f"give the user what it needs: {ACL_RULE}",
    "unknown command": "oncecron needs Redis 6.2 or newer, with EVAL and EVALSHA allowed",
    "WRONGTYPE": "another program uses these names: choose another --namespace",
    "CROSSSLOT": "name a cluster as redis+cluster://HOST,HOST",
}
_STEP_FAILED = {
    "OOM": "its memory is full; raise maxmemory, or remove data",
    "MISCONF": "it cannot save its data to the disk; look at its log",
    "NOREPLICAS": "it has too few replicas (min-replicas-to-write)",
    "READONLY": "it has become a replica",
}
_NO_PASSWORD_NEEDED = "without any password configured"  # noqa: S105 - the server's words
_UNKNOWN_DATABASE = "DB index is out of range"


def at_the_door(error: ReplyError, where: str) -> StoreError | None:
    """Return the error of a server that hangs up on whoever connects; else None."""
    if str(error).startswith("ERR max number of clients"):
        return StoreUnavailable(f"{where}: it has as many clients as it takes (maxclients)")
    return _refused(error, where) if error.code == "DENIED" else None


def temporary(error: ReplyError, where: str) -> StoreError | None:
    """Return the error of an answer after which asking again may help, or at the door; else None."""
    if error.code in _TEMPORARY:
        return StoreUnavailable(f"{where}: {_TEMPORARY[error.code]}")
    return at_the_door(error, where)


def of_command(error: ReplyError, where: str) -> StoreError | None:
    """Return the error of an answer that says nothing about the command itself; else None."""
    return _refused(error, where) if error.code == "NOAUTH" else temporary(error, where)


def of_handshake(error: ReplyError, where: str, prefix: str) -> StoreError | None:
    """Return the error of a refused AUTH or SELECT; None if the refusal does no harm.

    `prefix`: how the names of user and password begin in the URL.
    """
    if _NO_PASSWORD_NEEDED in str(error):
        return None  # as libpq has it: a password that is not asked for is not wrong
    return temporary(error, where) or _refused(error, where, prefix)


def of_sentinel(error: ReplyError, where: str) -> StoreError:
    """Return the error of a sentinel that does not answer the question."""
    if error.code == "NOPERM":
        return StoreRefusesError(f"{where}: {_line(error)}; allow the user to ask (ACL: +sentinel)")
    if str(error).startswith("ERR unknown command"):
        return StoreRefusesError(f"{where}: this is no sentinel; write redis://, or its port")
    return temporary(error, where) or _refused(error, where, "sentinel_")


def of_step(error: ReplyError, target: Target) -> StoreError:
    """Return the oncecron error of an answer that is an error.

    Redis before 7 puts what a script met into a longer sentence, so that the code is looked for anywhere.
    """
    text = str(error)
    for found, cure in _STEP_REFUSED.items():
        if found in text:
            return StoreRefusesError(f"Redis {target.shown}: {text}; {cure}")
    for found, meaning in _STEP_FAILED.items():
        if found in text:
            return StoreUnavailable(f"Redis {target.shown}: {meaning} ({text})")
    return StoreUnavailable(f"Redis {target.shown}: {text}")


def wrong_server(target: Target, answer: dict[str, str]) -> StoreError:
    """Return the error of a server on which a claim could not be kept."""
    shown = f"Redis {target.shown}"
    if answer["what"] == "replica":
        if target.kind in ("sentinel", "cluster"):
            return StoreUnavailable(f"{shown}: the server is a replica: a failover is under way")
        return StoreRefusesError(
            f"{shown}: the server is a replica; name the master, or its sentinels: "
            "redis+sentinel://HOST,HOST/NAME"
        )
    if answer["what"] == "layout":
        return StoreRefusesError(
            f"{shown}: its data have layout {answer['found']} and this oncecron needs another; "
            "run the same release of oncecron on every host"
        )
    return StoreRefusesError(
        f"{shown}: its maxmemory-policy is {answer['found']}, which may remove a lease that is held; "
        "set it to noeviction or to volatile-lru"
    )


def of_a_cluster(where: str) -> StoreError:
    """Return the error of a node of a cluster that was taken for a server of its own."""
    return StoreRefusesError(
        f"{where}: this server is a node of a Redis Cluster; write redis+cluster://"
    )


def nameless(redirection: ReplyError, where: str) -> StoreError:
    """Return the error of a redirection to a node whose name the cluster does not tell."""
    return StoreRefusesError(
        f"{where}: {_line(redirection)} names no node; set cluster-announce-hostname on every node, "
        "or cluster-preferred-endpoint-type to ip"
    )


def stranger(what: str, where: str) -> StoreError:
    """Return the error of an answer that is not Redis's."""
    if what.startswith(("\x15\x03", "\x16\x03")):
        return StoreRefusesError(f"{where}: the server speaks TLS there; write rediss://")
    return StoreRefusesError(
        f"{where}: what answers there is no Redis ({what[:40]!r}); check host and port"
    )


def _refused(error: ReplyError, where: str, prefix: str = "") -> StoreRefusesError:
    text = _line(error)
    if error.code == "DENIED":
        text = "the server is in protected mode"
    cure = _CURES.get(error.code, "correct the store's URL").format(prefix, prefix)
    if _UNKNOWN_DATABASE in text:
        cure = "the server has fewer databases; choose a smaller number"
    return StoreRefusesError(f"{where}: {text}; {cure}")


def _line(error: ReplyError) -> str:
    return masked(" ".join(str(error).split()).rstrip("."))
