"""The last bytes that a job wrote, and how the log keeps them."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.model import Output
from oncecron.run.capture.ring import Ring, output_of


@given(st.integers(1, 20), st.lists(st.binary(max_size=50), max_size=12))
def test_a_ring_keeps_the_last_bytes(size: int, pieces: list[bytes]) -> None:
    """Whatever they come in, and tells how many it has not kept."""
    ring = Ring(size)
    ring.begin()
    for piece in pieces:
        ring.add(piece)
    everything = b"".join(pieces)
    cut = max(0, len(everything) - size)
    assert ring.end() == output_of(everything[cut:], cut)


@given(st.integers(1, 20), st.lists(st.binary(max_size=30), min_size=1, max_size=6))
def test_each_attempt_has_its_own_output(size: int, attempts: list[bytes]) -> None:
    """Also where the ring has gone round, and where what came between two is nobody's."""
    ring = Ring(size)
    for written in attempts:
        ring.begin()
        ring.add(written)
        cut = max(0, len(written) - size)
        assert ring.end() == output_of(written[cut:], cut)
        ring.add(b"nobody's")


def test_what_never_began_has_no_output() -> None:
    """Nor has what has ended: each output is told once."""
    ring = Ring(8)
    ring.add(b"x")
    assert ring.end() is None
    ring.begin()
    assert ring.end() == Output("", 0)
    assert ring.end() is None


class Overtaken(Ring):
    """A ring that a flood goes through whenever somebody reads it."""

    def __init__(self, size: int, floods: list[bytes]) -> None:
        super().__init__(size)
        self._memory, self._floods = self._bytes, floods
        self._bytes = self  # type: ignore[assignment]

    def __setitem__(self, where: slice, what: bytes) -> None:
        self._memory[where] = what

    def __bytes__(self) -> bytes:
        """Copy, and be overwritten before the copy is judged."""
        half = self._size // 2
        before = bytes(self._memory[:half])
        for flood in self._floods:
            self.add(flood)
        self._floods = []
        return before + bytes(self._memory[half:])


def test_what_is_written_over_meanwhile_is_left_out() -> None:
    """A daemon that was left behind may be writing: what is shown was there at one time."""
    ring = Overtaken(8, [b"abc"])
    ring.begin()
    ring.add(b"01234567")
    assert ring.end() == Output("34567", 3)


def test_a_flood_that_goes_round_is_looked_at_again() -> None:
    """Then the ring holds nothing of what was there at the first look."""
    ring = Overtaken(8, [b"x" * 20, b"yz"])
    ring.begin()
    ring.add(b"01234567")
    assert ring.end() == Output("xxxxxxyz", 22)


@pytest.mark.parametrize(
    ("data", "cut", "output"),
    [
        (b"", 0, Output("", 0)),
        ("für €".encode(), 0, Output("für €", 0)),
        (b"\xa4 z", 5, Output(" z", 6)),  # the second half of ä
        (b"\x9f\x98\x80 z", 5, Output(" z", 8)),  # the last three of four
        (b"\x80\x80\x80\x80", 5, Output("\\x80", 8)),  # no character has four of them
        (b"\xa4 z", 0, Output("\\xa4 z", 0)),  # nothing came before
        (b"a\xff\xfez\xc3", 0, Output("a\\xff\\xfez\\xc3", 0)),
        (b"\xed\xa0\x80", 0, Output("\\xed\\xa0\\x80", 0)),  # a lone surrogate is no UTF-8
        (b"a\0b\r\n\x1b[1m", 0, Output("a\\x00b\r\n\x1b[1m", 0)),
    ],
)
def test_output_is_text(data: bytes, cut: int, output: Output) -> None:
    """Valid UTF-8 without NUL, which no database takes; a character cut at the front is cut whole."""
    assert output_of(data, cut) == output


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers(1, 9)
)
def test_a_cut_in_a_text_is_between_two_characters(text: str, size: int) -> None:
    """What is left of it is the end of the text itself."""
    data = text.encode()
    cut = max(0, len(data) - size)
    output = output_of(data[cut:], cut)
    assert text.endswith(output.text)
    assert output.cut in {0, *accumulate(len(letter.encode()) for letter in text)}
