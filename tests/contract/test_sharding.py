"""Parts of a key: a lease, ticks and tokens each, and one number of them for all hosts."""

import pytest
from at_once import at_once
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute

from oncecron.core.errors import ConfigurationError
from oncecron.core.model import Lease, Retention
from oncecron.core.tick import Tick, named_tick

CLAIMERS = 12


def test_parts_run_side_by_side(a: Host, b: Host, log: Log) -> None:
    """Each by whoever gets it, with a token of its own; a part that ran is done, the others are not."""
    first = a.win(minute(1), shard=0, shards=3)
    second = b.win(minute(1), shard=1, shards=3)
    assert b.lose(minute(1), shard=0, shards=3).reason == "held"
    assert a.finish(first)
    assert b.lose(minute(1), shard=0, shards=3).reason == "done"
    third = a.win(minute(1), shard=2, shards=3)
    assert [lease.attempt for lease in (first, second, third)] == [1, 1, 1]
    assert {(view.shard, view.shards, view.execution_id) for view in log.leases()} == {
        (1, 3, second.execution_id),
        (2, 3, third.execution_id),
    }
    assert {(each.shard, each.shards) for each in log.executions()} == {(0, 3), (1, 3), (2, 3)}


def test_one_owner_takes_part_after_part(a: Host, b: Host) -> None:
    """It is known for what it had, and new for what it had not."""
    firing = a.firing(minute(1), shards=2)
    first = a.ask(firing)
    assert isinstance(first, Lease)
    a.finish(first)
    second = a.ask(firing._replace(shard=1))
    assert isinstance(second, Lease)
    assert second.execution_id != first.execution_id
    again = a.ask(firing._replace(shard=1))
    assert isinstance(again, Lease)
    assert again.execution_id == second.execution_id
    assert getattr(a.ask(firing), "reason", "") == "done"
    assert b.lose(minute(1), shard=1, shards=2).reason == "held"


