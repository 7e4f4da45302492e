"""`oncecron each`: a list is loaded once, and a command is run for each of its items, or batch of items."""

import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from log_of import Store
from servers import eventually
from servers.oncecron import Ended, Oncecron

TICK = ("--tick", "one")
LIST = ("--items", "seq 1 10")


def each(host: Oncecron, *arguments: object, key: str = "k", **more: object) -> Ended:
    """Run it once."""
    return host("each", "--key", key, *arguments, stdin=-3, **more)  # -3: DEVNULL


def lines(path: Path) -> list[str]:
    """Return what the commands have written so far."""
    return path.read_text().split() if path.exists() else []


@pytest.fixture
def ledger(public_path: Path) -> Path:
    """Give a file to which commands append."""
    path = public_path / "ledger"
    path.touch()
    path.chmod(0o666)
    return path


def test_each_item_is_run_once(store: Store, host: Oncecron) -> None:
    """In one firing; the next one of the tick finds nothing left to do, and loads nothing."""
    told = each(host, *TICK, *LIST, "--", "echo", "item")
    assert (told.status, told.out.split(b"\n")[:-1]) == (0, [b"item %d" % n for n in range(1, 11)])
    assert told.err == ""
    again = each(host, *TICK, "--items", "exit 9", "--skip-exit", 7, "--", "echo", "item")
    assert (again.status, again.out) == (7, b"")


def test_items_on_standard_input(host: Oncecron) -> None:
    """The list may come on standard input, and so may a batch."""
    firing = host.start("each", "--key", "k", *TICK, "--batch", 2, "--stdin", "--", "cat", stdin=-1)
    out, err = firing.process.communicate(b"a b\n\n  c\nd", timeout=60)
    assert (firing.process.returncode, out, err) == (0, b"a b\n  c\nd\n", b"")


def test_items_that_end_with_nul(any_store: Store, host: Oncecron) -> None:
    """An item may have newlines then; a batch on standard input ends its items in the same way."""
    listed = ("--items", r"printf 'a\nb\0c\0'", "-0")
    assert each(host, *TICK, *listed, "--", "printf", "<%s>").out == b"<a\nb><c>"
    told = each(host, "--tick", "two", *listed, "--batch", 5, "--stdin", "--", "cat")
    assert told.out == b"a\nb\0c\0"


def test_an_empty_list_is_a_success(host: Oncecron) -> None:
    """It says so with -v alone."""
    assert each(host, *TICK, "--items", "true", "--", "echo") == Ended(0, b"", "")
    told = each(host, "--tick", "two", "--items", "true", "-v", "--", "echo")
    assert (told.status, told.out) == (0, b"")
    assert "0 items loaded" in told.err


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("listed", "options", "why"),
    [
        (f"printf '%0{4097}d' 0", (), "4096"),
        (r"printf 'a\nb\0c\n'", (), "NUL"),
        (r"printf 'a\n\377\n'", (), "UTF-8"),
        ("echo '{}'", ("--json",), "no id"),
        ("echo '{'", ("--json",), "not JSON"),
    ],
)
def test_a_wrong_item_loads_nothing(
    host: Oncecron, listed: str, options: tuple[str, ...], why: str
) -> None:
    """Not even the items before it; the next firing of the tick loads the list."""
    told = each(host, *TICK, "--items", f"seq 20000; {listed}", *options, "--", "echo", "no")
    if options:
        told = each(host, "--tick", "two", "--items", listed, *options, "--", "echo", "no")
    assert (told.status, told.out) == (65, b"")
    assert why in told.err
    assert "nothing was loaded" in told.err
    assert each(host, *TICK, "--items", "echo 1", "--", "echo").out == b"1\n"


def test_a_list_that_fails_loads_nothing(store: Store, host: Oncecron) -> None:
    """Its exit status is that of `each`, and the next firing loads the list."""
    told = each(host, *TICK, "--items", "seq 9; exit 3", "--", "echo", "no")
    assert (told.status, told.out) == (3, b"")
    assert "--items has failed: exit status 3" in told.err
    assert each(host, *TICK, "--items", "echo 1", "--", "echo").out == b"1\n"


