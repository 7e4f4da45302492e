"""Turn an error of Redis into a one-line message with a cure, and without a password.

What an error is, is known by its code, the first word, and by the command that it answers; its words may only add a
cure. Servers that are not Redis, and services that rename commands, have words of their own. The codes after which a
retry may help are listed. Every other answer is a refusal: a server that answers is not away.
"""

from __future__ import annotations

import errno

from oncecron.core.errors import RecordRefusedError, StoreRefusesError, StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.stores.address import command_line
from oncecron.stores.redis.resp import LARGEST_REPLY
from oncecron.stores.redis.scripts import LAYOUT

if TYPE_CHECKING:
    from oncecron.core.errors import StoreError
    from oncecron.stores.redis.address import Target
    from oncecron.stores.redis.resp import ReplyError

# The server did not execute the command and may execute a later one.
_TEMPORARY = {
    "LOADING": "the server is still loading its data",
    "BUSY": "a script blocks the server; if it does not end: `redis-cli script kill`",
    "CLUSTERDOWN": "the cluster is down; see `redis-cli cluster info`",
    "MASTERDOWN": "this replica has lost its master",
    "TRYAGAIN": "the slot is moving to another node",
}
_LOGIN = "in the store's URL, in store_file or under [redis]"
_CHECK = f"check {{}}username and {{}}password {_LOGIN}"
_CURES = {
    "WRONGPASS": _CHECK,
    "NOAUTH": f"give {{}}username and {{}}password {_LOGIN}",
    "DENIED": "set a password (requirepass) or a bind address on the server",
}
_CURES_OF_HANDSHAKE = {
    "AUTH": _CHECK,
    "SELECT": "choose another database: the server may have fewer, and a cluster has one",
}
_OTHER_CURE = "correct the store's URL"
_LOGIN_RIGHTS = "+select +client|setname"
_IN_A_CLUSTER = "+asking +command +cluster|slots"
READING = (
    f"{_LOGIN_RIGHTS} +time {_IN_A_CLUSTER} +hget +hmget +hgetall "
    "+zrange +zrevrange +zrevrangebyscore +xrange +xrevrange"
)
"""The rights of a user that only reads."""
RIGHTS = (
    f"{_LOGIN_RIGHTS} +info +time +wait {_IN_A_CLUSTER} "
    "+eval +evalsha +subscribe +publish "
    "+exists +del +hget +hmget +hgetall +hset +hsetnx +hdel +hincrby +hkeys +hlen +hstrlen "
    "+zadd +zcard +zscore +zrange +zrangebyscore +zrevrange +zrevrangebyscore +zrem "
    "+xadd +xdel +xlen +xrange +xrevrange"
)
"""The rights that oncecron needs in its namespace, each by its name.

`+@write` has FLUSHALL, FLUSHDB and SWAPDB, which are for all keys of the server.
"""


def acl_rule(user: str, namespace: str, rights: str = RIGHTS, login: str = "") -> list[str]:
    """Return the words of the command for a server that gives a user these rights in a namespace.

    `login`: what makes a new user of it, such as `on >PASSWORD`.
    """
    keys = (f"~{namespace}:*", "resetchannels", f"&{namespace}:*")
    return ["ACL", "SETUSER", user, *login.split(), *keys, *rights.split()]


def acl_command(target: Target, words: list[str]) -> str:
    """Return the call of redis-cli that sends these words to the store's server, in backquotes, to be pasted."""
    import shlex  # noqa: PLC0415 - for error messages alone

    place: list[str] = []
    if target.kind == "socket":
        place = ["-s", target.path]
    elif target.kind == "server":
        host, port = target.hosts[0]
        place = ["-h", host, "-p", str(port)]
    where = "" if place else " on each server"
    return f"run{where} `{shlex.join(['redis-cli', *place, *words])}`"


_WITHOUT_A_RIGHT = ("NOPERM", "The user executing the script can't", "ACL failure in script")
_STEP_REFUSED = {
    "WRONGTYPE": "another program uses keys with this prefix; choose another --namespace",
    "CROSSSLOT": "this is a cluster; write redis+cluster://HOST,HOST",
}
_OTHER_STEP = "oncecron needs Redis 6.2 or newer, with EVAL and EVALSHA allowed"
_STEP_FAILED = {
    "OOM": "the server's memory is full; raise maxmemory, or remove data",
    "MISCONF": "the server cannot save its data to disk; see its log",
    "NOREPLICAS": "the server has too few replicas (min-replicas-to-write)",
    "READONLY": "the server has become a replica",
    "UNBLOCKED": "the server has become a replica",
}
_UNREADABLE = (
    "a row of the store that cannot be read is named by `oncecron locks` or `oncecron history`: "
    "correct it in the store"
)
_NETWORK = "check the network and firewalls in between"

