"""What wrap makes of one crontab for different crons: the time zone, the percent sign, and which cron a host has."""

import os
import shlex
from pathlib import Path

import pytest
from crontabs import EXAMPLES, commands, lines
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncecron.host import local_time
from oncecron.host.local_time import canonical, find_zone
from oncecron_crontab.cli import wrap as wrap_command
from oncecron_crontab.crons import CRONS, Cron
from oncecron_crontab.installed_cron import installed_cron
from oncecron_crontab.lint import LintedCrontab, lint
from oncecron_crontab.lint.line import linted_entries
from oncecron_crontab.percent_sign import shell_command, split_command
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import JOINED, MARK, NUL, RETURN, WIDE, Entry, scan
from oncecron_crontab.system_files import named_user
from oncecron_crontab.wrap import Rewritten, WrapSettings, unwrap, wrap

HOST_ZONE = "Europe/Berlin"
TOKYO = "CRON_TZ=Asia/Tokyo\n0 0 * * * /opt/x\n"


def wrapped(text: str, cron: str | None, *, zone_given: bool = False) -> Rewritten:
    """Return a crontab wrapped for a cron, None for one that is not known."""
    known = CRONS[cron] if cron else None
    options = WrapSettings("/bin/oncecron", HOST_ZONE, (), known, zone_given)
    return wrap(scan(text.encode(), cron=known or CRONS["debian"]), options)


def zones(text: str, cron: str | None, *, zone_given: bool = False) -> list[str]:
    """Return the time zones of the wrapped lines."""
    done = wrapped(text, cron, zone_given=zone_given)
    assert done.errors == []
    prefixes = [read_prefix(entry.command) for entry in scan(done.data).entries()]
    return [prefix.options["tz"] for prefix in prefixes if prefix]


# The time zone


@pytest.mark.parametrize("cron", ["cronie", "systemd-cron", "supercronic"])
def test_a_cron_that_reads_cron_tz_fires_in_that_zone(cron: str) -> None:
    """So the tick is of that zone too, though another zone is given for the rest."""
    assert zones(TOKYO, cron) == zones(TOKYO, cron, zone_given=True) == ["Asia/Tokyo"]


def test_cron_tz_counts_for_the_lines_below_it() -> None:
    """The last one above a line; an empty one gives cron's own zone back."""
    text = "@daily a\nCRON_TZ=Asia/Tokyo\n@daily b\nCRON_TZ=UTC\n@daily c\nCRON_TZ=''\n@daily d\n"
    assert zones(text, "cronie") == [HOST_ZONE, "Asia/Tokyo", "UTC", HOST_ZONE]


def test_supercronic_takes_the_last_cron_tz_for_the_whole_file() -> None:
    """It reads the file first and plans then."""
    text = "@daily a\nCRON_TZ=UTC\n@daily b\nCRON_TZ=Asia/Tokyo\n"
    assert zones(text, "supercronic") == ["Asia/Tokyo", "Asia/Tokyo"]


def test_systemd_cron_reads_tz_as_well() -> None:
    """Where it is a variable of the job alone for every other cron."""
    text = "TZ=Asia/Tokyo\n0 0 * * * a\n"
    assert zones(text, "systemd-cron") == ["Asia/Tokyo"]
    for cron in sorted(CRONS.keys() - {"systemd-cron"}):
        assert zones(text, cron) == [HOST_ZONE]


@pytest.mark.parametrize("cron", ["debian", "busybox"])
def test_a_cron_that_does_not_read_cron_tz_fires_in_its_own_zone(cron: str) -> None:
    """That the variable has no effect is said, with its line."""
    assert zones(TOKYO, cron) == [HOST_ZONE]
    [(number, warning)] = wrapped(TOKYO, cron).warnings
    assert number == 1
    assert warning.startswith(f"{CRONS[cron].title} ignores CRON_TZ")


def test_an_unknown_cron_may_read_cron_tz_so_the_line_is_refused() -> None:
    """A guess would lose the runs of every host; a person who gives the zone or the cron knows."""
    done = wrapped(TOKYO, None)
    assert done.data == TOKYO.encode()
    [(number, error)] = done.errors
    assert number == 2
    assert "--cron" in error
    assert "--tz" in error
    assert zones(TOKYO, None, zone_given=True) == [HOST_ZONE]
    assert zones("@daily /opt/x\n", None) == [HOST_ZONE]


