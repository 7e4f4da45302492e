"""Signals to oncecron reach the command, and a terminal works as if oncecron were not there."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log_of import PostgresLog, Store
from servers import Database, Journal, eventually, job
from servers.namespaces import as_ourselves
from servers.oncecron import CONSOLE_SCRIPT, Firing, Oncecron
from servers.process import (
    Process,
    descendants,
    end,
    kill_tree,
    process_table,
    read_process,
    send,
    spawn,
)
from servers.require import program, require_root

ENDING = ("TERM", "INT", "HUP", "QUIT")
RECORDER = ("--ready", "--ignore-term", "--sleep", 60)


def number_of(name: str) -> signal.Signals:
    return signal.Signals[f"SIG{name}"]


def read_line(firing: Firing, deadline: float = 60) -> str:
    """Return the next line of the command's standard output."""
    assert firing.process.stdout is not None
    ready, _, _ = select.select([firing.process.stdout], [], [], deadline)
    assert ready, f"no line within {deadline} s"
    return bytes(firing.process.stdout.readline()).decode().strip()


def started(host: Oncecron, *arguments: object) -> Firing:
    """Fire the key `k` and wait until its command is ready."""
    firing = host.start("run", "--key", "k", *arguments, bufsize=0)
    assert read_line(firing) == "ready"
    return firing


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", [*ENDING, "USR1", "USR2"])
def test_a_signal_reaches_the_command_once(host: Oncecron, journal: Journal, name: str) -> None:
    """The command's own handler sees the signal, once, and oncecron goes on waiting for it."""
    firing = started(host, "--grace", "60s", "--", *job(journal, *RECORDER))
    os.kill(firing.process.pid, number_of(name))
    assert read_line(firing) == name
    other = "USR2" if name == "USR1" else "USR1"
    os.kill(firing.process.pid, number_of(other))
    assert read_line(firing) == other
    assert journal.runs()[0].signals == [name, other]
    os.kill(journal.starts()[0].pid, signal.SIGKILL)
    assert firing.wait().status == 128 + signal.SIGKILL


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", ["TERM", "INT", "QUIT"])
def test_a_signal_that_ends_reaches_what_a_shell_started(
    host: Oncecron, journal: Journal, name: str
) -> None:
    """`sh -c 'prog; true'`: the shell would keep it for itself; the program is told too."""
    command = ["sh", "-c", 'ulimit -c 0; "$@"; true', "sh", *job(journal, *RECORDER)]
    firing = started(host, "--", *command)
    os.kill(firing.process.pid, number_of(name))
    told = read_line(firing)
    # The shell has died of it: of two pending signals the later one's handler runs first.
    if told == "TERM" != name:
        told = read_line(firing)
    assert told == name
    os.kill(journal.starts()[0].pid, signal.SIGKILL)
    firing.wait()


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", [*ENDING, "USR1"])
def test_a_command_that_ends_by_a_forwarded_signal_was_stopped(
    store: Store, host: Oncecron, name: str
) -> None:
    """Killed by the signal that oncecron was sent: 128 + n, `stopped`, and the signal is recorded."""
    firing = started(host, "--", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 60")
    eventually(lambda: _command_line(firing.job()) == b"sleep 60")
    os.kill(firing.process.pid, number_of(name))
    ended = firing.wait()
    assert (ended.status, ended.err) == (128 + number_of(name), "")
    [record] = store.executions("k")
    assert (record.outcome, record.exit_code, record.signal) == ("stopped", None, number_of(name))
    assert record.note == f"after SIG{name} to oncecron"


def test_the_exit_status_is_the_commands_own_also_after_a_signal(
    store: Store, host: Oncecron
) -> None:
    """A command that handles TERM and exits 9 is `stopped` with 9; one that exits 0 has succeeded."""
    for status, outcome in ((9, "stopped"), (0, "succeeded")):
        script = f"trap 'exit {status}' TERM; echo ready; while :; do sleep 0.05; done"
        firing = started(host, "--tick", f"t{status}", "--", "sh", "-c", script)
        os.kill(firing.process.pid, signal.SIGTERM)
        assert firing.wait().status == status
        record = store.executions("k")[-1]
        assert (record.outcome, record.exit_code, record.signal) == (outcome, status, None)


def test_the_second_term_starts_the_grace(
    any_store: Store, host: Oncecron, journal: Journal
) -> None:
    """A command that ignores TERM is waited for; the second TERM gives it the grace, and no more."""
    firing = started(host, "--grace", "2s", "--", *job(journal, "--beats", *RECORDER))
    os.kill(firing.process.pid, signal.SIGTERM)
    assert read_line(firing) == "TERM"
    first = journal.wait_for("signal")[0].time
    journal.wait_for("beat", where=lambda line: line.time > first + 2.5)
    os.kill(firing.process.pid, signal.SIGTERM)
    assert read_line(firing) == "TERM"
    second = journal.wait_for("signal", 2)[1].time
    assert firing.wait().status == 128 + signal.SIGKILL
    assert 1.5 < journal.runs()[0].last_sign - second < 30  # and not as long as it would live
    [record] = any_store.executions("k")
    assert (record.outcome, record.signal) == ("stopped", signal.SIGKILL)


def test_the_third_term_kills(host: Oncecron, journal: Journal) -> None:
    """Whoever sends a third one has waited enough: KILL at once, whatever the grace."""
    firing = started(host, "--grace", "10m", "--", *job(journal, *RECORDER))
    for _ in range(2):
        os.kill(firing.process.pid, signal.SIGTERM)
        assert read_line(firing) == "TERM"
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait().status == 128 + signal.SIGKILL


@pytest.mark.own_log
def test_a_signal_before_the_command_starts_gives_the_tick_back(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """TERM while it waits for a lease: 128 + n, nothing is started, and the tick is not burnt."""
    holder = started(new_host(), "--tick", "one", "--", *job(journal, *RECORDER))
    waiting = new_host("host-b").fire("k", "--tick", "two", "--wait", "60s", "--", *job(journal))
    waiting.guard()
    eventually(lambda: _asks(store, "k"))
    os.kill(waiting.process.pid, signal.SIGTERM)
    assert waiting.wait().status == 128 + signal.SIGTERM
    os.kill(journal.starts()[0].pid, signal.SIGKILL)
    holder.wait()
    assert new_host("host-c").run("k", "--tick", "two", "--", *job(journal)).status == 0
    assert [line.host for line in journal.starts()] == ["host-a", "host-c"]


def test_a_lease_that_comes_after_the_signal_is_given_back(
    database: Database, public_path: Path, journal: Journal
) -> None:
    """TERM while the claim is under way: it is granted all the same, not started, and the tick is free."""
    store = PostgresLog(database)
    host = Oncecron(store.url, public_path, "host-a")
    assert host.run("k", "--tick", "one", "--", "true").status == 0
    with database.connect("postgres", autocommit=False) as blocker:
        blocker.execute("select from oncecron.job_key for update")
        firing = host.fire("k", "--tick", "two", "--", *job(journal))
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
        eventually(lambda: database.execute(waiting) != [])
        os.kill(firing.process.pid, signal.SIGTERM)
        os.kill(firing.process.pid, signal.SIGUSR1)
        eventually(lambda: not _pending(firing.process.pid))
        blocker.rollback()
    assert firing.wait().status == 143
    assert journal.starts() == []
    assert [r.outcome for r in store.executions("k")] == ["succeeded", "not-started"]
    assert host.run("k", "--tick", "two", "--", *job(journal)).status == 0
    assert len(journal.starts()) == 1


@pytest.mark.parametrize("names", [["HUP"], ["INT", "QUIT"]], ids=["nohup", "background"])
def test_an_ignored_signal_stays_ignored(
    host: Oncecron, journal: Journal, names: list[str]
) -> None:
    """nohup, and `&` in a script: what was ignored when oncecron started is none of its business."""
    ignore = f"trap '' {' '.join(names)}; exec \"$@\""
    host.prefix = ["sh", "-c", ignore, "sh"]
    firing = started(host, "--grace", "0s", "--", *job(journal, *RECORDER))
    for name in names * 3:  # three of a kind that ends would kill
        os.kill(firing.process.pid, number_of(name))
    os.kill(firing.process.pid, signal.SIGUSR1)
    assert read_line(firing) == "USR1"
    assert journal.runs()[0].signals == ["USR1"]
    os.kill(firing.process.pid, signal.SIGTERM)
    assert read_line(firing) == "TERM"
    os.kill(journal.starts()[0].pid, signal.SIGKILL)
    assert firing.wait().status == 137


# On a terminal


class Terminal:
    """A pseudo-terminal with a program that has it as its controlling terminal."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.master, its = pty.openpty()
        # Who leads a session gets the first terminal that it opens.
        opening = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&1', os.ttyname(its)]
        self.process = spawn([*opening, *command], env=environment)
        self.both = (self.master, its)
        self.text = ""

    def write(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, pattern: str, deadline: float = 60) -> str:
        """Wait for a pattern in what is shown; return the text to its end, which is then forgotten."""
        give_up = time.monotonic() + deadline
        while not (found := re.search(pattern, self.text)):
            left = give_up - time.monotonic()
            ready = left > 0 and select.select([self.master], [], [], left)[0]
            assert ready, f"no {pattern!r} within {deadline} s in {self.text!r}"
            self.text += os.read(self.master, 4096).decode(errors="replace")
        shown, self.text = self.text[: found.end()], self.text[found.end() :]
        return shown

    def close(self) -> None:
        """Hang up and end everything."""
        kill_tree(self.process.pid)
        end(self.process, signal.SIGKILL)
        for descriptor in self.both:
            os.close(descriptor)


@pytest.fixture
def terminal(host: Oncecron) -> Iterator[Callable[..., Terminal]]:
    """Give a function that starts a program of a host on a terminal."""
    opened: list[Terminal] = []

    def start(*command: str) -> Terminal:
        environment = host.environment | {"TERM": "dumb", "PS1": "PROMPT> ", "HISTFILE": ""}
        opened.append(Terminal(list(command), environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def oncecron_run(*arguments: object) -> list[str]:
    """Return a command line of the console script for the key `k`."""
    return [str(CONSOLE_SCRIPT), "run", "--key", "k", *map(str, arguments)]


def test_ctrl_c_reaches_the_command_exactly_once(
    terminal: Callable[..., Terminal], journal: Journal
) -> None:
    """The terminal has told the command already, so oncecron does not tell it again."""
    screen = terminal(*oncecron_run("--", *job(journal, *RECORDER)))
    screen.expect("ready")
    for _ in range(2):
        screen.write("\x03")
        screen.expect("INT")
        os.kill(screen.process.pid, signal.SIGUSR1)  # comes behind what oncecron would have sent
        screen.expect("USR1")
    assert journal.runs()[0].signals == ["INT", "USR1", "INT", "USR1"]
    os.kill(journal.starts()[0].pid, signal.SIGKILL)
    assert screen.process.wait(30) == 137


def test_ctrl_c_ends_the_command(any_store: Store, terminal: Callable[..., Terminal]) -> None:
    """A command that does nothing about INT dies of it: 130, `stopped`."""
    screen = terminal(*oncecron_run("--", "sh", "-c", "echo ready; exec sleep 60"))
    screen.expect("ready")
    eventually(
        lambda: any(_command_line(p) == b"sleep 60" for p in descendants(screen.process.pid))
    )
    screen.write("\x03")
    assert screen.process.wait(30) == 130
    [record] = any_store.executions("k")
    assert (record.outcome, record.signal) == ("stopped", signal.SIGINT)


def test_ctrl_c_ends_each_and_leaves_the_rest(
    any_store: Store, terminal: Callable[..., Terminal]
) -> None:
    """What runs is in doubt; a line below the bar says so, and how many are left."""
    script = 'echo "at $1"; [ "$1" != 2 ] || exec sleep 60'
    words = ("each", "--key", "k", "--tick", "t", "--items", "seq 5", "--", "sh", "-c", script)
    screen = terminal(str(CONSOLE_SCRIPT), *words, "sh")
    screen.expect("at 2")
    screen.write("\x03")
    screen.expect(r"oncecron: key k: of 5 items, 1 in doubt and 3 left; see `oncecron items k ")
    assert screen.process.wait(30) == 130
    assert sorted(row.outcome for row in any_store.executions("k")) == ["stopped", "succeeded"]


def test_job_control_of_a_shell_works(store: Store, terminal: Callable[..., Terminal]) -> None:
    """Ctrl-Z stops the command and gives the shell back, the lease is kept, `fg` goes on, also reading."""
    shell = terminal(program("bash"), "--norc", "--noprofile", "-i")
    shell.expect("PROMPT> ")
    script = "echo re''ady; read word; echo got:$word; exit 4"
    shell.write(f"{CONSOLE_SCRIPT} run --key k --ttl 12 -- sh -c '{script}'\n".replace("''", '""'))
    shell.expect("\nready")
    shell.write("\x1a")
    shell.expect("Stopped")
    shell.expect("PROMPT> ")
    before = store.heartbeat("k")
    eventually(lambda: (store.heartbeat("k") or 0) > (before or 0) + 0.5)
    shell.write("jobs\n")
    shell.expect(r"\[1\]\+ +Stopped")
    shell.write("fg\n")
    shell.expect("run --key k.*\n")
    shell.write("hello\n")
    shell.expect("got:hello")
    shell.write("echo status:$?\n")
    shell.expect("status:4")
    shell.write("exit\n")
    shell.process.wait(30)
    assert store.executions("k")[0].outcome == "failed"


def test_a_command_in_the_background_stops_at_reading_the_terminal(
    terminal: Callable[..., Terminal],
) -> None:
    """`oncecron run ... &` that reads is stopped by the terminal, as any command, and goes on with `fg`."""
    shell = terminal(program("bash"), "--norc", "--noprofile", "-i")
    shell.expect("PROMPT> ")
    shell.write(f"{CONSOLE_SCRIPT} run --key k -- sh -c 'read word; echo got:$word' &\n")

    def reader_is_stopped() -> bool:
        return any(
            p.state == "T" and _command_line(p)[:3] == b"sh "
            for p in descendants(shell.process.pid)
        )

    eventually(reader_is_stopped)
    shell.write("fg\n")
    shell.expect("run --key k.*\n")
    shell.write("hello\n")
    shell.expect("got:hello")


# As the first process of a container


@pytest.fixture
def container(host: Oncecron) -> Callable[..., tuple[Firing, Process]]:
    """Give a function that starts `oncecron run` as PID 1 of a process namespace of its own."""
    require_root("a process namespace")
    host.prefix = [*as_ourselves(), program("unshare"), "--pid", "--fork", "--mount-proc", "--"]

    def start(*arguments: object) -> tuple[Firing, Process]:
        firing = host.start("run", "--key", "k", *arguments, bufsize=0)

        def first() -> Process:
            found = [p for p in descendants(firing.process.pid) if _pid_inside(p) == 1]
            assert found, "no PID 1 yet"
            return found[0]

        return firing, eventually(first)

    return start


def test_as_pid_1_the_exit_status_is_right(host: Oncecron, container: Any) -> None:
    """The container ends with the command's status."""
    assert host.run("k", "--", "sh", "-c", "exit 42").status == 42


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_as_pid_1_a_signal_ends_the_command(any_store: Store, container: Any, name: str) -> None:
    """The kernel gives PID 1 no default action; oncecron passes the signal on all the same."""
    firing, first = container("--", "sh", "-c", "echo ready; exec sleep 60")
    assert read_line(firing) == "ready"
    eventually(lambda: any(_command_line(p) == b"sleep 60" for p in descendants(first.pid)))
    os.kill(first.pid, number_of(name))
    assert firing.wait().status == 128 + number_of(name)


def test_as_pid_1_zombies_are_reaped(any_store: Store, container: Any) -> None:
    """Orphans of the command, and of processes that were put into the container, leave no zombie."""
    orphans = "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done; echo ready; exec sleep 60"
    firing, first = container("--", "sh", "-c", orphans)
    assert read_line(firing) == "ready"

    def is_adopted(process: Process) -> bool:
        return process.parent == first.pid and _command_line(process) == b"sleep 60"

    enter = [program("nsenter"), "--target", str(first.pid), "--pid", "--"]
    guest = spawn([*enter, "sh", "-c", "sleep 60 & echo left"], stdout=subprocess.PIPE)
    assert guest.stdout is not None
    assert guest.stdout.readline() == b"left\n"
    end(guest)
    adopted = eventually(lambda: [p for p in process_table() if is_adopted(p)])
    send(adopted, signal.SIGKILL)
    eventually(lambda: not any(read_process(process.pid) for process in adopted))
    eventually(lambda: not [p for p in descendants(first.pid) if p.state == "Z"])
    os.kill(first.pid, signal.SIGTERM)
    assert firing.wait().status == 143


def _asks(store: Store, key: str) -> bool:
    return store.skips(key) != []


def _pending(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        return any(int(line.split()[1], 16) for line in status if "Pnd" in line)


def _command_line(process: Process) -> bytes:
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").strip()
    except OSError:
        return b""


def _pid_inside(process: Process) -> int | None:
    try:
        with open(f"/proc/{process.pid}/status") as file:
            pids = next(line for line in file if line.startswith("NSpid")).split()[1:]
    except OSError:
        return None
    return int(pids[-1]) if len(pids) > 1 else None
