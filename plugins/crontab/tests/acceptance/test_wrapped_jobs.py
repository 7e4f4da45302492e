"""What cron runs: a command and the same command guarded do the same on the host that wins, and nothing on any other.

Commands are made up of what people write into crontabs. Their only program, `rec`, records how it was called:
arguments, a variable, standard input. /bin/sh runs them in an empty directory, as cron does, first without a guard,
then guarded on two hosts. ONCECRON_TEST_CRONTAB_LINES says how many lines the properties of crontabs are tried with; a
tenth of them is run here.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from crontabs import EXAMPLES, runnable_commands, standard_input
from hypothesis import HealthCheck, example, given, settings
from servers.oncecron import CONSOLE_SCRIPT
from servers.process import public_directory, remove_directory

from oncecron_crontab.percent_sign import shell_command
from oncecron_crontab.scanner import scan
from oncecron_crontab.wrap import WrapSettings, wrap

pytestmark = pytest.mark.timeout(1200)
RUNS = max(10, EXAMPLES // 10)
GUARDING = WrapSettings(str(CONSOLE_SCRIPT), "UTC")
SHELL = CONSOLE_SCRIPT.with_name("oncecron-shell")
REC = r"""#!/bin/sh
# Written in one step, before anything that a closed pipe could end.
number=$$
{ printf '%s\0' "$#" "$@" "X=$X"; cat; } >"$RECORDS/.$number"
mv "$RECORDS/.$number" "$RECORDS/$number"
printf 'rec %s\n' "$*"
case $1 in exit=*) exit "${1#exit=}" ;; esac
"""


class Done(NamedTuple):
    """All that a command has done."""

    status: int
    out: list[bytes]
    """Lines of standard output and error, which are one file to cron; sorted, for parts of a pipeline are not."""
    calls: list[bytes]
    """What `rec` has recorded."""
    files: dict[str, bytes | None]
    """Of the directory; None is a directory."""


class Place:
    """A host's directory, made anew for each command."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.here = top / "here"
        self.records = top / "records"
        programs = top / "bin"
        programs.mkdir()
        (programs / "rec").write_text(REC)
        (programs / "rec").chmod(0o755)
        self.environment = {
            "SHELL": "/bin/sh", "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(self.here), "LOGNAME": "root",
            "X": "two  words *", "RECORDS": str(self.records),
        }  # fmt: skip

    def run(self, shell: str | Path, command: bytes, **environment: str) -> Done:
        """Run a line as cron would, in the directory as it was before the first one."""
        for directory in (self.here, self.records):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        (self.here / "sub").mkdir()
        (self.here / "in").write_bytes(b"of the file\n")
        done = subprocess.run(
            [shell, "-c", shell_command(command)], input=standard_input(command), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self.here, env={**self.environment, **environment}, timeout=60, check=False,
        )  # fmt: skip
        paths = sorted(self.here.rglob("*"))
        return Done(
            done.returncode,
            sorted(done.stdout.split(b"\n")),
            sorted(path.read_bytes() for path in self.records.iterdir()),
            {str(path.relative_to(self.here)): None if path.is_dir() else path.read_bytes() for path in paths},
        )  # fmt: skip


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Give a place to run commands in."""
    top = public_directory("crontab")
    yield Place(top)
    remove_directory(top)


NUMBERS = itertools.count()


def assert_same(place: Place, shell: str | Path, original: bytes, guarded: bytes) -> None:
    """Run a command unguarded, guarded on the host that wins, and on one that loses."""
    alone = place.run("/bin/sh", original)
    store = place.top / f"{os.getpid()}-{next(NUMBERS)}"
    hosts = [
        {
            "ONCECRON_STORE": f"sqlite://{store}.db",
            "XDG_STATE_HOME": f"{store}-{name}",
            "ONCECRON_HOST": name,
        }
        for name in ("alpha", "beta")
    ]
    assert place.run(shell, guarded, **hosts[0]) == alone
    nothing = place.run("/bin/sh", b"exit 0")
    assert place.run(shell, guarded, **hosts[1]) == nothing


@settings(max_examples=RUNS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runnable_commands())
@example(b"rec 'a b' \"it's\" --x%in%put")
@example(b"cd sub && rec $X >>out 2>&1; exit 7%it's \\% 100")
@example(b"rec \\\\\\%x 'a\\b' \"\\$X\" | rec >../here/out")
def test_a_wrapped_command_does_the_same_once(place: Place, command: bytes) -> None:
    """Arguments, standard input, redirects, output and exit status; a loser does nothing at all."""
    done = wrap(scan(b"@yearly " + command + b"\n"), GUARDING)
    assert (done.changed, done.errors) == (1, [])
    (job,) = scan(done.data).entries()
    assert_same(place, "/bin/sh", command, job.command)


@settings(max_examples=RUNS // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runnable_commands())
@example(b"rec 'a b' \"it's\" --x%in%put")
@example(b"cd sub && rec $X >>out 2>&1; exit 7%it's \\% 100")
def test_a_line_below_our_shell_does_the_same_once(place: Place, command: bytes) -> None:
    """SHELL=/usr/bin/oncecron-shell instead of a prefix, with nothing else changed."""
    assert_same(place, SHELL, command, command)
