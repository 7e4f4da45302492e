"""`--capture`: what a command writes arrives as without, and the last of it stands in the record."""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import Ended, Firing, Oncecron
from servers.process import Process, descendants, read_process, wait_gone

PYTHON = [os.path.realpath(sys.executable), "-S", "-E", "-c"]
EVERY_BYTE = bytes(range(256))


@pytest.fixture
def prompt(new_host: Callable[..., Oncecron]) -> Oncecron:
    """Give a host that waits for its output as users' do: a second, where nobody passes it on."""
    return new_host()


@pytest.fixture
def host(prompt: Oncecron) -> Oncecron:
    """Give one that waits for as long as a busy machine needs."""
    prompt.loses_no_output = True
    return prompt


def fire(host: Oncecron, size: str, *words: object, **options: Any) -> Firing:
    """Fire a captured command, with --options before `--`."""
    options.setdefault("bufsize", 0)  # what a line is read from may be read to its end by others
    return host.start("run", "--key", "k", "--capture", size, *words, **options)


def wait_for(store: Store, outcome: str) -> None:
    """Wait until the record of the end is there."""
    eventually(lambda: [row.outcome for row in store.executions("k")] == [outcome])


def recorded(host: Oncecron, key: str = "k") -> dict[str, Any]:
    newest = json.loads(host("history", key, "--limit", 1, "--json").out)[0]
    return json.loads(host("history", "--id", newest["execution_id"], "--json").out)[0]


def output(host: Oncecron, key: str = "k") -> tuple[str | None, int | None]:
    """Return the newest output of a key, and how many bytes of it were not kept."""
    record = recorded(host, key)
    return record["output"], record["output_cut"]


def forwarder_of(process: Process) -> Process:
    """Return the process that reads what another one writes to its standard output."""
    pipe = os.readlink(f"/proc/{process.pid}/fd/1")
    for name in filter(str.isdigit, os.listdir("/proc")):
        for number in _numbers(f"/proc/{name}/fd"):
            if _reads(name, number, pipe) and (found := read_process(int(name))):
                return found
    raise AssertionError(f"nobody reads {pipe}")


def _numbers(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _reads(pid: str, number: str, pipe: str) -> bool:
    try:
        if os.readlink(f"/proc/{pid}/fd/{number}") != pipe:
            return False
        flags = Path(f"/proc/{pid}/fdinfo/{number}").read_text().split("flags:")[1].split()[0]
    except OSError:
        return False
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def start_and_find(firing: Firing) -> tuple[Process, Process]:
    """Wait until a command that says `ready` runs; return it and its forwarder."""
    assert firing.process.stdout
    assert firing.process.stdout.readline() == b"ready\n"
    command = firing.job()
    return command, forwarder_of(command)


# What arrives


def test_every_byte_arrives_and_is_recorded(host: Oncecron) -> None:
    """Both outputs, each where it belongs, with the exit status; what is no text is escaped in the record."""
    script = (
        "import os; os.write(1, bytes(range(256))); os.write(2, b'tr\\xc3\\xa4ge'); os._exit(3)"
    )
    ended = host.run("k", "--capture", "4k", "--", *PYTHON, script)
    assert ended == Ended(3, EVERY_BYTE, "träge")
    text, cut = output(host)
    assert cut == 0
    assert sorted((text or "").partition("träge")[::2]) == [
        "",
        EVERY_BYTE.decode("utf-8", "backslashreplace").replace("\0", "\\x00"),
    ]


def test_one_file_for_both_keeps_the_order(host: Oncecron) -> None:
    """As under cron, whose mail has both: a thousand changes between the two, none out of its place."""
    script = "for i in $(seq 500); do echo out $i; echo err $i >&2; done"
    firing = fire(host, "1M", "--", "sh", "-c", script, stderr=subprocess.STDOUT)
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(1, 501))
    assert firing.process.communicate()[0].decode() == expected
    assert output(host) == (expected, 0)


def test_what_is_written_arrives_at_once(host: Oncecron, journal: Journal) -> None:
    """A line is read while the command still runs, from either output."""
    command = ["sh", "-c", "echo ready; echo too >&2; exec sleep 60"]
    firing = fire(host, "4k", "--", *command)
    start_and_find(firing)
    assert firing.process.stderr
    assert firing.process.stderr.readline() == b"too\n"
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait().status == 143
    assert sorted((output(host)[0] or "").split()) == ["ready", "too"]


