"""Crontabs for tests: lines that hypothesis makes up, realistic files, and what the real `crontab` says of them."""

import os
import subprocess
from pathlib import Path

from hypothesis import strategies as st
from servers.require import program

from oncecron_crontab.percent_sign import standard_input as standard_input
from oncecron_crontab.scanner import Crontab, Problem

EXAMPLES = int(os.environ.get("ONCECRON_TEST_CRONTAB_LINES", "80"))
"""How many lines are made up for one property."""
REALISTIC = sorted((Path(__file__).parent / "realistic").iterdir())
"""Files as people have them; those named `system-...` have a user's name in their lines."""


def accepted_by_cron(data: bytes, directory: Path) -> bool:
    """Ask Debian's `crontab -n`, which installs nothing."""
    path = directory / f"asked-{os.getpid()}"
    path.write_bytes(data)
    done = subprocess.run(
        [program("crontab"), "-n", str(path)], capture_output=True, text=True, check=False
    )
    accepted = "successfully checked" in done.stderr
    assert accepted or "can't install" in done.stderr or "is too long" in done.stderr, done.stderr
    return accepted


def rejected_by_cron(crontab: Crontab, directory: Path) -> list[Problem]:
    """Return why the cron of this machine should reject a crontab; Debian 13 and newer accept what is in doubt."""
    strict = not accepted_by_cron(b"A=\n", directory)
    return crontab.problems() + (crontab.doubts() if strict else [])


# Lines


GOOD = (
    ["*", "0", "*/5", "5", "0-59/7", "1,31", "59", "22-2", "*/100", "5#2", "*x", "1-1,7-9/2,*"],
    ["*", "2", "*/3", "8-18", "0,12", "23", "22-2", "*,3", "08", "4294967297"],
    ["*", "1", "*/2", "1-7", "15,31", "31", "00001"],
    ["*", "1", "jan", "FEB", "1-12/3", "feb,nov", "jan-mar", "nov-feb"],
    ["*", "0", "7", "mon-fri", "1-5", "SUN", "5#2", "fri-sun", "sat,sun", "5-7"],
)
"""Fields that cron accepts, some of them to the surprise of whoever wrote them."""
BAD = (
    ["60", "0,", "5/2", "x"], ["24", "4294967295", "*/0"], ["0", "32", "L", "1W", "2-0"],
    ["13", "0", "mon", "january"], ["8", "5L", "-1", "mon-"],
)  # fmt: skip
BLANKS = st.sampled_from([b" ", b"\t", b"  ", b" \t "])
NICKNAMES = st.sampled_from(
    [b"@daily", b"@hourly", b"@reboot", b"@weekly", b"@midnight", b"@yearly", b"@annually", b"@monthly"]
)  # fmt: skip
ODD = st.one_of(
    st.text("0123456789*,-/#LWjanfrisu.@\x7f\r\xff", min_size=1, max_size=5).map(
        lambda text: text.encode("latin-1")
    ),
    st.sampled_from([b"@Daily", b"@every", b"@"]),
)


@st.composite
def schedules(draw: st.DrawFn, *, good: bool = False) -> bytes:
    """Return the time of a job with the blanks behind it; unless `good`, one in three has a fault."""
    if draw(st.sampled_from(range(6))) == 1:
        return draw(NICKNAMES) + draw(BLANKS)
    fields = [draw(st.sampled_from(texts)).encode() for texts in GOOD]
    if not good and draw(st.sampled_from(range(3))) == 1:
        position = draw(st.sampled_from(range(5)))
        bad = st.sampled_from(BAD[position]).map(str.encode)
        fields[position] = draw(st.one_of(bad, ODD))
    return b"".join(field + draw(BLANKS) for field in fields)


VALUES = st.one_of(
    st.sampled_from(
        [b"", b"x", b'"a b"', b"'a'", b"'a' b", b'"', b"'", b"\"'x'\"", b"a=b # c ", b"/bin/sh\r", b" "]
    ),
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"").replace(b"\0", b"")),
)  # fmt: skip


@st.composite
def variables(draw: st.DrawFn) -> bytes:
    """Return a line that sets a variable, or nearly."""
    names = [b"MAILTO", b"PATH", b"'A B'", b'"A', b"", b"A B", b"@x", b"*", b"\r", b"'a=b'"]
    name = draw(st.sampled_from(names))
    equals = draw(st.sampled_from([b"=", b" = ", b"\t=", b"= ", b"", b"=="]))
    return name + equals + draw(VALUES)


OTHERS = st.one_of(
    st.sampled_from([b"", b" ", b"\t", b"\r", b"# a comment", b"  # indented", b"#\0", b"\f", b"\xff", b"@"]),
    st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"").replace(b"\0", b"")),
)  # fmt: skip


def lines(commands: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return lines of a crontab, without the newline, that run these commands or nothing."""
    jobs = st.tuples(st.sampled_from([b"", b" ", b"\t"]), schedules(), commands).map(b"".join)
    kinds = st.sampled_from([jobs, jobs, jobs, jobs, variables(), OTHERS])
    return kinds.flatmap(lambda kind: kind)


# Commands

PIECES = [
    "rec", "rec a", "rec 'a b'", 'rec "it\'s"', "rec $X", 'rec "$X" *', "rec exit=3", "rec a >out", "rec <in",
    "cd sub", "X=1 rec", "exec rec x", "rec `rec b`", 'rec "$(rec c)"', "( rec d )", "{ rec e; }", "! rec f",
    "rec #", "if rec; then rec g; fi", "for i in 1 2; do rec $i; done", "rec 2>>err", "echo h",
    "printf '\\%s\\\\n' i", "true", "rec \\'j\\'", 'rec "\\"k\\""', "rec l\\ m", "rec date +\\%F",
    "rec \\\\\\%", "rec 'a\\b'", "rec é", "rec \\$X", "rec\t n", "rec a=b --c -- -d", "rec ''", 'rec ""x',
    "rec ~ ?", "rec {a,b}", "rec \\\\", "rec !", "rec o; exit 5", "export X=2", "[ -d sub ] && rec p",
    "test -e sub&&rec q", "if [ -d sub ]; then rec s; fi", "command -v rec && rec t",
]  # fmt: skip
"""Parts of commands whose only programs are shells and `rec`, which records how it was called."""
JOINTS = [" && ", " || ", " | ", " ;", "; ", "&& "]
INPUTS = ["%", "%in", "%a%b%", "%it's \\% 100", "%\\", "%é%%", "%\\\\%x'"]


@st.composite
def runnable_commands(draw: st.DrawFn) -> bytes:
    """Return a command, as it stands in a crontab, that may be run in an empty directory with `rec` in its PATH."""
    parts = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
    command = parts[0]
    for part in parts[1:]:
        # Behind a backslash `&&` would be a letter and an `&`: a job in the background, which is not guarded.
        joints = JOINTS[:4] if command.endswith("\\") else JOINTS
        command += draw(st.sampled_from(joints)) + part
    command += draw(st.sampled_from(["", "", " ", " # it's a comment", "\t"]))
    return (command + draw(st.sampled_from(["", "", *INPUTS]))).encode()


def commands() -> st.SearchStrategy[bytes]:
    """Return commands of all kinds, most of them like those that people write."""
    odd = st.text("ab '\"\\\\%$`;&|<>()=~*#!\t\r-/é", max_size=12).map(str.encode)
    raw = st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"").replace(b"\0", b""))
    long = st.integers(800, 1000).map(lambda length: b"x" * length)
    kinds = st.sampled_from([runnable_commands(), runnable_commands(), odd, odd, raw, long])
    return kinds.flatmap(lambda kind: kind)
