"""What reports ask about many keys at once: the answers are those to the same question about each key."""

import pytest
from contract_log import Log
from hosts import KEY, Host, minute

from oncecron.core.log_rows import HistoryQuery, SkipReason
from oncecron.core.tick import Tick, named_tick

KEYS = ("daily", KEY, "weekly")


@pytest.fixture
def past(a: Host, b: Host) -> None:
    """Give three keys with a past: one with two shards, one with a named tick and one without any."""
    for number in range(1, 8):
        a.run(minute(number))
        b.lose(minute(number))
        for shard in (0, 1):
            b.run(minute(number), key="weekly", shard=shard, shards=2)
    a.run(named_tick("campaign"), key="daily")
    b.lose(named_tick("campaign"), key="daily")
    a.run(Tick(None, None, "none"), key="daily")
    a.run(minute(7), key="daily")
    b.lose(minute(7), key="daily")


@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize("keys", [None, [KEY], ["weekly", "daily"], ["never"]], ids=str)
@pytest.mark.usefixtures("past")
def test_the_newest_executions_are_those_of_each_history(
    log: Log, limit: int, keys: list[str] | None
) -> None:
    """As many, the newest first, of all shards together, without their texts."""
    found = list(log.people.newest(limit, keys))
    assert {each.key for each in found} == (set(KEYS) if keys is None else {*keys} & {*KEYS})
    for key in KEYS if keys is None else keys:
        of_key = [each for each in found if each.key == key]
        known = log.executions(HistoryQuery(key=key, limit=limit))
        assert of_key == [each.without_texts() for each in known]


@pytest.mark.usefixtures("past")
def test_the_reasons_are_those_of_the_skips_since_a_tick(log: Log) -> None:
    """From the tick on; each key has its own."""
    found = set(log.people.reasons({KEY: minute(5), "daily": minute(1)}))
    named = {each for each in found if each.tick == "campaign"}
    assert named <= {SkipReason("daily", "campaign", "bb.example", "done", 0)}
    assert found - named == {
        *(SkipReason(KEY, str(minute(n).text), "bb.example", "done", 0) for n in (5, 6, 7)),
        SkipReason("daily", str(minute(7).text), "bb.example", "done", 0),
    }
    assert list(log.people.reasons({"never": minute(1), "weekly": minute(1)})) == []
    of_few = {KEY: [minute(6).instant or 0.0]}
    few = set(log.people.reasons({KEY: minute(6)}, of_few))
    assert {each for each in few if each.tick == minute(6).text} == {
        SkipReason(KEY, str(minute(6).text), "bb.example", "done", 0)
    }
    assert few <= found


def test_many_skips_come_page_by_page(a: Host, b: Host, log: Log) -> None:
    """Each once."""
    a.run(minute(1))
    holders = [b.holder._replace(host=f"h{number}") for number in range(1100)]
    for holder in holders:
        b.lose(minute(1), holder=holder)
    found = [each.host for each in log.people.reasons({KEY: minute(1)})]
    assert sorted(found) == sorted(holder.host for holder in holders)
