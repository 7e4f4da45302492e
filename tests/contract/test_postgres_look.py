"""What a claim looks at on PostgreSQL: where the key's row suffices, the log says the same."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import story_stores
from hosts import Host, minute
from hypothesis import HealthCheck, Phase, given, seed, settings
from postgres_stores import PooledPostgresKind, PostgresKind, UnheldPostgresKind
from programs import PROGRAMS, Program, Step
from servers import eventually
from test_same_answers import PROGRAMS_TRIED
from worlds import World

from oncecron.core.facts import state_of
from oncecron.stores.postgres import lease_store, look
from oncecron.stores.postgres.reader import PostgresReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncecron.core.facts import Facts
    from oncecron.core.model import Firing

COMPARED = (
    *("version", "own", "own_has_lease", "stop", "other_shards", "newest", "attempts"),
    *("high_water", "last_start", "last_lateness", "last_holder", "running", "fence"),
)


class Compared(lease_store.PostgresLeaseStore):
    """Looks closely after each look."""

    def look(self, firing: Firing, *, awaited: int | None, closely: bool, deadline: float) -> Facts:
        """Compare the two looks; nobody else writes between them."""
        facts = super().look(firing, awaited=awaited, closely=closely, deadline=deadline)
        closer = state_of(super().look(firing, awaited=awaited, closely=True, deadline=deadline))
        state = state_of(facts)
        for name in COMPARED:
            assert getattr(state, name) == getattr(closer, name), name
        assert _lasting(state.lease) == _lasting(closer.lease)
        return facts


def _lasting(lease: Any) -> Any:
    return lease and lease._replace(ends_in=0, silent_for=0, backend_start=None)


class ComparedKind(PostgresKind):
    """Hosts that compare."""

    @staticmethod
    def connect(address: str) -> Compared:
        """Open a session of its own at the first call."""
        return Compared(address, namespace="oncecron", ttl=60.0)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(ComparedKind(request))
    yield made
    made.kind.close()


@pytest.mark.slow
@pytest.mark.timeout(900)  # a failure is made short
@seed(story_stores.seed())
@settings(
    max_examples=PROGRAMS_TRIED,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(steps=PROGRAMS)
def test_the_row_tells_what_the_log_tells(world: World, steps: list[Step]) -> None:
    """Whatever was written before, in whatever order."""
    program = Program()
    world.begin()
    for step in steps:
        world.do(step, program.given(step))


def test_a_lock_that_is_newer_than_the_row_tells_nothing(request: pytest.FixtureRequest) -> None:
    """Another claim was granted in between: its lock says nothing about the lease that was there before."""
    kind = PostgresKind(request)
    Host(kind.firing(), "a").run(minute(1))
    look_at_lock = (
        "select oncecron.lock_state_of_v1(key_id, version, (select 'taken' from pg_advisory_lock(1, 1)))"
        " from oncecron.job_key"
    )
    found: list[Any] = []
    with (
        kind.database.connect("owner", autocommit=True) as other,
        kind.database.connect("owner", autocommit=True) as session,
    ):
        other.execute("select pg_advisory_lock(1, 1)")
        looks = threading.Thread(
            target=lambda: found.append(session.execute(look_at_lock).fetchone())
        )
        looks.start()
        eventually(lambda: kind.database.execute("select 1 from pg_locks where not granted") != [])
        other.execute("update oncecron.job_key set version = version + 1")
        other.execute("select pg_advisory_unlock(1, 1)")
        looks.join()
        found.append(session.execute(look_at_lock).fetchone())
    kind.close()
    assert found == [("busy",), ("taken",)]


def test_most_claims_read_the_row_alone(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new tick, and one that is running or done."""
    asked: list[bool] = []

    suffices = look.suffices

    def spy(*given: Any) -> bool:
        asked.append(suffices(*given))
        return asked[-1]

    monkeypatch.setattr(look, "suffices", spy)
    kind = PostgresKind(request)
    a, b = Host(kind.firing(), "a"), Host(kind.firing(), "b")
    for number in range(1, 4):
        lease = a.win(minute(number))
        [session] = [each.backend_pid for each in kind.people().leases()]
        assert b.lose(minute(number)).reason == "held"
        a.finish(lease)
        eventually(lambda pid=session: kind.without_lock(pid))  # else the next claim asks again
        assert b.lose(minute(number)).reason == "done"
    kind.close()
    assert asked == [True] * 9


def watched(host: Host) -> bool:
    """Return whether the server notices that packets of a host stop."""
    assert isinstance(host.store, lease_store.PostgresLeaseStore)
    statement = (
        b"select current_setting('tcp_user_timeout'), current_setting('idle_session_timeout', true)"
    )
    [found] = host.store._ask(statement, (), host.deadline())
    return found in [(b"25000", b"10min"), (b"25000", None)]  # None: before version 14


@pytest.mark.parametrize("made", [PostgresKind, UnheldPostgresKind])
def test_a_session_ends_soon_after_its_client(
    request: pytest.FixtureRequest, made: type[PostgresKind]
) -> None:
    """One that only looks may wait for hours: the server has to notice that packets stop. So may one that renews."""
    kind = made(request)
    a, b = Host(kind.firing(), "a"), Host(kind.firing(), "b")
    lease = a.win(minute(1))
    b.lose(minute(1))
    assert watched(b)
    a.store.close()  # the next session takes the place of one that was lost or given back
    assert a.store.renew(lease, deadline=a.deadline())
    assert watched(a)
    kind.close()


def test_an_end_does_not_fail_for_the_isolation_level(request: pytest.FixtureRequest) -> None:
    """A role may have another one: what a heartbeat, an end or a draw waits for has changed the row then."""
    kind = PostgresKind(request)
    name = kind.database.name
    kind.database.server.execute(
        f"alter database {name} set default_transaction_isolation = 'repeatable read'"
    )
    a = Host(kind.firing(), "a")
    lease = a.win(minute(1))
    a.store.close()
    ended: list[bool] = []
    with kind.database.connect("owner", autocommit=False) as other:
        other.execute("update oncecron.job_key set version = version + 1")
        ends = threading.Thread(target=lambda: ended.append(a.finish(lease)))
        ends.start()
        eventually(lambda: kind.database.execute("select 1 from pg_locks where not granted") != [])
        other.commit()
    ends.join()
    kind.close()
    assert ended == [True]


def test_a_poolers_session_is_left_as_it_is(request: pytest.FixtureRequest) -> None:
    """It is another client's next."""
    kind = PooledPostgresKind(request)
    a = Host(kind.firing(), "a")
    lease = a.win(minute(1))
    assert a.store.renew(lease, deadline=a.deadline())
    assert not watched(a)
    kind.close()


def test_a_persons_session_ends_soon_after_its_client(request: pytest.FixtureRequest) -> None:
    """Its client may be cut off in the middle of a command."""
    kind = PostgresKind(request)
    people = kind.people()
    assert isinstance(people, PostgresReader)
    people.leases()
    statement = "select current_setting('tcp_keepalives_idle'), current_setting('tcp_user_timeout')"
    found = people._connected().execute(statement).fetchone()
    people.close()
    kind.close()
    assert found == ("10", "25000")
