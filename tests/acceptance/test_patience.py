"""What a person waits for: said on one line after two seconds, at a terminal alone."""

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from servers import RedisServer
from servers.oncecron import Oncecron
from servers.waiting import eventually
from terminals import watched

NewRedis = Callable[..., RedisServer]


@pytest.fixture
def silent() -> Iterator[str]:
    """Give HOST:PORT of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=50)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_redis_as_it_comes(new_redis: NewRedis, public_path: Path) -> None:
    """Without an append-only file and just started: what is waited for, how long, and the cure."""
    host = Oncecron(new_redis().url(), public_path)
    with watched(host, "run", "--key", "k", "--no-tick", "--", "true") as firing:
        after = firing.until("\n")
        assert after > 1.9
        line = (
            "waiting: k: the store has started and may have forgotten a lease; nothing starts for "
        )
        assert f"oncecron: {line}" in firing.shown
        assert (
            "; a new Redis is used at once if its redis.conf has `appendonly yes`" in firing.shown
        )
        assert firing.shown.count("\n") == 1


def test_a_redis_as_it_comes_is_told_to_cron_once_a_day(
    new_redis: NewRedis, public_path: Path
) -> None:
    """Nothing runs: that is worth a mail. `doctor` says it first."""
    host = Oncecron(new_redis().url(), public_path)
    first = host("doctor", "--json")
    assert json.loads(first.out)[0]["subject"] == "firings"
    assert "all firings wait until " in json.loads(first.out)[0]["text"]
    short = ("--no-tick", "--min-gap", "0s", "--ttl", "10s", "--", "true")
    ended = host.run("k", *short)
    assert (ended.status, ended.err.count("\n")) == (0, 1)
    assert "waiting: k: the store has started and may have forgotten a lease; nothing" in ended.err
    assert host.run("other", *short).err == ""


@pytest.mark.turns(2)
@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
@pytest.mark.parametrize("words", ["run --key k --no-tick -- true", "history", "pause k", "stop k"])
def test_a_store_that_does_not_answer(
    silent: str, public_path: Path, scheme: str, words: str
) -> None:
    """A firing, and what people ask."""
    store = f"{scheme}://u:secret@{silent}/0"
    with watched(Oncecron(store, public_path), *words.split()) as command:
        assert command.until("\n") > 1.9
        shown = f"no answer from {scheme}://u:***@{silent}/0 yet; it has "
        assert f"oncecron: waiting: {'k: ' if 'run' in words else ''}{shown}" in command.shown


def test_nothing_of_it_is_for_cron(silent: str, public_path: Path) -> None:
    """Where standard error is no terminal, the failure alone is told."""
    ended = Oncecron(f"redis://{silent}", public_path).run(
        "k", "--connect-timeout", "4s", "--", "true"
    )
    assert ended.status == 69
    assert ended.err.count("\n") == 1
    assert "waiting" not in ended.err


def test_a_file_that_is_locked(public_path: Path) -> None:
    """By a transaction of another process: said, and carried out as soon as it ends."""
    path = public_path / "store" / "oncecron.db"
    path.parent.mkdir(mode=0o700)
    host = Oncecron(f"sqlite://{path}", public_path)
    host.run("k", "--tick", "1", "--", "true")
    for words in (("pause", "k"), ("run", "--key", "k2", "--no-tick", "--", "true")):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            with watched(host, *words) as command:
                command.until(f"no answer from {path} yet; it has ")
                other.execute("rollback")
                assert command.wait() == 0


def test_the_pause_before_a_further_attempt(public_path: Path) -> None:
    """It is known from the beginning, and said at once."""
    host = Oncecron("local", public_path)
    how = ("--retries", "1", "--retry-delay", "1h")
    with watched(host, "run", "--key", "k", "--tick", "1", *how, "--", "false") as firing:
        firing.until("oncecron: key k: waiting 1h")
        assert " before attempt 2 (--retry-delay)" in firing.shown


def test_an_end_that_cannot_be_recorded(new_redis: NewRedis, public_path: Path) -> None:
    """The command has ended, and the prompt does not come back: the store is asked to record it."""
    server = new_redis(aof=True)
    host = Oncecron(server.url(), public_path)
    ready, go = public_path / "ready", public_path / "go"
    script = f"touch {ready}; until [ -e {go} ]; do sleep 0.05; done"
    with watched(host, "run", "--key", "k", "--tick", "1", "--", "sh", "-c", script) as firing:
        eventually(ready.exists)
        server.sigstop()
        go.touch()
        firing.until("waiting: k: the store has not recorded the end yet; it has 10 s")
        server.sigcont()
        assert firing.wait() == 0
