"""`oncecron run` in front of a command changes nothing that the command or its caller can see."""

import contextlib
import hashlib
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
import story_stores
from answers import refused
from log_of import Store
from servers import Journal, job
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron, script_of

import oncecron
from oncecron.core.model import owner_digest

PYTHON = [os.path.realpath(sys.executable), "-S", "-E", "-c"]
SILENCE = (b"", "")
DEADLY = (
    *("HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "SEGV"),
    *("PIPE", "ALRM", "TERM", "USR1"),
)


def at_once(host: Oncecron, commands: dict[str, list[str]]) -> dict[str, Ended]:
    """Fire all commands by their keys, eight at a time, and return how each ended."""
    with ThreadPoolExecutor(8) as pool:
        fired = {key: pool.submit(host.run, key, "--", *words) for key, words in commands.items()}
        return {key: future.result() for key, future in fired.items()}


# Exit statuses


def test_every_exit_status_is_passed_on(any_store: Store, host: Oncecron) -> None:
    """Each is oncecron's own exit status and stands in the log, with no byte of output; a sixteenth of them a run."""
    statuses = (
        range(256) if story_stores.wanted() == "all" else range(story_stores.seed() % 16, 256, 16)
    )
    host.run("warm-up", "--", "true")
    ended = at_once(host, {f"status-{n}": ["sh", "-c", f"exit {n}"] for n in statuses})
    assert [one.status for one in ended.values()] == list(statuses)
    assert {(one.out, one.err) for one in ended.values()} == {SILENCE}
    for number in statuses:
        [record] = any_store.executions(f"status-{number}")
        outcome = "failed" if number else "succeeded"
        assert (record.exit_code, record.signal, record.outcome) == (number, None, outcome)


def test_death_by_a_signal_is_told_as_a_shell_does(any_store: Store, host: Oncecron) -> None:
    """128 + n, and the log has the signal and no exit code."""
    numbers = {name: signal.Signals[f"SIG{name}"].value for name in DEADLY}
    numbers["RTMIN"] = int(signal.SIGRTMIN)
    script = "ulimit -c 0; kill -{} $$"
    commands = {name: ["sh", "-c", script.format(number)] for name, number in numbers.items()}
    for name, ended in at_once(host, commands).items():
        assert ended == Ended(128 + numbers[name], *SILENCE), name
        [record] = any_store.executions(name)
        assert (record.outcome, record.exit_code, record.signal) == ("failed", None, numbers[name])


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/true", ""])
def test_a_pipe_fails_with_each_of_its_programs(
    store: Store, host: Oncecron, public_path: Path, shell: str
) -> None:
    """With --pipefail, whatever $SHELL can; where no shell can, nothing is claimed."""
    host.environment["SHELL"] = shell
    pipe = ("--shell", "(echo a; exit 5) | cat")
    assert host.run("k", "--tick", "1", "--pipefail", *pipe) == Ended(5, b"a\n", "")
    if shell == "/bin/true":
        host.environment["PATH"] = str(public_path)
        refused(
            host.run("k", "--tick", "2", "--pipefail", *pipe),
            127,
            "bash was not found",
            "install it",
        )
        assert [each.tick for each in store.executions("k")] == ["1"]
    refused(host.run("k", "--tick", "3", "--pipefail", "--", "true"), 64, "--pipefail")


def test_a_command_that_cannot_be_started_claims_nothing(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """127 not found, 126 not executable, a directory, no interpreter: one line, and the tick stays free."""
    script = public_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    orphan = public_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    for command, status in (
        ("no-such-command", 127),
        (f"{public_path}/missing", 127),
        (str(script), 126),
        (str(public_path), 126),
        (str(orphan), 126),
    ):
        ended = host.run("k", "--tick", "one", "--", command)
        assert (ended.status, ended.out, ended.err.count("\n")) == (status, b"", 1)
        assert ended.err.startswith("oncecron: ")
        assert command in ended.err
    assert store.executions("k") == []
    assert {(skip.reason, skip.count) for skip in store.skips("k")} == {("broken", 5)}
    script.chmod(0o755)
    assert host.run("k", "--tick", "one", "--", str(script)).status == 0


def test_a_script_without_an_interpreter_is_run_by_sh(host: Oncecron, public_path: Path) -> None:
    """As shells and env do, so that it runs wherever cron ran it: as a command, of items, and as the shell."""
    script = public_path / "script"
    script.write_text('echo "$1" $ONCECRON_KEY; exit 3\n')
    script.chmod(0o755)
    assert host.run("k", "--dry-run", "--", script).status == 0
    assert host.run("k", "--", script, "a  b") == Ended(3, b"a  b k\n", "")
    ended = host("each", "--key", "of", "--tick", "t", "--items", "echo i", "--", script, "{}")
    assert (ended.status, ended.out) == (1, b"i of\n")
    host.environment["SHELL"] = str(script)
    assert host.run("shell", "--shell", "true") == Ended(3, b"-c shell\n", "")
    assert host.run("test", "--only-if", "x", "--skip-exit", "9", "--", "true").status == 9


def test_a_script_that_the_kernel_refuses_gives_its_tick_back(
    any_store: Store, host: Oncecron, public_path: Path
) -> None:
    """What is executable but no program is seen at the start only: 126, one line, `not-started`."""
    script = public_path / "script"
    script.write_bytes(b"\0\1\2")
    script.chmod(0o755)
    ended = host.run("k", "--tick", "one", "--", str(script))
    assert (ended.status, ended.err.count("\n")) == (126, 1)
    assert host.run("k", "--tick", "one", "--", "true").status == 0
    assert [r.outcome for r in any_store.executions("k")] == ["not-started", "succeeded"]


def plant(host: Oncecron, public_path: Path, module: str, before: str, statement: str) -> None:
    """Let a host run a copy of oncecron that has one more statement, before a certain line."""
    copy = public_path / "broken" / "oncecron"
    shutil.copytree(Path(oncecron.__file__).parent, copy, ignore=shutil.ignore_patterns("*.pyc"))
    source = (copy / module).read_text()
    indent = before[: len(before) - len(before.lstrip())]
    planted = source.replace(before, f"{indent}{statement}\n{before}", 1)
    assert planted != source
    (copy / module).write_text(planted)
    host.script = script_of(copy.parent)


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("module", "before", "where"),
    [
        ("run/spec.py", "    fired_at = clock.process_started()\n", "before anything"),
        ("run/guard.py", "        self.store_thread.start()\n", "in the guard"),
        (
            "stores/__init__.py",
            "    return package(address.kind).open_lease_store(address, namespace, ttl)\n",
            "in the thread of the store",
        ),
    ],
)
def test_a_bug_is_70_and_one_line(
    host: Oncecron, public_path: Path, module: str, before: str, where: str
) -> None:
    """An exception that nobody foresaw, in a copy that was broken by hand, is told in one line."""
    plant(host, public_path, module, before, "raise AssertionError('planted')")
    ended = host.run("k", "--", "echo", "ran")
    assert (ended.status, ended.out, ended.err.count("\n")) == (70, b"", 1), where
    assert "planted" in ended.err
    assert "Traceback" in host.run("k", "-vv", "--", "true").err


@pytest.mark.parametrize("script", ["oncecron", "oncecron-shell"])
def test_variables_of_python_are_the_job_s_alone(
    host: Oncecron, public_path: Path, script: str
) -> None:
    """No module of a PYTHONPATH stands in the place of ours; with -E, no PYTHONHOME stops the program."""
    theirs = public_path / "theirs"
    theirs.mkdir()
    for name in ("click", "oncecron", "oncecron_crontab", "psycopg", "redis", "select", "socket"):
        (theirs / f"{name}.py").write_text("raise SystemExit(99)\n")
    host.script = CONSOLE_SCRIPT.with_name(script)
    host.environment["PYTHONPATH"] = str(theirs)
    assert host("--help").status == 0
    shown = ("sh", "-c", "echo $PYTHONPATH $PYTHONHOME")
    words = ("-c", f"oncecron run --key k --no-tick -- {shlex.join(shown)}")
    words = (
        words if script == "oncecron-shell" else ("run", "--key", "k", "--no-tick", "--", *shown)
    )
    host.environment["PATH"] += f":{CONSOLE_SCRIPT.parent}"
    assert host(*words) == (0, f"{theirs}\n".encode(), "")

    isolated = public_path / script
    shutil.copy(host.script, isolated)
    subprocess.run(["sed", "-i", "1s/$/ -E/", isolated], check=True)  # the cure that `wrap` names
    host.environment["PYTHONHOME"] = "/nonexistent"
    assert b"PYTHONHOME = '/nonexistent'" in host.start("--help").process.communicate()[1]
    host.script = isolated
    if script == "oncecron":
        assert host(*words) == (0, f"{theirs} /nonexistent\n".encode(), "")
    assert host("--help").status == 0


# What the command is given

ARGUMENTS: list[Any] = [
    "two words", "*", "new\nline", "100%", "%%", "", "-v", "--key", "--", "$HOME `id` \"'\\", "ünïcode",
    "=", "--ttl=1", b"\xff\xfe not UTF-8",
]  # fmt: skip


def test_arguments_arrive_byte_for_byte(store: Store, host: Oncecron) -> None:
    """Blanks, patterns, newlines, per cent signs, nothing at all, options, and bytes that are no UTF-8."""
    ended = host.run("k", "--", "printf", "%s\\0", *ARGUMENTS)
    assert ended.out == b"".join(os.fsencode(one) + b"\0" for one in ARGUMENTS)
    assert (ended.status, ended.err) == (0, "")
    shown = shlex.split(store.executions("k")[0].command)
    assert shown[2:-1] == ARGUMENTS[:-1]
    assert shown[-1] == "\\xff\\xfe not UTF-8"


def test_the_command_begins_at_the_first_word_that_is_no_option(host: Oncecron) -> None:
    """`--` may be left out, and one that follows the command is the command's."""
    assert host.run("k", "--tick", "a", "printf", "%s.", "-v", "--", "x").out == b"-v.--.x."
    assert host.run("k", "--tick", "b", "--", "printf", "%s.", "--", "x").out == b"--.x."


@pytest.mark.turns(1)
@pytest.mark.parametrize("where", ["option", "top", "section"])
def test_the_store_is_passed_on_where_it_is_wanted(
    any_store: Store, host: Oncecron, public_path: Path, where: str
) -> None:
    """It may hold a password, which the command might write into a log; oncecron inside the command needs it."""
    host.environment["ONCECRON_LOG"] = f"sqlite://{public_path}/log.db"
    inner = ("run", "--key", "inner", "--tick", "one", "--", "env", "-0")
    command = ("env", "-u", "ONCECRON_TICK", CONSOLE_SCRIPT, *inner)
    ended = host.run("outer", "--tick", "one", "--", *command)
    assert (ended.status, ended.out) == (78, b"")
    assert "no store is configured inside this command" in ended.err
    assert "`pass_store = true` or --pass-store" in ended.err
    config = public_path / "oncecron.toml"
    config.write_text(f"{'[job.outer]' if where == 'section' else ''}\npass_store = true\n")
    given = ("--pass-store",) if where == "option" else ("--config", config)
    ended = host.run("outer", "--tick", "two", *given, "--", *command)
    assert (ended.status, ended.err) == (0, "")
    assert not {b"ONCECRON_STORE", b"ONCECRON_LOG"} & {*_environment(ended.out)}
    told = _environment(host.run("third", *given, "--", "env", "-0").out)
    is_passed = where != "section"
    assert (told.get(b"ONCECRON_STORE") == any_store.url.encode()) is is_passed
    assert (b"ONCECRON_LOG" in told) is is_passed
    assert any_store.executions("inner")[0].outcome == "succeeded"


def test_the_environment_is_passed_on_and_oncecron_told(store: Store, host: Oncecron) -> None:
    """All other variables arrive as they are; what oncecron tells replaces what an outer run had told."""
    strange = {b"EMPTY": b"", b"LINES_": b"a\nb", b"BYTES": b"\xff\xfe", b"with.dot": b"=1"}
    stale = {
        "ONCECRON_KEY": "outer",
        "ONCECRON_ATTEMPT": "9",
        "ONCECRON_SHARD": "7",
        "ONCECRON_TICK": "old",
    }
    given = {**{os.fsencode(k): os.fsencode(v) for k, v in host.environment.items()}, **strange}
    host.environment |= {os.fsdecode(k): os.fsdecode(v) for k, v in given.items()} | stale
    seen = _environment(host.run("k", "--tick", "one", "--", "env", "-0").out)
    told = {name: seen.pop(name) for name in list(seen) if name not in given}
    hidden = {b"ONCECRON_STORE", b"ONCECRON_LOG"}
    assert seen == {name: value for name, value in given.items() if name not in hidden}
    identity = (told.pop(b"ONCECRON_EXECUTION_ID"), told.pop(b"ONCECRON_FENCING_TOKEN"))
    assert told.pop(b"TRACEPARENT")
    assert told.pop(b"ONCECRON_PLACE").endswith(b"/place")
    assert told == {
        b"ONCECRON_KEY": b"k", b"ONCECRON_TICK": b"one", b"ONCECRON_ATTEMPT": b"1",
        b"ONCECRON_SHARD": b"0", b"ONCECRON_SHARDS": b"1",
    }  # fmt: skip
    [logged] = store.executions("k")
    assert identity == tuple(
        str(value).encode() for value in (logged.execution_id, logged.fencing_token)
    )
    assert b"ONCECRON_TICK" not in _environment(host.run("k2", "--no-tick", "--", "env", "-0").out)


def test_a_firing_is_a_trace(store: Store, host: Oncecron) -> None:
    """All its attempts have one, which begins with the published owner; one that is there stays, also an empty one."""
    fails = ("sh", "-c", 'echo "$TRACEPARENT"; exit 1')
    host.environment.pop("TRACEPARENT", None)
    ended = host.run("k", "--retries", "1", "--retry-delay", "0s..0s", "--", *fails)
    first, second = ended.out.decode().splitlines()
    assert first == second
    found = re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-01", first)
    assert found
    assert {owner_digest(each.owner) for each in store.executions("k")} == {found[1][:16]}
    assert int(found[1], 16)
    assert int(found[2], 16)
    for given in (f"00-{'a' * 32}-{'b' * 16}-00", ""):
        host.environment["TRACEPARENT"] = given
        assert host.run(f"k{len(given)}", "--", *fails).out.decode() == f"{given}\n"


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}])
def test_the_locale_is_the_callers(host: Oncecron, given: dict[str, str]) -> None:
    """In cron's C locale Python sets LC_CTYPE for itself; the command does not see it."""
    host.environment |= given
    seen = _environment(host.run("k", "--", "env", "-0").out)
    locale = {k.decode(): v.decode() for k, v in seen.items() if k.startswith((b"LC_", b"LANG"))}
    assert locale == given


