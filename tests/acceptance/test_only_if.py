"""`oncecron run --only-if TEST`: a host that fails the test skips and claims nothing, so another host runs the tick."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from log_of import Store
from servers import Journal, eventually, job
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron
from servers.process import descendants, read_process

TICK = ("--tick", "one")


def test_a_host_without_the_program_leaves_the_tick_to_another(
    store: Store, new_host: Callable[..., Oncecron], public_path: Path
) -> None:
    """It skips in silence, as `unmet`; the other host runs the tick, and the first sees it as done then."""
    for name in ("a", "b"):
        (public_path / name).mkdir()
    program = public_path / "b" / "bill"
    program.write_text("#!/bin/sh\necho billed\n")
    program.chmod(0o755)
    a, b = (
        new_host(f"host-{name}", PATH=f"{public_path / name}:/usr/bin:/bin") for name in ("a", "b")
    )
    words = (*TICK, "--only-if", "command -v bill", "--", "bill")
    assert a.run("k", *words) == Ended(0, b"", "")
    assert b.run("k", *words) == Ended(0, b"billed\n", "")
    assert a.run("k", *words, "-v")[:2] == (0, b"")
    assert [(each.host, each.outcome) for each in store.executions("k")] == [
        ("host-b", "succeeded")
    ]
    assert sorted(store.skips("k")) == [("one", "unmet", "host-a", None, 2)]


def test_a_skip_has_its_status_its_line_and_its_place_in_the_reports(
    new_host: Callable[..., Oncecron],
) -> None:
    """Of `history`, `why` and `-v`."""
    host = new_host()
    ended = host.run("k", *TICK, "--only-if", "exit 3", "--skip-exit", "9", "-v", "--", "true")
    line = "oncecron: skipped: k tick one: this host does not meet --only-if (exit status 3)\n"
    assert ended == Ended(9, b"", line)
    [skip] = json.loads(host("history", "--skips", "--outcome", "unmet", "--json").out)
    assert (skip["reason"], skip["detail"]) == ("unmet", "exit status 3")
    explained = host("why", "k", "--tick", "one").out.decode()
    assert "did not run: every firing on record was skipped" in explained
    assert "host-a skipped: it did not meet --only-if (exit status 3)" in explained


def test_the_test_has_the_environment_of_the_job_and_none_of_its_streams(
    new_host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Its input is empty, its output goes nowhere, and what it writes to standard error is seen."""
    seen, given = public_path / "seen", public_path / "given"
    given.write_text("in")
    test = f'pwd >{seen}; echo "$ONCECRON_KEY $ONCECRON_TICK $SHELL" >>{seen}; cat; echo lost; echo why >&2'
    with given.open() as stdin:
        words = ("run", "--key", "k", *TICK, "--only-if", test, "--", "cat")
        ended = new_host().start(*words, stdin=stdin, cwd=public_path).wait()
    assert ended == Ended(0, b"in", "why\n")
    assert seen.read_text() == f"{public_path}\nk one /bin/sh\n"


def test_a_test_that_gives_no_answer_is_an_error(
    any_store: Store, new_host: Callable[..., Oncecron]
) -> None:
    """Not found, not executable, killed: nothing is started, and a line says so."""
    host = new_host()
    for test, why in (("exit 255", "exit status 255"), ("kill -9 $$", "signal KILL")):
        ended = host.run("k", *TICK, "--only-if", test, "--", "true")
        line = f"oncecron: --only-if: the test gave no answer ({why}); nothing was started\n"
        assert ended == Ended(126, b"", line)
    assert {skip[1] for skip in any_store.skips("k")} == {"broken"}
    assert any_store.executions("k") == []


def test_a_misspelled_test_is_seen(any_store: Store, host: Oncecron) -> None:
    """By the line of the shell; a program that is not there is a reason to skip."""
    ended = host.run("k", *TICK, "--only-if", "no-such-test", "--", "true")
    assert (ended.status, ended.out) == (0, b"")
    assert "no-such-test" in ended.err
    assert {skip[1] for skip in any_store.skips("k")} == {"unmet"}


def test_a_test_that_hangs_is_killed(any_store: Store, public_path: Path) -> None:
    """After half a minute, here three seconds; with all that it has started, also in a session of its own."""
    script = public_path / "oncecron"
    imports = "from oncecron.__main__ import main\n"
    text = CONSOLE_SCRIPT.read_text()
    assert imports in text
    limit = "import oncecron.core.timing\noncecron.core.timing.ONLY_IF_TIMEOUT = 3.0\n"
    script.write_text(text.replace(imports, limit + imports))
    script.chmod(0o755)
    host = Oncecron(any_store.url, public_path, script=script)
    pids = public_path / "pids"
    own_session = f"sh -c 'echo $$ >>{pids}; exec sleep 60'"
    test = f"setsid {own_session} & (setsid {own_session} &); sleep 60; :"
    ended = host.run("k", *TICK, "--only-if", test, "--", "true")
    assert (ended.status, ended.out) == (126, b"")
    assert "gave no answer (still running after 3s)" in ended.err
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) == 2
    assert [pid for pid in left if read_process(pid)] == []


def test_what_a_test_leaves_is_no_part_of_the_run(
    host: Oncecron, journal: Journal, public_path: Path
) -> None:
    """It gave an answer, so what it has left is there on purpose, and lives on when the guard is killed."""
    pid = public_path / "pid"
    leaves = f"setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 60' 2>&1 &"
    test = f"{leaves} while [ ! -e {pid} ]; do sleep 0.01; done"
    firing = host.fire("k", *TICK, "--only-if", test, "--", *job(journal, "--sleep", 60))
    [started] = journal.wait_for("start")
    running = read_process(started.pid)
    assert running
    os.kill(running.parent, signal.SIGKILL)
    left = int(pid.read_text())
    try:
        assert firing.wait().status == 75
        assert read_process(started.pid) is None
        assert read_process(left)
    finally:
        os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_test_too(
    any_store: Store, host: Oncecron, number: signal.Signals
) -> None:
    """With all that it has started: nothing keeps cron's pipe open. The firing is on record."""
    firing = host.start("run", "--key", "k", *TICK, "--only-if", "sleep 60; :", "--", "true")
    eventually(lambda: descendants(firing.process.pid)[2], retry_on=IndexError)
    os.kill(firing.wrapper.pid, number)
    assert firing.wait().status == -number
    assert any_store.skips("k") == [("one", "interrupted", "host-a", None, 1)]


def test_it_is_not_tried_after_the_claim(
    any_store: Store, new_host: Callable[..., Oncecron], journal: Journal, public_path: Path
) -> None:
    """A retry does not ask again."""
    flag = public_path / "flag"
    flag.touch()
    command = f"test -f {flag} && rm {flag} && exit 1; exit 0"
    ended = new_host().run(
        *("k", *TICK, "--retries", "1", "--retry-delay", "50ms", "--only-if", f"test -f {flag}"),
        *("--shell", command),
    )
    assert ended.status == 0
    assert [each.outcome for each in any_store.executions("k")] == ["failed", "succeeded"]