def test_a_lost_part_goes_on_alone(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """Those that ran or run are not touched."""
    whole = {"shards": 3, "failover": True, "retries": 2}
    a.run(minute(1), shard=0, **whole)
    lost = a.win(minute(1), shard=1, **whole)
    lives = a.win(minute(1), shard=2, **whole)
    store.expire(KEY, shard=1)
    taken = b.win(minute(1), shard=1, **whole)
    assert (taken.attempt, taken.shard) == (2, 1)
    assert taken.token > lost.token
    assert a.renew(lives)
    assert b.lose(minute(1), shard=0, **whole).reason == "done"
    assert {(each.shard, each.attempt, each.outcome) for each in log.executions()} == {
        (0, 1, "succeeded"),
        (1, 1, "lost"),
        (1, 2, "running"),
        (2, 1, "running"),
    }


def test_a_part_is_tried_again_alone(a: Host, log: Log) -> None:
    """With its number, and that of all parts."""
    first = a.win(minute(1), shard=1, shards=3, retries=1)
    a.win(minute(1), shard=2, shards=3, retries=1)
    second = a.retried(first)
    assert (second.shard, second.attempt) == (1, 2)
    newest = log.newest()
    assert (newest.shard, newest.shards, newest.attempt) == (1, 3, 2)
    assert sorted(view.shard for view in log.leases()) == [1, 2]
    a.finish(second, "failed")
    assert [(each.shard, each.attempt) for each in log.exhausted()] == [(1, 2)]


# One number of parts


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
@pytest.mark.parametrize(("shard", "shards"), [(1, 4), (0, 2), (0, 1), (3, 4)])
def test_another_number_of_parts_is_refused(
    a: Host, b: Host, log: Log, tick: Tick, shard: int, shards: int
) -> None:
    """Some items would have been worked on twice and others never: both numbers are told, exit 78."""
    lease = a.win(tick, shards=3)
    for running in (True, False):
        with pytest.raises(ConfigurationError) as error:
            b.fire(tick, shard=shard, shards=shards)
        assert error.value.exit_status == 78
        assert "3" in str(error.value)
        assert str(shards) in str(error.value)
        b.store.close()
        if running:
            a.finish(lease)
    assert len(log.executions()) == 1
    assert log.none_held()
    b.win(tick, shard=1, shards=3)


def test_the_next_tick_may_have_another_number(a: Host, b: Host, log: Log) -> None:
    """The crontabs were changed in between; the older tick keeps its own."""
    a.run(minute(1), shards=3)
    a.run(minute(2), shards=2)
    b.run(minute(2), shard=1, shards=2)
    with pytest.raises(ConfigurationError):
        b.fire(minute(1), shard=0, shards=2)
    b.store.close()
    a.run(minute(3))
    assert [each.shards for each in log.executions()] == [1, 2, 2, 3]


@pytest.mark.parametrize(("shard", "shards"), [(2, 3), (0, 1)])
def test_an_old_tick_keeps_its_number(a: Host, b: Host, shard: int, shards: int) -> None:
    """However many have come since."""
    a.run(named_tick("old"), shards=2)
    for number in range(9):
        a.run(named_tick(f"newer-{number}"), shards=2)
    with pytest.raises(ConfigurationError):
        b.fire(named_tick("old"), shard=shard, shards=shards)
    b.store.close()
    b.run(named_tick("old"), shard=1, shards=2)


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_never_two_numbers_at_once(a: Host, store: StoreKind, log: Log, tick: Tick) -> None:
    """Half of the hosts divide by three, half by four, all ask for different parts at the same moment."""

    def claim(host: Host, place: int) -> int | None:
        shards = 3 + place % 2
        try:
            answer = host.fire(tick, shard=place // 2 % shards, shards=shards)
        except ConfigurationError:
            return None
        return shards if isinstance(answer, Lease) else 0

    won = {shards for shards in at_once(store, CLAIMERS, claim) if shards}
    assert len(won) == 1
    numbers = {each.shards for each in log.executions()}
    assert numbers == won
    assert len(log.executions()) == next(iter(won))


def test_a_delivered_part_divides_its_tick(a: Host, b: Host) -> None:
    """Whichever part it was: what the store learns late counts like what it granted."""
    firing = a.firing(minute(1), shard=1, shards=2)
    a.deliver(execution_record(firing, fencing_token=7))
    with pytest.raises(ConfigurationError):
        b.fire(minute(1))


def test_retention_leaves_the_number_of_a_tick_as_long_as_one_shard_is_in_the_log(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """What is removed with the first of its shards is not what the others are compared with."""
    a.run(minute(1), shards=3)
    store.age(1000)
    a.run(minute(1), shards=3, shard=2)
    assert log.people.prune(Retention(executions=500, skips=500)) == (1, 0)
    with pytest.raises(ConfigurationError):
        b.fire(minute(1), shards=2, again=True)


def test_retention_forgets_the_number_that_no_execution_of_a_tick_has_any_more(
    a: Host, b: Host, log: Log
) -> None:
    """The older execution stays, because it runs."""
    lease = a.win(minute(1), shards=2)
    b.deliver(execution_record(b.firing(minute(1)), fencing_token=7))
    assert log.people.prune(Retention(executions=0.0)) == (1, 0)
    assert a.finish(lease)
    with pytest.raises(ConfigurationError, match="another host has --shards 2"):
        b.fire(minute(1), shards=3, again=True)
    b.win(minute(1), shards=2, again=True)


def test_retention_leaves_a_number_that_another_execution_of_the_part_has(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """It is not that of the newest one."""
    a.run(minute(1), shards=2)
    store.age(1000)
    a.run(minute(1), shards=2, again=True)
    b.deliver(execution_record(b.firing(minute(1)), fencing_token=7))
    assert log.people.prune(Retention(executions=500)) == (1, 0)
    with pytest.raises(ConfigurationError, match="another host has --shards 2"):
        b.fire(minute(1), again=True)
