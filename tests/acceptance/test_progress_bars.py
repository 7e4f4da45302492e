"""Long work shows a bar at a terminal: after a second, and until the work ends, in whatever way."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from log_of import RedisLog, SQLiteLog, Store
from servers.oncecron import Oncecron
from terminals import watched

Hosts = Callable[..., Oncecron]
LABELS = {
    "prune": "records of the store",
    "audit": "audit",
    "init": "prepare the store",
    "report --html -": "report",
}


@pytest.fixture
def freeze(
    store: Store, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Callable[[], None]]]:
    """Give a function that lets the store answer nobody, and returns one that lets it answer again."""
    with ExitStack() as stack:

        def frozen() -> Callable[[], None]:
            if isinstance(store, SQLiteLog):
                other = stack.enter_context(
                    closing(sqlite3.connect(store._path, isolation_level=None))
                )
                other.execute("pragma locking_mode = exclusive")
                other.execute("begin immediate")
                return other.close
            is_redis = isinstance(store, RedisLog)
            server = request.getfixturevalue("redis_server" if is_redis else "postgres")
            stack.callback(server.sigcont)
            server.sigstop()
            return server.sigcont

        yield frozen


@pytest.mark.turns(1)
@pytest.mark.own_log
@pytest.mark.parametrize("command", LABELS)
def test_a_bar_is_there_while_a_command_works(
    store: Store, new_host: Hosts, freeze: Callable[[], Callable[[], None]], command: str
) -> None:
    """What is written beside it has lines of its own, and the cursor is never hidden. A pipe sees nothing of it."""
    host = new_host(ONCECRON_STORE=store.owner_url)
    host.run("billing", "--tick", "t1", "--", "true")
    thaw = freeze()
    piped = host.start(*command.split())
    with watched(host, *command.split()) as work:
        work.until("waiting: no answer")
        thaw()
        work.until(f"{LABELS[command]}  [")
        assert work.wait() == 0
        screen = work.screen()
    assert "\x1b" not in work.shown
    assert [line for line in screen if not line.startswith("oncecron: waiting: no answer ")] == [""]
    ended = piped.wait(60)
    assert (ended.status, ended.err) == (0, "")


def test_the_load_of_a_list_and_its_items(store: Store, new_host: Hosts, public_path: Path) -> None:
    """First how many have been loaded, of how many is not known; then how many have ended."""
    host, fifo = new_host(), public_path / "more"
    os.mkfifo(fifo)
    each = ("each", "--key", "k", "--batch", 1000, "--items", f"seq 5001; cat {fifo}", "--")
    with watched(host, *each, "sh", "-c", "sleep 0.5", "sh") as work:
        work.until("5,000 loaded")
        fifo.write_text("last\n")
        work.until("/5002  ")
        assert work.wait() == 0
        assert work.screen() == [""]
