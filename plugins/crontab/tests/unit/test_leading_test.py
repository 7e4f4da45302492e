"""The test of the host with which a line begins: copied into --only-if, and back byte for byte."""

import os
import subprocess
from pathlib import Path

import pytest
from crontabs import REALISTIC
from hypothesis import given
from hypothesis import strategies as st

from oncecron_crontab.leading_test import leading_test, remaining_test
from oncecron_crontab.percent_sign import split_command
from oncecron_crontab.prefix import read_prefix, with_prefix
from oncecron_crontab.scanner import scan
from oncecron_crontab.wrap import WrapSettings, wrap

TESTS = {
    "[ -x /opt/x ] && /opt/x -q": "[ -x /opt/x ]", "test -x /opt/x && /opt/x": "test -x /opt/x",
    "[[ -d /srv ]] && x": "[[ -d /srv ]]", "[ ! -e /srv/off ] && x": "[ ! -e /srv/off ]",
    '[ -x "$HOME/bin/x" ] && x': '[ -x "$HOME/bin/x" ]', "[ -x /a -a -x /b ] && x": "[ -x /a -a -x /b ]",
    "test -f /a -o ! -d /b && x": "test -f /a -o ! -d /b",
    "[ -x /a ] && [ -d /b ] && x": "[ -x /a ] && [ -d /b ]",
    "command -v x > /dev/null && x 1 1": "command -v x > /dev/null",
    "command -v x >/dev/null 2>&1 && x": "command -v x >/dev/null 2>&1",
    "which x >/dev/null && x | logger": "which x >/dev/null",
    "[ -x /a ] && cd /srv && ./x > log 2>&1": "[ -x /a ]", "[ -x /a ] && { a; b; }": "[ -x /a ]",
    "[ -x /a ] && (a; b || c) | d": "[ -x /a ]",
    "[ -x /a ] && for i in 1 2; do a $i; done": "[ -x /a ]",
    "[ -x /a ] && if [ ! -d /b ]; then a; fi": "[ -x /a ]",
    "[ -x /a ] && [ $(date +\\%u) = 1 ] && x": "[ -x /a ]", "[ -x /a ] && a # daily": "[ -x /a ]",
    "[ -x /a ]&&a": "[ -x /a ]", "[ -x /a ]  &&  a": "[ -x /a ]", "[ -x /a ] &&	a": "[ -x /a ]",
    "if [ -x /a ]; then a; fi": "[ -x /a ]",
    "if [ -x /a ]; then a; b || c; fi >>log 2>&1": "[ -x /a ]",
    "if [ -x /a ] && [ $(date +%d) -le 7 ]; then a; fi": "[ -x /a ]",
    "if test -x /a ;then a;fi": "test -x /a", "[ -x /a ] || exit 0; a; b": "[ -x /a ]",
    "test -x /a || exit; a || b &": "test -x /a", "[ -x /a ] && [ -x /a ]&&a": "[ -x /a ] && [ -x /a ]",
    "[ -x /a ] && if [ -x /a ]; then a; fi": "[ -x /a ]", "[ -x /a ] && cd / && /a || true": "[ -x /a ]",
}  # fmt: skip
"""Commands, and the test with which they begin."""
NOT = [
    "a", "", "[ -x /a ]", "[ -x /a ] || a", "[ -x /a ] && a || b", "[ -x /a ] && a; b", "[ -x /a ] && a &",
    "[ -x /a ] && case x in x) a;; esac", "[ -x '/a b' ] && a", "[ -x /a\\ b ] && a", "[ -f /a-\\%Y ] && a",
    "[ $(date +\\%u) = 1 ] && a", '[ "$(hostname)" = web1 ] && a', "[ -x /a ] > /srv/log && a",
    '[ -n "$X" ] && a', "[ -x ] && a", "[ -x /a && a", "test && a", "command -v && a", "command x && a",
    "which x 2>/dev/null && x | logger", "echo [ -x /a ] && a", "cd /srv && [ -x x ] && ./x",
    "( [ -x /a ] && a )", "if [ -x /a ]; then a; else b; fi", "if [ -x /a ]; then a; fi; b",
    "if [ -x /a ]; then a; fi && b", "if [ -x /a ] || b; then a; fi", "if [ -x /a ]; then a",
    "[ -x /a ] || exit 0 && a", "[ -x /a ] && 'unclosed",
]  # fmt: skip
"""Commands without such a test."""


@pytest.mark.parametrize(("command", "test"), TESTS.items())
def test_a_test_is_found(command: str, test: str) -> None:
    """Where nothing else happens without it."""
    assert leading_test(command.encode()) == test.encode()


@pytest.mark.parametrize("command", NOT)
def test_other_commands_have_none(command: str) -> None:
    """What would happen without the test must not be lost, and a date is the same on every host."""
    assert leading_test(command.encode()) is None