def test_many_items_in_several_chunks(store: Store, host: Oncecron) -> None:
    """All of a list that is longer than one step of the store, with slots side by side."""
    options = ("--slots", 3, "--batch", 1000)
    told = each(host, *TICK, "--items", "seq 12000", *options, "--", "sh", "-c", 'echo "$@"', "sh")
    assert told.status == 0, told.err
    assert sorted(map(int, told.out.split())) == list(range(1, 12001))


def test_hosts_share_the_items(
    store: Store, new_host: Callable[..., Oncecron], ledger: Path, public_path: Path
) -> None:
    """Three hosts with two jobs each: one of them loads, and each item is run once; none ends before two work."""
    begun = public_path / "begun"
    begun.touch()
    together = f"echo $ONCECRON_HOST >>{begun}; until [ $(sort -u {begun} | wc -l) -gt 1 ]; do sleep 0.05; done"
    command = ("sh", "-c", f'{together}; echo "$1" >>{ledger}; echo "$1"', "sh")
    options = (*TICK, "--items", f"echo load >>{ledger}; seq 60", "--slots", 6, "--jobs", 2)
    firings = [
        new_host(name).start("each", "--key", "k", *options, "--", *command, stdin=-3)
        for name in ("host-a", "host-b", "host-c")
    ]
    told = [firing.wait(60) for firing in firings]
    assert [end.status for end in told] == [0, 0, 0], [end.err for end in told]
    assert Counter(lines(ledger)) == Counter({str(n): 1 for n in range(1, 61)} | {"load": 1})
    assert len([end for end in told if end.out]) > 1


def test_the_environment_of_a_command(host: Oncecron) -> None:
    """Ids of the items: the same in each attempt, and different for each key, tick and item."""
    show = 'echo "$ONCECRON_ITEM_ID/$ONCECRON_ITEM_IDS/$ONCECRON_SHARD/$ONCECRON_SHARDS"; exit $R'
    fails = "--items", "seq 2", "--retries", 1, "--retry-delay", "50ms", "--shell"
    first = each(host, *TICK, *fails, f"R=1; {show}").out.decode().split()
    assert Counter(Counter(first).values()) == {2: 2}
    [one, two] = sorted(set(first))
    single, ids, shard, shards = one.split("/")
    assert (single, len(ids), shard, shards) == (ids, 32, "0", "1")
    assert two.split("/")[0] != ids
    other = each(host, "--tick", "two", "--items", "seq 2", "--batch", 2, "--shell", f"R=0; {show}")
    single, ids, *_ = other.out.decode().split("/")
    assert (single, len(ids)) == ("", 65)
    assert {one.split("/")[0], two.split("/")[0]}.isdisjoint(ids.split())


def test_nothing_secret_and_no_descriptor_reaches_a_command(
    any_store: Store, host: Oncecron
) -> None:
    """The owner of the lease is in no environment and on no command line, and no socket is inherited."""
    told = each(
        host, *TICK, "--items", "echo 1", "--shell", "ls /proc/self/fd; env; cat /proc/self/cmdline"
    )
    owners = [row.owner for row in any_store.executions("k")]
    assert told.out.split(b"\n")[:5] == [b"0", b"1", b"2", b"3", b"4"]  # 3: results, 4: of ls
    assert owners
    assert not any(owner.encode() in told.out for owner in owners)


def test_an_item_that_fails_is_retried_and_then_dead(store: Store, host: Oncecron) -> None:
    """With a permanent exit status it is dead at once; the exit status is 1, and a line says what to look at."""
    script = 'echo "$1"; [ "$1" != 2 ] || exit 3; [ "$1" != 3 ] || exit 65'
    options = ("--items", "seq 3", "--retries", 2, "--retry-delay", "50ms", "--no-retry-on", 65)
    told = each(host, *TICK, *options, "--shell", script)
    assert (told.status, sorted(told.out.split())) == (1, [b"1", b"2", b"2", b"2", b"3"])
    assert "of 3 items, 2 dead; see `oncecron items k --tick one" in told.err


