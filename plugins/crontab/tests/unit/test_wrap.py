"""wrap and unwrap: exactly the prefix, for exactly the lines that are meant, and back byte for byte."""

import os
from pathlib import Path

import pytest
from crontabs import (
    EXAMPLES,
    REALISTIC,
    accepted_by_cron,
    commands,
    lines,
    standard_input,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncecron.core.derived_key import derived_key
from oncecron.core.errors import InputError
from oncecron_crontab.cli.files import CrontabFile, Plan, read_source
from oncecron_crontab.cli.warnings import warn_of_missing_store, warn_of_python_home
from oncecron_crontab.firing_times import schedule_of
from oncecron_crontab.percent_sign import CUT, CUT_CURE, shell_command
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import Crontab, Problem, scan
from oncecron_crontab.wrap import Rewritten, WrapSettings, unwrap, wrap

GUARDING = WrapSettings("/usr/bin/oncecron", "Europe/Berlin")
EVERYTHING = GUARDING._replace(only=("*",))
RUN = "/usr/bin/oncecron run"


def wrapped(
    text: str | bytes, *, system: bool = False, guarding: WrapSettings = GUARDING
) -> Rewritten:
    """Return a crontab wrapped."""
    return wrap(scan(text if isinstance(text, bytes) else text.encode(), system=system), guarding)


def line(text: str) -> str:
    """Return what becomes of a command that runs @daily."""
    done = wrapped(f"@daily {text}\n")
    assert done.errors == []
    return done.data.decode().removeprefix("@daily ").removesuffix("\n")


def left(text: str, *, system: bool = False, guarding: WrapSettings = GUARDING) -> list[str]:
    """Return why the lines of a crontab are left as they are; nothing is changed then."""
    done = wrapped(text, system=system, guarding=guarding)
    assert (done.data, done.changed, done.errors) == (text.encode(), 0, [])
    return [reason for _, reason in done.unchanged]


def refused(text: str) -> list[Problem]:
    """Return what is refused; then nothing is changed."""
    done = wrapped(text)
    assert (done.data, done.changed) == (text.encode(), 0)
    return done.errors


# Whatever it is


def assert_undone(original: bytes, *, system: bool = False) -> Crontab:
    """Wrap, and assert all that is promised of any crontab; return the wrapped one."""
    done = wrap(scan(original, system=system), EVERYTHING)
    again = scan(done.data, system=system)
    assert unwrap(again).data == original
    assert wrap(again, EVERYTHING).data == done.data
    assert done.changed == len([raw for raw in done.data.split(b"\n") if b"oncecron run" in raw])
    if done.errors:
        assert done.data == original
    return again


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines(commands()))
def test_unwrap_gives_back_what_was_wrapped(tmp_path: Path, raw: bytes) -> None:
    """Byte for byte; cron accepts it as before; wrapping twice changes nothing; the command is the same to a shell."""
    original = raw + b"\n"
    before = scan(original)
    after = assert_undone(original)
    assert after.problems() == before.problems()
    if accepted_by_cron(original, tmp_path):
        assert accepted_by_cron(b"".join(one.raw for one in after.lines), tmp_path)
    for old, new in zip(before.entries(), after.entries(), strict=True):
        assert (new.schedule, new.command_start) == (old.schedule, old.command_start)
        assert standard_input(new.command) == standard_input(old.command)
        guard = read_prefix(new.command)
        assert guard is None or guard.command == old.command


@settings(max_examples=EXAMPLES)
@given(st.lists(lines(commands()), max_size=5), st.booleans())
def test_unwrap_gives_back_whole_files(raws: list[bytes], system: bool) -> None:
    """Also those with duplicates, with refused lines, with a user's name."""
    assert_undone(b"\n".join(raws), system=system)


