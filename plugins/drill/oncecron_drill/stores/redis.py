"""The keys of a drill in Redis or Valkey, and what the server says of itself."""

from __future__ import annotations

import contextlib

from oncecron.core.errors import StoreUnavailable
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.timing import REPLICA_TIMEOUT
from oncecron.stores.address import masked
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.people_client import PeopleClient
from oncecron.stores.redis.scripts import Names
from oncecron_drill.generator import TTL
from oncecron_drill.stores import Sight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from oncecron.stores.address import Address
    from oncecron.stores.redis.people_client import Command
    from oncecron_drill.stores import Write

_SCANNED = 1000
_BEAT = """
local before = tonumber(redis.call('HGET', KEYS[1], 'number') or -1)
if tonumber(ARGV[1]) > before then redis.call('HSET', KEYS[1], 'number', ARGV[1]) end
return before
"""
"""A write that comes late changes nothing. A hash, because a role that fires has the rights for hashes alone."""
_UNPROXIED = {
    "socket": "a Unix socket has no proxy",
    "sentinel": "the addresses that Sentinel answers lead past a proxy",
    "cluster": "the addresses that the cluster answers lead past a proxy",
}


class RedisDrill:
    """See `DrilledStore`."""

    def __init__(self, address: Address, namespace: str) -> None:
        self._url = address.target
        self._options = address.options
        self._target = parse(address.target, self._options)
        self._names = Names(namespace)
        self._watch = PeopleClient(self._target, self._names)

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        return () if self.unproxied else self._target.hosts

    @property
    def unproxied(self) -> str:
        if self._target.tls is not None:
            return "TLS checks the name of the server, which a proxy does not have"
        return _UNPROXIED.get(self._target.kind, "")

    def role(self) -> str | None:
        return None

    def address_through(self, ports: Sequence[int]) -> tuple[str, dict[str, str]]:
        if not ports:
            return self._url, {}
        scheme, _, rest = self._url.partition("://")
        before, question, query = rest.partition("?")
        authority, slash, path = before.partition("/")
        login, at, _ = authority.rpartition("@")
        return f"{scheme}://{login}{at}127.0.0.1:{ports[0]}{slash}{path}{question}{query}", {}

    def prepare(self) -> None:
        self.writer(())(0)

    def remove(self) -> None:
        client = PeopleClient(self._target, self._names)
        try:
            cursor: Any = "0"
            while True:
                pattern = self._names.of_namespace("*")
                [[cursor, found]] = client.ask(
                    [("SCAN", cursor, "MATCH", pattern, "COUNT", str(_SCANNED))]
                )
                if found:
                    client.ask([("UNLINK", *found)])
                if int(cursor) == 0:
                    return
        finally:
            client.close()

    def look(self) -> Sight:
        server, replication, (seconds, microseconds) = self._watch.ask(
            [("INFO", "server"), ("INFO", "replication"), ("TIME",)]
        )
        name = "Valkey" if "valkey_version" in server else "Redis"
        version = server.get("valkey_version") or server.get("redis_version") or "?"
        role = replication.get("role", "?")
        replicas = replication.get("connected_slaves", 0)
        return Sight(
            f"{name} {version}",
            f"port {server.get('tcp_port', '?')}, {server.get('config_file') or 'no file'}",
            str(server.get("run_id")),
            f"{role} with {replicas} replicas, run {str(server.get('run_id'))[:8]}",
            int(seconds) + int(microseconds) / 1e6,
        )

    def writer(self, ports: Sequence[int]) -> Write:
        through = parse(self.address_through(ports)[0], self._options)
        name, wait = self._names.of_namespace("drill_beat"), through.wait

        def write(number: int) -> int:
            commands: list[Command] = [("EVAL", _BEAT, "1", name, str(number))]
            if wait:
                commands.append(("WAIT", str(wait), str(round(REPLICA_TIMEOUT * 1000))))
            client = PeopleClient(through, self._names)
            try:
                before, *acknowledged = client.ask(commands)
            finally:
                client.close()
            if wait and acknowledged[0] < wait:
                raise StoreUnavailable(
                    f"Redis {masked(self._url)}: only {acknowledged[0]} of {wait} replicas have it"
                )
            return int(before)

        return write

    @contextlib.contextmanager
    def plain_lock(self, key: str) -> Iterator[bool]:
        """SET NX with the shortest ttl that oncecron allows, and DEL; nothing renews it."""
        name = self._names.of_namespace(f"plain:{key}")
        [granted] = self._watch.ask([("SET", name, "taken", "NX", "EX", f"{TTL:g}")])
        yield granted is not None
        if granted is not None:
            self._watch.ask([("DEL", name)])

    def close(self) -> None:
        self._watch.close()


def open_drilled(address: Address, namespace: str) -> RedisDrill:
    """Return the store of a drill."""
    return RedisDrill(address, namespace)
