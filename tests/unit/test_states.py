"""Every state of the guard is fed with every event; the table in `firing_states` says what may follow."""

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from state_parts import FAILED, LATE_LEASE, LEASE, NEXT_LEASE, NOW, SUCCEEDED, TTL, Bench, FakeJob

from oncecron.config.run_parser import ParsedRun
from oncecron.core.errors import StoreRefusesError, StoreUnavailable
from oncecron.core.model import Ending, Refusal, Request, Unconfirmed
from oncecron.run import events, firing_states
from oncecron.run.firing_states import ImpossibleEventError, State
from oncecron.run.job import JobEnd
from oncecron.run.spec import RunSpec, make_spec

STOP = Request("stop", "eve@desk", signal.SIGTERM, None)
AWAY = StoreUnavailable("away")
HELD = Refusal("held")
BUG = ZeroDivisionError("a bug")
RECORD: dict[str, object] = {}
TERM_NOTE = "after SIGTERM to oncecron"

Table = dict[tuple[str, str], set[str]]


def read_table() -> Table:
    """Return the cells of the docstring's table, by state and event."""
    lines = (firing_states.__doc__ or "").splitlines()
    start = next(
        at for at, line in enumerate(lines) if line.split()[:2] == ["Claiming", "Renewing"]
    )
    header = lines[start]
    columns = [(name, header.index(name)) for name in header.split()]
    table: Table = {}
    event = ""
    for line in lines[start + 1 : lines.index("", lines.index("", start) + 1)]:
        event = line[: columns[0][1]].strip() or event
        for name, column in columns:
            if cell := line[column : column + 11].split():
                table.setdefault((name, event), set()).update(cell)
    return table


TABLE = read_table()


def in_state(name: str, bench: Bench) -> Iterator[State]:
    job = FakeJob()
    if name == "Claiming":
        yield firing_states.Claiming(bench)
    elif name == "Renewing":
        yield firing_states.Renewing(bench, LATE_LEASE, None)
        yield firing_states.Renewing(bench, LATE_LEASE, FAILED)
    elif name == "Leaving":
        yield firing_states.Leaving(bench, None, None, TERM_NOTE, 143)
        yield firing_states.Leaving(bench, LATE_LEASE, None, TERM_NOTE, 143)
        yield firing_states.Leaving(bench, LEASE, FAILED, TERM_NOTE, 143)
    elif name == "Running":
        yield firing_states.Running(bench, job, LEASE)  # type: ignore[arg-type]
    elif name == "Unclaimed":
        yield firing_states.Unclaimed(bench, job, 1.0)  # type: ignore[arg-type]
    elif name in ("Keeping", "Recording"):
        for reason in (None, TERM_NOTE):
            yield getattr(firing_states, name)(bench, LEASE, FAILED, RECORD, reason)
    else:
        yield getattr(firing_states, name)(bench, LEASE, FAILED)


def forms_of(event: str, bench: Bench) -> Iterator[Callable[[State], State]]:
    """Yield the forms of an event, each as what it does to a state."""
    asked = LEASE._replace(request=STOP)
    posted: dict[str, list[Any]] = {
        "Granted": [events.Granted(lease) for lease in (NEXT_LEASE, LATE_LEASE, asked)],
        "Unconfirmed": [
            Unconfirmed(lease, error)
            for lease in (LEASE, LATE_LEASE)
            for error in (AWAY, StoreRefusesError("not so"))
        ],
        "Refused": [events.Refused(bench.spec.firing, HELD, False)],
        "NoShardLeft": [events.NoShardLeft()],
        "Failed": [events.Failed(AWAY, []), events.Failed(StoreRefusesError("not so"), [])],
        "Renewed": [events.Renewed(LEASE), events.Renewed(asked)],
        "Lost": [events.Lost()],
        "Kept": [events.Kept()],
        "NotRetried": [events.NotRetried(HELD), events.NotRetried(AWAY, unanswered=True)],
        "Recorded": [events.Recorded(None), events.Recorded(AWAY)],
        "Crashed": [events.Crashed(BUG)],
    }
    for each in posted.get(event, ()):
        yield lambda state, each=each: state.take(each)  # type: ignore[misc]
    if event == "stop":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            yield lambda state, number=number: state.take_signal(number, already_there=False)  # type: ignore[misc]
        yield lambda state: state.lose_wrapper()
    elif event == "USR1":
        yield lambda state: state.take_signal(signal.SIGUSR1, already_there=False)
    elif event == "clock":
        yield lambda state: state.judge(NOW)
        yield lambda state: state.judge(NOW + 1000)


