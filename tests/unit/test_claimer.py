"""When a firing asks again that waits, and what it hands back; in a time that passes as the test says."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncecron.config.run_parser import ParsedRun
from oncecron.core import clock
from oncecron.core.errors import StoreUnavailable
from oncecron.core.model import AskAgain, BlockingLease, Holder, Lease, Refusal, Unconfirmed
from oncecron.run.claimer import Claimer, StoreConnection
from oncecron.run.reporter import WAITS
from oncecron.run.spec import RunSpec, make_spec

TTL = 60.0
HOLDER = Holder("web2", 4711, "batch")
DONE = Refusal("done", HOLDER, 1.0, "succeeded")


class Time:
    """The lease clock."""

    def __init__(self) -> None:
        self.now = 1000.0


class Scripted:
    """A store whose answers the test gives: (part, time) -> answer."""

    lease_clock = clock.MONOTONIC

    def __init__(self, time: Time, answer: Callable[[int, float], Any], *, stirs: bool) -> None:
        self.time = time
        self.answer = answer
        self.stirs = stirs
        self.asked: list[tuple[float, int, Any, Any]] = []
        self.closed: list[float] = []

    def claim(self, firing: Any, *, watched: Any, awaited: Any, **_: Any) -> Any:
        """Note what was handed over."""
        self.asked.append((self.time.now, firing.shard, watched, awaited))
        answer = self.answer(firing.shard, self.time.now)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, AskAgain) and answer.why == "fenced":
            self.time.now += 2  # spent on waiting for the fence
        return answer

    def listen(self, firing: Any, *, deadline: float, awaited: int | None) -> bool:
        return self.stirs

    def watch_fd(self) -> int | None:
        return 7 if self.stirs else None

    def close(self) -> None:
        self.closed.append(self.time.now)

    def sleep(self, seconds: float, _fd: int | None) -> bool:
        self.time.now += seconds
        return False

    @property
    def times(self) -> list[float]:
        """When it was asked, from the first time on."""
        return [at - self.asked[0][0] for at, *_ in self.asked]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Give a clock that only sleeping moves."""
    time = Time()
    monkeypatch.setattr(clock, "lease_time", lambda _: time.now)
    return time