def test_a_flood_is_cut_to_its_end(host: Oncecron) -> None:
    """64 MB of numbered lines arrive; the record has the last of them, and how much came before."""
    script = "import sys\nfor n in range(1 << 20): sys.stdout.write('%063d\\n' % n)"
    firing = fire(host, "64k", "--", *PYTHON, script)
    assert firing.process.stdout
    with io.BufferedReader(firing.process.stdout, 1 << 16) as lines:
        assert [int(line) for line in lines] == list(range(1 << 20))
    assert firing.process.wait(30) == 0
    text, cut = output(host)
    assert text == "".join(f"{n:063}\n" for n in range((1 << 20) - 1024, 1 << 20))
    assert cut == (1 << 26) - (1 << 16)


# Who does not play along


def test_a_command_may_close_its_output(host: Oncecron) -> None:
    """And go on: its end is waited for, and what it wrote is there."""
    script = "echo first; exec >&- 2>&- <&-; sleep 0.5; exit 4"
    assert host.run("k", "--capture", "4k", "--", "sh", "-c", script) == Ended(4, b"first\n", "")
    assert output(host) == ("first\n", 0)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_what_the_caller_had_closed_stays_closed(host: Oncecron, closed: str) -> None:
    """The command gets a pipe for those outputs alone that there are."""
    host.prefix = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    proof = Path(host.environment["HOME"]) / "proof"
    script = f"for n in 0 1 2; do test -e /proc/$$/fd/$n && echo $n; done >{proof}; exit 3"
    there = {n for n in "012" if f"{n}>&-" not in closed and f"{n}<&-" not in closed}
    assert host.run("k", "--capture", "4k", "--", "sh", "-c", script).status == 3
    host.prefix = []
    assert set(proof.read_text().split()) - there <= {"1"}  # which the script itself opens
    assert recorded(host)["exit_code"] == 3


@contextmanager
def left_behind(firing: Firing) -> Iterator[Process]:
    """Give the daemon whose pid is the first line, and end it."""
    assert firing.process.stdout
    daemon = read_process(int(firing.process.stdout.readline()))
    assert daemon
    try:
        yield daemon
    finally:
        os.kill(daemon.pid, signal.SIGKILL)


def test_a_daemon_that_is_left_holds_nobody_up(host: Oncecron) -> None:
    """Oncecron ends with the command; what the daemon writes later still arrives, and its end is seen."""
    script = "{ read go <%s; echo later; exec sleep 60; } & echo $!; echo done"
    fifo = Path(host.environment["HOME"]) / "fifo"
    os.mkfifo(fifo)
    firing = fire(host, "4k", "--", "sh", "-c", script % fifo)
    with left_behind(firing) as daemon:
        assert firing.process.wait(30) == 0
        assert firing.process.stdout
        assert firing.process.stdout.readline() == b"done\n"
        assert recorded(host)["outcome"] == "succeeded"
        assert output(host) == (f"{daemon.pid}\ndone\n", 0)
        forwarder = forwarder_of(daemon)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(forwarder.pid, number)
        fifo.write_text("go\n")
        assert firing.process.stdout.readline() == b"later\n"
    assert firing.process.stdout.read() == b""
    eventually(lambda: not forwarder.alive())


def test_a_daemon_that_floods_holds_nobody_up(host: Oncecron) -> None:
    """Oncecron passes on what the command wrote, and not for ever what comes after it."""
    firing = fire(host, "4k", "--", "sh", "-c", "yes & echo $!", stderr=subprocess.DEVNULL)
    with left_behind(firing):
        assert firing.process.stdout
        end = time.monotonic() + 20
        while firing.process.poll() is None:
            assert time.monotonic() < end
            os.read(firing.process.stdout.fileno(), 1 << 16)
    assert firing.process.wait(1) == 0
    assert recorded(host)["outcome"] == "succeeded"


def test_oncecron_waits_for_what_a_command_wrote_before_it_left_a_daemon(
    any_store: Store, prompt: Oncecron
) -> None:
    """Not for the daemon, but for the reader of what came before."""
    script = "sleep 60 & echo $!; head -c 100000 /dev/zero"
    firing = fire(prompt, "1k", "--", "sh", "-c", script)
    with left_behind(firing):
        wait_for(any_store, "succeeded")
        with pytest.raises(subprocess.TimeoutExpired):
            firing.process.wait(1)  # longer than it waits for anything else
        assert firing.process.stdout
        left = 100000
        while left:
            left -= len(os.read(firing.process.stdout.fileno(), left))
        assert firing.process.wait(30) == 0