def test_a_batch_names_its_items_on_descriptor_3(host: Oncecron) -> None:
    """Named items are what was said of them; the others are done with 0, else in doubt."""
    said = r"""printf 'ok 1\nfail 2 no such user\nfail 99 nobody\nrubbish\n' >&3; exit """
    told = each(host, *TICK, "--items", "seq 4", "--batch", 4, "--shell", f"{said} 1")
    assert told.status == 1
    assert "of 4 items, 2 in doubt and 1 dead" in told.err
    told = each(host, "--tick", "two", "--items", "seq 4", "--batch", 4, "--shell", f"{said} 0")
    assert told.status == 1
    assert "of 4 items, 1 dead" in told.err


def test_what_a_command_left_behind_reports_nothing_of_the_next(
    host: Oncecron, public_path: Path
) -> None:
    """It has the pipe of its own command, and no other."""
    asked, said = public_path / "asked", public_path / "said"
    wait = "until [ -e {} ]; do sleep 0.02; done"
    first = f"(trap '' PIPE; {wait.format(asked)}; echo fail 2 evil >&3; touch {said}) >/dev/null 2>&1 &"
    second = f"touch {asked}; {wait.format(said)}"
    job = f'if [ "$1" = 1 ]; then {first} else {second}; fi'
    told = each(host, *TICK, "--items", "seq 3", "--slots", 1, "--", "sh", "-c", job, "sh")
    assert (told.status, told.err) == (0, "")


def test_a_command_that_is_killed_leaves_its_items_in_doubt(store: Store, host: Oncecron) -> None:
    """They are not run again, unless --in-doubt retry says so; the id is the same then."""
    script = 'echo "$1" "$ONCECRON_ITEM_ID"; [ "$1" != 2 ] || kill -9 $$'
    told = each(host, *TICK, "--items", "seq 3", "--retries", 5, "--shell", script)
    assert (told.status, len(told.out.splitlines())) == (1, 3)
    assert "of 3 items, 1 in doubt" in told.err
    options = ("--in-doubt", "retry", "--slots", 2)
    told = each(host, "--tick", "two", "--items", "seq 3", *options, "--shell", script)
    seen = Counter(told.out.splitlines())
    assert (told.status, sorted(seen.values())) == (1, [1, 1, 3])


def test_a_timeout_ends_one_command(host: Oncecron) -> None:
    """Its item has failed, and the others are run."""
    script = 'echo "$1"; [ "$1" != 2 ] || sleep 60'
    told = each(host, *TICK, "--items", "seq 3", "--timeout", "5s", "--shell", script)
    assert (told.status, told.out.split()) == (1, [b"1", b"2", b"3"])
    assert "1 dead" in told.err


def test_a_signal_leaves_the_rest_in_the_queue(store: Store, host: Oncecron, ledger: Path) -> None:
    """TERM ends the command, whose item is in doubt; the next firing of the tick runs the others."""
    script = f'echo "$1" >>{ledger}; [ "$1" != 3 ] || sleep 60'
    firing = host.start("each", "--key", "k", *TICK, *LIST, "--shell", script, stdin=-3)
    eventually(lambda: lines(ledger) == ["1", "2", "3"] or None)
    os.kill(firing.process.pid, signal.SIGTERM)
    told = firing.wait()
    assert told.status == 143, told.err
    assert "key k: of 10 items, 1 in doubt and 7 left; see `oncecron items k --tick " in told.err
    assert {row.outcome for row in store.executions("k")} == {"succeeded", "stopped"}
    told = each(host, *TICK, "--items", "exit 9", "--shell", script)
    assert told.status == 1
    assert "1 in doubt" in told.err
    assert lines(ledger) == [str(number) for number in range(1, 11)]


