"""The place of a tick: who writes it, who finds it, and that nobody else can move it."""

import pytest
from contract_log import Log
from contract_stores import StoreKind
from hosts import KEY, Host, execution_record, minute

from oncecron.core.errors import RecordRefusedError
from oncecron.core.model import LONGEST_PLACE, Lease, Output, place_text
from oncecron.core.tick import NO_TICK, Tick, named_tick

GOES_ON = {"failover": True, "retries": 9}
ODD = bytes(byte for byte in range(1, 256)) + rb"\\ \x41" + "é日".encode()


def next_place(store: StoreKind, host: Host, tick: Tick) -> bytes:
    """Let the lease end, and return what the host that takes over finds."""
    store.expire(KEY)
    return host.win(tick, **GOES_ON).place


def test_a_tick_begins_without_a_place(a: Host, log: Log) -> None:
    """And nothing is recorded where the job leaves none."""
    lease = a.win(minute(1))
    assert lease.place == b""
    renewed = a.renew(lease)
    assert renewed is not None
    assert renewed.place == b""
    a.finish(renewed, "failed")
    assert log.newest().place is None


@pytest.mark.parametrize("tick", [minute(1), named_tick("2026-11")])
def test_the_next_attempt_finds_what_was_left(
    a: Host, b: Host, store: StoreKind, log: Log, tick: Tick
) -> None:
    """The host that takes over has it with its lease, and keeps it although its own job leaves none."""
    lease = a.win(tick, **GOES_ON)
    renewed = a.renew(lease, b"41")
    assert renewed is not None
    assert renewed.place == b"41"
    assert log.newest().place == "41"
    assert next_place(store, b, tick) == b"41"
    assert next_place(store, a, tick) == b"41"


def test_a_heartbeat_without_a_place_leaves_it(a: Host, b: Host, store: StoreKind) -> None:
    """Most have none."""
    lease = a.renew(a.win(minute(1), **GOES_ON), b"41")
    assert lease is not None
    renewed = a.renew(lease)
    assert renewed is not None
    assert renewed.place == b"41"
    assert next_place(store, b, minute(1)) == b"41"


def test_an_empty_place_takes_it_back(a: Host, b: Host, store: StoreKind, log: Log) -> None:
    """As if there had never been one."""
    lease = a.renew(a.win(minute(1), **GOES_ON), b"41")
    assert lease is not None
    taken_back = a.renew(lease, b"")
    assert taken_back is not None
    assert taken_back.place == b""
    assert log.newest().place is None
    assert next_place(store, b, minute(1)) == b""


@pytest.mark.parametrize(
    "place", [ODD, b"x" * LONGEST_PLACE, b"\xff" * LONGEST_PLACE, b"a\nb", b"\\"]
)
def test_a_place_is_any_bytes(a: Host, b: Host, store: StoreKind, place: bytes) -> None:
    """As the job wrote them."""
    assert a.renew(a.win(minute(1), **GOES_ON), place)
    assert next_place(store, b, minute(1)) == place


def test_people_see_a_place_as_text(a: Host, log: Log) -> None:
    """Bytes that are no text are escaped, and passwords are masked."""
    a.renew(a.win(minute(1)), "é https://ann:secret@h ".encode() + b"\xff\\")
    assert log.newest().place == "é https://ann:***@h \\xff\\"


def test_a_place_is_the_tick_s_and_the_shard_s(a: Host, b: Host, store: StoreKind) -> None:
    """Another tick, or another shard of it, begins without."""
    shards = {"shards": 2, **GOES_ON}
    a.finish(a.renew(a.win(minute(1), **shards), b"41"), "failed")  # type: ignore[arg-type]
    assert b.win(minute(1), shard=1, **shards).place == b""
    assert a.win(minute(2), **shards).place == b""


@pytest.mark.parametrize("tick", [minute(1), NO_TICK])
def test_a_retry_goes_on(a: Host, store: StoreKind, log: Log, tick: Tick) -> None:
    """From the place that came with the end, also when the answer was lost, and also without a tick."""
    lease = a.renew(a.win(tick, retries=2), b"41")
    assert lease is not None
    assert a.keep(lease, place=b"42")
    second = a.retry(lease)
    assert isinstance(second, Lease)
    assert second.place == b"42"
    again = a.retry(lease)
    assert isinstance(again, Lease)
    assert again.place == b"42"
    assert a.keep(second)
    third = a.retry(second)
    assert isinstance(third, Lease)
    assert third.place == b"42"
    assert [each.place for each in log.executions()] == ["42", "42", "42"]


@pytest.mark.parametrize("outcome", ["failed", "timed-out", "stopped", "lost"])
def test_an_end_brings_a_place(a: Host, b: Host, log: Log, outcome: str) -> None:
    """By --again the next attempt goes on from there."""
    assert a.finish(a.win(minute(1)), outcome, place=b"42", output=Output("o", 0))
    assert log.newest().place == "42"
    assert b.win(minute(1), again=True).place == b"42"