@pytest.mark.parametrize("full", [False, True])
def test_a_closed_reader_ends_the_command(host: Oncecron, full: bool) -> None:
    """`oncecron run -- yes | head -1`: the writer dies of SIGPIPE, with no word from us."""
    firing = fire(host, "1k", "--", "yes")
    assert firing.process.stdout
    firing.process.stdout.readline()
    if full:
        eventually(lambda: _unread(firing.process.stdout) > 1 << 15)
    firing.process.stdout.close()
    assert firing.process.wait(30) == 128 + signal.SIGPIPE
    assert firing.process.stderr
    assert firing.process.stderr.read() == b""
    record = recorded(host)
    assert (record["outcome"], record["signal"]) == ("failed", signal.SIGPIPE)
    assert (record["output"], record["note"]) == ("y\n" * 512, None)


def _unread(pipe: IO[bytes] | None) -> int:
    assert pipe
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_reader_that_left_is_noticed_before_the_first_byte(host: Oncecron) -> None:
    """The first write already fails, as without: nothing of ours stands between."""
    fifo = Path(host.environment["HOME"]) / "fifo"
    os.mkfifo(fifo)
    firing = fire(host, "1k", "--", "sh", "-c", f"echo ready; read go <{fifo}; echo x; exit 7")
    command, forwarder = start_and_find(firing)
    assert firing.process.stdout
    firing.process.stdout.close()
    eventually(lambda: not _reads_from(forwarder, command))
    fifo.write_text("go\n")
    assert firing.process.wait(30) == 128 + signal.SIGPIPE


def _reads_from(forwarder: Process, command: Process) -> bool:
    try:
        return forwarder_of(command) == forwarder
    except AssertionError:
        return False


def test_a_full_disk_is_told_to_both(host: Oncecron) -> None:
    """The command gets SIGPIPE, and one line says why."""
    with Path("/dev/full").open("wb") as full:
        firing = fire(host, "1k", "--", "sh", "-c", "while echo x; do :; done; exit 5", stdout=full)
        ended = firing.wait()
    assert ended.status == 128 + signal.SIGPIPE
    assert ended.err == (
        "oncecron: key k: cannot forward the command's output: No space left on device; "
        "the command gets SIGPIPE\n"
    )
    assert set((output(host)[0] or "").split()) == {"x"}


def test_an_output_that_fails_leaves_the_other_alone(host: Oncecron) -> None:
    """Each has its own pipe."""
    with Path("/dev/full").open("wb") as full:
        script = "trap '' PIPE; until ! echo x 2>/dev/null; do :; done; echo still here >&2"
        ended = fire(host, "1k", "--", "sh", "-c", script, stdout=full).wait()
    assert ended.status == 0
    assert ended.err.endswith("\nstill here\n") or ended.err.startswith("still here\n")


def test_a_slow_reader_delays_neither_a_kill_nor_the_record(
    any_store: Store, host: Oncecron
) -> None:
    """Nobody reads: --timeout ends the command all the same, and its record has all, to the last byte."""
    script = (
        "import os, signal\nsignal.signal(15, lambda *_: (os.write(2, b'last'), os._exit(9)))\n"
    )
    script += "while True: os.write(1, b'x' * 1000)"
    firing = fire(host, "1M", "--timeout", "4s", "--", *PYTHON, script)
    wait_for(any_store, "timed-out")
    assert firing.process.poll() is None, "what was written has not been read yet"
    text, cut = output(host)
    assert text
    assert text.count("last") == 1
    ended = firing.wait()
    assert ended.status == 124
    assert ended.err.startswith("lastoncecron: key k: --timeout ended the command after ")
    assert (len(ended.out), cut) == (len(text) - 4, 0)
    assert len(text) > 65536, "less than one pipe holds"


def test_oncecron_waits_for_a_slow_reader_until_it_is_told_to_end(
    any_store: Store, prompt: Oncecron
) -> None:
    """TERM then ends it with the command's status; the rest still arrives."""
    firing = fire(prompt, "1k", "--", *PYTHON, "import os; os.write(1, b'x' * 100000); os._exit(6)")
    wait_for(any_store, "failed")
    assert firing.process.poll() is None
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.process.wait(30) == 6
    assert firing.process.stdout
    assert len(firing.process.stdout.read()) == 100000