def test_a_pause_leaves_the_rest_in_the_queue(
    store: Store, host: Oncecron, operator: Oncecron, ledger: Path
) -> None:
    """The command that runs ends as it does; `resume` and the next firing run the others."""
    go = ledger.with_name("go")
    script = f'echo "$1" >>{ledger}; [ "$1" != 3 ] || while [ ! -e {go} ]; do sleep 0.1; done'
    firing = host.start("each", "--key", "k", *TICK, *LIST, "--shell", script, stdin=-3)
    eventually(lambda: lines(ledger) == ["1", "2", "3"] or None)
    assert operator("pause", "k").status == 0
    go.touch()
    told = firing.wait()
    assert (told.status, lines(ledger)) == (75, ["1", "2", "3"])
    assert "key k: of 10 items, 7 left; see `oncecron items k --tick " in told.err
    assert operator("resume", "k").status == 0
    assert each(host, *TICK, *LIST, "--shell", script).status == 0
    assert lines(ledger) == [str(number) for number in range(1, 11)]


def test_again_loads_what_is_new(store: Store, host: Oncecron) -> None:
    """A campaign over days: the tick has a name, and each day adds items."""
    campaign = ("--tick", "campaign-42")
    assert each(host, *campaign, "--items", "seq 3", "--", "echo").out == b"1\n2\n3\n"
    told = each(host, *campaign, "--items", "seq 5", "--again", "-v", "--", "echo")
    assert told.out == b"4\n5\n"
    assert "2 items loaded, 3 known" in told.err


@pytest.mark.own_log
def test_kept_items_are_not_run_again_after_retention(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """`keep` outlives the executions of the tick, as an option or in the file; after it, or without it, they run."""
    retention = public_path / "retention.toml"
    retention.write_text('[job.by-file.each]\nkeep = "1d"\n')
    where = ("--store", store.owner_url)
    assert host("init", "--keep-executions", "0s", *where).status == 0
    given: dict[str, tuple[object, ...]] = {
        "kept": ("--keep", "1d"),
        "by-file": ("--config", retention),
        "kept-shortly": ("--keep", "1s"),
        "not-kept": (),
    }
    tick = ("--tick", "2026-01-02T03:00Z", "--items", "seq 2")
    for key, words in given.items():
        assert each(host, *tick, *words, "--", "echo", key=key).out == b"1\n2\n"

    def loaded() -> set[str]:
        assert host("prune", "--executions", "0s", *where).status == 0
        rows = json.loads(host("items", "--json").out)
        return {row["key"] for row in rows}

    eventually(lambda: loaded() == {"kept", "by-file"})
    assert host("history", "kept", "--json").out == b"[]\n"
    for key in given:
        again = each(host, *tick, "--again", "--", "echo", key=key)
        expected = b"" if key in ("kept", "by-file") else b"1\n2\n"
        assert (again.status, again.out) == (0, expected), key


def test_a_command_that_is_missing_claims_nothing(any_store: Store, host: Oncecron) -> None:
    """127 and 126, before the list is loaded."""
    assert each(host, *TICK, "--items", "exit 9", "--", "no-such-command").status == 127
    assert each(host, *TICK, "--items", "exit 9", "--", "/etc/passwd").status == 126
    assert any_store.executions("k") == []


def test_a_batch_that_is_too_long_for_arguments_stays_queued(host: Oncecron) -> None:
    """The message names the cure, and the next firing of the tick can use it."""
    listed = ("--items", "for n in $(seq 1000); do printf '%03000d\\n' $n; done", "--batch", 1000)
    told = each(host, *TICK, *listed, "--", "true")
    assert told.status == 126
    assert "use a smaller --batch, or --stdin" in told.err
    assert each(host, *TICK, *listed, "--stdin", "--", "wc", "-c").out == b"3001000\n"


@pytest.mark.parametrize("text", ["a\0b", "x" * 4097])
def test_an_item_that_no_load_accepts_is_given_to_no_command(public_path: Path, text: str) -> None:
    """Whoever can write to the store writes what they like: the firing fails, and the item is in doubt."""
    database = public_path / "store.db"
    host = Oncecron(f"sqlite://{database}", public_path)
    listed = ("--items", "seq 3", "-v")
    assert each(host, *TICK, *listed, "--", "false").status == 1
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update item set payload = ? where position = 2", [text])
    assert host("items", "k", "--state", "dead", "--retry").status == 0
    told = each(host, *TICK, *listed, "--again", "--", "echo", "item")
    assert (told.status, told.out) == (78, b"item 1\n")
    assert "item 2 was changed in the store by another program" in told.err
