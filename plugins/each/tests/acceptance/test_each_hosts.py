"""`oncecron each` on several hosts and at a terminal: who continues, who is told what, and what is left behind."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from log_of import Store
from servers import descendants, eventually
from servers.oncecron import SHORT_TTL, Oncecron, recording_script
from servers.process import kill_tree, wait_gone

TICK = ("--tick", "one")
TEN = ("--items", "seq 1 10")


@pytest.fixture
def ledger(public_path: Path) -> Path:
    """Give a file to which commands append."""
    path = public_path / "ledger"
    path.touch()
    path.chmod(0o666)
    return path


def until(ledger: Path, lines: int) -> None:
    """Wait until commands have written so many lines."""
    eventually(lambda: len(ledger.read_text().split()) >= lines, 30)


def stuck_at(ledger: Path, item: int, seconds: int = 60) -> list[str]:
    """Return a command that writes its item, and hangs at one of them."""
    script = f'echo "$1" >>{ledger}; [ "$1" != {item} ] || exec sleep {seconds}'
    return ["--shell", script]


def states(host: Oncecron, key: str = "k") -> dict[str, str]:
    """Return the state of each item."""
    rows = json.loads(host("items", key, *TICK, "--json").out)
    return {row["item"]: row["state"] for row in rows}


@pytest.mark.parametrize("in_doubt", ["keep", "retry"])
def test_a_waiting_host_continues_when_a_host_dies(
    store: Store, new_host: Callable[..., Oncecron], ledger: Path, in_doubt: str
) -> None:
    """With --failover: the item of the dead host is in doubt, or run again; the others are run once."""
    options = (*TICK, *TEN, "--failover", "--in-doubt", in_doubt)
    a, b = new_host("host-a"), new_host("host-b")
    b.script = recording_script()
    short = ("--ttl", SHORT_TTL)  # for the end of the other one's lease nobody waits
    holder = a.start("each", "--key", "k", *options, *short, *stuck_at(ledger, 3), stdin=-3)
    until(ledger, 3)
    waiting = b.start("each", "--key", "k", *options, *stuck_at(ledger, 99), stdin=-3)
    eventually(lambda: any(skip.reason == "held" for skip in store.skips("k")), 20)
    kill_tree(holder.process.pid)
    holder.wait()
    told = waiting.wait(40)
    assert told.status == (1 if in_doubt == "keep" else 0), told.err
    expected = {str(n): "done" for n in range(1, 11)}
    expected |= {"3": "lost"} if in_doubt == "keep" else {}
    assert states(b) == expected
    again = ["3"] if in_doubt == "retry" else []
    assert sorted(ledger.read_text().split(), key=int) == sorted(
        [*map(str, range(1, 11)), *again], key=int
    )


def test_a_newer_tick_leaves_the_items_of_an_older_one(
    store: Store, host: Oncecron, ledger: Path
) -> None:
    """By hand, the older one is continued: its tick is named."""
    old, new = "2026-11-20T02:00Z", "2026-11-21T02:00Z"
    each = ("each", "--key", "k", *TEN)
    firing = host.start(*each, "--tick", old, *stuck_at(ledger, 2), stdin=-3)
    until(ledger, 2)
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait().status == 143
    assert host(*each, "--tick", new, "--", "echo", stdin=-3).out.split() == [
        b"%d" % n for n in range(1, 11)
    ]
    told = host(*each, "--tick", old, "--", "echo", stdin=-3)
    assert (told.status, told.out.split()) == (1, [b"%d" % n for n in range(3, 11)])


@pytest.mark.turns(1)
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_nothing_runs_on_when_a_part_is_killed(host: Oncecron, ledger: Path, depth: int) -> None:
    """The process that cron started, a wrapper, a guard, a runner: the command ends, and its item is in doubt."""
    options = (*TICK, *TEN, "--grace", "1s")
    firing = host.start("each", "--key", "k", *options, *stuck_at(ledger, 1), stdin=-3)
    until(ledger, 1)
    tree = descendants(firing.process.pid)
    assert len(tree) == 5
    os.kill(tree[depth].pid, signal.SIGKILL)
    wait_gone(tree, 30)
    assert firing.wait().status != 0
    assert host("each", "--key", "k", *options, *stuck_at(ledger, 99), stdin=-3).status == 1
    assert states(host) == {"1": "lost"} | {str(n): "done" for n in range(2, 11)}


def test_a_command_does_not_outlive_wrapper_and_guard(host: Oncecron, ledger: Path) -> None:
    """Both killed at once: the runner is left, and ends it."""
    firing = host.start("each", "--key", "k", *TICK, *TEN, *stuck_at(ledger, 1), stdin=-3)
    until(ledger, 1)
    tree = descendants(firing.process.pid)
    for process in tree[:3]:
        os.kill(process.pid, signal.SIGSTOP)
    for process in tree[:3]:
        os.kill(process.pid, signal.SIGKILL)
    wait_gone(tree[3:], 30)
    firing.wait()


def test_stop_ends_all_slots(
    store: Store, host: Oncecron, operator: Oncecron, ledger: Path
) -> None:
    """A person asks; what runs is in doubt, and the rest stays in the queue."""
    script = f'echo "$1" >>{ledger}; exec sleep 60'
    options = (*TICK, *TEN, "--slots", 3)
    firing = host.start("each", "--key", "k", *options, "--shell", script, stdin=-3)
    until(ledger, 3)
    assert operator("stop", "k").status == 0
    assert firing.wait().status == 143
    found = list(states(host).values())
    assert (found.count("lost"), found.count("queued")) == (3, 7)


def test_other_signals_reach_the_command(host: Oncecron, ledger: Path) -> None:
    """USR1 is for the command itself."""
    script = f'trap "echo usr1 >>{ledger}; exit 0" USR1; echo ready >>{ledger}; while :; do sleep 0.1; done'
    firing = host.start(
        "each", "--key", "k", *TICK, "--items", "echo 1", "--shell", script, stdin=-3
    )
    until(ledger, 1)
    os.kill(firing.process.pid, signal.SIGUSR1)
    assert firing.wait().status == 0
    assert ledger.read_text().split() == ["ready", "usr1"]


def test_what_a_failing_command_leaves_behind_is_ended(host: Oncecron, ledger: Path) -> None:
    """Before the next batch; what a success leaves is there on purpose."""
    script = f'sleep 50 >/dev/null 2>&1 & echo $! >>{ledger}; [ "$1" = 2 ]'
    for item, status in ((1, 1), (2, 0)):
        options = ("--tick", item, "--items", f"echo {item}", "--grace", "1s")
        assert host("each", "--key", "k", *options, "--shell", script, stdin=-3).status == status
    first, second = map(int, ledger.read_text().split())
    assert not Path(f"/proc/{first}").exists()
    assert Path(f"/proc/{second}").exists()
    os.kill(second, signal.SIGKILL)


def test_the_output_of_all_commands_is_captured(host: Oncecron) -> None:
    """As the output of the slot."""
    host.loses_no_output = True
    words = ("--items", "seq 3", "--capture", "1k", "--", "echo", "item")
    told = host("each", "--key", "k", *TICK, *words, stdin=-3)
    assert told.out == b"item 1\nitem 2\nitem 3\n"
    rows = json.loads(host("history", "k", "--json").out)
    slot = next(row["execution_id"] for row in rows if row["shard"] == 0)
    assert b"item 1\nitem 2\nitem 3\n" in host("history", "--id", str(slot)).out.replace(b"  ", b"")


def test_the_options_of_a_section(host: Oncecron, public_path: Path) -> None:
    """The crontab line stays short; what has no meaning is an error, and `run` has no use for the table."""
    config = public_path / "oncecron.toml"
    job = "[job.k]\ncommand = 'echo \"$@\"'\nretries = 1\n"
    config.write_text(f'{job}[job.k.each]\nitems = "seq 4"\nbatch = 2\n')
    config.chmod(0o600)
    told = host("each", "--key", "k", *TICK, "--config", config, stdin=-3)
    assert (told.status, told.out) == (0, b"1 2\n3 4\n"), told.err
    assert host("run", "--key", "k", "--config", config).status == 0
    config.write_text('[job.k]\nshards = 2\n[job.k.each]\nitems = "seq 4"\n')
    told = host("each", "--key", "k", *TICK, "--config", config, "--", "true", stdin=-3)
    assert told.status == 78
    assert "[job.k]: shards has no meaning for `each`; remove it" in told.err
    told = host("config", "check", config)
    assert told.status == 78
    assert b"shards has no meaning" in told.out + told.err.encode()
    config.write_text('[job.k]\nslots = 2\n[job.k.each]\nbatches = 2\nslots = "many"\n')
    found = host("config", "check", config).out.decode().replace(str(config), "FILE")
    assert found == (
        "FILE [job.k]: slots is for `oncecron each`; write it in [job.k.each]\n"
        "FILE [job.k.each]: batches has no meaning for `each`; remove it\n"
        "FILE [job.k.each]: slots: 'many' is not a whole number; write digits alone, such as 10\n"
    )
    told = host("each", "--key", "k", *TICK, "--config", config, "--", "true", stdin=-3)
    assert told.status == 78


def test_a_store_that_is_away_is_an_error(host: Oncecron) -> None:
    """Nothing is loaded and nothing run: 69, or 0 with --on-store-error skip."""
    away = ("--store", "redis://127.0.0.1:1", "--connect-timeout", "1s")
    words = ("each", "--key", "k", *TICK, *TEN, *away)
    told = host(*words, "--", "echo", stdin=-3)
    assert (told.status, told.out) == (69, b"")
    assert told.err.count("\n") == 1
    assert host(*words, "--on-store-error", "skip", "--", "echo", stdin=-3).status == 0
