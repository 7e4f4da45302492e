"""A batch of items: the words of its command, and what follows its end."""

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.retry import RetryPolicy
from oncecron_each.item_model import DrawnItem, ItemList, item_id
from oncecron_each.runner import CommandEnd
from oncecron_each.worker import Command, Report, reports_of, results_of

LIST = ItemList("k", "one")
POLICY = RetryPolicy(2, (1.0, 1.0), frozenset({65}))


def drawn(*names: str, attempt: int = 1) -> list[DrawnItem]:
    """Return a batch."""
    return [DrawnItem(place, name, name, attempt) for place, name in enumerate(names, 1)]


def command(*words: str, **items: Any) -> Command:
    """Return a command of these words."""
    spec: Any = SimpleNamespace(**{"stdin": False, "in_shell": False, "null": False, **items})
    return Command([word.encode() for word in words], {b"PATH": b"/bin"}, LIST, spec)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["send"], ["send", "ann", "b b"]),
        (["send", "{}"], ["send", "ann", "b b"]),
        (["send", "--to={}", "-x", "{}.{}"], ["send", "--to=ann", "--to=b b", "-x", "ann.ann", "b b.b b"]),
        (["send", "{ }"], ["send", "{ }", "ann", "b b"]),
    ],
)  # fmt: skip
def test_where_the_items_go(words: list[str], expected: list[str]) -> None:
    """Each word with braces once for each item; else behind the command."""
    found = command(*words).arguments(drawn("ann", "b b"))
    assert found == [word.encode() for word in expected]


def test_an_item_with_braces_is_not_replaced_again() -> None:
    """What an item contains has no meaning."""
    assert command("send", "{}").arguments(drawn("{}{}", "x")) == [b"send", b"{}{}", b"x"]


def test_a_shell_string_is_not_changed() -> None:
    """Its items are arguments, which a shell does not execute."""
    found = command("/bin/sh", "-c", "echo {}", "/bin/sh", in_shell=True).arguments(drawn("; rm"))
    assert found == [b"/bin/sh", b"-c", b"echo {}", b"/bin/sh", b"; rm"]


def ended(status: int = 0, *, signal: int = 0, timed_out: bool = False) -> CommandEnd:
    """Return how a command ended."""
    return CommandEnd(signal or status << 8, timed_out)


@pytest.mark.parametrize(
    ("end", "single", "several"),
    [
        (ended(0), None, None), (ended(3), "failed", "lost"), (ended(65), "dead", "lost"),
        (ended(signal=9), "lost", "lost"), (ended(signal=15, timed_out=True), "failed", "lost"),
        (ended(0, timed_out=True), "failed", "lost"),
    ],
)  # fmt: skip
def test_what_the_end_of_a_command_says_of_its_items(
    end: CommandEnd, single: str | None, several: str | None
) -> None:
    """A single item has failed; of several, any may be done."""
    for names, expected in ((["a"], single), (["a", "b"], several)):
        found = results_of(drawn(*names), end, {}, POLICY)
        assert [result.state for result in found] == [expected] * len(names) * (
            expected is not None
        )


@pytest.mark.parametrize("status", [0, 3])
def test_what_the_command_says_counts_more(status: int) -> None:
    """Whatever its exit status."""
    batch = drawn("a", "b", "c")
    found = results_of(batch, ended(status), {1: None, 2: "no such user"}, POLICY)
    expected = [(2, "failed", "no such user")]
    expected += [(3, "lost", "exit status 3")] if status else []
    assert [(result.position, result.state, result.reason) for result in found] == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ok a"], {1: None}), (["fail a"], {1: "failed"}), (["fail a because of b"], {1: "because of b"}),
        (["fail a b why"], {2: "why"}), (["ok a b", "ok a"], {1: None, 2: None}),
        (["fail a x", "ok a"], {1: None}), (["ok ab", "okay a", "ok", "", "fail", "FAIL a"], {}),
        ([f"ok {item_id(LIST, 'a b')}"], {2: None}),
    ],
)  # fmt: skip
def test_the_lines_of_descriptor_3(lines: list[str], expected: dict[int, str | None]) -> None:
    """An item may have blanks, and begin like another one; what names none is ignored."""
    assert reports_of(drawn("a", "a b"), LIST, lines) == expected


@given(st.lists(st.text(max_size=20), max_size=10))
def test_any_line_is_borne(lines: Sequence[str]) -> None:
    """And names only items of the batch."""
    assert set(reports_of(drawn("a", "b"), LIST, lines)) <= {1, 2}


def test_a_report_is_read_as_far_as_it_is_there() -> None:
    """What the command leaves behind may keep the pipe open."""
    report = Report()
    os.write(report.write_end, b"ok a\nfail b \xff\n")
    report.read()
    os.write(report.write_end, b"ok c")
    report.read()
    report.read()
    assert report.lines() == ["ok a", "fail b \\xff", "ok c"]
    report.close()