PIECES = [
    "[ -x rec ]", "test -d none", "command -v rec >/dev/null", "[ ! -e none ]", "rec a", "rec exit=3", "if",
    "then", "fi", "exit 0", "{", "}", "(", ")", "echo x", "# c", "! rec", "cd .",
]  # fmt: skip
JOINTS = [" && ", "&&", " || ", "; ", " ", " | ", " & "]


@st.composite
def commands(draw: st.DrawFn) -> bytes:
    """Return tests and commands, joined in any way."""
    command = draw(st.sampled_from(PIECES[:6]))
    if draw(st.booleans()):
        command = f"if {command}; then rec b; fi"
    for _ in range(draw(st.integers(0, 3))):
        command += draw(st.sampled_from(JOINTS)) + draw(st.sampled_from(PIECES))
    return command.encode()


@given(commands())
def test_a_prefix_with_a_test_is_read_back(command: bytes) -> None:
    """Whatever the command."""
    written = with_prefix(b"/usr/bin/oncecron", {"key": "k", "no-tick": "true"}, command)
    prefix = read_prefix(written)
    assert prefix == (b"/usr/bin/oncecron", {"key": "k", "no-tick": "true"}, command)


def run(command: bytes, directory: Path) -> tuple[int, str]:
    """Run a command; return its status and what it has done."""
    log = directory / "log"
    log.write_text("")
    environment = {"PATH": f"{directory}:/usr/bin:/bin", "LOG": str(log)}
    done = subprocess.run(
        ["/bin/sh", "-c", os.fsdecode(command)], env=environment, cwd=directory, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, log.read_text() + done.stdout.decode()


@given(commands(), st.booleans())
def test_the_test_decides_as_it_did(
    tmp_path_factory: pytest.TempPathFactory, command: bytes, present: bool
) -> None:
    """A command whose test fails does nothing."""
    found = leading_test(command)
    if found is None:
        return
    directory = tmp_path_factory.mktemp("rec")
    if present:
        program = directory / "rec"
        program.write_text('#!/bin/sh\necho "$@" >>"$LOG"\n')
        program.chmod(0o755)
    if run(found, directory)[0] != 0:
        assert run(command, directory)[1] == ""


@pytest.mark.parametrize(
    ("command", "test"),
    {
        "[ -x '/a b' ] && a": "[ -x '/a b' ]",
        "[ -x /a\\ b ] && a": "[ -x /a\\ b ]",
        "[ -f /a-\\%Y ]&&a": "[ -f /a-\\%Y ]",
        "if [ -f '/a b' ]; then a; fi": "[ -f '/a b' ]",
        "[ -x '/a b' ] || exit 0; a": "[ -x '/a b' ]",
        # The job depends on no test, or the test is copied
        "[ -x /a ] && /a || true": None,
        "[ -x /a ] && /a": None,
        "[ -x /a ] || exit 0; /a": None,
        "[ -x /a ] && /a || /b": None,
        "which python3 && python3 x || python x": None,
        "[ -f /etc/default/x ] && . /etc/default/x; x": None,
        "[ -d /x ] && rm -r /x; y": None,
        "[ -x /a ] && X=1; y": None,
        "[ -x /a ] || /a": None,
        "[ -x /a ] && [ -n x ] && b; c": None,
        "[ -f '/a b' ] || touch '/a b'; x": None,
        "[ -f /a-$(date +\\%F) ] && a": None,
        "a; [ -x /a ] && /a": None,
        "[ -x '/a && a": None,
        "": None,
    }.items(),
)
def test_what_stays_although_the_job_depends_on_it(command: str, test: str | None) -> None:
    """A host that fails it wins the tick and does nothing."""
    found = remaining_test(command.encode())
    assert (found.decode() if found else None) == test


def test_no_test_remains_in_real_crontabs() -> None:
    """Nor is there a false alarm."""
    for path in REALISTIC:
        crontab = scan(path.read_bytes(), system=path.name.startswith("system-"))
        done = wrap(crontab, WrapSettings("/bin/oncecron", "UTC", ("*",)))
        assert [each for each in done.warnings if "stays in the command" in each.reason] == []


def test_the_tests_of_real_crontabs() -> None:
    """These lines have one."""
    files = [*REALISTIC, Path(REALISTIC[0].parents[1] / "debian/php-common/php")]
    found = set()
    for path in files:
        system = path.name.startswith("system-") or "debian" in path.parts
        for entry in scan(path.read_bytes(), system=system).entries():
            there = leading_test(split_command(entry.command)[0])
            if there:
                found.add((path.name, there.decode()))
    assert found == {
        ("bash-only", "[[ -d /srv/x ]]"),
        ("system-anacron", "[ -x /etc/init.d/anacron ]"),
        ("system-mdadm", "[ -x /usr/share/mdadm/checkarray ]"),
        ("system-php", "[ -x /usr/lib/php/sessionclean ]"),
        ("system-sysstat", "command -v debian-sa1 > /dev/null"),
        ("php", "[ -x /usr/lib/php/sessionclean ]"),
    }