@pytest.mark.parametrize("path", REALISTIC, ids=lambda path: path.name)
def test_realistic_crontabs(path: Path, tmp_path: Path) -> None:
    """Cron accepts them as before, and they come back byte for byte."""
    original = path.read_bytes()
    system = path.name.startswith("system-")
    crontab = scan(original, system=system)
    assert crontab.problems() == []
    after = assert_undone(original, system=system)
    wrapped_bytes = b"".join(one.raw for one in after.lines)
    assert accepted_by_cron(original, tmp_path)
    assert accepted_by_cron(wrapped_bytes, tmp_path)
    assert after.problems() == []
    keys = [guard.options["key"] for job in after.entries() if (guard := read_prefix(job.command))]
    assert len(set(keys)) == len(keys)


# The form


def test_a_simple_command_stays_as_it_is() -> None:
    """Behind the lone dashes."""
    text = line("/opt/bill.sh --all 'a b'%input%more")
    key = text.split()[3]
    assert text == (
        f"{RUN} --key {key} --schedule @daily --tz Europe/Berlin -- /opt/bill.sh --all 'a b'%input%more"
    )


def test_a_scheduler_of_other_jobs_is_named() -> None:
    """Until a person has named its key."""
    text = "* * * * * cd /srv/shop && php artisan schedule:run >>/dev/null 2>&1\n"
    [warning] = wrapped(text).warnings
    assert "give long jobs a line of their own" in warning.reason
    assert wrapped(f"# oncecron: key=schedule\n{text}").warnings == []


def test_a_pipe_that_hides_a_failure_is_named() -> None:
    """With the comment that keeps its status, which makes a string of any command."""
    done = wrapped("0 2 * * * mysqldump a | gzip >x\n")
    assert "mysqldump can fail and the run succeeds" in done.warnings[0].reason
    assert (
        "write `# oncecron: pipefail` above it; or set SHELL=/bin/bash" in done.warnings[0].reason
    )
    for command in ("mysqldump a | gzip >x", "mysqldump a"):
        text = f"# oncecron: pipefail\n0 2 * * * {command}\n"
        after = assert_undone(text.encode(), system=False)
        [entry] = after.entries()
        assert entry.command.endswith(f" --pipefail --shell '{command}'".encode())
        assert wrapped(text).warnings == []


def test_what_needs_a_shell_is_quoted_for_it() -> None:
    """Up to the first bare percent sign; what follows is cron's."""
    text = line("cd /app && echo it's 100\\% %in'put%more")
    assert text.endswith(" --shell 'cd /app && echo it'\\''s 100\\% '%in'put%more")
    assert shell_command(text.encode()).endswith(b" --shell 'cd /app && echo it'\\''s 100% '")


def test_fields_and_blanks_of_the_line_stay() -> None:
    """The schedule is the line's, with single blanks; the line's own blanks are kept."""
    done = wrapped(" 0\t2  * *\t*\t /opt/x \n")
    assert done.data.startswith(b" 0\t2  * *\t*\t /usr/bin/oncecron run --key x-")
    assert done.data.endswith(b" --schedule '0 2 * * *' --tz Europe/Berlin -- /opt/x \n")


@pytest.mark.parametrize(
    ("fields", "schedule"),
    [("0 0 * * 5#2", "0 0 * * 5"), ("*/100 * * * *", "*/100 * * * *"), ("22-2,5 * * * *", "5 * * * *"),
     ("*x 0 1 JAN mon", "* 0 1 JAN mon"), ("@midnight", "@midnight"), ("4294967297 0 * * *", "1 0 * * *")],
)  # fmt: skip
def test_a_schedule_is_written_as_cron_reads_it(fields: str, schedule: str) -> None:
    """What `run` would refuse, or read as something else, is put into words that both read alike."""
    (job,) = scan(f"{fields} x\n".encode()).entries()
    assert schedule_of(job) == schedule