_UNREACHABLE = {
    errno.ECONNREFUSED: "check that the server runs, and bind and port in redis.conf",
    errno.EHOSTUNREACH: _NETWORK,
    errno.ENETUNREACH: _NETWORK,
    errno.ETIMEDOUT: _NETWORK,
}


def reason_of(error: OSError, *, is_socket: bool) -> str:
    """Return why a server cannot be reached, with the cure in brackets: an address may name several servers."""
    if isinstance(error, TimeoutError):
        return (
            error.strerror
            or "no answer in time (check the network, firewalls and the server's load)"
        )
    number = error.errno or 0
    cure = _UNREACHABLE.get(number)
    if number < 0:  # of getaddrinfo
        cure = "check the host name in the store's URL, and the DNS of this host"
    elif is_socket and number in (errno.ENOENT, errno.ECONNREFUSED):
        cure = "check that the server runs, and unixsocket in redis.conf"
    return f"{error.strerror or error}{f' ({cure})' if cure else ''}"


def of_command(error: ReplyError, where: str) -> StoreError | None:
    """Return the error of an answer that is not about the command itself; else None."""
    if error.code in _TEMPORARY:
        return _temporary(error, where)
    return _refused(error, where) if error.code in ("NOAUTH", "DENIED") else None


def _temporary(error: ReplyError, where: str) -> StoreError:
    return StoreUnavailable(f"{where}: {_TEMPORARY[error.code]}")


def is_harmless(verb: str, error: ReplyError, user: str) -> bool:
    """Return whether the handshake goes on after a refusal.

    Without a name nothing is lost. A password that the server does not ask for is not wrong, as in libpq: if it does,
    it refuses the next command (NOAUTH). To the many arguments of a script it would reply "Protocol error:
    unauthenticated multibulk length", so the name is always among the commands of the handshake.
    """
    if verb == "CLIENT":
        return error.code not in ("NOAUTH", "DENIED", *_TEMPORARY)
    return verb == "AUTH" and error.code == "ERR" and user == "default"


def of_handshake(verb: str, error: ReplyError, where: str, prefix: str, user: str) -> StoreError:
    """Return the error of a refused command of the handshake.

    `prefix`: the prefix of the URL's user and password parameters.
    """
    if error.code == "NOPERM":
        return _without_right(error, where, user, f"+{verb.lower()}")
    if error.code in _TEMPORARY:
        return _temporary(error, where)
    return _refused(error, where, prefix, _CURES_OF_HANDSHAKE.get(verb, _OTHER_CURE))


def turned_away(error: ReplyError, where: str) -> StoreError:
    """Return the error of a server that has refused a command and hung up, as one does that is full."""
    if error.code == "DENIED":
        return _refused(error, where)
    return StoreUnavailable(f"{where}: the server closed the connection and said: {_line(error)}")


def of_sentinel(error: ReplyError, where: str, user: str) -> StoreError:
    """Return the error of a sentinel that does not answer the question."""
    if error.code == "NOPERM":
        return _without_right(error, where, user, "+sentinel")
    if error.code in _TEMPORARY:
        return _temporary(error, where)
    not_one = "this may not be a sentinel; write redis://, or use the sentinel's port"
    return _refused(error, where, "sentinel_", not_one)


def of_step(error: ReplyError, target: Target, namespace: str) -> StoreError:
    """Return the oncecron error of an answer that is an error."""
    text, code = _line(error), _code_of_step(error)
    if any(words in text for words in _WITHOUT_A_RIGHT):
        return StoreRefusesError(
            f"Redis {target.shown}: {text}; as its administrator, {_cure_of_rights(text, target, namespace)}"
        )
    if code in _STEP_FAILED:
        return StoreUnavailable(f"Redis {target.shown}: {_STEP_FAILED[code]} ({text})")
    if code not in _STEP_REFUSED and _is_about_values(text):
        return RecordRefusedError(f"Redis {target.shown}: {text}; {_UNREADABLE}")
    return StoreRefusesError(
        f"Redis {target.shown}: {text}; {_STEP_REFUSED.get(code, _OTHER_STEP)}"
    )


def _code_of_step(error: ReplyError) -> str:
    """Return the code of an answer to a script: Redis before 7 puts the error of a command into a sentence (`-OOM`)."""
    if error.code != "ERR":
        return error.code
    inner = (word[1:] for word in str(error).split() if word[:1] == "-" and word[1:].isupper())
    return next(inner, error.code)


def _cure_of_rights(text: str, target: Target, namespace: str) -> str:
    refused = text.partition("run the '")[2].partition("'")[0]
    rights = READING if f"+{refused}" in READING.split() else RIGHTS
    return acl_command(target, acl_rule(target.username or "default", namespace, rights))


