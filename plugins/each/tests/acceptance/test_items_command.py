"""`oncecron items`: what became of each item, and how to run some of them again."""

import csv
import json
import re
import subprocess
from pathlib import Path

import pytest
from log_of import Store
from servers.oncecron import Oncecron, patient_script

TICK = ("--tick", "one")
BROKEN = ("--", "sh", "-c", 'test "$1" != 2 && test "$1" != 4', "sh")
PUBLISHED = (
    *("key", "tick", "position", "item", "item_id", "state", "attempts", "execution_id", "since"),
    *("not_before", "reason", "payload"),
)


def rows(host: Oncecron, *words: object) -> list[dict[str, object]]:
    """Return what `items` says as JSON."""
    told = host("items", *words, "--json")
    assert told.err == ""
    found: list[dict[str, object]] = json.loads(told.out)
    return found


def states(host: Oncecron, *words: object) -> dict[object, object]:
    """Return the state of each item."""
    return {row["item"]: row["state"] for row in rows(host, "k", *words)}


@pytest.fixture
def loaded(store: Store, host: Oncecron) -> Oncecron:
    """Give a host that has run five items, of which two failed."""
    told = host("each", "--key", "k", *TICK, "--items", "seq 5", *BROKEN, stdin=-3)
    assert told.status == 1
    return host


def test_it_lists_the_items_in_order(loaded: Oncecron) -> None:
    """With all published fields; a table shows most of them."""
    found = rows(loaded, "k")
    assert [tuple(row) for row in found] == [PUBLISHED] * 5
    assert [row["item"] for row in found] == ["1", "2", "3", "4", "5"]
    assert [row["state"] for row in found] == ["done", "dead", "done", "dead", "done"]
    assert {row["reason"] for row in found if row["state"] == "dead"} == {"exit status 1"}
    table = loaded("items", "k").out.decode().splitlines()
    assert table[0].startswith("POSITION  STATE  ATTEMPTS")
    assert table[2].split()[:3] == ["2", "dead", "1"]
    as_csv = list(csv.DictReader(loaded("items", "k", "--format", "csv").out.decode().splitlines()))
    assert [row["item_id"] for row in as_csv] == [row["item_id"] for row in found]


def test_keys_with_lists_are_offered_at_a_tab(loaded: Oncecron) -> None:
    """And no others, which it could not show."""
    assert loaded.run("other", "--tick", "1", "--", "true").status == 0
    environment = {
        "COMP_WORDS": "oncecron items ",
        "COMP_CWORD": "2",
        "_ONCECRON_COMPLETE": "bash_complete",
    }
    answer = subprocess.check_output(
        [patient_script()], env={**loaded.environment, **environment}, text=True
    )
    assert answer == "plain,k\n"


def test_it_lists_what_is_asked_for(loaded: Oncecron) -> None:
    """By state, several of them too, by item and by tick."""
    assert states(loaded, "--state", "dead") == {"2": "dead", "4": "dead"}
    assert states(loaded, "--state", "queued, lost") == {}
    assert states(loaded, "--item", "3") == {"3": "done"}
    assert states(loaded, "--item", "3", "--state", "dead") == {}
    told = loaded(
        "each", "--key", "k", "--tick", "two", "--items", "echo x", "--", "true", stdin=-3
    )
    assert told.status == 0
    assert states(loaded) == {"x": "done"}
    assert list(states(loaded, *TICK)) == ["1", "2", "3", "4", "5"]


def test_without_a_key_it_lists_the_lists(loaded: Oncecron) -> None:
    """The newest first, with the count of each state."""
    [found] = rows(loaded)
    assert {name: found[name] for name in ("key", "tick", "total", "done", "dead", "lost")} == {
        "key": "k", "tick": "one", "total": 5, "done": 3, "dead": 2, "lost": 0,
    }  # fmt: skip
    [_, line] = loaded("items").out.decode().splitlines()
    assert line.split()[3:] == ["5", "0", "0", "3", "0", "0", "2"]


def test_retry_queues_items_again(loaded: Oncecron, operator: Oncecron) -> None:
    """And names the command that runs them; it runs these alone."""
    told = operator("items", "k", "--state", "dead", "--item", "4", "--retry")
    assert told.status == 0
    assert told.out.decode() == (
        "queued 1 item of key k again; if no slot of the tick is running, start one: "
        "`oncecron each --key k --tick one --again -- COMMAND`\n"
    )
    assert states(loaded, "--state", "queued,dead") == {"2": "dead", "4": "queued"}
    again = loaded(
        "each", "--key", "k", *TICK, "--again", "--items", "seq 5", "--", "echo", stdin=-3
    )
    assert again.out == b"4\n"
    assert states(loaded, "--state", "dead") == {"2": "dead"}
    [found] = rows(loaded, "k", "--item", "4")
    assert (found["state"], found["attempts"]) == ("done", 2)


