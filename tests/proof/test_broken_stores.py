"""The stores that are broken on purpose are broken: a tick starts twice on them, or two jobs of a key live at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import broken_stores
import pytest
from broken_stores import BrokenStore
from servers import descendants, eventually
from servers.oncecron import SHORT_TTL, Firing, Oncecron
from servers.process import Process

FORGETS = ("promoted", "forgetful", "leaky")
MEANWHILE = {"two-masters": SHORT_TTL, "stepped": 600}
"""With the ttl: no heartbeat may come before the next claim; or a promoted server waits it out before it grants."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_each_kind_has_a_test() -> None:
    """None is called broken without a proof."""
    assert {*FORGETS, *MEANWHILE} == {*broken_stores.KINDS}


@contextlib.contextmanager
def standing(kind: str, state: Path) -> Iterator[tuple[BrokenStore, Oncecron, Oncecron]]:
    """Make a store, and two hosts that have fired: while it is well, a tick starts once."""
    with broken_stores.KINDS[kind]() as store:
        first, second = (Oncecron(store.url, state, name) for name in ("alpha", "beta"))
        assert run(first, "well") == b"alpha\n"
        assert run(second, "well") == b""
        yield store, first, second


def run(host: Oncecron, tick: str, *words: object) -> bytes:
    """Fire a tick and return what the job wrote; nothing if it was skipped."""
    ended = fire(host, tick, *(words or ("sh", "-c", 'echo "$ONCECRON_HOST"'))).wait(60)
    assert (ended.status, ended.err) == (0, "")
    return ended.out


def fire(host: Oncecron, tick: str, *words: object, ttl: int = SHORT_TTL) -> Firing:
    """Fire a tick and do not wait."""
    limits = ("--ttl", ttl, "--connect-timeout", "30s")
    return host.fire("k", *limits, "--tick", tick, "--", *words)


@pytest.mark.parametrize("kind", FORGETS)
def test_it_forgets_a_tick_that_has_run(kind: str, tmp_path: Path) -> None:
    """Each time that it is broken, and not before."""
    with standing(kind, tmp_path) as (store, first, second):
        for tick in ("t1", "t2"):
            store.begin()
            assert run(first, tick) == b"alpha\n"
            assert run(second, tick) == b""
            store.end()
            assert run(second, tick) == b"beta\n"


@pytest.mark.parametrize(("kind", "ttl"), MEANWHILE.items())
def test_it_grants_a_key_that_is_held(kind: str, ttl: int, tmp_path: Path) -> None:
    """Each time that it is broken, and not afterwards."""
    with standing(kind, tmp_path) as (store, first, second):
        for number in (1, 2):
            holder = fire(first, f"t{number}", "sleep", 60, ttl=ttl)
            job = holder.job()
            store.begin()
            other = granted(second, f"u{number}", ttl)
            assert job.alive()
            for firing in (holder, other):
                firing.process.terminate()
                firing.wait()
            store.end()
            assert run(first, f"v{number}") == b"alpha\n"
            assert run(second, f"v{number}") == b""


def granted(host: Oncecron, tick: str, ttl: int) -> Firing:
    """Fire until a job has started: of two masters, a firing may reach the one that knows the holder."""

    def started() -> Firing | None:
        firing = fire(host, tick, "sleep", 60, ttl=ttl)
        eventually(lambda: jobs(firing) or firing.process.poll() is not None, 20)
        return firing if jobs(firing) else None

    return eventually(started, 40)


def jobs(firing: Firing) -> list[Process]:
    """Return what the guard of a firing has started."""
    return descendants(firing.process.pid)[2:]
