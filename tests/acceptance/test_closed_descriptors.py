"""Who starts oncecron with closed standard descriptors: no connection and no file of ours takes their numbers.

A message for standard error would go into the connection of the store otherwise.
"""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from command_tree import every_command
from servers.oncecron import CONSOLE_SCRIPT, Oncecron, patient_script
from servers.process import descendants, end

SHELL_SCRIPT = CONSOLE_SCRIPT.with_name("oncecron-shell")
CLOSED = ["0<&-", "1>&-", "2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"]
KEYED = ("next", "why", "again", "pause", "resume", "stop", "release", "forget")
PLAIN = (
    *("history", "jobs", "hosts", "timeline", "locks", "items", "audit", "check", "doctor"),
    "metrics",
)
ASKING = {
    **{name: [name, "k"] for name in KEYED},
    **{name: [name] for name in (*PLAIN, "drain", "undrain", "init", "prune")},
    "notify": ["notify", "--dry-run"],
    "report": ["report", "--html", "-"],
    "run": ["run", "--key", "k", "--", "true"],
    "each": ["each", "--key", "k", "--items", "echo 1", "--", "true"],
}
"""The commands that connect to the store."""
OFFLINE = {
    *("completion", "config check", "config show", "flush"),
    *("crontab wrap", "crontab unwrap", "crontab lint", "web", "drill"),
}
"""Those that do not; `flush` has nothing to deliver, `web` waits for a reader, and `drill` asks before it begins."""


def closing(prefix: str) -> list[str]:
    """Return the prefix of a command that starts it with closed descriptors."""
    return ["sh", "-c", f'exec "$@" {prefix}', "sh"]


def standard(pid: int) -> list[str]:
    """Return what a process has as descriptors 0 to 2."""
    found = []
    for number in range(3):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def check(kind: str, public_path: Path, closed: str, *words: str, **how: Any) -> None:
    """Start a command and wait until it has connected; none of its processes has anything of ours below 3."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # it never answers
        deaf.settimeout(20)
        url = f"{kind}://127.0.0.1:{deaf.getsockname()[1]}"
        firing = Oncecron(url, public_path, prefix=closing(closed), **how).start(*words)
        try:
            connection, _ = deaf.accept()
            with connection:
                for process in descendants(firing.process.pid):
                    found = standard(process.pid)
                    assert len(found) == 3
                    assert not [one for one in found if one != "/dev/null" and "pipe:" not in one]
        finally:
            end(firing.process)


def test_every_command_is_tried_here() -> None:
    """A new one has to say whether it connects."""
    assert set(every_command()) <= {*ASKING, *OFFLINE}


@pytest.mark.turns(6)
@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_a_connection_takes_no_standard_descriptor(
    public_path: Path, command: str, kind: str
) -> None:
    """Of no command, whichever are closed."""
    file = public_path / "notify.toml"
    file.write_text('[notify.channel.log]\ncommand = "true"\n')
    for closed in CLOSED:
        if command == "run" or "1>" not in closed:  # others refuse a closed standard output first
            check(kind, public_path, closed, *ASKING[command], ONCECRON_CONFIG=str(file))


def test_the_shell_of_a_crontab_takes_none(public_path: Path) -> None:
    """The same for `oncecron-shell`."""
    for closed in CLOSED:
        check("redis", public_path, closed, "-c", "/bin/true", script=SHELL_SCRIPT)


def test_completion_takes_none(public_path: Path) -> None:
    """The same for the answer at a TAB."""
    line = {"_ONCECRON_COMPLETE": "bash_complete", "COMP_WORDS": "oncecron why ", "COMP_CWORD": "2"}
    for closed in ("0<&-", "0<&- 2>&-"):
        check("redis", public_path, closed, script=patient_script(), **line)


@pytest.mark.parametrize("closed", CLOSED)
def test_the_command_finds_closed_what_was_closed(
    host: Oncecron, public_path: Path, closed: str
) -> None:
    """Nothing is put in its place: the command sees what its caller gave."""
    told = public_path / "told"
    # The shell opens the file only when it knows the answer.
    script = 'for n in 0 1 2; do test -e /proc/$$/fd/$n && is="$is $n"; done; echo $is >$0'
    words = ["/bin/sh", "-c", script, told]
    alone = Oncecron("", public_path, prefix=closing(closed), script=Path("/usr/bin/env"))
    assert alone(*words).status == 0
    expected = told.read_text()
    host.prefix = closing(closed)
    assert host.run("k", "--", *words).status == 0
    assert told.read_text() == expected
    assert expected.split() == [n for n in "012" if n not in closed]
