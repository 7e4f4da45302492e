"""Durations, as people write and read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.units import (
    LARGEST_SIZE,
    LONGEST_DURATION,
    format_duration,
    parse_duration,
    parse_range,
    parse_size,
    typed_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400), ("0.5s", 0.5), ("0.25", 0.25),
        ("1.5h", 5400), ("1h30m", 5400), ("1d2h3m4s500ms", 93784.5), ("1h0.5s", 3600.5), ("500ms", 0.5),
        ("2h05m", 7500), ("0", 0), ("0s", 0), ("3653d", LONGEST_DURATION),
    ],
)  # fmt: skip
def test_reads_what_people_write(text: str, seconds: float) -> None:
    """A bare number is seconds; units may be fractions and may be combined from long to short."""
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "empty duration"), ("-5s", "negative duration '-5s'"), ("nan", "no number at 'nan'"),
        ("inf", "no number at 'inf'"), ("m", "no number at 'm'"), (" 5s", "no number at ' 5s'"),
        ("5 s", "no unit after '5'"), ("5s ", "no number at ' '"), ("+5s", "no number at '+5s'"),
        ("1e3", "unknown unit 'e'"), ("5M", "no unit after '5'"), ("2w", "unknown unit 'w'"),
        ("5min", "unknown unit 'min'"), ("1h30", "no unit after '30'"), ("1..5s", "no number at '1..5s'"),
        ("1.s", "no number at '1.s'"), (".5s", "no number at '.5s'"), ("1.2.3s", "no number at '1.2.3s'"),
        ("1_000", "no unit after '1'"), ("٥s", "no number at '٥s'"),
        ("30m1h", "units go from long to short, each once"),
        ("1h1h", "units go from long to short, each once"),
        ("3654d", "longer than 10 years"), ("9" * 400, "longer than 10 years"),
    ],
)  # fmt: skip
def test_refuses_the_rest_and_says_what_it_found(text: str, found: str) -> None:
    """A duration that is not one is refused with what was found and what is expected."""
    with pytest.raises(ValueError, match="expected") as caught:
        parse_duration(text)
    assert found in str(caught.value)


def test_a_wrong_range_is_refused_with_what_a_range_looks_like() -> None:
    """It may be two durations."""
    with pytest.raises(
        ValueError, match=r"expected a number and a unit .* or two of them, such as 5s\.\.5m$"
    ):
        parse_range("soon")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.0001, "1ms"), (0.02, "20ms"), (0.0994, "99ms"), (0.0996, "0.1s"), (0.1, "0.1s"),
        (2, "2s"), (9.94, "9.9s"), (9.96, "10s"), (42, "42s"), (59.4, "59s"), (59.7, "1m00s"), (192, "3m12s"),
        (3599.4, "59m59s"), (3599.7, "1h00m"), (7500, "2h05m"), (86369, "23h59m"), (86399, "1d0h"),
        (3 * 86400 + 4 * 3600, "3d4h"), (-192, "-3m12s"), (math.inf, "inf"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_shows_two_units_at_most(seconds: float, text: str) -> None:
    """A duration is shown in the two units that matter, rounded once, and never as 60s or 24h."""
    assert format_duration(seconds) == text


@given(st.floats(min_value=0, max_value=LONGEST_DURATION - 86400))
def test_what_is_shown_can_be_read_back(seconds: float) -> None:
    """What is shown reads back as the same duration, to half of the smaller unit shown."""
    precision = 0.05 if seconds < 60 else 0.5 if seconds < 3600 else 30 if seconds < 86400 else 1800
    tolerance = max(precision, 0.5 if seconds >= 9.9 else 0)
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=tolerance + 1e-6)


@pytest.mark.parametrize(
    "text", ["0s", "0.5s", "0.001s", "59s", "90s", "1m", "90m", "36h", "1d", "3653d", "1234567s"]
)
def test_a_duration_as_it_is_typed(text: str) -> None:
    """In one unit, without loss; the largest one that divides it."""
    assert typed_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1", 1), ("4096", 4096), ("64k", 65536), ("64K", 65536), ("1M", LARGEST_SIZE),
        ("1m", LARGEST_SIZE), ("1024k", LARGEST_SIZE), ("1048576", LARGEST_SIZE), ("0064k", 65536),
    ],
)  # fmt: skip
def test_reads_sizes_as_people_write_them(text: str, size: int) -> None:
    """A bare number is bytes; k is 1024 of them, M is 1024 k."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "k", "-1", "+1", "1.5k", "64kb", "64kk", "1G", "64 k", " 64k", "64k ", "0x10", "٣", "²", "1e3"],
)  # fmt: skip
def test_refuses_the_rest(text: str) -> None:
    """And says what is expected."""
    with pytest.raises(ValueError, match="such as 4096, 64k or 1M"):
        parse_size(text)


@pytest.mark.parametrize("text", ["2M", "1025k", "1048577", "9" * 30, "1" + "0" * 5000])
def test_more_than_a_row_of_the_log_takes_is_refused(text: str) -> None:
    """A megabyte is the most, however large the number."""
    with pytest.raises(ValueError, match="larger than 1M"):
        parse_size(text)
