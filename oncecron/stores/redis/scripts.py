"""Load the Lua scripts (steps) of this package, and run them on the server.

A step is sent by its hash (EVALSHA); a server that does not know the hash gets the text (EVAL), once. A process reads
each file once, like a module: an upgrade under a running job changes none of its steps.
"""

from __future__ import annotations

import os

from oncecron.core.light_modules import light_module
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.model import LEAST, recordable_values
from oncecron.core.timing import HOST_FORGOTTEN_AFTER, PAUSES_KEPT
from oncecron.stores.redis.resp import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oncecron.core.facts import Values
    from oncecron.core.model import Retention
    from oncecron.stores.redis.resp import Reply, Word

LAYOUT = 1
"""The version of the data that this program needs and writes."""
OLDEST: int | None = None
"""The oldest version of a program that these data serve too (stores/schema_version.py)."""
FITTING = ((None, None), (str(LAYOUT), None if OLDEST is None else str(OLDEST)))
"""The versions that a new namespace has on record, and that this program writes."""

STEPS = os.path.join(os.path.dirname(__file__), "lua", "steps")
EVICTING = "allkeys"
"""How the maxmemory-policy of a server begins that may evict a lease: no claim is granted there."""
_OF_A_RUN = (
    *("grant", "expire", "cut", "regain", "skip"),
    *("renew", "keep", "retry", "finish", "deliver"),
)
_OF_NAMESPACE = (
    *("namespace", "parts", "executions", "outputs", "divisions", "pauses", "drains", "lists"),
    "given_up",
)
_OF_SHARD = (
    *("key", "lease", "ticks", "names", "owners", "log"),
    *("skips", "skip_rows", "hosts", "plain", "plain_rows"),
)
_OF_LIST = ("list", "items", "ids", "marks", "due", "lost", "slots", "batches")
ITEMS_PER_STEP = 2000
"""How many items of an expired list one step removes."""

_LONGEST = 1 << 16
"""Of a file of Lua, in bytes; ours have at most 22,000."""

_read: dict[str, str] = {}
_digests: dict[str, str] = {}
"""Of the steps that have run: a draw each batch would hash its 20 kB again, in 0.15 ms."""


def text(step: str) -> str:
    """Return the Lua of a step; that of `upgrade` has the steps to this version of the data.

    The first line of its file names those that come before it: `-- after shared retention`.
    """
    own = _lua(step)
    before = own.partition("\n")[0].removeprefix("-- after ").split()
    found = "\n".join([*map(_lua, before), own])
    return found if step != "upgrade" else found.replace("-- {steps}\n", _upgrades())


def _upgrades() -> str:
    from oncecron.stores import schema_version  # noqa: PLC0415 - for `init` alone

    found = schema_version.steps(STEPS).items()
    return "".join(f"steps[{number}] = function()\n{lua}end\n" for number, lua in found)


def read_all() -> None:
    """Read every step that may come after the first look: twelve more small files, some 180 microseconds."""
    for step in _OF_A_RUN:
        text(step)


def _lua(name: str) -> str:
    if name not in _read:
        path = os.path.join(os.path.dirname(__file__), "lua", f"{name}.lua")
        # `open` would take six times as long, for eighteen files.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _read[name] = os.read(descriptor, _LONGEST).decode()
        finally:
            os.close(descriptor)
    return _read[name]


def digest(script: str) -> str:
    """Return the hash by which a server knows a script."""
    sha1 = light_module("_sha1", "hashlib", "sha1").sha1
    name: str = sha1(script.encode()).hexdigest()
    return name


def _digest_of(step: str) -> str:
    if step not in _digests:
        _digests[step] = digest(text(step))
    return _digests[step]


def run(ask: Callable[..., Reply], step: str, words: Iterable[Word]) -> Reply:
    """Run a step by its hash, or by its text if the server does not know the hash; return the reply.

    `ask` sends one command. Raises `ReplyError` and what `ask` raises.
    """
    try:
        return ask("EVALSHA", _digest_of(step), *words)
    except ReplyError as error:
        if error.code != "NOSCRIPT":
            raise
    return ask("EVAL", text(step), *words)


