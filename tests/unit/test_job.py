"""The end of trust that wrapper and guard share, what happens before it, and which requests a holder obeys."""

import os

import pytest

from oncecron.core import system
from oncecron.core.model import REQUEST_KINDS, REQUEST_SIGNALS, Request, stored_request, trust_after
from oncecron.core.timing import GUARD_KILLS_BEFORE, MINIMUM_TTL, TERM_BEFORE, WRAPPER_KILLS_BEFORE
from oncecron.core.units import LONGEST_DURATION
from oncecron.run.job import Job, Trust, wrong_with

GOOD = Request("stop", "ann@a", 15, 5.0)


def test_a_forked_process_writes_what_its_parent_reads() -> None:
    """The page is shared in both directions, not copied, and keeps a float to its last bit."""
    trust = Trust()
    trust.until = 1.0
    pid = os.fork()
    if pid == 0:
        seen = trust.until
        trust.until = 123456.789012345
        os._exit(seen != 1.0)
    assert os.waitpid(pid, 0)[1] == 0
    assert trust.until == 123456.789012345


def test_term_comes_before_the_guards_kill_before_the_wrappers_before_the_end() -> None:
    """Also with the shortest ttl each has time to act, and the margin for unequal clocks is left."""
    assert 1 / 2 > TERM_BEFORE > GUARD_KILLS_BEFORE > WRAPPER_KILLS_BEFORE > 0
    end = trust_after(0.0, MINIMUM_TTL)
    assert end < MINIMUM_TTL * 0.99
    assert MINIMUM_TTL * (GUARD_KILLS_BEFORE - WRAPPER_KILLS_BEFORE) >= 0.15
    assert MINIMUM_TTL * WRAPPER_KILLS_BEFORE >= 0.25


@pytest.mark.parametrize("number", [1, 2, 3, 9, 10, 12, 15])
@pytest.mark.parametrize("grace", [None, 0.0, LONGEST_DURATION])
def test_what_people_can_send_is_obeyed(number: int, grace: float | None) -> None:
    """Each signal of `stop --signal`, any duration."""
    for kind in REQUEST_KINDS:
        assert wrong_with(Request(kind, "ann@a", number, grace)) is None
    assert len(REQUEST_SIGNALS) == 7


@pytest.mark.parametrize(
    "wrong",
    [
        *({"signal": number} for number in (-9, 0, 19, 64, 65, 9999, 1 << 70)),
        *({"grace": grace} for grace in (-0.1, float("nan"), float("inf"), LONGEST_DURATION + 1)),
        *({"kind": kind} for kind in ("", "kill", None, b"stop")),
    ],
)
def test_anything_else_is_not(wrong: dict[str, object]) -> None:
    """With words for the line that tells it."""
    assert wrong_with(GOOD._replace(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "", "TERM", b"\xff", "9" * 5000, float("inf"), [], "1.5"])
def test_a_signal_that_is_no_number_is_read(value: object) -> None:
    """A store may hold anything; reading it never fails, and neither does reading a grace."""
    assert stored_request("stop", None, value, None) == Request("stop", "", 0, None)


@pytest.mark.parametrize("grace", ["", "soon", b"\xff", [], 10**400])
def test_a_grace_that_is_no_number_is_not_obeyed(grace: object) -> None:
    """It is no reason to wait for ever, and none to crash."""
    assert wrong_with(stored_request("stop", "ann@a", "15", grace))
    assert wrong_with(stored_request("stop", "ann@a", "15", "2.5")) is None


class Alone(system.Calls):
    """The calls of a process that waits for children, and finds none to signal."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        self._ends = iter(ends)

    def waitpid(self, *_: int) -> tuple[int, int]:
        if end := next(self._ends, None):
            return end
        raise ChildProcessError

    def listdir(self, _path: str) -> list[str]:
        return []


class Seven:
    def start(self, *_: object) -> int:
        return 7


def test_an_orphan_with_the_pid_of_a_failed_job_does_not_make_it_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While what the job has left is ended, the kernel may give its pid again."""
    # The first: at the start.
    monkeypatch.setattr(system, "calls", Alone((0, 0), (7, 9 << 8), (0, 0), (7, 0)))
    job = Job(grace=10.0, timeout=None, ttl=60.0, say=lambda _: None, processes=Seven())
    job.start("/bin/job", ["job"], {}, None, (), 0.0)
    assert job.judge(1.0, 0.0) is None
    end = job.judge(2.0, 0.0)
    assert end is not None
    assert (end.ending.outcome, end.exit_status) == ("failed", 9)


def test_no_further_signal_or_request_moves_the_kill_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may bring it forward: who repeats himself, or asks for a longer grace, does not prolong the end."""
    monkeypatch.setattr(system, "calls", Alone(*[(0, 0)] * 9))
    job = Job(grace=10.0, timeout=5.0, ttl=60.0, say=lambda _: None, processes=Seven())
    job.start("/bin/job", ["job"], {}, None, (), 0.0)
    assert job.judge(5.0, 0.0) is None  # --timeout
    for now, grace in ((6.0, 100.0), (7.0, 50.0)):
        job.obey(GOOD._replace(grace=grace), now)
        job.forward(15, now, already_there=True)
        assert job.judge(now, 0.0) is None
        assert job.poll_timeout(now, 0.0) == 15.0 - now
    job.forward(15, 8.0, already_there=True)
    assert job.poll_timeout(8.0, 0.0) < 1
