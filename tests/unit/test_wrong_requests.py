"""Which requests a holder obeys, whatever stands in the store."""

import pytest

from oncecron.core.model import REQUEST_KINDS, REQUEST_SIGNALS, Request, stored_request
from oncecron.core.units import LONGEST_DURATION
from oncecron.run.job import wrong_with

GOOD = Request("stop", "ann@a", 15, 5.0)


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


@pytest.mark.parametrize("signal", [None, "", "TERM", b"\xff", "9" * 5000, float("inf"), [], "1.5"])
def test_a_signal_that_is_no_number_is_read(signal: object) -> None:
    """A store may hold anything; reading it never fails."""
    assert stored_request("stop", None, signal, None) == Request("stop", "", 0, None)


@pytest.mark.parametrize("grace", ["", "soon", b"\xff", [], 10**400])
def test_a_grace_that_is_no_number_is_read(grace: object) -> None:
    """Likewise."""
    assert wrong_with(stored_request("stop", "ann@a", "15", grace))
    assert wrong_with(stored_request("stop", "ann@a", "15", "2.5")) is None