def _is_about_values(text: str) -> bool:
    """Return whether a script failed by itself, as Lua does for a value that is no number, and not by a command.

    Lua's messages begin with `user_script:LINE: ` and a word; those of commands with a code in capitals.
    """
    parts = text.split("user_script:")[1:]
    return any(part.partition(": ")[2][1:2].islower() for part in parts)


def wrong_server(target: Target, answer: dict[str, str]) -> StoreError:
    """Return the error of a server that could lose a lease."""
    shown = f"Redis {target.shown}"
    if answer["what"] == "replica":
        if target.kind in ("sentinel", "cluster"):
            return StoreUnavailable(f"{shown}: the server is a replica; a failover is in progress")
        return StoreRefusesError(
            f"{shown}: the server is a replica; use the master, or its sentinels: "
            "redis+sentinel://HOST,HOST/NAME"
        )
    return StoreRefusesError(
        f"{shown}: maxmemory-policy is {answer['found']}, which can evict a lease; "
        "use noeviction or volatile-lru: `redis-cli config set maxmemory-policy noeviction`"
    )


def misfit(target: Target, namespace: str, layout: str, oldest: str | None) -> StoreError | None:
    """Return the error of data that do not serve this program, by what they have on record."""
    from oncecron.stores import schema_version  # noqa: PLC0415 - only where it may not fit

    found = schema_version.Recorded(int(layout), None if oldest is None else int(oldest))
    if schema_version.serves(found, LAYOUT):
        return None
    init = f"run {command_line('init', target.shown, namespace)}"
    return schema_version.misfit(f"Redis {target.shown}", found, LAYOUT, init)


def of_a_cluster(where: str) -> StoreError:
    """Return the error of a cluster node that the address names as a single server."""
    return StoreRefusesError(
        f"{where}: this server is a node of a Redis Cluster; write redis+cluster://"
    )


def of_a_circle(redirection: str, where: str) -> StoreError:
    """Return the error of nodes that redirect to each other."""
    return StoreUnavailable(
        f"{where}: the nodes of the cluster redirect to each other ({redirection}); "
        "see `redis-cli cluster nodes`"
    )


def of_no_cluster(error: ReplyError, where: str) -> StoreError:
    """Return the error of a server that does not say which nodes its cluster has."""
    return StoreRefusesError(
        f"{where}: this server is not a node of a Redis Cluster ({_line(error)}); write redis://"
    )


def nameless(redirection: ReplyError, where: str) -> StoreError:
    """Return the error of a redirection that does not name the node."""
    return StoreRefusesError(
        f"{where}: {_line(redirection)} names no node; set cluster-announce-hostname on every node, "
        "or cluster-preferred-endpoint-type to ip"
    )


def too_large(where: str) -> StoreError:
    """Return the error of an answer that is larger than any that oncecron asks for."""
    return StoreRefusesError(
        f"{where}: the server's answer is larger than {LARGEST_REPLY >> 20} MB; check host and port, and what is "
        "between this host and the server"
    )


def no_answer_of_redis(where: str) -> StoreError:
    """Return the error of an answer that is in the Redis protocol, but means nothing for what was asked."""
    return StoreRefusesError(
        f"{where}: the server's answer is not one that Redis gives; check host and port"
    )


def stranger(what: str, where: str) -> StoreError:
    """Return the error of an answer that is not in the Redis protocol."""
    if what.startswith(("\x15\x03", "\x16\x03")):
        return StoreRefusesError(f"{where}: the server uses TLS on this port; write rediss://")
    return StoreRefusesError(
        f"{where}: the server is not Redis (it answered {what[:40]!r}); check host and port"
    )


def _without_right(error: ReplyError, where: str, user: str, right: str) -> StoreRefusesError:
    import shlex  # noqa: PLC0415 - for error messages alone

    command = shlex.join(["redis-cli", "ACL", "SETUSER", user, right])
    return StoreRefusesError(
        f"{where}: {_line(error)}; as its administrator, run there `{command}`"
    )


def _refused(
    error: ReplyError, where: str, prefix: str = "", cure: str = _OTHER_CURE
) -> StoreRefusesError:
    text = "the server is in protected mode" if error.code == "DENIED" else _line(error)
    cure = _CURES.get(error.code, cure).format(prefix, prefix)
    return StoreRefusesError(f"{where}: {text}; {cure}")


def _line(error: ReplyError) -> str:
    """Return the server's answer on one line, without the arguments that it may repeat: those of AUTH are secret."""
    text = str(error).partition(", with args beginning with")[0]
    return " ".join(text.split()).rstrip(".")