def test_a_zone_that_does_not_exist_is_refused() -> None:
    """Cronie would fire in UTC, without a word."""
    [(number, error)] = wrapped("CRON_TZ=Mars/Base\n@daily x\n", "cronie").errors
    assert number == 2
    assert error.startswith("CRON_TZ: unknown time zone 'Mars/Base'")


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Universal"])
def test_utc_has_several_names(name: str) -> None:
    """They are one zone, and need no tz database."""
    assert canonical(name) == "UTC"
    assert find_zone(name) is None
    assert canonical("Europe/Berlin") == "Europe/Berlin"


@pytest.mark.parametrize(("of_files", "warned"), [("Etc/UTC", False), ("Asia/Tokyo", True)])
def test_two_names_of_utc_are_no_doubt(
    of_files: str,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Containers have the one in $TZ and the other in /etc/localtime."""
    (tmp_path / "localtime").symlink_to(f"/usr/share/zoneinfo/{of_files}")
    monkeypatch.setattr(local_time, "_LOCALTIME", str(tmp_path / "localtime"))
    monkeypatch.setenv("TZ", "UTC")
    assert wrap_command.host_zone_of_cron() == "UTC"
    assert ("but the zone of this host is" in capfd.readouterr().err) == warned


# The percent sign


@pytest.mark.parametrize(
    ("written", "by_cron"),
    [
        ("date +%F", {"debian": "date +", "cronie": "date +", "busybox": "date +%F"}),
        ("date +\\%F", {"debian": "date +%F", "cronie": "date +%F", "supercronic": "date +\\%F"}),
        ("echo a\\\\b", {"debian": "echo a\\b", "cronie": "echo a\\\\b", "busybox": "echo a\\\\b"}),
        ("echo \\\\%x", {"debian": "echo \\", "cronie": "echo \\\\", "systemd-cron": "echo \\%x"}),
        ("echo 5\\%%x", {"systemd-cron": "echo 5%", "supercronic": "echo 5\\%%x"}),
        ("echo %x", {"systemd-cron": "echo ", "supercronic": "echo %x"}),
    ],
)
def test_what_the_shell_gets(written: str, by_cron: dict[str, str]) -> None:
    """As each cron's own source says."""
    for cron, text in by_cron.items():
        assert shell_command(written.encode(), CRONS[cron].percent) == text.encode(), cron


@settings(max_examples=EXAMPLES)
@given(lines(commands()), st.sampled_from(sorted(CRONS)))
@example(b"@daily [ -d sub ] && rec p", "supercronic")
@example(b"@daily [ -d sub ] && rec $X%in", "debian")
def test_a_wrapped_command_is_the_same_for_each_cron(raw: bytes, name: str) -> None:
    """The command and its input are those of before, and unwrap restores the line without knowing the cron."""
    cron = CRONS[name]
    settings = WrapSettings("/bin/oncecron", HOST_ZONE, (), cron)
    done = wrap(scan(raw + b"\n", cron=cron), settings)
    assert unwrap(scan(done.data)).data == raw + b"\n"
    assert wrap(scan(done.data, cron=cron), settings).changed == 0
    lines = (scan(data, cron=cron).entries() for data in (raw + b"\n", done.data))
    for before, after in zip(*lines, strict=True):
        if done.changed:
            assert_same_to_cron(before, after, cron)


WORDS = (
    "*", "0", "5", "*/2", "22-2", "0~30", "L", "15W", "5#2", "MON-FRI", "sun", "jan", "?", "2027", "-*", "1,,3",
    "60", "7", "@weekly",
)  # fmt: skip
ENDS = (
    "/opt/x", "/opt/x -q # a", "cd /a && b", "-n /opt/x", "ID=a /opt/x", "", "x\r", "x \\", "root /opt/x",
    "date +%F",
)  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8),
    st.sampled_from(ENDS),
    st.sampled_from(sorted(CRONS)),
    st.sampled_from(
        ["", "# oncecron: off\n", "# oncecron: no-tick\n", "# oncecron: key=k timeout=1h\n"]
    ),
)
@example(["0", "0", "9", "*", "*", "MON-FRI", "*"], "/opt/x", "supercronic", "")
def test_no_line_of_any_cron_is_lost(words: list[str], end: str, name: str, above: str) -> None:
    """Whatever it means to the cron: wrap takes or refuses it, unwrap restores it without the cron, lint reads it."""
    cron, data = CRONS[name], f"{above}{' '.join([*words, end])}\n@daily x\n".encode()
    crontab = scan(data, cron=cron)
    assert b"".join(line.raw for line in crontab.lines) == data
    named_user(crontab, lambda _: False, lambda *_: True)
    done = wrap(crontab, WrapSettings("/bin/oncecron", HOST_ZONE, (), cron))
    assert done.data == data or not done.errors
    assert unwrap(scan(done.data)).data == data
    for each in (data, done.data):
        lint([LintedCrontab("crontab", scan(each, cron=cron))], cron=cron)
    for entry in scan(done.data, cron=cron).entries():
        prefix = read_prefix(entry.command)
        if prefix and "schedule" in prefix.options:
            local_time.scheduled_tick(prefix.options["schedule"], "UTC", 0)