class Names:
    """The names of a namespace's keys; all share one hash tag, and so one slot of a cluster."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._prefix = f"{namespace}:{{{namespace}}}:"

    def of_namespace(self, name: str) -> str:
        """Return a name of the whole namespace, such as `parts`."""
        return self._prefix + name

    def mark(self) -> tuple[str, str, str, str]:
        """Return the command that goes before a WAIT on the same connection, and changes nothing.

        From Redis 7.2 on, WAIT counts the replicas that have what this connection has written. A step that was sent
        again, on another connection, may find its work done and write nothing: then every replica would count at once.
        """
        return "HSET", self.of_namespace("mark"), "", ""

    def of_shard(self, name: str, shard: str) -> str:
        """Return a name of one shard of a key, such as `lease`; `shard` is KEY#SHARD."""
        return f"{self._prefix}{name}:{shard}"

    def keys(self, *shards: str) -> list[str]:
        """Return the keys that a step declares: those of the namespace and of each shard, as in shared.lua."""
        keys = [self.of_namespace(name) for name in _OF_NAMESPACE]
        for shard in shards:
            keys += [self.of_shard(name, shard) for name in _OF_SHARD]
        return keys

    def of_expiry(self, name: str) -> list[str]:
        """Return the keys of a step that removes a list, whose key's first shard is the part."""
        return self.of_list(shard_of(name.partition("#")[0], 0), name, 0)

    def of_list(self, shard: str, name: str, slots: int) -> list[str]:
        """Return the keys of a step for a list of items, with the leases of its key's shards, as in each/shared.lua.

        `shard`: the part of the step; `name`: KEY#TICK.
        """
        key = name.partition("#")[0]
        return [
            *self.keys(shard),
            *(self.of_shard(each, name) for each in _OF_LIST),
            *(self.of_shard("lease", shard_of(key, slot)) for slot in range(slots)),
        ]


def shard_of(key: str, shard: int) -> str:
    """Return the name of one shard of a key, which the Lua files call a part."""
    return f"{key}#{shard}"


def list_of(items_of: tuple[str, str]) -> str:
    """Return the name of the list of items of a key and a tick: KEY#TICK. A key has no number sign."""
    return "#".join(items_of)


def expiry_values(name: str, retention: Values) -> Values:
    """Return the arguments of a step that removes some items of an expired list."""
    key, _, tick = name.partition("#")
    of_list: Values = {"part": shard_of(key, 0), "list": name, "tick": tick}
    return {**retention, **of_list, "most": ITEMS_PER_STEP}


def arguments(values: Mapping[str, str | int | float | None]) -> list[str | int | float]:
    """Return the arguments of a step: names and values in turn, without None and false; and the version of the data."""
    flat: list[str | int | float] = ["layout", LAYOUT]
    if OLDEST is not None:
        flat += ("oldest", OLDEST)
    for name, value in recordable_values(values).items():
        if value is not None and value is not False:
            flat += (name, "yes" if value is True else value)
    return flat


def retention_values(retention: Retention | None, most: int) -> Values:
    """Return the arguments of a step for the retention; `most`: executions, and skips, of a shard."""
    if retention is None:
        return {}
    return {
        "keep_executions": retention.executions,
        "keep_skips": retention.skips,
        "keep_most": most,
        "least_executions": LEAST.executions,
        "least_skips": LEAST.skips,
        "host_forgotten_after": HOST_FORGOTTEN_AFTER,
        "pauses_kept": PAUSES_KEPT,
    }


def texts(found: Reply) -> list[str | None]:
    """Return the values of a list, None for those that are not there."""
    values = found if isinstance(found, list) else []
    return [value.decode("latin-1") if isinstance(value, bytes) else None for value in values]


def dictionary(flat: Reply) -> dict[str, str]:
    """Return an answer of names and values in turn."""
    words = [
        word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        for word in (flat if isinstance(flat, list) else [])
    ]
    return dict(zip(words[::2], words[1::2], strict=True))
