"""The heartbeats of the store thread, what it delivers, a store that is away for long, and a lease that is lost."""

import select
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from servers.kept import assert_nothing_kept

from oncecron.config.run_parser import ParsedRun
from oncecron.core import clock, system
from oncecron.core.errors import StoreError, StoreRefusesError, StoreUnavailable
from oncecron.core.model import Ending, Holder, Lease, Refusal
from oncecron.core.retry import Backoff
from oncecron.run.claimer import StoreConnection
from oncecron.run.events import Failed, Lost, NoShardLeft, Recorded
from oncecron.run.spec import RunSpec, make_spec
from oncecron.run.spool import execution_record, skip_record
from oncecron.run.store_thread import StoreThread
from oncecron.stores import steadied, steady
from oncecron.stores.address import parse_address

TTL = 60.0
INTERVAL = 10.0


def first_heartbeat(*, holds: bool) -> float:
    """Return after how many seconds a job that begins now renews its lease for the first time."""
    spec: Any = SimpleNamespace(firing=SimpleNamespace(ttl=TTL), verbose=0)
    thread: Any = StoreThread(spec, lambda: pytest.fail("nothing is claimed"))
    thread._connection = SimpleNamespace(store=SimpleNamespace(holds_connection=holds))
    thread._clock = clock.BOOTTIME
    began = thread._now()
    thread._beat()
    return float(thread._renew_at - began)


def test_jobs_that_begin_together_do_not_connect_together() -> None:
    """Without a held connection, first heartbeats are spread over the whole interval."""
    seconds = sorted(first_heartbeat(holds=False) for _ in range(200))
    assert 0 <= seconds[0] < INTERVAL / 4
    assert INTERVAL * 3 / 4 < seconds[-1] < INTERVAL + 1


def test_on_a_held_connection_it_comes_after_the_interval() -> None:
    """It disturbs nobody."""
    assert INTERVAL <= first_heartbeat(holds=True) < INTERVAL + 1