def assert_same_to_cron(before: Entry, after: Entry, cron: Cron) -> None:
    """Assert that a wrapped line passes on what the line before did."""
    old, rest = split_command(before.command, cron.percent)
    _, rest_after = split_command(after.command, cron.percent)
    assert rest_after == rest
    text = shell_command(after.command, cron.percent).decode("latin-1")
    command = shell_command(before.command, cron.percent).decode("latin-1")
    string = text.partition(" --shell ")[2]
    assert shlex.split(string) == [command] if string else text.endswith(f" -- {command}"), old


def test_the_key_is_that_of_the_command_that_the_shell_gets() -> None:
    """With `oncecron-shell` it is the same: it sees nothing else."""
    keys = {cron: wrapped("0 0 * * * date +\\%F\n", cron).data.split()[8] for cron in CRONS}
    assert keys["debian"] == keys["cronie"] == keys["systemd-cron"]
    assert keys["busybox"] == keys["supercronic"]
    assert keys["debian"] != keys["busybox"]


@pytest.mark.parametrize("name", CRONS)
@pytest.mark.parametrize("command", ["date +\\%F", "echo a\\\\b", "echo 5\\%%x"])
def test_lint_derives_the_key_of_wrap(command: str, name: str) -> None:
    """Below oncecron-shell and with `--key auto`, whatever a percent sign means to the cron."""
    key = wrapped(f"0 0 * * * {command}\n", name).data.split()[8].decode()
    text = f"SHELL=/bin/oncecron-shell\n0 0 * * * {command}\n"
    source = LintedCrontab("crontab", scan(text.encode(), cron=CRONS[name]))
    [line] = linted_entries(source, {}, CRONS[name])
    assert [each.key for each in line.invocations] == [key]


@pytest.mark.parametrize("name", CRONS)
def test_lint_reads_percent_signs_as_the_cron_does(name: str) -> None:
    """Where a percent sign is a letter, it ends no command, and no two lines differ by what is behind it."""
    text = "".join(
        f"0 0 * * * {command}\n" for command in ("echo 'a%b'", "cat%one", "cat%two", "cat%one")
    )
    found = lint(
        [LintedCrontab("crontab", scan(text.encode(), cron=CRONS[name]))], cron=CRONS[name]
    )
    kinds = [(each.line, each.finding) for each in found]
    cut = [(1, "percent")] if CRONS[name].percent.unescaped else []
    assert kinds == [*cut, (4, "duplicate")]


@pytest.mark.parametrize("command", ["date +%F", "date +\\%F", "sed 's/\\\\//'"])
def test_a_line_that_two_crons_read_differently_needs_the_cron(command: str) -> None:
    """What is right for one breaks the command for the other."""
    text = f"@daily x\n@daily {command}\n"
    done = wrapped(text, None)
    assert done.data == text.encode()
    [(number, error)] = done.errors
    assert number == 2
    assert "name the cron with --cron" in error
    assert wrapped(text, "cronie").changed == 2
    assert wrapped("@daily echo '\\n' | cat\n", None).changed == 1


# The days