def test_the_path_of_the_program_is_quoted_where_it_must_be() -> None:
    """And refused where it cannot stand in a crontab."""
    done = wrapped("@daily x\n", guarding=GUARDING._replace(program="/opt/my tools/oncecron"))
    assert done.data.startswith(b"@daily '/opt/my tools/oncecron' run --key ")
    assert unwrap(scan(done.data)).data == b"@daily x\n"
    for program in ("/opt/a'b/oncecron", "/opt/a%b/oncecron", "/opt/a\\b/oncecron"):
        done = wrapped("@daily x\n", guarding=GUARDING._replace(program=program))
        assert "configuration file" in done.errors[0].reason


# Which lines


def test_what_belongs_to_each_host_is_left() -> None:
    """And every line says why."""
    assert left("@reboot /opt/x\n")[0].startswith("@reboot runs on every host")
    assert left("@daily cd / && run-parts x\n")[0].startswith("run-parts runs on every host")
    assert left("@daily /usr/sbin/anacron -s\n")[0].startswith("anacron runs on every host")
    assert left("@daily oncecron flush\n")[0].startswith("oncecron runs on every host")
    assert left("@daily ONCECRON=off df\nONCECRON=off\n@daily x\n") == ["ONCECRON=off is set"] * 2
    assert left("# oncecron: off\n@daily x\n") == ["`# oncecron: off` is above it"]
    assert left("@daily\n@daily %x\n") == ["it has no command"] * 2
    for never in ("0 0 31 2 *", "0 3 6-1 * 6-1", "0 3 */2 * 6-1", "0 3 * * 6-1", "5-1 3 1 * 6-1"):
        assert "never runs" in left(f"{never} x\n")[0]


def test_an_empty_day_field_leaves_the_days_of_the_other() -> None:
    """Cron runs a line on days that match either of two restricted fields; a falling range is empty."""
    for line, schedule in (("0 3 1 * 6-1", "0 3 1 * *"), ("0 3 20-2 * 6,7", "0 3 * * 6,7")):
        assert f"--schedule '{schedule}'" in wrapped(f"{line} x\n").data.decode()


def test_what_a_guard_would_break_is_left() -> None:
    """With what shows it, and the cure."""
    for command, why, cure in (
        ("/usr/sbin/logrotate /etc/l", "logrotate runs on every host, because each host has its own logs", "key=NAME"),
        ('[ "$(hostname)" = web1 ] && job', "its test of `$(hostname)` binds it to one host", "remove the test"),
        ("job >/dev/null 2>&1 &", "`&` starts the job in the background", "start it in the foreground"),
    ):  # fmt: skip
        (reason,) = left(f"@daily {command}\n")
        assert reason.startswith(why)
        assert cure in reason.partition("; ")[2]


def test_a_comment_does_not_guard_what_a_guard_would_break() -> None:
    """It says that the work of each host is to run on one, no more."""
    assert wrapped("# oncecron: key=x\n@daily apt-get update\n").changed == 1
    for command in ("job &", "[ $HOSTNAME = web1 ] && job", "apt-get update &"):
        (why,) = left(f"# oncecron: key=x\n@daily {command}\n")
        assert "foreground" in why or "its test" in why


def test_what_another_program_writes_is_left() -> None:
    """With the place of the guard, also where the job is in the background; a comment overrules it."""
    block = "# Begin Whenever generated tasks for: x\n{}@daily job\n# End Whenever generated tasks for: x\n"
    (why,) = left(block.format(""))
    assert why.startswith(
        "Whenever writes it, and would overwrite it or add it again; put `oncecron run` where "
    )
    assert wrapped(block.format("# oncecron: key=k\n")).changed == 1
    assert left("#Ansible: x\n@daily apt-get update\n")[0].startswith("apt-get runs on every host")