@pytest.fixture
def new_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSpec]:
    """Give a function that makes a spec from options."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("oncecron.run.spec.wrong_variables", lambda _: ())  # those of the tests

    def make(**given: str) -> RunSpec:
        options = {name.replace("_", "-"): value for name, value in given.items()}
        tick = {} if "no-tick" in options else {"tick": "t"}
        return make_spec(ParsedRun({"key": "k", "store": "local", **tick, **options}, ["true"]))

    return make


def held(ends_in: float, heartbeat: float = 1.0, **parts: Any) -> Refusal:
    return Refusal("held", HOLDER, blocked_by=BlockingLease(42, ends_in, heartbeat, **parts))


def granted(shard: int) -> Lease:
    return Lease("k", shard, "t", "o", 2, 43, 9, TTL, 0.0, 0.0)


def wait(
    store: Scripted, spec: RunSpec, notify_at: float | None = None
) -> tuple[Any, list[tuple[str, bool]]]:
    """Claim until there is an answer; return it, and the refusals that were told."""
    told: list[tuple[str, bool]] = []
    started = store.time.now

    def sleep(seconds: float, fd: int | None) -> bool:
        nonlocal notify_at
        stirs = (
            fd is not None
            and notify_at is not None
            and store.time.now + seconds > started + notify_at
        )
        store.time.now = (
            started + notify_at if stirs and notify_at is not None else store.time.now + seconds
        )
        if stirs:
            notify_at = None
        return stirs

    claimer = Claimer(
        spec,
        StoreConnection(store),  # type: ignore[arg-type]
        sleep,
        lambda _f, refusal, waits: told.append((refusal.reason, waits)),
    )
    return claimer.next(started), told


def test_who_waits_asks_when_the_lease_ends_and_not_at_the_next_poll(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """Within half a second after it, so that many do not ask in one moment; with the heartbeat that fell silent."""
    end = time.now + 25

    def answer(shard: int, now: float) -> Any:
        return held(end - now) if now < end else granted(shard)

    store = Scripted(time, answer, stirs=True)
    lease, told = wait(store, new_spec(failover="true"))
    assert lease == granted(0)
    assert told == [("held", True)]
    assert 25 <= store.times[-1] <= 25.5
    assert store.asked[0][2:] == (None, None)
    assert all(awaited == 42 for *_, awaited in store.asked[1:])
    for at, _, watched, _ in store.asked[1:]:
        assert watched == (1.0 if at - store.asked[0][0] >= TTL / 3 else None)
    assert store.asked[-1][2] == 1.0


def test_who_listens_asks_once_more_and_then_rarely(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """What happened before it listened has stirred nobody; then a sixth to a third of the ttl passes each time."""
    start = time.now

    def answer(shard: int, now: float) -> Any:
        return held(TTL, now) if now < start + 600 else DONE

    store = Scripted(time, answer, stirs=True)
    assert wait(store, new_spec(failover="true"))[0] is None
    pauses = [later - at for at, later in zip(store.times, store.times[1:], strict=False)]
    assert pauses[0] <= 0.5
    assert all(TTL / 6 <= pause <= TTL / 3 for pause in pauses[1:])
    assert store.closed == [time.now]  # one connection, to the end


def test_who_is_stirred_asks_within_half_a_second(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """At a random moment."""
    start = time.now
    store = Scripted(time, lambda _, now: held(TTL, now) if now < start + 5 else DONE, stirs=True)
    assert wait(store, new_spec(failover="true"), notify_at=5.0)[0] is None
    assert 5 <= store.times[-1] <= 5.5


def test_where_nothing_stirs_no_connection_is_held(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """It is given back after each ask; soon at first, then rarely, never more than five seconds apart."""
    start = time.now
    store = Scripted(
        time, lambda _, now: held(TTL, now) if now < start + 300 else DONE, stirs=False
    )
    assert wait(store, new_spec(failover="true"))[0] is None
    pauses = [later - at for at, later in zip(store.times, store.times[1:], strict=False)]
    assert pauses[0] <= 1
    assert max(pauses) <= 5
    assert min(pauses[10:]) >= 2.5
    assert store.closed == [at for at, *_ in store.asked]


def test_only_the_own_tick_is_waited_for_without_end(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """Another tick's holder for no longer than --wait."""
    store = Scripted(time, lambda *_: held(TTL, same_tick=False), stirs=True)
    assert wait(store, new_spec(failover="true")) == (None, [("held", False)])
    assert len(store.asked) == 1
    store = Scripted(time, lambda *_: held(TTL, same_tick=False), stirs=True)
    answer, told = wait(store, new_spec(failover="true", wait="3s"))
    assert (answer, told) == (None, [("held", True), ("held", False)])
    assert 3 <= store.times[-1] <= 3.1


@pytest.mark.parametrize("records", [True, False])
def test_who_waits_for_a_holder_that_renews_too_late_waits_for_as_long_as_for_any(
    time: Time, new_spec: Callable[..., RunSpec], records: bool
) -> None:
    """Each time that it is asked for it seems dead, and its lease does not end; without --wait that is `held`."""
    orphaned = AskAgain("orphaned", 10.0, 30.0, held(30.0, same_tick=False))
    for given, told, least in (
        ({"wait": "10m"}, [("held", True), ("held", False)], 600),
        ({}, [("held", False)], 30),
    ):
        skipped: list[str] = []

        def skip(_: Any, refusal: Refusal, to: list[str] = skipped, **__: Any) -> None:
            if not records:
                raise StoreUnavailable("away")
            to.append(refusal.reason)

        store = Scripted(time, lambda *_: orphaned, stirs=True)
        store.skip = skip  # type: ignore[attr-defined]
        spec = new_spec(**given)
        spec.spool.add = lambda record, to=skipped: to.append(record["reason"])  # type: ignore[method-assign]
        assert wait(store, spec) == (None, told)
        assert least <= store.times[-1] <= least + 45
        assert set(skipped) == {"held"}