def test_standard_input_is_passed_on(host: Oncecron) -> None:
    """The command reads what oncecron was given, to its end."""
    firing = host.start("run", "--key", "k", "--", "sha256sum", stdin=subprocess.PIPE)
    data = os.urandom(1 << 20)
    out, err = firing.process.communicate(data, timeout=30)
    assert out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert (firing.process.returncode, err) == (0, b"")


BABBLE = """
import os, random, threading
def write(descriptor, seed):
    numbers = random.Random(seed)
    for _ in range(100):
        block = numbers.randbytes(1 << 20)
        while block:
            block = block[os.write(descriptor, block):]
both = [threading.Thread(target=write, args=(n, n)) for n in (1, 2)]
[one.start() for one in both]
[one.join() for one in both]
"""


def test_much_binary_output_is_unchanged_and_in_order(host: Oncecron) -> None:
    """100 MB on standard output and 100 MB on standard error at a time, each as it was written."""
    firing = host.start("run", "--key", "k", "--", *PYTHON, BABBLE)
    sums: dict[int, str] = {}

    def read(stream: IO[bytes], number: int) -> None:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
        sums[number] = digest.hexdigest()

    assert firing.process.stdout
    assert firing.process.stderr
    pipes = ((firing.process.stdout, 1), (firing.process.stderr, 2))
    threads = [threading.Thread(target=read, args=pipe) for pipe in pipes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert firing.process.wait(30) == 0
    expect = """import random, hashlib
for seed in (1, 2):
    numbers = random.Random(seed); digest = hashlib.sha256()
    for _ in range(100): digest.update(numbers.randbytes(1 << 20))
    print(digest.hexdigest())
"""
    written = subprocess.run([*PYTHON, expect], capture_output=True, check=True, text=True)
    assert [sums[1], sums[2]] == written.stdout.split()


@pytest.mark.quick
def test_nothing_is_said_of_success_or_skip(
    store: Store, new_host: Callable[..., Oncecron], journal: Journal
) -> None:
    """Cron mails every byte: a run, a tick that was done, and one that is held say nothing."""
    first, second = new_host(), new_host("host-b")
    assert first.run("k", "--tick", "one", "--", "true") == Ended(0, *SILENCE)
    assert second.run("k", "--tick", "one", "--", "echo", "no") == Ended(0, *SILENCE)
    firing = first.fire("k", "--tick", "two", "--", *job(journal, "--sleep", 30))
    journal.wait_for("start")
    assert second.run("k", "--tick", "two", "--", "echo", "no") == Ended(0, *SILENCE)
    assert second.run("k", "--tick", "three", "--", "echo", "no") == Ended(0, *SILENCE)
    os.kill(firing.process.pid, signal.SIGTERM)
    assert firing.wait() == Ended(143, b"TERM\n", ""), "what the job itself says of its signal"
    reasons = [(skip.tick, skip.reason, skip.holder_host) for skip in store.skips("k")]
    assert reasons == [
        ("one", "done", "host-a"),
        ("two", "held", "host-a"),
        ("three", "held", "host-a"),
    ]


# What the command inherits

DESCRIPTORS = "import os; print(sorted(os.path.realpath(f'/proc/self/fd/{d}') for d in os.listdir('/proc/self/fd')))"


@pytest.mark.parametrize("limit", [None, 64], ids=["unlimited", "above-the-limit"])
def test_leaked_descriptors_are_closed(
    host: Oncecron, public_path: Path, limit: int | None
) -> None:
    """What cron leaks, at any number, does not reach the command, nor does anything of oncecron."""
    leaked = os.open(public_path / "leaked", os.O_CREAT | os.O_RDWR)
    high = 300
    os.dup2(leaked, high, inheritable=True)
    if limit:
        host.prefix = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"]
    try:
        firing = host.start(
            *("run", "--key", "k", "--", *PYTHON, DESCRIPTORS), pass_fds=(leaked, high)
        )
        ended = firing.wait()
    finally:
        os.close(leaked)
        os.close(high)
    assert (ended.status, ended.err) == (0, "")
    assert b"leaked" not in ended.out
    assert ended.out.count(b"'") // 2 == 4, "0, 1, 2 and the directory that it lists"


def test_signals_are_as_without_oncecron(host: Oncecron) -> None:
    """Nothing is blocked, ignored or caught: not SIGPIPE, which Python ignores, nor what oncecron blocks."""
    lines = host.run("k", "--", "cat", "/proc/self/status").out.decode().splitlines()
    masks = [line.split() for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    assert {name: int(mask, 16) for name, mask in masks} == {
        "SigBlk:": 0,
        "SigIgn:": 0,
        "SigCgt:": 0,
    }


def test_what_the_caller_ignores_stays_ignored_but_for_what_python_hides(host: Oncecron) -> None:
    """SIGPIPE and SIGXFSZ are as cron gives them, also under systemd, which ignores the first; nohup's HUP is kept."""
    ignoring = "trap '' PIPE XFSZ HUP WINCH USR1 TERM; exec \"$@\""
    host.prefix = ["sh", "-c", ignoring, "sh"]
    show = ("sed", "-n", "s/^SigIgn:\\s*//p", "/proc/self/status")
    mask = int(host.run("k", "--", *show).out, 16)
    kept = (signal.SIGHUP, signal.SIGWINCH, signal.SIGUSR1, signal.SIGTERM)
    assert mask == sum(1 << (number - 1) for number in kept)
    trapped = host.run(
        "k", "--tick", "2", "--shell", f"trap '' PIPE; exec {' '.join(map(shlex.quote, show))}"
    )
    assert int(trapped.out, 16) == mask | 1 << (signal.SIGPIPE - 1)


def test_a_closed_reader_ends_the_command(host: Oncecron) -> None:
    """`oncecron run -- yes | head -1`: the writer dies of SIGPIPE, as without oncecron."""
    firing = host.start("run", "--key", "k", "--", "yes")
    assert firing.process.stdout
    firing.process.stdout.readline()
    firing.process.stdout.close()
    assert firing.process.wait(30) == 128 + signal.SIGPIPE


def test_limits_umask_directory_and_priority_are_kept(host: Oncecron, public_path: Path) -> None:
    """What the caller had set holds for the command."""
    host.prefix = [
        "sh",
        "-c",
        'cd "$HOME"; umask 027; ulimit -n 77; ulimit -f 12345; exec nice -n 3 "$@"',
        "sh",
    ]
    ended = host.run("k", "--", "sh", "-c", "ulimit -n; ulimit -f; umask; nice; pwd")
    niceness = str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3))
    assert ended.out.decode().split() == ["77", "12345", "0027", niceness, str(public_path)]
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    show = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
    host.prefix = []
    assert host.run("k2", "--", *PYTHON, show).out.split() == [b"%d" % soft, b"%d" % hard]