def test_with_strict_a_line_that_is_left_is_an_error() -> None:
    """Unless a person has decided so."""
    strict = GUARDING._replace(strict=True)
    for text in (
        "@reboot x\n", "@daily apt-get update\n", "@daily x &\n", "0 0 31 2 * x\n", "SHELL=/usr/bin/fish\n@daily x\n",
        "#Ansible: x\n@daily x\n",
    ):  # fmt: skip
        done = wrapped(f"@daily y\n{text}", guarding=strict)
        ((number, why),) = done.errors
        assert (number, why[:10]) == (1 + text.count("\n"), "--strict: ")
        assert (done.data.decode(), done.changed, done.unchanged) == (f"@daily y\n{text}", 0, [])
    decided = (
        "# oncecron: off\n@reboot x\n# oncecron: off\n@daily x &\n@daily ONCECRON=off apt-get update\n"
        "@daily oncecron run x\n@daily\nSHELL=/usr/bin/oncecron-shell\n@daily apt-get update\n"
    )
    done = wrapped(decided, guarding=strict)
    assert (done.errors, len(done.unchanged)) == ([], 6)
    only = strict._replace(only=("y",))
    done = wrapped("@daily y\n@daily apt-get update\n", guarding=only)
    assert (done.errors, done.changed) == ([], 1)


def test_a_comment_guards_what_would_be_left() -> None:
    """Except what has no tick."""
    assert wrapped("# oncecron: key=hourly\n@hourly cd / && run-parts x\n").changed == 1
    assert left("# oncecron: key=x\n@reboot x\n")[0].startswith("@reboot")


def test_another_shell_reads_quotes_in_its_own_way() -> None:
    """Then the line is left; below the next SHELL= it is not."""
    done = wrapped("SHELL=/usr/bin/fish\n@daily a\nSHELL=/bin/bash\n@daily b\n")
    assert (done.changed, [number for number, _ in done.unchanged]) == (1, [2])
    assert left("SHELL=/usr/bin/oncecron-shell\n@daily a\n") == [
        "SHELL=oncecron-shell already runs it through oncecron"
    ]


def test_what_is_guarded_by_hand_is_left() -> None:
    """Also on part of a line."""
    text = "@daily oncecron run --key x -- y\n@daily cd /x && /usr/bin/oncecron run --key x y\n"
    assert left(text) == ["it already has `oncecron run`"] * 2
    text = "@daily oncecron each --key x --items y -- z {}\n@daily cd /x; y | oncecron each --key x z\n"
    assert left(text) == ["it already has `oncecron each`"] * 2
    unwrapped = unwrap(scan(text.encode()))
    assert [why for _, why in unwrapped.unchanged] == [
        "`oncecron each` was written by hand; remove it by hand"
    ] * 2


def test_only() -> None:
    """A text that the command holds, or a pattern of it all; several are alternatives."""
    text = "@daily /opt/bill.sh --all\n@daily /opt/report\n@daily df\n"
    for only, guarded in (
        (("bill",), [1]), (("/opt/*",), [1, 2]), (("*.sh",), []), (("bill", "df"), [1, 3]), (("*",), [1, 2, 3])
    ):  # fmt: skip
        done = wrapped(text, guarding=GUARDING._replace(only=only))
        changed = {
            number for number, raw in enumerate(done.data.split(b"\n"), 1) if b"--key" in raw
        }
        assert changed == set(guarded)
        assert {number for number, _ in done.unchanged} == {1, 2, 3} - changed


# Remarks


def test_a_comment_gives_key_and_options() -> None:
    """Of the line directly below; several add up."""
    done = wrapped(
        "# oncecron: key=bill timeout=1h\n#oncecron: failover retry_delay=1s..2s retries=2\n@daily x\n"
    )
    assert done.data.splitlines()[2] == (
        f"@daily {RUN} --key bill --schedule @daily --tz Europe/Berlin --timeout 1h --failover --retry-delay 1s..2s "
        "--retries 2 -- x"
    ).encode()  # fmt: skip


@pytest.mark.parametrize("given", ["6h", "last"])
def test_a_comment_says_what_is_made_up(given: str) -> None:
    """The schedule of the line says what was missed."""
    done = wrapped(f"# oncecron: key=sync catch-up={given}\n@daily x\n")
    options = f"--key sync --schedule @daily --tz Europe/Berlin --catch-up {given}"
    assert done.data.endswith(f"@daily {RUN} {options} -- x\n".encode())