@pytest.fixture
def new_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunSpec]:
    """Give a function that makes a spec from options; the command is never started."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("oncecron.run.guard.Job", FakeJob)

    def make(**given: str) -> RunSpec:
        options = {name.replace("_", "-"): value for name, value in given.items()}
        told = {"key": "k", "tick": "t", "store": "local", **options}
        return make_spec(ParsedRun(told, ["true"]))

    return make


@pytest.fixture
def bench(new_spec: Callable[..., RunSpec]) -> Bench:
    """Give the context of a firing with retries."""
    return Bench(new_spec(retries="2"))


def what_follows(state: State, happens: Callable[[State], State]) -> str:
    try:
        after = happens(state)
    except ImpossibleEventError:
        return "-"
    except ZeroDivisionError:
        return "!"
    return "=" if after is state else type(after).__name__


@pytest.mark.parametrize(("name", "event"), TABLE)
def test_what_follows_is_what_the_table_says(
    new_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch, name: str, event: str
) -> None:
    """Neither more nor less, whatever the options, whether the job can be started, and however it ended."""
    specs = [new_spec(retries="2", **given) for given in ({}, {"shards": "2"}, {"on_store_error": "run"})]  # fmt: skip
    seen = set()
    for spec, broken, end in itertools.product(specs, (False, True), (None, SUCCEEDED, FAILED)):
        monkeypatch.setattr(FakeJob, "cannot_start", broken)
        monkeypatch.setattr(FakeJob, "ended", end)
        forms = range(len(list(in_state(name, Bench(spec)))))
        events_ = range(len(list(forms_of(event, Bench(spec)))))
        for form, number in itertools.product(forms, events_):
            bench = Bench(spec)
            state = list(in_state(name, bench))[form]
            seen.add(what_follows(state, list(forms_of(event, bench))[number]))
    if event == "clock" and len(seen) > 1:
        seen.remove("=")  # nothing was due yet
    assert seen - {"-"} == TABLE[name, event] - {"-"}
    assert ("-" in TABLE[name, event]) == (seen == {"-"})


def test_the_table_has_every_state_and_every_event() -> None:
    """None that is new can be forgotten."""
    is_state = [
        each.__name__
        for each in vars(firing_states).values()
        if isinstance(each, type) and issubclass(each, State) and each.__module__ == "oncecron.run.firing_states"
    ]  # fmt: skip
    named = {name for name in is_state if not name.startswith("_")} - {"State"}
    assert {name for name, _ in TABLE} == named - {"Over"}
    posted = {kind.__name__ for kind in events.Event.__args__}
    assert {event for _, event in TABLE} == posted | {"stop", "USR1", "clock"}
    assert len(TABLE) == (len(named) - 1) * (len(posted) + 3)


@pytest.mark.parametrize("event", sorted({event for _, event in TABLE}))
def test_whatever_comes_when_it_is_over_is_ignored(bench: Bench, event: str) -> None:
    """A lease that was lost and an order to retry may have crossed."""
    over = firing_states.Over(bench, 3)
    for happens in forms_of(event, bench):
        assert happens(over) is over
    assert over.exit_status == 3


# What a state does


def test_a_lease_with_less_than_half_of_its_trust_is_renewed_first(bench: Bench) -> None:
    """Nothing is to be fenced meanwhile."""
    late = LEASE._replace(trusted_until=NOW + TTL / 2 - 0.01)
    renewing = firing_states.Claiming(bench).take(events.Granted(late))
    assert isinstance(renewing, firing_states.Renewing)
    assert (bench.orders.names, bench.trust.until) == (["renew"], 0.0)
    assert isinstance(renewing.take(events.Granted(LEASE)), firing_states.Running)


def test_a_guard_that_slept_while_the_wrapper_was_told_does_not_start(bench: Bench) -> None:
    """It looks at the clock again, and there is nothing to fence."""
    times = iter([NOW, NOW + TTL])
    bench.now = lambda: next(times)  # type: ignore[method-assign]
    assert not bench.may_start(LEASE)
    assert bench.trust.until == 0.0


def test_who_asked_for_the_end_before_the_start_is_obeyed(bench: Bench) -> None:
    """Nothing is started."""
    recording = firing_states.Claiming(bench).take(events.Granted(LEASE._replace(request=STOP)))
    note = "before the command was started"
    assert bench.orders.given == [("end", note)]
    over = recording.take(events.Recorded(None))
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == 143


def test_who_leaves_waits_five_seconds_for_the_answer(bench: Bench) -> None:
    """Then it says of what was asked for that it did not start."""
    bench.orders.newest_claim = bench.spec.firing._replace(shard=5)  # type: ignore[assignment]
    leaving = firing_states.Claiming(bench).lose_wrapper()
    assert leaving.poll_timeout(NOW + 1) == 4
    assert leaving.judge(NOW + 4.9) is leaving
    over = leaving.judge(NOW + 5)
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == 75
    assert bench.told.unstarted == [(5, "asked to stop")]
    assert bench.told.interrupted == ["the oncecron process that cron started was killed"]


def test_an_attempt_that_is_granted_to_who_leaves_is_stopped(bench: Bench) -> None:
    """Its tick is not re-opened: an attempt of it has run. The status is that attempt's."""
    leaving = firing_states.Retrying(bench, LEASE, FAILED).take_signal(signal.SIGTERM, already_there=False)  # fmt: skip
    again = leaving.take_signal(signal.SIGHUP, already_there=False)
    recording = again.take(events.Granted(NEXT_LEASE))
    assert bench.orders.given[-1] == ("end", f"{TERM_NOTE}, before the command was started")
    over = recording.take(events.Recorded(None))
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == 3