class Away:
    """A store that is away, in a frame that refers to the error that it raises."""

    lease_clock = clock.BOOTTIME
    holds_connection = True
    steadiness = None

    @steadied
    def renew(self, *_: object, **__: object) -> None:
        error = StoreUnavailable("away")
        raise error

    keep = retry = finish = renew

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize("order", ["_renew", "_keep", "_retry", "_record"])
def test_a_store_that_is_away_for_long(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of the calls that fail: this process collects no cycles."""
    monkeypatch.setattr("oncecron.run.store_thread.RECORD_TIMEOUT", 0.0)
    firing = SimpleNamespace(ttl=TTL, key="k", shards=2)
    spec: Any = SimpleNamespace(firing=firing, verbose=0, connect_timeout=0.0, retention=None)
    spec.firing_of = lambda _lease: firing
    thread: Any = StoreThread(spec, lambda: pytest.fail("nothing is claimed"))
    store: Any = steady(Away(), parse_address("redis://h"), None)
    thread._connection = SimpleNamespace(store=store, close=lambda: None)
    thread._clock = clock.BOOTTIME
    thread._lease = SimpleNamespace()
    thread._backoff = SimpleNamespace(delay=lambda: 0.0)
    given = () if order in ("_renew", "_retry") else (Ending("failed", 1, None, 1.0, None, None),)

    def step() -> None:
        getattr(thread, order)(*given)
        thread.events()

    assert_nothing_kept(step)


# What it delivers


class Slow:
    """A store that needs some time for each record; answers of its claims are the test's."""

    lease_clock = clock.MONOTONIC
    holds_connection = True
    can_listen_after = 0

    def __init__(self, seconds: float, answer: Callable[[str], Any]) -> None:
        self.seconds = seconds
        self.answer = answer
        self.now = 1000.0
        self.asked: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        self.asked.append((self.now - 1000, what))

    def deliver(self, record: dict[str, Any], *, deadline: float) -> None:
        self.note(f"{record['kind']} of {record['key']}")
        self.now = min(self.now + self.seconds, deadline)
        if self.now == deadline:
            raise StoreUnavailable("no answer")

    def claim(self, firing: Any, **_: Any) -> Any:
        self.note("claim")
        answer = self.answer(firing.owner)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def renew(self, lease: Lease, **_: Any) -> Lease:
        self.note("renew")
        return lease

    def finish(self, *_: Any, **__: Any) -> bool:
        self.note("finish")
        return True

    def listen(self, *_: Any, **__: Any) -> bool:
        self.note("listen")
        if len(self.times("listen")) > self.can_listen_after:
            return True
        raise StoreUnavailable("no answer")

    def watch_fd(self) -> None:
        """Have no descriptor."""

    def close(self) -> None:
        """Note it: a lock of the key would be free now."""
        self.note("close")

    def times(self, wanted: str) -> list[float]:
        return [at for at, what in self.asked if what == wanted]

    @property
    def order(self) -> list[str]:
        return [what for _, what in self.asked if what not in ("close", "listen")]


REFUSED = Refusal("done", Holder("web2", 1, "u"), 1.0, "succeeded")


@pytest.fixture
def new_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSpec]:
    """Give a function that makes a spec, with spooled ends and skips of its own key and one of another."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def make(each: int, **options: str) -> RunSpec:
        given = {"key": "k", "tick": "t", "store": "local", "ttl": "6s", **options}
        spec = make_spec(ParsedRun(given, ["true"]))
        for number in range(each):
            firing = spec.firing._replace(owner=f"owner-{number}")
            spec.spool.add(execution_record(firing, None, Ending("not-started", None, None, 0.0)))
            spec.spool.add(skip_record(firing, Refusal("no-store")))
        other = spec.firing._replace(key="a", owner="other")
        spec.spool.add(skip_record(other, Refusal("no-store")))
        return spec

    return make


class Passing(system.Calls):
    """The time of a store, which waiting moves. `sleep` is called before; a thread that is started runs at once."""

    def __init__(self, store: Slow, sleep: Callable[[], None]) -> None:
        self._store, self._sleep = store, sleep

    def clock_gettime(self, _clock: int) -> float:
        return self._store.now

    def start_thread(self, function: Callable[..., None], args: tuple[object, ...]) -> None:
        function(*args)

    def poll(self) -> Any:
        """Return a poll that only lets time pass."""
        real = select.poll()

        def wait(milliseconds: float) -> list[tuple[int, int]]:
            self._sleep()
            ready = real.poll(0)
            self._store.now += 0 if ready else milliseconds / 1000
            return ready

        return SimpleNamespace(register=real.register, poll=wait)


def threaded(
    spec: RunSpec, store: Slow, monkeypatch: pytest.MonkeyPatch, sleep: Callable[[], None]
) -> StoreThread:
    """Return a thread that runs in the time of its store; `sleep` is called before it sleeps."""
    monkeypatch.setattr(system, "calls", Passing(store, sleep))
    opened: Any = store
    return StoreThread(spec, lambda: opened)


def never() -> None:
    pytest.fail("it sleeps")


def granted(owner: str) -> Lease:
    """Return a lease that is renewed each second."""
    return Lease("k", 0, "t", owner, 1, 42, 9, 6.0, 0.0, 9999.0)


def held(spec: RunSpec, store: Slow, monkeypatch: pytest.MonkeyPatch, beats: int) -> StoreThread:
    """Run a job under a lease until it was renewed so many times."""

    def end() -> None:
        if store.times("finish"):
            thread.beat()  # no order that the thread expects now: it ends
        elif len(store.times("renew")) >= beats:
            thread.end(Ending("succeeded", 0, None, 20.0))

    thread = threaded(spec, store, monkeypatch, end)
    thread.beat()
    thread.start()
    return thread


def test_a_claim_waits_for_ends_alone(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused firing delivers the rest after its answer, its own key's first."""
    spec, store = new_spec(2), Slow(0.01, lambda _: REFUSED)
    thread = threaded(spec, store, monkeypatch, never)
    thread.start()
    assert store.order == [
        *("execution of k", "execution of k", "claim", "skip of k", "skip of k", "skip of a"),
    ]
    assert isinstance(thread.events()[-1], NoShardLeft)
    assert not spec.spool.has()