def test_a_comment_may_do_without_a_tick() -> None:
    """Then neither schedule nor zone is written."""
    done = wrapped("# oncecron: key=sync no-tick min-gap=1h\n@daily x\n")
    assert done.data.endswith(f"@daily {RUN} --key sync --no-tick --min-gap 1h -- x\n".encode())
    assert unwrap(scan(done.data)).data.endswith(b"\n@daily x\n")


@pytest.mark.parametrize(
    ("remark", "told"),
    [
        ("", "has no options"), ("kee=x", "unknown option 'kee'"), ("key", "write key=VALUE"),
        ("key=a b", "unknown option 'b'"), ("key=ä", "1 to 200 of"), ("key=a key=b", "given twice"),
        ("key=--", "takes for an option"), ("key=-v", "takes for an option"),
        ("off key=a", "cannot be combined"), ("timeout=soon", "timeout: "),
        ("failover=true", "failover takes no value"),
        ("min-gap=1h", "--min-gap: works without --schedule"),
        ("no-retry-on=3", "--no-retry-on: needs --retries"),
        ("key=k shards=2 no-tick", "shards need a tick to complete"),
        ("shards=2 on-store-error=run", "no host knows which shard"),
        ("failover on-store-error=run", "would start beside"),
        ("failover retries=0", "use --retries 1 or more"),
        ("no-tick starting-deadline=1h", "counts from a scheduled time"),
        ("no-tick catch-up=1h", "needs --schedule"),
        ("catch-up=often", "expected a number and a unit (ms, s, m, h, d), such as 90s, 15m or 1h30m; or last"),
        ("schedule=@daily", "comes from the line"),
        ("tick=x", "is not allowed here"),
        ("store=postgresql://u:%40@h/d", "configuration file"),
    ],
)  # fmt: skip
def test_a_comment_that_cannot_be_read_is_refused(remark: str, told: str) -> None:
    """With its line and what is wrong."""
    (problem,) = refused(f"\n# oncecron: {remark}\n@daily x\n")
    assert problem.number in (2, 3)
    assert told in problem.reason


@pytest.mark.parametrize("between", ["\n", "A=b\n", "#@daily y\n", "# text\n"])
def test_a_comment_above_no_command_is_refused(between: str) -> None:
    """It may have been meant for a line that was commented out: never for the next one."""
    for text in (
        f"# oncecron: key=y\n{between}@daily x\n",
        f"@daily x\n# oncecron: off\n{between}",
    ):
        (problem,) = refused(text)
        assert "no command follows" in problem.reason


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("timeout=1h", "timeout=1h", False),
        ("key=a failover", "key=a failover", False),
        ("key=a no-tick", "no-tick key=a", False),
        ("timeout=1h", None, False), ("timeout=1h", "timeout=2h", True),
        ("timeout=1h", "key=a timeout=1h", True),
        ("timeout=1h", "retries=2", True), ("key=a timeout=1h", "key=a", True), ("key=a", "off", True),
        ("key=a", "no-tick key=a", True),
    ],
)  # fmt: skip
def test_a_comment_that_a_wrapped_line_does_not_follow_is_told(
    before: str, after: str | None, told: bool
) -> None:
    """The line stays as it is."""
    data = wrapped(f"# oncecron: {before}\n@daily x\n").data
    line = data.splitlines(keepends=True)[1]
    edited = (f"# oncecron: {after}\n".encode() if after else b"\n") + line
    done = wrapped(edited)
    assert (done.data, done.unchanged, done.errors) == (edited, [], [])
    assert [number for number, _ in done.warnings] == [2] * told
    assert all("then `oncecron crontab wrap`" in reason for _, reason in done.warnings)


# Keys


def keys_of(text: str) -> list[str]:
    """Return the keys of the lines of a crontab, wrapped."""
    return [
        guard.options["key"]
        for job in scan(wrapped(text).data).entries()
        if (guard := read_prefix(job.command))
    ]