def test_an_end_without_a_place_keeps_the_last_one(a: Host, b: Host) -> None:
    """That which a heartbeat brought."""
    lease = a.renew(a.win(minute(1)), b"41")
    assert lease is not None
    a.finish(lease, "failed")
    assert b.win(minute(1), again=True).place == b"41"


def test_success_ends_a_place(a: Host, b: Host, log: Log) -> None:
    """It stays on record, but another attempt of the tick begins anew."""
    assert a.finish(a.win(minute(1)), place=b"99")
    assert log.newest().place == "99"
    assert b.win(minute(1), again=True).place == b""


def test_a_start_that_did_not_happen_changes_no_place(a: Host, b: Host, store: StoreKind) -> None:
    """The next attempt goes on after the last one that started."""
    a.renew(a.win(minute(1), **GOES_ON), b"41")
    store.expire(KEY)
    b.run(minute(1), "not-started", **GOES_ON)
    assert a.win(minute(1), **GOES_ON).place == b"41"


def test_a_standby_without_a_tick_goes_on(a: Host, b: Host, store: StoreKind) -> None:
    """From the place of the execution that it waited for."""
    lease = a.renew(a.win(NO_TICK, **GOES_ON), b"41")
    assert lease is not None
    firing = b.firing(NO_TICK, **GOES_ON)
    b.ask(firing, awaited=lease.execution_id)
    store.expire(KEY)
    answer = b.ask(firing, awaited=lease.execution_id)
    assert isinstance(answer, Lease)
    assert answer.place == b"41"


def test_a_claim_sent_again_has_the_place(a: Host, b: Host, store: StoreKind) -> None:
    """Its answer was lost."""
    a.renew(a.win(minute(1), **GOES_ON), b"41")
    store.expire(KEY)
    firing = b.firing(minute(1), **GOES_ON)
    for _ in range(2):
        answer = b.ask(firing)
        assert isinstance(answer, Lease)
        assert answer.place == b"41"


# Who can move it


def test_who_lost_the_lease_cannot_move_the_place(
    a: Host, b: Host, store: StoreKind, log: Log
) -> None:
    """A holder that was frozen, and thaws: neither by a heartbeat, nor by its end, nor from its spool."""
    firing = a.firing(minute(1), **GOES_ON)
    old = a.ask(firing)
    assert isinstance(old, Lease)
    a.renew(old, b"41")
    store.expire(KEY)
    new = b.win(minute(1), **GOES_ON)
    assert b.renew(new, b"77")
    assert a.renew(old, b"40") is None
    assert not a.keep(old, place=b"40")
    assert not a.finish(old, "failed", place=b"42")
    a.deliver(execution_record(firing, old, "failed", place="39"))
    assert [each.place for each in log.executions()] == ["77", "42"]
    assert next_place(store, a, minute(1)) == b"77"


def test_nobody_else_can_move_the_place(a: Host, b: Host, log: Log) -> None:
    """Neither another owner, nor by another execution."""
    lease = a.renew(a.win(minute(1)), b"41")
    assert lease is not None
    assert b.renew(lease._replace(owner=b.firing(minute(1)).owner), b"1") is None
    assert b.renew(lease._replace(execution_id=lease.execution_id + 1), b"1") is None
    assert log.newest().place == "41"


def test_an_end_without_a_place_leaves_it_as_it_is(a: Host, b: Host, log: Log) -> None:
    """Also one of a holder that knows an older place: it has not heard that a newer one was confirmed."""
    lease = a.renew(a.win(minute(1)), b"41")
    assert lease is not None
    assert a.renew(lease, b"42")
    assert a.finish(lease, "failed")
    assert log.newest().place == "42"
    assert b.win(minute(1), again=True).place == b"42"


# Late records


def test_a_spooled_end_brings_its_place(a: Host, b: Host, log: Log) -> None:
    """What could not be sent goes with the end; without one, the last confirmed stays."""
    for number, (place, left) in enumerate(((b"42", "42"), (None, "41"), (b"", None)), start=1):
        firing = a.firing(minute(number))
        lease = a.ask(firing)
        assert isinstance(lease, Lease)
        a.renew(lease, b"41")
        a.deliver(execution_record(firing, lease, "failed", place=place_text(place)))
        a.store.close()
        assert log.newest().place == left
        assert b.run(minute(number), again=True).place == (left or "").encode()


def test_an_execution_that_the_store_never_saw_brings_its_place(a: Host, b: Host) -> None:
    """It ran without a lease."""
    a.deliver(execution_record(a.firing(minute(1)), None, "unclaimed", place=place_text(ODD)))
    assert b.win(minute(1), again=True).place == ODD


@pytest.mark.parametrize("wrong", ["x" * (4 * LONGEST_PLACE + 1), 5])
def test_a_place_that_no_host_can_have_is_refused(a: Host, wrong: object) -> None:
    """The record is set aside, whichever store is asked."""
    with pytest.raises(RecordRefusedError, match="place"):
        a.deliver(execution_record(a.firing(minute(1)), None, "failed", place=wrong))