def test_a_survivor_that_keeps_the_output_open_holds_nobody_up(
    any_store: Store, host: Oncecron
) -> None:
    """A daemon that a command leaves with its pipe: oncecron ends when the command has ended."""
    firing = host.start("run", "--key", "k", "--", "sh", "-c", "sleep 60 & echo $!")
    assert firing.process.stdout
    pid = int(firing.process.stdout.readline())
    try:
        assert firing.process.wait(30) == 0
        assert _lives(pid)
        assert any_store.executions("k")[0].outcome == "succeeded"
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("lingers", "waited"), [(0.5, True), (30, False)])
def test_a_guard_that_leaves_slowly_is_waited_for_but_not_for_ever(
    host: Oncecron, public_path: Path, lingers: float, waited: bool
) -> None:
    """Cron waits for whoever holds the output; one that does not leave costs a second, and no status."""
    last = "        system.calls.exit(status if 0 <= status <= 255"
    plant(host, public_path, "run/wrapper.py", last, f"__import__('time').sleep({lingers})")
    if waited:  # however long a busy machine takes
        module = public_path / "broken" / "oncecron" / "run" / "wrapper.py"
        source = module.read_text()
        patient = source.replace("_GUARD_LEAVES_WITHIN = 1.0", "_GUARD_LEAVES_WITHIN = 20.0")
        assert patient != source
        module.write_text(patient)
    go = public_path / "go"
    command = ("sh", "-c", f"until test -e {go}; do sleep 0.01; done; exit 3")
    nothing = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    firing = host.start("run", "--key", "k", "--", *command, **nothing)
    guard = firing.guard()
    go.touch()
    since = time.monotonic()
    assert firing.process.wait(20) == 3
    assert guard.alive() is not waited
    assert time.monotonic() - since < 10
    if guard.alive():
        os.kill(guard.pid, signal.SIGKILL)


def _environment(output: bytes) -> dict[bytes, bytes]:
    pairs: Iterable[tuple[bytes, bytes, bytes]] = (
        entry.partition(b"=") for entry in output.split(b"\0") if entry
    )
    return {name: value for name, _, value in pairs}


def _lives(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_command_that_is_longer_than_a_record_runs(store: Store, host: Oncecron) -> None:
    """It gets all of its words; the record has their beginning."""
    words = ["é" * 60_000] * 9
    ended = host.run("k", "--tick", "one", "--", "sh", "-c", 'echo "$# ${#9}"', "sh", *words)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.split()[0] == b"9"
    [record] = store.executions("k")
    assert record.outcome == "succeeded"
    assert record.command.startswith("sh -c ")
    assert record.command.endswith("... (540053 characters)")


def test_a_name_of_a_host_that_no_store_takes_is_refused(host: Oncecron) -> None:
    """It is configuration: 78."""
    host.environment["ONCECRON_HOST"] = "h" * 256
    ended = host.run("k", "--", "true")
    assert (ended.status, ended.out) == (78, b"")
    assert ended.err == "oncecron: $ONCECRON_HOST has 256 characters; use at most 255\n"