def test_the_same_command_twice_has_two_keys() -> None:
    """Each with what tells it apart, whatever the order of the lines; alone it has the one of oncecron-shell."""
    lines = ["0 2 * * * x\n", "0 3 * * * x\n", "0 3 * * * x%in\n"]
    keys = keys_of("".join(lines))
    plain = derived_key(b"x")
    assert len(set(keys)) == 3
    assert all(key.startswith(f"{plain}.") for key in keys)
    assert keys_of("".join(reversed(lines))) == keys[::-1]
    assert keys_of(lines[1] + lines[0]) == keys[1::-1]
    assert keys_of(lines[0]) == [plain]
    # cron runs the very same line twice, too.
    assert keys_of(lines[1] * 2) == [keys[1], f"{keys[1]}-2"]


@pytest.mark.parametrize(
    "more", ["@reboot x\n", *(f"# oncecron: {remark}\n@daily x\n" for remark in ("off", "key=k"))]
)
def test_a_line_that_has_no_derived_key_changes_none(more: str) -> None:
    """One host may have it and another not."""
    line = "0 2 * * * x\n"
    for text in (line + more, more + line):
        assert derived_key(b"x") in keys_of(text)


def test_a_wrapped_line_keeps_its_key() -> None:
    """And what comes beside it gets the one that it would have among others, above or below."""
    first = wrapped("0 2 * * * x\n").data.decode()
    new = keys_of("0 2 * * * x\n0 3 * * * x\n")[1]
    assert keys_of(first + "0 3 * * * x\n") == [derived_key(b"x"), new]
    assert keys_of("0 3 * * * x\n" + first) == [new, derived_key(b"x")]
    two = wrapped("0 2 * * * x\n0 4 * * * x\n").data.decode().splitlines(keepends=True)
    assert keys_of("0 3 * * * x\n" + two[0])[0] == new


def test_a_key_of_a_comment_or_of_a_wrapped_line_is_taken() -> None:
    """Wherever in the file it is."""
    first = wrapped("0 2 * * * x\n")
    key = first.data.split()[8].decode()
    done = wrapped(b"0 3 * * * x\n" + first.data)
    assert done.data.splitlines()[0].split()[8].decode().startswith(key + ".")
    done = wrapped(f"0 3 * * * x\n# oncecron: key={key}\n0 2 * * * y\n")
    assert done.data.splitlines()[0].split()[8].decode().startswith(key + ".")


def test_two_commands_under_one_key_are_told() -> None:
    """It is done, since somebody wrote so, but only one of them runs at a tick."""
    done = wrapped(
        "# oncecron: key=k\n@daily x\n# oncecron: key=k\n@daily y\n# oncecron: key=k\n@daily x\n"
    )
    assert done.changed == 3
    assert done.unchanged == []
    assert [(number, "key of another command" in reason) for number, reason in done.warnings] == [
        (4, True)
    ]


def test_a_prefix_of_the_crontab_comes_first() -> None:
    """For users whose commands are alike; one that is no key's is refused."""
    assert b" --key alice.x-" in wrapped("ONCECRON_KEY_PREFIX=alice.\n@daily x\n").data
    assert "ONCECRON_KEY_PREFIX" in refused("ONCECRON_KEY_PREFIX='a b'\n@daily x\n")[0].reason


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_the_same_line_below_two_home_directories_has_two_keys(user: str) -> None:
    """In the crontabs of two users, and in a system crontab; a prefix, also an empty one, takes the user's place."""
    guarding = GUARDING._replace(user=user)
    line = b"@daily ~/x\n"
    key = derived_key(b"~/x", "").encode()
    done = wrap(scan(line), guarding).data
    assert b" --key %b.%b " % (user.encode(), key) in done
    system = wrap(
        scan(b"# oncecron: timeout=1h\n@daily %b ~/x\n" % user.encode(), system=True), GUARDING
    )
    assert b" --key %b.%b " % (user.encode(), key) in system.data
    assert b" --key " + key in wrap(scan(b'ONCECRON_KEY_PREFIX=""\n' + line), guarding).data
    assert b" --key y." + key in wrap(scan(b"ONCECRON_KEY_PREFIX=y.\n" + line), guarding).data


