"""The scanner: it keeps every byte, and accepts and refuses what Debian's `crontab -n` does."""

from pathlib import Path

import pytest
from crontabs import EXAMPLES, GOOD, accepted_by_cron, lines, rejected_by_cron, standard_input
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oncecron.core.schedule_fields import read_schedule
from oncecron_crontab.fields import read_field
from oncecron_crontab.percent_sign import shell_command, split_command
from oncecron_crontab.scanner import (
    NO_VALUE,
    NUL,
    Blank,
    Comment,
    Entry,
    InvalidLine,
    Variable,
    scan,
)

COMMANDS = st.one_of(
    st.sampled_from(
        [b"x", b"/bin/true a%b", b"* x", b"\xffx", b"a\r", b"", b"x" * 998, b"x" * 999]
    ),
    st.binary(max_size=10).map(lambda raw: raw.replace(b"\n", b"").replace(b"\0", b"")),
)
ENDINGS = st.sampled_from([b"\n", b"\n", b"\n", b""])


def only(data: bytes, *, system: bool = False) -> Blank | Comment | Variable | Entry | InvalidLine:
    """Return the only line."""
    (line,) = scan(data, system=system).lines
    return line


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines(COMMANDS), ENDINGS)
def test_cron_accepts_what_the_scanner_accepts(tmp_path: Path, line: bytes, ending: bytes) -> None:
    """And refuses what it refuses, for every line that can be made up."""
    crontab = scan(line + ending)
    # `@daily =` is a variable without a value to Debian 13, and a job to Debian 12.
    assume(not any(each.name.startswith(b"@") and each.has_no_value for each in crontab.variables))
    # An address with unsafe characters is refused by Debian 13; Debian 12 sends no mail to it.
    assume(not any(each.name in (b"MAILTO", b"MAILFROM") for each in crontab.variables))
    rejected = rejected_by_cron(crontab, tmp_path)
    assert accepted_by_cron(line + ending, tmp_path) == (not rejected)


@given(st.binary(), st.booleans())
def test_every_byte_is_kept(data: bytes, system: bool) -> None:
    """Whatever it is: the lines joined are the file, and numbered from 1."""
    crontab = scan(data, system=system)
    assert b"".join(line.raw for line in crontab.lines) == data
    assert [line.number for line in crontab.lines] == list(range(1, len(crontab.lines) + 1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"60 * * * * x\n", "bad minute"), (b"5\xff * * * * x\n", "bad minute"),
        (b"*/4294967295 * * * * x\n", "bad minute"), (b"* 5/2 * * * x\n", "bad hour"),
        (b"* * 0 * * x\n", "bad day-of-month"), (b"* * * smarch * x\n", "bad month"),
        (b"* * * * 8 x\n", "bad day-of-week"), (b"* * * * \n", "bad day-of-week"),
        (b"* * * * * * x\n", "bad command"), (b"@fortnightly x\n", "bad time specifier"),
        (b"* * * * * " + b"x" * 999 + b"\n", "command too long"),
        (b"\r\n", "bad minute"), (b"* * * * * x", "no newline at the end of the file"),
        (b"* * * * * a\0b\n", NUL),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_and_says_why(tmp_path: Path, data: bytes, reason: str) -> None:
    """In cron's own words where it has any; `crontab -n` refuses it too."""
    crontab = scan(b"# first\n\n" + data)
    assert crontab.problems() == [(3, reason)]
    assert b"\0" in data or not accepted_by_cron(data, tmp_path)


def test_more_lines_than_cron_takes(tmp_path: Path) -> None:
    """10,000 are accepted, one more is not."""
    most = b"\n" * 10_000
    for data, accepted in ((most, True), (most + b"\n", False)):
        assert accepted_by_cron(data, tmp_path) == accepted == (not scan(data).problems())
    assert scan(most + b"\n").problems() == [(10_001, "more than 10000 lines")]


@pytest.mark.parametrize("text", ["MAILTO=", " A = ", "'A B'=\t", "A=\r"])
def test_a_variable_without_a_value_is_in_doubt(text: str) -> None:
    """Debian 12 rejects the file, Debian 13 and cronie read an empty value."""
    crontab = scan(f"{text}\n@daily x\n".encode())
    assert crontab.problems() == []
    assert crontab.doubts() == [(1, NO_VALUE)]
    [variable] = crontab.variables
    assert variable.value == b""
    for quoted in ('A=""', "A=''", "A==", "A= '='"):  # quotes are a value for each cron
        assert scan(f"{quoted}\n".encode()).doubts() == []


# What a line says


def test_a_job() -> None:
    """Schedule with single blanks, command as it is written, and where it begins."""
    job = only(b"\t*/5  5#2\t* *  * /bin/x  a\\%b%in \r\n")
    assert isinstance(job, Entry)
    assert job.schedule == "*/5 5#2 * * *"
    assert job.command == b"/bin/x  a\\%b%in \r"
    assert job.raw[job.command_start :] == job.command + b"\n"
    assert job.user is None
    assert [field.text for field in job.fields] == ["*/5", "5", "*", "*", "*"]
    assert job.fields[1].written == "5#2"
    assert not job.is_reboot


def test_a_job_of_a_system_crontab() -> None:
    """The user stands before the command, behind a nickname too."""
    for line in (b"@daily root\t  x y\n", b"0 0 * * * root x y\n"):
        job = only(line, system=True)
        assert isinstance(job, Entry)
        assert (job.user, job.command) == (b"root", b"x y")
    assert isinstance(only(b"@reboot alice x\n", system=True), Entry)


@pytest.mark.parametrize("rest", [b"\n", b"root\n", b"/bin/backup --all\n", b"* x\n", b""])
def test_a_system_crontab_needs_a_user(rest: bytes) -> None:
    """Without one cron takes the next word for the name, or the next line."""
    line = only(b"0 0 * * * " + rest, system=True)
    assert isinstance(line, InvalidLine)
    assert line.reason == "bad username"


def test_blanks_behind_the_user_count() -> None:
    """Cron counts all but one of them as part of the command."""
    assert isinstance(only(b"@daily root " + b"x" * 998 + b"\n", system=True), Entry)
    assert isinstance(only(b"@daily root  " + b"x" * 998 + b"\n", system=True), InvalidLine)
    assert isinstance(only(b"@daily   " + b"x" * 998 + b"\n"), Entry)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (b"A=b", b"A", b"b"), (b" A  =  b c \r", b"A", b"b c"), (b'MAILTO=""', b"MAILTO", b""),
        (b"'A B'=x", b"A B", b"x"), (b"A=\"'x y '\"", b"A", b"x y "), (b"A=b=c", b"A", b"b=c"),
        (b"=x", b"", b"x"),
    ],
)  # fmt: skip
def test_a_variable(line: bytes, name: bytes, value: bytes) -> None:
    """Blanks and quotes around name and value are not part of them."""
    variable = only(line + b"\n")
    assert isinstance(variable, Variable)
    assert (variable.name, variable.value) == (name, value)