def test_the_status_of_who_leaves_is_that_of_the_last_signal(bench: Bench) -> None:
    """And the store has five seconds from the first one on: who repeats it is not made to wait longer."""
    leaving = firing_states.Claiming(bench).take_signal(signal.SIGTERM, already_there=False)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        bench.time += 1
        leaving = leaving.take_signal(number, already_there=False)
    assert leaving.poll_timeout(bench.time) == 2
    over = leaving.take(events.Failed(AWAY, [bench.spec.firing]))
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == 130
    assert bench.told.unstarted == [(0, "asked to stop")]
    assert bench.told.interrupted == [TERM_NOTE]


@pytest.mark.parametrize("happens", [events.Renewed(LEASE), events.NotRetried(HELD)])
def test_who_leaves_without_a_lease_is_told_of_none(bench: Bench, happens: events.Event) -> None:
    """They are answers to what was not ordered."""
    with pytest.raises(ImpossibleEventError, match="Leaving cannot take"):
        firing_states.Leaving(bench, None, None, TERM_NOTE, 143).take(happens)


def running(bench: Bench) -> tuple[firing_states.Running, FakeJob]:
    job = FakeJob()
    return firing_states.Running(bench, job, LEASE), job  # type: ignore[arg-type]


def test_a_renewal_moves_trust_and_brings_what_is_asked(bench: Bench) -> None:
    """Of the job that runs; and no attempt follows."""
    state, job = running(bench)
    state.take(events.Renewed(LEASE._replace(trusted_until=500.0, request=STOP)))
    assert bench.trust.until == 500.0
    assert job.calls == [("obey", STOP)]
    job.ended = FAILED
    assert type(state.judge(NOW)) is firing_states.Recording


def test_when_the_job_is_gone_there_is_nothing_to_fence(bench: Bench) -> None:
    """The wrapper sees that before the end is recorded."""
    bench.trust.until = 500.0
    state, job = running(bench)
    job.ended = SUCCEEDED
    state.judge(NOW)
    assert bench.trust.until == 0.0
    assert bench.orders.names == ["end"]


def test_after_an_attempt_a_store_that_is_away_starts_nothing(
    new_spec: Callable[..., RunSpec],
) -> None:
    """--on-store-error run is for the first: the lease may still be ours."""
    bench = Bench(new_spec(retries="2", on_store_error="run"))
    state = firing_states.Renewing(bench, LATE_LEASE, FAILED).take(events.Failed(AWAY, []))
    assert isinstance(state, firing_states.Recording)
    assert bench.orders.given == [("end", "away")]


@pytest.mark.parametrize(("last", "status"), [(None, 75), (FAILED, 3)])
def test_a_lease_that_is_lost_while_nothing_runs_ends_the_firing(
    bench: Bench, last: JobEnd | None, status: int
) -> None:
    """With the status of the last attempt, if there was one."""
    over = firing_states.Renewing(bench, LATE_LEASE, last).take(events.Lost())
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == status
    when = "between two attempts" if last else "before the command was started"
    assert bench.told.lines == [f"the lease was lost {when}"]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_lease_that_ended_before_it_was_seen_is_lost_too(bench: Bench, stopped: bool) -> None:
    """The answer to the claim came too late: nothing has run, so that it is no success."""
    state: State = firing_states.Claiming(bench)
    if stopped:
        state = state.take_signal(signal.SIGTERM, already_there=False)
    over = state.take(events.Lost())
    assert isinstance(over, firing_states.Over)
    assert over.exit_status == 75
    assert bench.told.lines == ["the lease was lost before the command was started"]


@pytest.mark.parametrize("outcome", ["stopped", "lost", "not-started"])
def test_no_shard_follows_one_that_did_not_go_as_it_should(
    new_spec: Callable[..., RunSpec], outcome: Any
) -> None:
    """It ended by somebody's will, or by a fault."""
    bench = Bench(new_spec(shards="3"))
    end = JobEnd(Ending(outcome, None, None, 1.0), 75)
    over = firing_states.Recording(bench, LEASE, end, RECORD).take(events.Recorded(None))
    assert isinstance(over, firing_states.Over)
    assert bench.orders.given == []


@pytest.mark.parametrize("full", [False, True])
def test_an_end_is_called_spooled_once_the_disk_has_it(
    new_spec: Callable[..., RunSpec], full: bool
) -> None:
    """And not where the record is lost."""
    bench = Bench(new_spec())
    bench.told.disk_is_full = full
    firing_states.Recording(bench, LEASE, SUCCEEDED, RECORD).take(events.Recorded(AWAY))
    [line] = bench.told.lines
    assert line.startswith("the end of the run could not be recorded: away")
    assert ("the record is spooled" in line) is not full
    assert bench.told.spooled == ([] if full else [RECORD])