# What cannot be


def test_a_line_that_would_be_too_long_is_refused_with_the_cure() -> None:
    """998 bytes are cron's; the command goes into the configuration file."""
    longest = 998 - len(line("x" * 500)) + 500
    assert wrapped(f"@daily {'x' * longest}\n").changed == 1
    ((number, reason),) = refused(f"\n@daily {'x' * (longest + 1)}%in\n")
    assert number == 2
    assert f"would have {999 + 3} bytes" in reason
    assert "command = '...'" in reason
    assert f"in [job.{'x' * 40}-" in reason
    assert 'in [job."x.sh-' in refused(f"@daily x.sh {'x' * 990}\n")[0].reason
    assert reason.endswith("%in")
    cure = reason.rpartition("write here: ")[2]
    assert scan(f"@daily {cure}\n".encode()).problems() == []
    assert " --schedule @daily --tz Europe/Berlin" in cure


@pytest.mark.parametrize(
    ("command", "told"),
    [("tool $(date +%F)", True), ("date -u +%F", True), ("tool $(date +\\%F)", False), ("mail root%Hi", False)],
)  # fmt: skip
def test_a_percent_sign_that_ends_the_command_is_told_as_by_lint(command: str, told: bool) -> None:
    """The line is wrapped as cron reads it."""
    done = wrapped(f"@daily {command}\n")
    assert (done.changed, done.errors) == (1, [])
    assert done.warnings == [(1, f"{CUT}; {CUT_CURE}")] * told


def test_a_variable_without_a_value_is_no_reason_to_refuse() -> None:
    """Debian 13 and cronie accept it; that Debian 12 does not is said."""
    done = wrapped("MAILTO=\n@daily x\n")
    assert (done.changed, done.errors) == (1, [])
    [(number, warning)] = done.warnings
    assert number == 1
    assert warning.startswith("Debian 12's cron rejects a file")


def test_a_file_that_cron_refuses_is_refused() -> None:
    """Every line of it is named."""
    assert refused("@daily x\n* * * * x\n@dayly y") == [
        Problem(2, "Debian's cron cannot read this line, and rejects the file: bad day-of-week"),
        Problem(3, "Debian's cron cannot read this line, and rejects the file: bad time specifier"),
        Problem(
            3,
            "Debian's cron cannot read this line, and rejects the file: no newline at the end of the file",
        ),
    ]


# Unwrap


@pytest.mark.parametrize(
    "command",
    [
        "oncecron run --key x -- y", f"{RUN} --key x -- y", f"{RUN} --key x --schedule @daily -- y",
        f"{RUN} --schedule @daily --key x --tz UTC -- y", f"{RUN} --key x --schedule @daily --tz UTC -- cd y",
        f"{RUN} --key x --schedule @daily --tz UTC --shell 'y'",
        f"{RUN} --key x --schedule @daily --tz UTC --shell 'a;b' c",
        f"{RUN}  --key x --schedule @daily --tz UTC -- y", f"{RUN} --key x --schedule=@daily --tz UTC -- y",
        f"{RUN} --key x --schedule @daily --tz UTC", f"{RUN} --key 'x' --schedule @daily --tz UTC -- y",
        f"cd /x && {RUN} --key x --schedule @daily --tz UTC -- y",
    ],
)  # fmt: skip
def test_a_guard_that_wrap_has_not_written_is_left(command: str) -> None:
    """And named."""
    text = f"@daily {command}\n"
    done = unwrap(scan(text.encode()))
    expected = text
    assert (done.data.decode(), done.changed) == (expected, 0)
    assert len(done.unchanged) == 1