def schedules(text: str, cron: str) -> list[str]:
    """Return the schedules of the wrapped lines."""
    done = wrapped(text, cron)
    assert done.errors == []
    known = CRONS[cron]
    prefixes = [read_prefix(entry.command) for entry in scan(done.data, cron=known).entries()]
    return [prefix.options["schedule"] for prefix in prefixes if prefix]


@pytest.mark.parametrize(
    ("cron", "fields", "schedule"),
    [
        ("supercronic", "0 0 9 * * MON-FRI *", "0 9 * * MON-FRI"),
        ("supercronic", "0 9 * * MON-FRI *", "0 9 * * MON-FRI"),
        ("supercronic", "0 9 ? * monday", "0 9 * * 1"), ("supercronic", "5/20 * * * *", "5,25,45 * * * *"),
        ("supercronic", "0 9 */2 * 1", "0 9 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1"),
        ("busybox", "0 9 */10 * *", "0 9 10,20,30 * *"),
        ("busybox", "0 22-2 * * fri-mon", "0 0-2,22-23 * * 0-1,5-6"),
        ("cronie", "-*/5 * * * *", "*/5 * * * *"),
        ("systemd-cron", "@weekly", "0 0 * * 1"), ("systemd-cron", "@Quarterly", "0 0 1 1,4,7,10 *"),
        ("systemd-cron", "0 9 * * sun", "0 9 * * *"), ("systemd-cron", "0 9 * * fri-sun", "0 9 * * fri-sun"),
    ],
)  # fmt: skip
def test_the_schedule_is_what_the_cron_reads(cron: str, fields: str, schedule: str) -> None:
    """In fields that `run` understands; as it is written where both read the same."""
    if fields.endswith("fri-sun"):
        schedule = "0 9 * * 5-7"
    [found] = schedules(f"{fields} /opt/x\n", cron)
    assert found == schedule
    local_time.scheduled_tick(found, "UTC", 0)
    line = wrapped(f"{fields} /opt/x\n", cron).data
    assert line.startswith(f"{fields} /bin/oncecron run --key x-".encode())
    assert unwrap(scan(line)).data == f"{fields} /opt/x\n".encode()


@pytest.mark.parametrize(
    ("cron", "fields", "shown"),
    [
        ("supercronic", "30 0 9 * * MON-FRI *", "'30'"), ("supercronic", "0 0 9 * * * 2027", "'2027'"),
        ("supercronic", "0 9 L * *", "'L'"), ("supercronic", "0 9 15W * *", "'15W'"),
        ("supercronic", "0 9 * * 5#2", "'5#2'"), ("supercronic", "0 9 * * FRIL", "'FRIL'"),
        ("cronie", "0~30 9 * * *", "'0~30'"), ("systemd-cron", "0 9 L * *", "'L'"),
        ("systemd-cron", "0 9 * * 5L", "'5L'"),
        ("systemd-cron", "0 9 1 * 1", "both day fields"),
    ],
)  # fmt: skip
def test_what_no_schedule_means_is_refused_with_the_cure(
    cron: str, fields: str, shown: str
) -> None:
    """The crontab is left byte for byte; a comment of the user leaves the line out, or its tick."""
    text = f"@hourly a\n{fields} /opt/x\n"
    done = wrapped(text, cron)
    assert done.data == text.encode()
    [(number, error)] = done.errors
    assert number == 2
    assert error.startswith(f"{CRONS[cron].title} takes this line, and ")
    assert shown in error
    assert error.endswith("write other fields, or `# oncecron: no-tick` above the line")
    above = text.replace("/opt/x", "/opt/y").replace(fields, f"# oncecron: {{}}\n{fields}")
    assert wrapped(above.format("off"), cron).changed == 1
    assert wrapped(above.format("no-tick"), cron).changed == 2