def test_a_store_that_goes_away_is_asked_for_the_budget_of_a_claim(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """--connect-timeout counts from when it went away, not from the start."""
    start = time.now

    def answer(_: int, now: float) -> Any:
        return held(TTL, now) if now < start + 100 else StoreUnavailable("away")

    store = Scripted(time, answer, stirs=True)
    with pytest.raises(StoreUnavailable):
        wait(store, new_spec(wait="10m", connect_timeout="30s"))
    away = [at for at in store.times if at >= 100]
    assert 25 <= time.now - start - away[0] <= 30
    assert len(away) > 10


NO_TICK = {"no_tick": "true"}
FENCED = AskAgain("fenced", 0.0, 0.0, Refusal("held", HOLDER))


@pytest.mark.parametrize(
    ("trouble", "given"),
    [
        (StoreUnavailable("away"), {}),
        (StoreUnavailable("away"), NO_TICK),
        (AskAgain("contended", 0.05, 0.0, Refusal("held")), {}),
        (FENCED, {}),
        (Refusal("paused", detail="by eve@desk"), NO_TICK),
        (Refusal("drained", detail="by eve@desk"), NO_TICK),
    ],
)
def test_who_stands_by_goes_on_with_its_polls_until_there_is_an_answer(
    time: Time,
    new_spec: Callable[..., RunSpec],
    capfd: pytest.CaptureFixture[str],
    trouble: Any,
    given: dict[str, str],
) -> None:
    """By --failover, once told `held`: however long the store is away, or a fence or a pause stands. Told once."""
    start = time.now

    def answer(_: int, now: float) -> Any:
        if now < start + 100:
            return held(TTL, now)
        return trouble if now < start + 1000 else granted(0)

    store = Scripted(time, answer, stirs=True)
    spec = new_spec(failover="true", connect_timeout="30s", **given)
    lease, told = wait(store, spec)
    assert lease == granted(0)
    reasons = [trouble.reason] if isinstance(trouble, Refusal) else []
    assert told == [(reason, True) for reason in ("held", *reasons)]
    late = [at for at in store.times if at > 200]
    pauses = [later - at for at, later in pairwise(late)]
    assert min(pauses) >= 2.5
    assert max(pauses) <= 5 + 2  # and a backoff
    assert len(set(pauses)) > 10
    away = isinstance(trouble, StoreUnavailable)
    assert capfd.readouterr().err.count("away; still waiting (--failover)\n") == away


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), FENCED, Refusal("paused")])
def test_who_was_not_told_that_it_waits_has_its_budget(
    time: Time, new_spec: Callable[..., RunSpec], trouble: Any
) -> None:
    """A new firing leaves, and one with a tick in a pause: no burst when that ends."""
    answers = {0.0: held(TTL)} if isinstance(trouble, Refusal) else {}
    start = time.now
    store = Scripted(time, lambda _, now: answers.get(now - start, trouble), stirs=True)
    store.skip = lambda *_, **__: None  # type: ignore[attr-defined]
    if isinstance(trouble, StoreUnavailable):
        with pytest.raises(StoreUnavailable):
            wait(store, new_spec(failover="true", connect_timeout="30s"))
    else:
        told = wait(store, new_spec(failover="true", connect_timeout="30s"))[1]
        assert told[-1] == ("held" if trouble is FENCED else "paused", False)
    assert time.now - start < 31


