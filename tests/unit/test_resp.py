"""RESP2 and what is needed of RESP3: what is sent, and what comes out of a stream however it is cut."""

from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.stores.redis.resp import (
    LARGEST_REPLY,
    ProtocolError,
    Push,
    ReplyError,
    ReplyReader,
    TooLargeError,
    packed,
)


def reader(data: bytes, step: int = 1) -> ReplyReader:
    """Return a reader of a stream that comes in pieces and then breaks."""
    pieces = iter([data[at : at + step] for at in range(0, len(data), step)])

    def more() -> bytes:
        for piece in pieces:
            return piece
        raise ConnectionResetError

    return ReplyReader(more)


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (("PING",), b"*1\r\n$4\r\nPING\r\n"),
        (("SET", b"\x00\r\n", 12), b"*3\r\n$3\r\nSET\r\n$3\r\n\x00\r\n\r\n$2\r\n12\r\n"),
        (("ä", 0.1), b"*2\r\n$2\r\n\xc3\xa4\r\n$3\r\n0.1\r\n"),
        (("\udcff", ""), b"*2\r\n$1\r\n\xff\r\n$0\r\n\r\n"),
        ((1e22, -3), b"*2\r\n$5\r\n1e+22\r\n$2\r\n-3\r\n"),
    ],
)
def test_what_is_sent(words: tuple[Any, ...], sent: bytes) -> None:
    """Bytes as they are, text as UTF-8 (what was no UTF-8 comes back as it was), numbers exactly."""
    assert packed(words) == sent


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"+OK\r\n", b"OK"), (b":-12\r\n", -12), (b"$-1\r\n", None), (b"*-1\r\n", None), (b"$0\r\n\r\n", b""),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"), (b"*0\r\n", []),
        (b"*3\r\n:1\r\n*2\r\n$-1\r\n+a\r\n$1\r\nb\r\n", [1, [None, b"a"], b"b"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_what_comes(data: bytes, value: object, step: int) -> None:
    """Byte by byte or at once; what follows is left for the next."""
    stream = reader(data + b":7\r\n", step)
    assert stream.reply() == value
    assert stream.reply() == 7
    with pytest.raises(ConnectionResetError):
        stream.reply()


HELLO = (
    b"%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
    b"$7\r\nmodules\r\n*1\r\n%1\r\n$4\r\nname\r\n$2\r\nbf\r\n"
)
PUSH = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nended\r\n"


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_what_comes_of_resp3(step: int) -> None:
    """Maps as names and values in turn, the null, and between two answers what nobody asked for."""
    stream = reader(HELLO + PUSH + b"_\r\n" + PUSH + PUSH + b"*2\r\n_\r\n:1\r\n" + PUSH, step)
    hello = [b"server", b"redis", b"proto", 3, b"modules", [[b"name", b"bf"]]]
    assert stream.reply() == hello
    pushed = stream.next()
    assert isinstance(pushed, Push)
    assert pushed == [b"message", b"c", b"ended"]
    assert stream.reply() is None
    assert stream.reply() == [None, 1]
    with pytest.raises(ConnectionResetError):
        stream.reply()


def test_an_error_behind_a_push_is_an_answer() -> None:
    """It is not lost with what is skipped."""
    stream = reader(PUSH + b"-NOPERM no\r\n:7\r\n")
    refusal = stream.reply()
    assert isinstance(refusal, ReplyError)
    assert refusal.code == "NOPERM"
    assert stream.reply() == 7


def test_what_came_in_one_piece_with_an_answer_is_known() -> None:
    """Nobody else will tell that it is there."""
    stream = reader(b":1\r\n" + PUSH + b":2\r\n", 1000)
    assert not stream.has_more
    assert stream.reply() == 1
    assert stream.has_more
    assert stream.reply() == 2
    assert not stream.has_more


def test_an_error_is_a_value_with_a_code() -> None:
    """Its first word; an array that holds one is one, read to its end."""
    stream = reader(b"-OOM no memory\r\n*3\r\n:1\r\n-ERR a\r\n-ERR b\r\n:7\r\n")
    first, second = stream.reply(), stream.reply()
    assert isinstance(first, ReplyError)
    assert (first.code, str(first)) == ("OOM", "OOM no memory")
    assert isinstance(second, ReplyError)
    assert str(second) == "ERR a"
    assert stream.reply() == 7


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n", b"\r\n", b":one\r\n", b"$-2\r\n",
        b"*-2\r\n", b"*1\r\n" * 50, b"+" + b"a" * 100_000, b"%-2\r\n",
        b"%1\r\n" * 50, b"*1\r\n>1\r\n+a\r\n", b">one\r\n", b"~1\r\n+a\r\n",
    ],
)  # fmt: skip
def test_what_is_neither(data: bytes) -> None:
    """It is told, and neither memory nor the stack is spent on it."""
    with pytest.raises(ProtocolError):
        reader(data, 1000).reply()


@pytest.mark.parametrize(
    ("beginning", "more"),
    [
        (b"$400000000000\r\n", b"x" * 65536),
        (b"*1000000000\r\n", b":1\r\n"),
        (b"%1000000000\r\n", b":1\r\n"),
        (b"*1040000\r\n", b"$0\r\n\r\n"),
        (b"*1000\r\n", b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"),
        (b"*100\r\n", b"*20000\r\n" + b"*0\r\n" * 20_000),
        (b">1000\r\n", b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"),
    ],
)
def test_a_reply_without_end(beginning: bytes, more: bytes) -> None:
    """No more of it is read than the largest reply, nor than as many small values cost."""
    pieces = chain([beginning], repeat(more))
    read = []

    def next_piece() -> bytes:
        piece = next(pieces)
        read.append(len(piece))
        return piece

    with pytest.raises(TooLargeError):
        ReplyReader(next_piece).reply()
    assert sum(read) < LARGEST_REPLY + 2 * len(more)


def test_large_replies_one_after_another() -> None:
    """Each has a size of its own."""
    large = b"$%d\r\n%b\r\n" % (LARGEST_REPLY // 2, b"x" * (LARGEST_REPLY // 2))
    stream = reader(large * 3, 1 << 20)
    for _ in range(3):
        found = stream.reply()
        assert isinstance(found, bytes)
        assert len(found) == LARGEST_REPLY // 2


values = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


def encoded(value: Any) -> bytes:
    """Return a value as a server writes it."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))


@given(st.lists(values, min_size=1, max_size=4), st.integers(1, 50))
def test_any_value_comes_back(sent: list[Any], step: int) -> None:
    """However the stream is cut."""
    stream = reader(b"".join(map(encoded, sent)), step)
    assert [stream.reply() for _ in sent] == sent