@pytest.mark.parametrize(
    ("cron", "line", "ignored"),
    [
        ("busybox", "0 3 * * 7", False), ("busybox", "60 3 * * *", False),
        ("systemd-cron", "0 3 1 jan *", True),
        ("cronie", "0 3 * * 5#2", True), ("supercronic", "@reboot", False),
        ("supercronic", "0 3 * * 5-7", False),
        ("debian", "0 3 ? * *", False),
    ],
)  # fmt: skip
def test_a_line_that_the_cron_cannot_read_is_named(cron: str, line: str, ignored: bool) -> None:
    """Where the cron only ignores it, the others are wrapped; `# oncecron: off` leaves it to the user."""
    text = f"0 4 * * * a\n{line} /opt/x\n"
    done = wrapped(text, cron)
    [(number, reason)] = done.unchanged if ignored else done.errors
    assert (number, done.changed) == (2, int(ignored))
    assert ("cron" if cron == "debian" else CRONS[cron].title) in reason
    assert CRONS[cron].bad_line in reason
    off = f"0 4 * * * a\n# oncecron: off\n{line} /opt/x\n"
    assert (wrapped(off, cron).changed, wrapped(off, cron).errors) == (1, [])
    source = LintedCrontab("crontab", scan(text.encode(), cron=CRONS[cron]))
    assert [(each.line, each.finding) for each in lint([source], cron=CRONS[cron])] == [
        (2, "invalid")
    ]


def test_what_is_not_yet_the_command_is_refused() -> None:
    """Oncecron before it would be a part of the schedule, and no host would run anything."""
    line = "0 2 * * * -n /opt/x"
    [(number, error)] = wrapped(f"{line}\n", "cronie").errors
    assert number == 1
    assert error.startswith("cronie does not read the first word")
    assert wrapped(f"{line}\n", "debian").changed == 1


@pytest.mark.parametrize(
    "line", ["0 2 * * * 2027 /opt/x", "0 0 */2 * *  x", "0 0 1 * 1 x", "@weekly x", "0 3 * * sun x"]
)
def test_fields_that_two_crons_read_differently_need_the_cron(line: str) -> None:
    """What is Tuesday for one is an even day for another."""
    [(number, error)] = wrapped(f"{line}\n", None).errors
    assert (number, "name the cron with --cron" in error) == (1, True)
    assert wrapped("0 3 * * 1 x\n@daily y\n@reboot z\n", None).changed == 2


def test_a_variable_that_moves_nicknames_is_refused() -> None:
    """For systemd-cron, which starts them so many minutes or hours later."""
    text = "DELAY=5\n0 0 * * * /opt/x\n@daily /opt/y\n"
    [(number, error)] = wrapped(text, "systemd-cron").errors
    assert (number, error.partition(";")[0]) == (
        3,
        "DELAY moves the time of nicknames for systemd-cron",
    )
    assert wrapped(text, "cronie").changed == 2


def test_busybox_ends_a_command_at_the_first_hash() -> None:
    """Also within quotes: so the quotes that wrap adds are closed before it."""
    text = "0 2 * * * echo a | cat # daily\n0 3 * * * echo b#c\n"
    done = wrapped(text, "busybox")
    first, second = done.data.splitlines()
    assert first.endswith(b"--shell 'echo a | cat '# daily")
    assert second.endswith(b" --shell 'echo b'#c")
    assert unwrap(scan(done.data)).data == text.encode()
    source = LintedCrontab("crontab", scan(b"0 2 * * * echo 'a#b'\n", cron=CRONS["busybox"]))
    assert [each.finding for each in lint([source], cron=CRONS["busybox"])] == ["quote"]


def test_busybox_joins_a_line_with_the_next_one() -> None:
    """After a backslash, also of a comment; a prefix in the second one would be an argument of the first."""
    for text in ("0 2 * * * a \\\n0 3 * * * b\n", "# old \\\n0 3 * * * b\n"):
        done = wrapped(text, "busybox")
        assert [problem.reason for problem in done.errors] == [JOINED, JOINED]
        assert wrapped(text, "debian").errors == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xef\xbb\xbf0 2 * * * x\n", MARK),
        (b"\xef\xbb\xbf# comment\n0 2 * * * x\n", MARK),
        (b"\xef\xbb\xbfSHELL=/bin/bash\n0 2 * * * x\n", MARK),
        ("\ufeff0 2 * * * x\n0 3 * * * y\n".encode("utf-16-le"), WIDE),
        (b"0 2 * * * a\0b\n", NUL),
    ],
)
@pytest.mark.parametrize("cron", CRONS)
def test_an_encoding_that_no_cron_reads_is_named_once(cron: str, data: bytes, reason: str) -> None:
    """With the cure, and not as a bad minute of the first line."""
    crontab = scan(data, cron=CRONS[cron])
    [(number, why)] = wrap(crontab, WrapSettings("/bin/oncecron", HOST_ZONE)).errors
    assert (number, why) == (1, reason)
    [found] = lint([LintedCrontab("crontab", crontab)], cron=CRONS[cron])
    assert f"{found.message}; {found.cure}" == reason
    assert wrap(crontab, WrapSettings("/bin/oncecron", HOST_ZONE)).data == data


