"""A stage for one scenario: a variant of the product, an empty store, hosts, and a journal of their own."""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import Database, FaultProxy, Journal, RedisServer, assert_exclusive, job
from servers.oncecron import Firing, Oncecron, installed
from servers.process import kill_tree

TTL = 6
SHORT = ("--beats", "--sleep", 0.3)


@dataclasses.dataclass
class Scene:
    """One variant of the product, a store, and what happens there."""

    script: Path
    store: Any
    url: Callable[..., str]
    """Of the store; `via` leads through a proxy."""
    path: Path
    journal: Journal
    stack: ExitStack

    def host(self, name: str = "host-a", via: Any = None, **environment: str) -> Oncecron:
        """Make a host."""
        return Oncecron(self.url(via=via), self.path, name, script=self.script, **environment)

    def fire(self, host: Oncecron, *arguments: object) -> Firing:
        """Fire key `k` and do not wait; whatever is left of it is killed in the end."""
        firing = host.start(
            *("run", "--key", "k", "--ttl", TTL, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.stack.callback(kill_tree, firing.process.pid)
        return firing

    def proxy(self) -> FaultProxy:
        """Put a proxy in front of the store's server."""
        server = self.store.server if isinstance(self.store, Database) else self.store
        proxy = FaultProxy(server.port, to=server.host)
        self.stack.callback(proxy.close)
        return proxy

    def job(self, *options: object) -> list[str]:
        """Return the command of a job that writes to the journal of this scene."""
        return ["--", *job(self.journal, *options)]

    def next_tick(self, wait: str = "12s") -> None:
        """Fire a newer tick on another host until it has run; then see that nobody lived beside it."""
        ended = self.host("host-b").run(
            "k", "--ttl", TTL, "--wait", wait, "--tick", "two", *self.job(*SHORT)
        )
        assert (ended.status, ended.err) == (0, "")
        hosts = {start.host for start in self.journal.starts()}
        assert hosts == {"host-a", "host-b"}, "the key is blocked"
        assert_exclusive(self.journal)

    def lease_end(self) -> float:
        """Return when the lease ends that Redis knows, as the journal tells time."""
        with self.store.connect() as client:
            expires_at = float(client.hget("oncecron:{oncecron}:lease:k#0", "expires_at"))
        return expires_at - time.time() + time.monotonic()

    def skips(self) -> set[tuple[str, str]]:
        """Return host and reason of each refusal, as people are told of them."""
        ended = self.host()("history", "k", "--skips", "--format", "json")
        return {(row["host"], row["reason"]) for row in json.loads(ended.out)}


@contextmanager
def a_store(
    kind: str, request: pytest.FixtureRequest, path: Path, script: Path
) -> Iterator[tuple[Any, Callable[..., str]]]:
    """Make an empty store whose schema is the script's own; give it and what tells its URL."""
    if kind == "sqlite":
        (path / "store").mkdir(mode=0o700)
        yield None, lambda **_: f"sqlite://{path}/store/oncecron.db"
    elif kind == "redis":
        # With an append-only file: a young server without one makes every firing wait.
        server: RedisServer = request.getfixturevalue("new_redis")(aof=True, appendfsync="no")
        yield server, server.url
    else:
        with request.getfixturevalue("postgres").create_database().until_dropped() as database:
            ready = installed(database, script=script)
            yield ready, ready.url