def test_what_is_delivered_before_a_claim_is_part_of_its_budget(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--connect-timeout counts from the first record: half of it, five seconds at most, and then the claim comes."""
    for given, first, last in (("2s", 1.0, 2.0), ("60s", 5.0, 60.0)):
        store = Slow(0.3, lambda _: StoreUnavailable("away"))
        spec = new_spec(30, connect_timeout=given)
        spec = spec._replace(connect_timeout=float(given.removesuffix("s")))
        thread = threaded(spec, store, monkeypatch, lambda: None)
        thread.start()
        asked = store.times("claim")
        assert first <= asked[0] < first + 0.3
        assert last - 3 < asked[-1] <= last
        assert isinstance(thread.events()[-1], Failed)


def test_a_firing_that_is_to_end_delivers_nothing_more(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard gives the thread some seconds, whatever the spool has."""
    store = Slow(0.3, lambda _: pytest.fail("it is to end"))
    thread = threaded(new_spec(30), store, monkeypatch, never)
    thread.withdraw()
    thread.start()
    assert store.order == []
    assert isinstance(thread.events()[-1], Failed)


def test_nothing_is_delivered_between_two_heartbeats(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy job would be killed. The rest comes when the lease is released, for a second."""
    spec = new_spec(9)
    for owner in range(9):  # only skips are left
        [path] = [
            path
            for path, record in spec.spool.taken("k", ends=True)
            if record["owner"] == f"owner-{owner}"
        ]
        spec.spool.remove(path)
    store = Slow(0.3, granted)
    thread = held(spec, store, monkeypatch, 20)
    assert store.order == ["claim", *["renew"] * 20, "finish", *["skip of k"] * 4]
    beats = store.times("renew")
    assert all(later - at == pytest.approx(1.0, abs=0.01) for at, later in pairwise(beats))
    released = store.asked.index((store.times("finish")[0], "finish"))
    assert store.asked[released + 1][1] == "close"
    assert store.now - 1000 - store.times("finish")[0] == pytest.approx(1.0)
    [recorded] = [event for event in thread.events() if isinstance(event, Recorded)]
    assert recorded.error is None


def test_a_store_at_which_nobody_can_listen_is_asked_rarely(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each heartbeat: each try costs a connection. Then it listens again."""
    store = Slow(0.0, granted)
    store.can_listen_after = 10
    held(new_spec(0), store, monkeypatch, 30)
    tries = store.times("listen")
    assert len(tries) == 11
    assert all(later - at == pytest.approx(1.0, abs=0.01) for at, later in pairwise(tries))


# The place that a job leaves


class Placed(Slow):
    """A store that answers renewals by a script, one error or None each, and then well."""

    def __init__(self, *script: StoreError | None) -> None:
        super().__init__(0.0, granted)
        self.script = list(script)
        self.places: list[tuple[float, bytes | None]] = []

    def renew(self, lease: Lease, *, place: bytes | None = None, **_: Any) -> Lease:
        self.places.append((round(self.now - 1000, 2), place))
        error = self.script.pop(0) if self.script else None
        if error:
            raise error
        return super().renew(lease if place is None else lease._replace(place=place))


def places_sent(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch, store: Placed, beats: int
) -> list[tuple[float, bytes | None]]:
    """Let a job leave `b"41"` half a second after its start; return when what was sent."""

    def sleep() -> None:
        if store.times("finish"):
            thread.beat()
        elif len(store.places) >= beats:
            thread.end(Ending("succeeded", 0, None, 20.0))
        elif not left and store.now > 1000:
            left.append(thread.leave(b"41"))

    left: list[None] = []
    spec = new_spec(0, ttl="60s")
    thread = threaded(spec, store, monkeypatch, sleep)
    thread.beat()
    thread.start()
    return store.places


def test_a_place_is_sent_at_once_and_once(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as a heartbeat; the next one comes a heartbeat later, without it."""
    (at, first), *others = places_sent(new_spec, monkeypatch, Placed(), 3)
    assert first == b"41"
    assert at < 2
    assert [place for _, place in others] == [None, None]
    assert others[0][0] - at == pytest.approx(10, abs=0.1)


def test_a_place_that_was_not_sent_comes_as_soon_as_the_store_is_back(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the lease is renewed, without it: a place must not endanger the job."""
    away = [StoreUnavailable("away"), StoreUnavailable("away")]
    sent = places_sent(new_spec, monkeypatch, Placed(*away), 5)
    assert [place for _, place in sent] == [b"41", None, None, b"41", None]
    assert sent[3][0] - sent[2][0] < 0.1


def test_a_place_that_the_store_refuses_waits_for_the_next_heartbeat(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is renewed all the same."""
    full = StoreRefusesError("full")
    sent = places_sent(new_spec, monkeypatch, Placed(full, None, full, None), 6)
    assert [place for _, place in sent] == [b"41", None, b"41", None, b"41", None]
    assert sent[2][0] - sent[1][0] == pytest.approx(10, abs=0.1)
    assert sent[4][0] - sent[3][0] == pytest.approx(10, abs=0.1)


# A lease that is lost


LEASE = Lease("k", 3, "t", "o", 1, 42, 9, TTL, 0.0, 0.0)


class Losing:
    """A store that has given the lease to somebody else; first it does not answer for so many calls."""

    lease_clock = clock.BOOTTIME

    def __init__(self, silent: int = 0) -> None:
        self.silent = silent
        self.delivered: list[Any] = []

    def renew(self, _lease: Lease, **_: object) -> None:
        if self.silent > 0:
            self.silent -= 1
            error = StoreUnavailable("silent")
            error.unanswered = True
            raise error

    retry = renew

    def deliver(self, record: Any, *, deadline: float) -> None:
        self.delivered.append(record)

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Losing]]:
    """Give a function that makes the thread of a firing that has a lease, and its store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spec = make_spec(ParsedRun({"key": "k", "tick": "t", "store": "local"}, ["true"]))

    def make(silent: int = 0) -> tuple[Any, Losing]:
        store = Losing(silent)
        thread: Any = StoreThread(spec, lambda: pytest.fail("nothing is claimed"))
        thread._connection = StoreConnection(store)  # type: ignore[arg-type]
        thread._clock = clock.BOOTTIME
        thread._backoff = Backoff(cap=0.001)
        thread._lease = LEASE
        thread._park()
        return thread, store

    return make


def lost_with(thread: Any, store: Losing) -> list[tuple[str, int]]:
    """Return outcome and shard of what was recorded before the thread said that the lease is lost."""
    assert [type(event) for event in thread.events()] == [Lost]
    return [(record["outcome"], record["shard"]) for record in store.delivered]


def test_a_lease_that_is_lost_before_the_start_did_not_start(
    losing: Callable[..., tuple[Any, Losing]],
) -> None:
    """Only that word re-opens its tick: a guard was stopped between its grant and its start, until the lease ended."""
    thread, store = losing()
    thread._renew_for_start()
    thread._renew()
    assert lost_with(thread, store) == [("not-started", 3)]


def test_a_lease_that_a_heartbeat_finds_lost_is_the_guards_to_record(
    losing: Callable[..., tuple[Any, Losing]],
) -> None:
    """A job may be running, or have run."""
    thread, store = losing()
    thread._renew()
    assert lost_with(thread, store) == []


@pytest.mark.parametrize(("silent", "recorded"), [(0, []), (1, [("not-started", 3)])])
def test_a_retry_that_may_have_been_granted_did_not_start(
    losing: Callable[..., tuple[Any, Losing]], silent: int, recorded: list[Any]
) -> None:
    """If a call had no answer: the attempt may be on record, and would be taken for one that ran."""
    thread, store = losing(silent)
    thread._retry()
    assert lost_with(thread, store) == recorded
