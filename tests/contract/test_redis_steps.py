"""When a firing reads the files of its steps on Redis: a loser few, whoever goes on all of them at once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts import TTL, Host, minute
from servers import RedisServer

from oncecron.stores.redis import scripts
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.lease_store import RedisLeaseStore

OF_A_SKIP = {"shared", "fitness", "facts", "look", "skip"}
ALL = {
    *(*OF_A_SKIP, "starting", "grant", "expire", "cut", "regain"),
    *("renew", "attempts", "keep", "retry", "retention", "finish", "deliver"),
}


@pytest.fixture
def host(
    redis_server: RedisServer, connect: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> Host:
    """Give a host in whose process nothing has been read yet."""
    monkeypatch.setattr(scripts, "_read", {})
    monkeypatch.setattr(scripts, "_digests", {})
    return connect(redis_server.url())


def test_a_file_is_read_whole() -> None:
    """By one system call, so none may be longer than that reads."""
    directory = Path(scripts.__file__).parent / "lua"
    for path in directory.rglob("*.lua"):
        name = str(path.relative_to(directory).with_suffix(""))
        assert scripts._lua(name) == path.read_text(), name


def test_a_winner_has_read_all_that_may_come(host: Host) -> None:
    """Its job may outlive the files."""
    host.win(minute(1))
    assert set(scripts._read) == ALL


def test_a_loser_reads_the_look_and_the_skip_alone(host: Host, redis_server: RedisServer) -> None:
    """Most firings lose, on every host and every minute."""
    other = RedisLeaseStore(parse(redis_server.url(), {}), namespace="oncecron", ttl=TTL)
    Host(other, "bb").win(minute(1))
    scripts._read.clear()
    scripts._digests.clear()
    host.lose(minute(1))
    assert set(scripts._read) == OF_A_SKIP
    host.lose(minute(1))  # as with --wait, perhaps for hours
    assert set(scripts._read) == ALL
    other.close()
