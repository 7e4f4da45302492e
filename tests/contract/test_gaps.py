"""Which ticks an audit misses, and why: on every store what a plain reading of all starts and all skips says."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
from hosts import KEY, Host, execution_record, minute, skip_record

from oncecron.core import clock
from oncecron.core.log_rows import HistoryQuery
from oncecron.core.making_up import HELD_BACK, withheld
from oncecron.core.text import Clock
from oncecron.core.tick import instant_of, minute_tick
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.log.audit import Question, audit
from oncecron.log.gaps import reason_text
from oncecron.log.missed import expected_shards, grace_of, paused_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Log
    from contract_stores import StoreKind

    from oncecron.core.log_rows import Expectation, JobKey
    from oncecron.log.missed import Reasons

    Gap = tuple[str, int, str, str, int, str]

PARTS = ((KEY, 0, 1), ("hourly", 0, 1), ("weekly", 0, 2), ("weekly", 1, 2), ("never", 0, 1))
"""Keys with their shards; of the last one, nothing is started or skipped once it is expected to run."""
REASONS = ("held", "done", "late", "no-store", "paused", "drained", "drained")
LAST = 54
"""The last of the minutes that are made up: it is missed if nothing was started."""


def made_up(rng: random.Random, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield records of starts and skips, most of them in stretches in which hosts are drained, or nothing starts."""
    for key, shard, shards in PARTS[:-1]:
        starts, drained = 0.8, [*names]
        for number in range(1, LAST):
            if rng.random() < 0.15:
                starts = rng.choice((0.0, 0.1, 0.9))
                drained = rng.sample(names, rng.randrange(len(names) + 1))
            for name in rng.sample(names, rng.randrange(len(names) + 1)):
                host = Host(None, name)  # type: ignore[arg-type]
                firing = host.firing(minute(number), key=key, shard=shard, shards=shards)
                at = (minute(number).instant or 0.0) + rng.uniform(-200, 200)
                if rng.random() < starts / 2 and name == names[0]:
                    outcome = rng.choice(("succeeded", "failed", "not-started"))
                    start = (minute(number).instant or 0.0) + 1
                    yield execution_record(firing, outcome=outcome, started_at=start)
                elif rng.random() < 0.6:
                    reason = "drained" if name in drained else rng.choice(REASONS)
                    yield skip_record(firing, reason, at)


@pytest.fixture
def expected(a: Host, b: Host, store: StoreKind) -> None:
    """Let all shards be expected to run each minute since an hour ago, and skip a tick plainly that was given back."""
    now = clock.wall()
    for key, shard, shards in PARTS:
        schedule: dict[str, Any] = {"schedule": "* * * * *", "zone": "UTC"}
        a.run(minute(0), key=key, shard=shard, shards=shards, **schedule)
    store.age(now - (minute(0).instant or 0.0) - 1)
    lease = a.win(minute_tick(now - 120), fired_at=now)
    b.lose(minute_tick(now - 120), fired_at=now)
    assert a.finish(lease, "not-started")


def naive(log: Log, since: float | None, now: float) -> list[Gap]:
    """Return the missing ticks by reading everything of a shard."""
    found: list[Gap] = []
    for known, expectation in expected_shards(log.people.job_keys()):
        found += _of_shard(log, known, expectation, since, now)
    return sorted(found)


def _of_shard(
    log: Log, known: JobKey, expectation: Expectation, since: float | None, now: float
) -> Iterator[Gap]:
    everything = HistoryQuery(key=known.key, limit=None)
    runs = [
        each
        for each in log.people.traced(everything)
        if each.execution.shard == known.shard and each.execution.started_at >= (since or 0.0)
    ]
    oldest = max(expectation.since, since or 0.0)
    started = {
        each.instant
        for each in runs
        if each.execution.outcome != "not-started" and (each.instant or 0.0) >= oldest
    }
    given_back = {
        each.instant: each.execution.host
        for each in sorted(runs, key=lambda each: each.execution.started_at)
        if each.execution.outcome == "not-started" and (each.instant or 0.0) >= oldest
    }
    ends = [now - grace_of(expectation), *started, *((at or 0.0) + 1 for at in given_back)]
    minutes = range(int(oldest // 60 * 60), int(now), 60)
    paused = paused_time(known.key, log.people.pauses())[0] or now
    before = max(each for each in ends if each is not None)
    due = [at for at in minutes if oldest // 1 < at < before]
    gaps = [at for at in due if at not in started and at < paused]
    if not gaps:
        return
    skips = [each for each in log.people.skips(everything) if each.at >= gaps[0] - MAX_CLOCK_SKEW]
    hosts = {each.execution.host for each in runs} | {each.host for each in skips}

    def why(at: int) -> str | None:
        if at not in gaps:
            return None
        reasons: Reasons = {}
        for skip in skips:
            if skip.shard == known.shard and instant_of(skip.tick) == at:
                reasons.setdefault(skip.reason, {})[skip.host] = None
        held_back = withheld(reasons, hosts) in HELD_BACK
        return None if held_back else reason_text(reasons, given_back_by=given_back.get(at))

    for reason, ticks in itertools.groupby(due, key=why):
        if reason is not None:
            texts = [str(minute_tick(at).text) for at in ticks]
            yield known.key, known.shard, texts[0], texts[-1], len(texts), reason


def audited(log: Log, since: float | None, now: float) -> list[Gap]:
    """Return those that an audit finds, without what it says of single shards of a tick."""
    question = Question(log.people, log.people, since, 86400.0, now, Clock(utc=True), lambda: None)
    return [
        (each.key, each.shard, str(each.tick), str(each.last_tick or each.tick), each.count, each.reason)
        for each in audit(question)
        if each.finding == "no-run" and each.execution_id is None
    ]  # fmt: skip


@pytest.mark.parametrize("at_once", [10**6, 7, 0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("expected")
def test_an_audit_misses_what_a_naive_reading_misses(
    a: Host, log: Log, seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ticks are asked for at once; in the order of keys, those without any start last."""
    for module in ("gaps", "audit"):
        monkeypatch.setattr(f"oncecron.log.{module}.TICKS_AT_ONCE", at_once)
    rng = random.Random(seed)
    a.deliver(
        *made_up(rng, ["a.example", *(f"h{number}" for number in range(rng.randrange(1, 4)))])
    )
    if seed == 1:
        log.people.pause(KEY, author="ann@desk", reason=None, seconds=None)
    now = clock.wall()
    kinds = set()
    for since in (None, minute(20).instant):
        found = audited(log, since, now)
        assert sorted(found) == naive(log, since, now)
        read = {(row.execution.key, row.execution.shard) for row in log.people.timeline(since)}
        assert found == sorted(found, key=lambda each: (each[:2] not in read, each))
        kinds |= {
            word
            for *_, reason in found
            for word in ("drained", "given back", "no skip")
            if word in reason
        }
    assert kinds == {"drained", "given back", "no skip"}