def test_variables_hold_for_the_lines_below() -> None:
    """The last setting above a job counts."""
    first, second = (crontab := scan(b"@daily a\nA=1\nA=2\n@daily b\n")).entries()
    assert crontab.environment(first) == {}
    assert crontab.environment(second) == {b"A": b"2"}


# Fields


@pytest.mark.parametrize(
    ("position", "text"), [(number, text) for number, texts in enumerate(GOOD) for text in texts]
)
def test_a_field_is_written_so_that_a_schedule_means_the_same(position: int, text: str) -> None:
    """--schedule takes exactly the values that Debian's cron takes."""
    field = read_field(position, text.encode())
    assert field is not None
    assert field.has_star == text.startswith("*")
    if not field.values:
        assert field.text == ""
        return
    assert field.has_star == field.text.startswith("*")
    fields = ["*"] * 5
    fields[position] = field.text
    read = read_schedule(" ".join(fields))
    values = set((read.minutes, read.hours, read.days, read.months, read.weekdays)[position])
    assert values == ({day % 7 for day in field.values} if position == 4 else field.values)


# What cron makes of a command


@pytest.mark.parametrize(
    ("command", "for_the_shell", "as_input"),
    [
        (b"a b", b"a b", b""), (b"date +\\%F", b"date +%F", b""), (b"cat%x%y", b"cat", b"x\ny\n"),
        (b"cat\\\\%x\\%y%", b"cat\\", b"x%y\n"),
        (b"a\\'b\\", b"a\\'b\\", b""), (b"cat%", b"cat", b""), (b"cat%%\\", b"cat", b"\n\\"),
    ],
)  # fmt: skip
def test_percent_signs(command: bytes, for_the_shell: bytes, as_input: bytes) -> None:
    """As do_command.c has it."""
    assert shell_command(command) == for_the_shell
    assert standard_input(command) == as_input


@given(st.binary())
def test_an_escaped_text_reaches_the_shell_as_it_is(text: bytes) -> None:
    """Whatever it is, and none of it becomes standard input."""
    escaped = text.replace(b"\\", b"\\\\").replace(b"%", b"\\%")
    assert shell_command(escaped) == text
    assert split_command(escaped) == (escaped, None)
