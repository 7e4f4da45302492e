"""What `stop` and `release` say of leases that have ended, and of locks without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from oncecron.cli import stop
from oncecron.cli.stop import Fate, _resumes
from oncecron.config.settings import Settings
from oncecron.core.log_rows import LeaseView, Released

if TYPE_CHECKING:
    from oncecron.core.log_rows import Execution
    from oncecron.stores.reader import Reader

OVER = LeaseView(
    *("k", 0, "t1", 7, 1, "stale", "host-a", 4711, "batch", 0.0, 0.0, 60.0, 5, 99, None)
)
LOCK = OVER._replace(tick=None, execution_id=None, attempt=None, expires_at=None)
PART: dict[str, Any] = {"shard": 1, "shards": 2}


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCECRON_CONFIG", "/dev/null")


def settings(given: dict[str, str]) -> Settings:
    return Settings(stop.RELEASE_OPTIONS, given)


class Locked:
    """A store in which a session holds every lock."""

    def release(self, *_part: object, **_how: object) -> Released:
        return Released("locked", 0.0, 99)


@pytest.mark.parametrize(
    ("lease", "advice"),
    [
        (OVER, "to release it now: `oncecron release k`"),
        (OVER._replace(**PART), "to release it now: `oncecron release k --shard 1`"),
        (LOCK, "to end that session: `oncecron release --force k`"),
        (LOCK._replace(**PART), "to end that session: `oncecron release --force k --shard 1`"),
    ],
)
def test_advice_means_no_other_part_and_needs_no_further_advice(
    lease: LeaseView, advice: str
) -> None:
    """Of `stop`."""
    assert stop._gone(lease, settings({})).endswith(advice)


@pytest.mark.parametrize("lease", [OVER, LOCK])
@pytest.mark.parametrize(("part", "typed"), [({}, "--force k`"), (PART, "--force k --shard 1`")])
def test_release_means_no_other_part(lease: LeaseView, part: dict[str, Any], typed: str) -> None:
    """And says what has ended only where it was."""
    store = cast("Reader", Locked())
    given = {"shard": str(part["shard"])} if part else {}
    one = stop.Release(store, settings(given))
    freed, text = one.with_lease(lease._replace(**part), None)
    assert not freed
    assert typed in text
    assert ("it has no lease, but" in text) == (lease is LOCK)
    assert typed in one.without_lease("k")[1]


@pytest.mark.parametrize(("attempt", "resumes"), [(2, True), (1, False)])
def test_a_later_firing_with_the_same_pid_is_no_retry(*, attempt: int, resumes: bool) -> None:
    """Without a tick: in a container that was started again the pid is the same."""
    lease = OVER._replace(tick=None)
    failed = Fate(lease, "ended", cast("Execution", SimpleNamespace(outcome="failed")))
    found = lease._replace(execution_id=8, attempt=attempt, state="held", expires_at=2.0**40)
    assert _resumes(failed, found) is resumes