def test_an_outage_of_hours_does_not_end_who_stands_by(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """Nothing grows with the number of failures: neither a delay nor what is remembered."""
    start, hours = time.now, 6 * 3600

    def answer(_: int, now: float) -> Any:
        if now < start + 100:
            return held(TTL, now)
        return unanswered() if now < start + hours else granted(0)

    store = Scripted(time, answer, stirs=True)
    assert wait(store, new_spec(failover="true"))[0] == granted(0)
    assert len(store.asked) > 2000
    assert hours <= store.times[-1] <= hours + 7


def test_what_does_not_count_is_given_back_by_who_stood_by(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """It keeps all others out, so that it is not kept for longer than --connect-timeout."""
    start = time.now
    unconfirmed = Unconfirmed(granted(0), StoreUnavailable("no replica"))
    store = Scripted(
        time, lambda _, now: held(TTL, now) if now < start + 100 else unconfirmed, stirs=True
    )
    answer, _ = wait(store, new_spec(failover="true", connect_timeout="30s"))
    assert answer == unconfirmed
    assert time.now - start < 100 + TTL / 3 + 31


def test_a_store_that_goes_away_after_a_takeover_takes_nothing_back(
    time: Time, new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead session could not be ended; the lease is granted all the same."""
    answers: Iterator[Any] = iter(
        [AskAgain("stale", 2.0, 0.0, Refusal("held"), watched="1"), granted(0)]
    )
    store = Scripted(time, lambda *_: next(answers), stirs=True)
    evicted = []

    def evict(stale: AskAgain, *, deadline: float) -> None:
        evicted.append(stale.watched)
        raise StoreUnavailable("away")

    store.evict = evict  # type: ignore[attr-defined]
    assert wait(store, new_spec()) == (granted(0), [])
    assert evicted == ["1"]


def test_parts_are_asked_for_in_turn_and_those_that_are_held_again(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """Each that is free is given once; what was `held` is asked for after each run, and what is done is not."""
    store = Scripted(
        time, lambda part, _: {0: DONE, 1: held(TTL)}.get(part) or granted(part), stirs=True
    )
    claimer = Claimer(
        new_spec(shards="4"),
        StoreConnection(store),
        lambda *_: False,
        lambda *_: None,  # type: ignore[arg-type]
    )
    given = []
    while lease := claimer.next(time.now):
        assert isinstance(lease, Lease)
        given.append(lease.shard)
    assert sorted(given) == [2, 3]
    asked = [part for _, part, *_ in store.asked]
    assert asked.count(0) == 1
    assert 1 in asked[asked.index(given[-1]) :]


def test_hosts_begin_at_different_parts(time: Time, new_spec: Callable[..., RunSpec]) -> None:
    """At random, so that they do not all ask for the same."""
    first = set()
    for _ in range(100):
        store = Scripted(time, lambda part, _: granted(part), stirs=True)
        wait(store, new_spec(shards="4"))
        first.add(store.asked[0][1])
    assert first == {0, 1, 2, 3}


def test_a_key_that_is_paused_is_not_asked_for_part_by_part(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """What refuses one part for a pause refuses all."""
    store = Scripted(time, lambda *_: Refusal("paused"), stirs=True)
    assert wait(store, new_spec(shards="4")) == (None, [("paused", False)])
    assert len(store.asked) == 1


def unanswered() -> StoreUnavailable:
    """Return what a claim raises that was sent, and never answered."""
    error = StoreUnavailable("silent")
    error.unanswered = True
    return error


NOT_CONFIRMED = Unconfirmed(granted(0), StoreUnavailable("no replica"))


@pytest.mark.parametrize("first", [unanswered(), NOT_CONFIRMED])
def test_no_other_part_is_asked_for_before_one_is_settled(
    time: Time, new_spec: Callable[..., RunSpec], first: Any
) -> None:
    """It may have a lease by now, which nobody would renew while another part runs; `contended` settles nothing."""
    contended = AskAgain("contended", 0.05, 0.0, Refusal("held"))
    answers = iter([first, contended, StoreUnavailable("away"), contended])
    store = Scripted(time, lambda part, _: next(answers, granted(part)), stirs=True)
    lease, _ = wait(store, new_spec(shards="4"))
    assert [part for _, part, *_ in store.asked] == [lease.shard] * 5


@pytest.mark.parametrize("delivers", [True, False])
@pytest.mark.parametrize("first", [unanswered(), NOT_CONFIRMED])
def test_a_lease_that_ended_before_its_answer_came_is_said_not_to_have_started(
    time: Time, new_spec: Callable[..., RunSpec], first: Any, delivers: bool
) -> None:
    """Granted without an answer, or without the replicas, and ended unseen. It is spooled if it must be."""
    spec = new_spec(shards="4")
    own = DONE._replace(holder=spec.firing.holder, own=True)
    answers = iter([first, own])
    store = Scripted(time, lambda *_: next(answers), stirs=True)
    delivered: list[Any] = []
    spooled: list[Any] = []

    def deliver(record: Any, *, deadline: float) -> None:
        if not delivers:
            raise StoreUnavailable("away")
        delivered.append(record)

    store.deliver = deliver  # type: ignore[attr-defined]
    spec.spool.add = spooled.append  # type: ignore[method-assign]
    assert wait(store, spec) == (own, [])
    [record] = delivered if delivers else spooled
    assert (record["outcome"], record["shard"]) == ("not-started", store.asked[0][1])
    assert (record["attempt"], record["fencing_token"]) == (None, None)
    assert len(delivered) + len(spooled) == 1


def test_a_lease_that_does_not_count_may_have_been_granted(
    time: Time, new_spec: Callable[..., RunSpec]
) -> None:
    """If its budget ends while another firing is met, that it did not start is said all the same."""
    contended = AskAgain("contended", 0.05, 0.0, Refusal("held"))
    answers = iter([NOT_CONFIRMED])
    store = Scripted(time, lambda *_: next(answers, contended), stirs=True)
    spec = new_spec(connect_timeout="5s")
    claimer = Claimer(spec, StoreConnection(store), store.sleep, lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="still claiming"):
        claimer.next(time.now)
    assert claimer.unanswered == [spec.firing]


def test_a_skip_that_the_store_did_not_take_is_spooled(
    time: Time, new_spec: Callable[..., RunSpec], tmp_path: Path
) -> None:
    """Every skip is on record, sooner or later: also where the network goes between the look and the record."""
    spec = new_spec()
    spooled: list[Any] = []
    spec.spool.add = spooled.append  # type: ignore[method-assign]
    for recorded in (True, False):
        store = Scripted(time, lambda *_, is_=recorded: DONE._replace(recorded=is_), stirs=False)
        wait(store, spec)
    assert [(record["kind"], record["reason"]) for record in spooled] == [("skip", "done")]


# What is said


@pytest.mark.parametrize("why", ["contended", "orphaned", "stale", "recovering"])
def test_a_long_wait_is_explained_once_and_a_short_one_never(
    time: Time, new_spec: Callable[..., RunSpec], capfd: pytest.CaptureFixture[str], why: Any
) -> None:
    """With -v, after two seconds."""
    for seconds, lines in ((1.5, 0), (6.0, 1)):
        start = time.now

        def answer(_: int, now: float, until: float = start + seconds) -> Any:
            return AskAgain(why, 0.2, 60.0, Refusal("held", HOLDER)) if now < until else DONE

        wait(Scripted(time, answer, stirs=False), new_spec(verbose="1"))
        said = capfd.readouterr().err.splitlines()
        assert len(said) == lines, said
        beginning = WAITS[why].partition(";")[0]
        assert all(line.startswith(f"oncecron: waiting: k: {beginning}") for line in said)


@pytest.mark.parametrize(("ends_in", "lines"), [(60.0, 1), (1.0, 0)])
def test_that_nothing_starts_is_told_to_cron_once(
    time: Time,
    new_spec: Callable[..., RunSpec],
    capfd: pytest.CaptureFixture[str],
    ends_in: float,
    lines: int,
) -> None:
    """Its mail is wanted: once, whatever number of keys and shards wait on this host."""
    spec = new_spec(shards="3")
    for _ in range(2):
        start = time.now

        def answer(_: int, now: float, until: float = start + 3.0) -> Any:
            return (
                AskAgain("recovering", 0.2, ends_in, Refusal("held", HOLDER))
                if now < until
                else DONE
            )

        wait(Scripted(time, answer, stirs=False), spec)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == lines, said
    assert all("waiting: k: the store has started" in line for line in said)