# Who is killed


def test_a_killed_wrapper_loses_no_byte(host: Oncecron, journal: Journal) -> None:
    """The guard ends the command and records it with its output; all of it arrives."""
    script = "import os, signal, time\nsignal.signal(15, lambda *_: (os.write(1, b'bye\\n'), os._exit(3)))\n"
    script += "os.write(1, b'ready\\n'); time.sleep(60)"
    firing = fire(host, "4k", "--", *PYTHON, script)
    _, forwarder = start_and_find(firing)
    tree = descendants(firing.process.pid)
    os.kill(firing.process.pid, signal.SIGKILL)
    firing.process.wait(30)
    assert firing.process.stdout
    assert firing.process.stdout.read() == b"bye\n"
    eventually(lambda: not any(process.alive() for process in (*tree, forwarder)))
    record = recorded(host)
    assert (record["outcome"], record["output"]) == ("stopped", "ready\nbye\n")


def test_a_killed_guard_loses_no_byte(host: Oncecron) -> None:
    """The wrapper kills the command; what it wrote until then arrives and stands in the record."""
    script = "import os, time; os.write(1, b'ready\\n' + b'x' * 200000); time.sleep(60)"
    firing = fire(host, "1M", "--ttl", "6s", "--", *PYTHON, script)
    _, forwarder = start_and_find(firing)
    os.kill(firing.guard().pid, signal.SIGKILL)
    ended = firing.wait()
    assert ended.status == 75
    assert "the oncecron guard was killed; the command was killed" in ended.err
    assert set(ended.out) == {ord("x")}
    eventually(lambda: not forwarder.alive())
    assert host("flush").status == 0
    record = recorded(host)
    assert record["outcome"] == "lost"
    assert record["output"] == "ready\n" + ended.out.decode()


def test_a_stopped_guard_is_killed_in_time(prompt: Oncecron) -> None:
    """Nobody reads what the command writes, and that delays nothing: it is dead before its lease ends."""
    firing = fire(prompt, "4k", "--ttl", "6s", "--", "sh", "-c", "echo ready; exec yes")
    command, _ = start_and_find(firing)
    os.kill(firing.guard().pid, signal.SIGSTOP)
    eventually(lambda: not command.alive(), 8)
    assert firing.process.wait(30) == 75


def test_a_killed_forwarder_is_a_closed_pipe(host: Oncecron) -> None:
    """The command gets SIGPIPE; the record has what came before, and says why there is no more."""
    script = "echo ready; sleep 0.2; while sleep 0.05; do echo x; done"
    firing = fire(host, "4k", "--", "sh", "-c", script)
    _, forwarder = start_and_find(firing)
    os.kill(forwarder.pid, signal.SIGKILL)
    assert firing.wait().status == 128 + signal.SIGPIPE
    record = recorded(host)
    assert (record["outcome"], record["signal"]) == ("failed", signal.SIGPIPE)
    assert record["output"].startswith("ready\n")
    assert record["note"] == "its output is incomplete: the process that forwards it was killed"


def test_a_stopped_forwarder_does_not_hold_up_the_record(
    any_store: Store, prompt: Oncecron, journal: Journal
) -> None:
    """A second is waited for what it has not read; the record says that something is missing."""
    firing = fire(prompt, "4k", "--timeout", "6s", "--", *job(journal, "--ready", "--sleep", 60))
    _, forwarder = start_and_find(firing)
    os.kill(forwarder.pid, signal.SIGSTOP)
    wait_for(any_store, "timed-out")
    assert recorded(prompt)["note"] == "after 6 s; the end of its output did not arrive in time"
    os.kill(forwarder.pid, signal.SIGCONT)
    ended = firing.wait()
    assert (ended.status, ended.out) == (124, b"TERM\n")


def test_nothing_outlives_it(store: Store, host: Oncecron, public_path: Path) -> None:
    """The forwarder too is gone then; every store has the output."""
    go = public_path / "go"
    script = f"echo ready; until test -e {go}; do sleep 0.01; done; echo ü; exit 2"
    firing = fire(host, "4k", "--", "sh", "-c", script)
    _, forwarder = start_and_find(firing)
    tree = descendants(firing.process.pid)
    go.touch()
    assert firing.wait() == Ended(2, "ü\n".encode(), "")
    wait_gone([*tree, forwarder])
    assert output(host) == ("ready\nü\n", 0)