def test_retry_alone_is_for_items_in_doubt(
    store: Store, host: Oncecron, operator: Oncecron
) -> None:
    """Those of a batch that failed without a word about them."""
    batch = ("--items", "seq 3", "--batch", 3)
    told = host(
        "each", "--key", "k", *TICK, *batch, "--", "sh", "-c", "echo ok 1 >&3; exit 1", stdin=-3
    )
    assert told.status == 1
    assert states(host) == {"1": "done", "2": "lost", "3": "lost"}
    told = operator("items", "k", "--retry")
    assert told.out.decode().startswith("queued 2 items of key k again; ")
    assert states(host) == {"1": "done", "2": "queued", "3": "queued"}


def test_done_acknowledges_what_was_checked_by_hand(
    store: Store, host: Oncecron, operator: Oncecron
) -> None:
    """One item or all in doubt. Who did it is on record, `check` and `audit` are quiet, and nothing is run again."""
    batch = ("--items", "seq 4", "--batch", 4)
    words = ("each", "--key", "k", *TICK, *batch)
    told = host(*words, "--", "sh", "-c", "echo ok 1 >&3; exit 1", stdin=-3)
    assert told.status == 1
    assert "in-doubt" in host("check").out.decode() + host("audit", "--json").out.decode()
    told = operator("items", "k", "--item", "3", "--done")
    assert told.out == b"marked 1 item of key k as done\n"
    assert states(host) == {"1": "done", "2": "lost", "3": "done", "4": "lost"}
    [found] = rows(host, "k", "--item", "3")
    assert re.fullmatch(r"marked done by \S+@\S+", str(found["reason"]))
    assert host("audit").status == 1
    assert operator("items", "k", "--done").out == b"marked 2 items of key k as done\n"
    assert host("audit").status == 0
    assert host("check").status == 0
    told = host(*words, "--again", "--", "echo", stdin=-3)
    assert (told.status, told.out) == (0, b"")
    assert host("check").status == 0


def test_several_items_are_named(loaded: Oncecron, operator: Oncecron, public_path: Path) -> None:
    """By several options, or by the lines of standard input; in whatever state that can be changed."""
    assert list(states(loaded, "--item", "4", "--item", "9", "--item", "1")) == ["1", "4"]
    file = public_path / "named"
    file.write_text("2\n\n3\n2\nx y\n")
    with file.open() as named:
        told = operator("items", "k", "--item", "-", "--item", "4", "--done", stdin=named)
    assert told.out == b"marked 2 items of key k as done; 2 of those named stay as they are\n"
    assert set(states(loaded).values()) == {"done"}
    with file.open() as named:  # an item that is named in both ways is one
        told = operator("items", "k", "--item", "2", "--item", "-", "--done", stdin=named)
    assert told.out == b"marked 0 items of key k as done; 3 of those named stay as they are\n"
    told = operator("items", "k", "--item", "5", "--retry", "--namespace", "oncecron")
    assert b"`oncecron each --key k --tick one --again --namespace oncecron -- COMMAND`" in told.out
    told = operator("items", "k", "--item", "5", "--retry")
    assert told.out.startswith(b"queued 0 items of key k again; 1 of those named stays as it is;")
    told = loaded("items", "k", "--item", "1", "--item", "")
    assert told.err.startswith("oncecron: --item is empty (an unset variable?)")


def test_no_line_names_no_item(loaded: Oncecron, operator: Oncecron) -> None:
    """An empty answer of another program does not stand for all items."""
    told = operator("items", "k", "--item", "-", "--done", stdin=-3)
    assert told.out == b"marked 0 items of key k as done\n"
    assert loaded("items", "k", "--item", "-", "--json", stdin=-3).out == b"[]\n"
    assert list(states(loaded, "--state", "dead")) == ["2", "4"]


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--state", "lost"), "--state needs a KEY; `oncecron items` shows the lists of all keys"),
        (("k", "--state", "gone"), "--state: 'gone' is not one of queued, taken, done, failed, lost, dead"),
        (("--done",), "--done needs a KEY; `oncecron items` shows the lists of all keys"),
        (("k", "--state", "done", "--retry"), "--retry: items that are done stay as they are; use --state lost,"),
        (("k", "--state", "lost,taken", "--done"), "--done: items that are taken stay as they are; use --state lost,"),
        (("k", "--retry", "--done"), "--retry and --done exclude each other; leave one of them out"),
        (("k", "--tick", "two"), "key k has no items of the tick two; its newest lists are of: one"),
        (("kk",), "key kk has no items; did you mean k?"),
        (("k k",), "'k k' is not a valid key; use 1 to 200 of"),
    ],
)  # fmt: skip
def test_a_wrong_question_gets_a_sentence(
    loaded: Oncecron, words: tuple[str, ...], sentence: str
) -> None:
    """What is wrong, and what is known."""
    told = loaded("items", *words)
    assert told.status != 0
    assert told.err.startswith(f"oncecron: {sentence}")
    assert told.out == b""