def test_unwrap_takes_any_path_and_any_option() -> None:
    """What another installation wrote, with options of comments that are gone since."""
    text = "@daily /opt/venv/bin/oncecron run --key x --schedule '0 2 * * *' --tz UTC --timeout 1h -- y z\n"
    assert unwrap(scan(text.encode())).data == b"@daily y z\n"


def test_unwrap_does_what_it_can_in_a_file_that_cron_refuses() -> None:
    """It is the way back."""
    good = wrapped("@daily x\n").data
    done = unwrap(scan(good + b"* nonsense\n"))
    assert done.data == b"@daily x\n* nonsense\n"
    assert [problem.number for problem in done.unchanged] == [2]


def test_a_test_of_the_host_that_stays_is_named() -> None:
    """Unless a comment has another test for --only-if."""
    line = "@daily [ -x '/opt/a b' ] && '/opt/a b'\n"
    done = wrap(scan(line.encode()), GUARDING)
    assert done.changed == 1
    [(number, warning)] = done.warnings
    assert number == 1
    assert "`[ -x '/opt/a b' ]` stays in the command" in warning
    named = wrap(scan(f"# oncecron: key=a only-if=/opt/has-a\n{line}".encode()), GUARDING)
    assert (named.changed, named.warnings) == (1, [])


# Files of other users


@pytest.mark.parametrize(
    ("kind", "warns"),
    [
        *(("missing", True), ("empty", True), ("store", False)),
        *(("pipe", False), ("endless", False), ("large", False)),
    ],
)
def test_the_configuration_of_another_user_is_not_read_without_a_bound(
    kind: str, warns: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Root wraps it: neither a pipe, nor a device, nor a large file of theirs stops that. `run` says what is wrong."""
    path = tmp_path / "config.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind != "missing":
        path.write_text('store = "local"\n' if kind == "store" else "")
    if kind == "large":
        os.truncate(path, 1 << 40)  # with a hole
    text = f"ONCECRON_CONFIG={path}\n@daily root /bin/a\n".encode()
    source = CrontabFile("/etc/crontab", text, None)
    crontab = scan(text, system=True)
    warn_of_missing_store(Plan(source, crontab, wrap(crontab, EVERYTHING)))
    assert ("no store is configured for root" in capfd.readouterr().err) == warns


@pytest.mark.parametrize(
    ("first", "above", "warns"),
    [
        *(("#!/opt/bin/python3", "PYTHONHOME=/x", True), ("#!/opt/bin/python3 -E", "PYTHONHOME=/x", False)),
        *(("#!/usr/bin/python3 -IS", "PYTHONHOME=/x", False), ("\x7fELF", "PYTHONHOME=/x", False)),
        *(("#!/opt/bin/python3", "PYTHONHOME=", False), ("#!/opt/bin/python3", "PYTHONPATH=/x", False)),
    ],
)  # fmt: skip
def test_a_variable_that_stops_the_program_is_reported(
    first: str, above: str, warns: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, with a line that mends its script; where that heeds no variable, there is nothing to say."""
    script = tmp_path / "oncecron"
    script.write_text(f"{first}\nmain()\n")
    script.chmod(0o755)
    text = f"{above}\n@daily /bin/a\n@daily /bin/b\n".encode()
    crontab = scan(text)
    source = CrontabFile("the crontab of ann", text, None, user="ann")
    settings = EVERYTHING._replace(program=str(script))
    warn_of_python_home(Plan(source, crontab, wrap(crontab, settings)))
    said = capfd.readouterr().err
    assert ("the crontab of ann, line 2: PYTHONHOME stops oncecron itself; " in said) == warns
    assert said.endswith(f"`sed -i '1s/$/ -E/' {script}`\n") == warns
    assert said.count("\n") == warns


def test_a_crontab_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file, and on standard input."""
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(InputError, match="large is too large for a crontab: more than 16 MiB"):
        read_source([str(path)])
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(InputError, match="standard input is too large for a crontab"):
            read_source(["-"])