@pytest.mark.parametrize("cron", CRONS)
def test_line_ends_of_windows_are_kept_and_named_where_they_are_letters(cron: str) -> None:
    """Supercronic and systemd-cron cut them off; for the others the job is `x` and a CR."""
    data = b"0 2 * * * x\r\n"
    crontab = scan(data, cron=CRONS[cron])
    done = wrap(crontab, WrapSettings("/bin/oncecron", HOST_ZONE, (), CRONS[cron]))
    assert done.changed == 1
    assert unwrap(scan(done.data)).data == data
    cut = cron in ("supercronic", "systemd-cron")
    assert done.data.endswith(b"-- x\r\n" if cut else b"'x\r'\n")
    assert [reason for _, reason in done.warnings] == ([] if cut else [RETURN])


@pytest.mark.parametrize("cron", CRONS)
def test_a_last_line_without_a_newline(cron: str) -> None:
    """Debian's cron rejects the file and cronie the line; the others read it."""
    done = wrapped("0 2 * * * x\n0 3 * * * y", cron)
    refused = {"debian": (0, 1), "cronie": (2, 0)}.get(cron, (2, 0))
    assert (done.changed, len(done.errors)) == refused
    assert bool(done.unchanged) == (cron == "cronie")


# Which cron a host has


def put(root: Path, path: str, content: bytes = b"") -> None:
    """Put a program on a host."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "content", "cron"),
    [
        ("usr/sbin/cron", b"ELF\0Syntax error, this crontab file will be ignored\0", "debian"),
        ("usr/sbin/crond", b"ELF\0cronie 1.7.2\0", "cronie"),
        ("usr/sbin/cron", b"ELF\0cronie 1.7.2\0", "cronie"),
        ("usr/local/bin/supercronic", b"ELF", "supercronic"),
        ("usr/lib/systemd/system-generators/systemd-crontab-generator", b"ELF\0StandardInputData=\0", "systemd-cron"),
    ],
)  # fmt: skip
def test_a_cron_is_known_by_its_program(
    tmp_path: Path, path: str, content: bytes, cron: str
) -> None:
    """Several crons have a program named crond, so its content decides."""
    put(tmp_path, path, content)
    assert installed_cron(str(tmp_path)) == CRONS[cron]


def test_busybox_is_known_by_its_link(tmp_path: Path) -> None:
    """As on Alpine."""
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/crond").symlink_to("/bin/busybox")
    assert installed_cron(str(tmp_path)) == CRONS["busybox"]


def test_no_cron_several_and_a_foreign_one_are_not_known(tmp_path: Path) -> None:
    """Whichever of them runs, nothing here says so."""
    assert installed_cron(str(tmp_path)) is None
    put(tmp_path, "usr/sbin/crond", b"ELF\0dillon's cron daemon\0")
    put(tmp_path, "lib/systemd/system-generators/systemd-crontab-generator", b"#!/usr/bin/python3")
    assert installed_cron(str(tmp_path)) is None
    put(tmp_path, "usr/sbin/cron", b"this crontab file will be ignored")
    assert installed_cron(str(tmp_path)) == CRONS["debian"]
    put(tmp_path, "usr/bin/supercronic")
    assert installed_cron(str(tmp_path)) is None


def test_one_cron_that_is_found_twice_is_one(tmp_path: Path) -> None:
    """Where /sbin is a link to /usr/sbin."""
    put(tmp_path, "usr/sbin/cron", b"this crontab file will be ignored")
    (tmp_path / "sbin").symlink_to("usr/sbin")
    assert installed_cron(str(tmp_path)) == CRONS["debian"]
    assert os.path.exists(tmp_path / "sbin/cron")
