"""What wrap makes of one crontab for different crons: the time zone, the percent sign, and which cron a host has."""

import os
import shlex
from pathlib import Path

import pytest
from crontabs import EXAMPLES, commands, lines
from hypothesis import example, given, settings
from hypothesis import strategies as st
from servers.require import program

from oncecron.cli.crontab import wrap as wrap_command
from oncecron.cli.crontab.installed_cron import installed_cron
from oncecron.core import time_zone
from oncecron.core.time_zone import canonical, find_zone
from oncecron.crontab.crons import CRONS, Cron
from oncecron.crontab.leading_test import leading_test
from oncecron.crontab.lint import LintedCrontab, lint
from oncecron.crontab.lint.linted_entry import linted_entries
from oncecron.crontab.percent_sign import shell_command, split_command
from oncecron.crontab.prefix import read_prefix
from oncecron.crontab.scanner import Entry, scan
from oncecron.crontab.wrap import Rewritten, WrapSettings, unwrap, wrap

HOST_ZONE = "Europe/Berlin"
TOKYO = "CRON_TZ=Asia/Tokyo\n@daily /opt/x\n"


def wrapped(text: str, cron: str | None, *, zone_given: bool = False) -> Rewritten:
    """Return a crontab wrapped for a cron, None for one that is not known."""
    known = CRONS[cron] if cron else None
    options = WrapSettings("/bin/oncecron", HOST_ZONE, (), known, zone_given)
    return wrap(scan(text.encode()), options)


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
    text = "TZ=Asia/Tokyo\n@daily a\n"
    assert zones(text, "systemd-cron") == ["Asia/Tokyo"]
    for cron in sorted(CRONS.keys() - {"systemd-cron"}):
        assert zones(text, cron) == [HOST_ZONE]


@pytest.mark.parametrize("cron", ["debian", "busybox", "bcron", "dcron", "systemd-cron-1"])
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
    monkeypatch.setattr(time_zone, "_LOCALTIME", str(tmp_path / "localtime"))
    monkeypatch.setenv("TZ", "UTC")
    assert wrap_command.host_zone_of_cron() == "UTC"
    assert ("but the zone of this host is" in capfd.readouterr().err) == warned


# The percent sign


@pytest.mark.parametrize(
    ("written", "by_cron"),
    [
        ("date +%F", {"debian": "date +", "cronie": "date +", "busybox": "date +%F"}),
        ("date +\\%F", {"debian": "date +%F", "cronie": "date +%F", "bcron": "date +\\%F"}),
        ("echo a\\\\b", {"debian": "echo a\\b", "cronie": "echo a\\\\b", "dcron": "echo a\\\\b"}),
        ("echo \\\\%x", {"debian": "echo \\", "cronie": "echo \\\\", "systemd-cron": "echo \\%x"}),
        ("echo 5\\%%x", {"systemd-cron": "echo 5%", "systemd-cron-1": "echo 5\\%%x"}),
        ("echo %x", {"systemd-cron": "echo ", "supercronic": "echo %x"}),
    ],
)
def test_what_the_shell_gets(written: str, by_cron: dict[str, str]) -> None:
    """As each cron's own source says."""
    for cron, text in by_cron.items():
        assert shell_command(written.encode(), CRONS[cron].percent) == text.encode(), cron


@settings(max_examples=EXAMPLES)
@given(lines(commands()), st.sampled_from(sorted(CRONS)))
@example(b"@daily [ -d sub ] && rec p", "bcron")
@example(b"@daily [ -d sub ] && rec $X%in", "debian")
def test_a_wrapped_command_is_the_same_for_each_cron(raw: bytes, name: str) -> None:
    """The command and its input are those of before, and unwrap restores the line without knowing the cron."""
    cron = CRONS[name]
    done = wrap(scan(raw + b"\n"), WrapSettings("/bin/oncecron", HOST_ZONE, (), cron))
    assert unwrap(scan(done.data)).data == raw + b"\n"
    assert wrap(scan(done.data), WrapSettings("/bin/oncecron", HOST_ZONE, (), cron)).changed == 0
    for before, after in zip(scan(raw + b"\n").entries(), scan(done.data).entries(), strict=True):
        if done.changed:
            assert_same_to_cron(before, after, cron)


def assert_same_to_cron(before: Entry, after: Entry, cron: Cron) -> None:
    """Assert that a wrapped line passes on what the line before did."""
    old, rest = split_command(before.command, cron.percent)
    _, rest_after = split_command(after.command, cron.percent)
    assert rest_after == rest
    text = shell_command(after.command, cron.percent).decode("latin-1")
    there = leading_test(old)  # moved to --only-if
    written = there.rest if there and there.rest is not None else before.command
    command = shell_command(written, cron.percent).decode("latin-1")
    string = text.partition(" --shell ")[2]
    assert shlex.split(string) == [command] if string else text.endswith(f" -- {command}"), old


def test_the_key_is_that_of_the_command_that_the_shell_gets() -> None:
    """With `oncecron-shell` it is the same: it sees nothing else."""
    keys = {cron: wrapped("@daily date +\\%F\n", cron).data.split()[4] for cron in CRONS}
    assert keys["debian"] == keys["cronie"] == keys["systemd-cron"]
    assert keys["busybox"] == keys["bcron"] == keys["supercronic"]
    assert keys["debian"] != keys["busybox"]


@pytest.mark.parametrize("name", CRONS)
@pytest.mark.parametrize("command", ["date +\\%F", "echo a\\\\b", "echo 5\\%%x"])
def test_lint_derives_the_key_of_wrap(command: str, name: str) -> None:
    """Below oncecron-shell and with `--key auto`, whatever a percent sign means to the cron."""
    key = wrapped(f"@daily {command}\n", name).data.split()[4].decode()
    text = f"SHELL=/bin/oncecron-shell\n@daily {command}\n"
    source = LintedCrontab("crontab", scan(text.encode()))
    [line] = linted_entries(source, {}, CRONS[name])
    assert [each.key for each in line.invocations] == [key]


@pytest.mark.parametrize("name", CRONS)
def test_lint_reads_percent_signs_as_the_cron_does(name: str) -> None:
    """Where a percent sign is a letter, it ends no command, and no two lines differ by what is behind it."""
    text = "@daily echo 'a%b'\n@daily cat%one\n@daily cat%two\n@daily cat%one\n"
    found = lint([LintedCrontab("crontab", scan(text.encode()))], cron=CRONS[name])
    kinds = [(each.line, each.finding) for each in found]
    percent = [(1, "percent")] if CRONS[name].percent.ends else []
    assert kinds == [*percent, (4, "duplicate")]


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


@pytest.mark.parametrize("cron", ["busybox", "dcron", "supercronic"])
def test_a_step_beside_the_other_day_field_is_refused(cron: str) -> None:
    """These crons run it on more days than the ticks of --schedule; such a run would be skipped as done."""
    for days, refused in (
        ("*/2 * 1", True),
        ("1 * */3", True),
        ("*/2 * *", False),
        ("1 * 1", False),
        ("*/2 * 0-6", False),
    ):
        done = wrapped(f"0 0 {days} /opt/x\n", cron)
        assert bool(done.errors) == refused, days
        assert wrapped(f"0 0 {days} /opt/x\n", "debian").changed == 1
    [(number, error)] = wrapped("0 0 */2 * 1 /opt/x\n", cron).errors
    assert number == 1
    assert error.startswith(f"{CRONS[cron].title} runs this line on the days of either field")


@pytest.mark.parametrize(
    ("cron", "line"),
    [
        ("dcron", "@daily ID=bill /opt/x"),
        ("dcron", "0 2 * * * AFTER=bill /opt/x"),
        ("supercronic", "0 2 * * * 2027 /opt/x"),
        ("supercronic", "0 2 * * * 1-5/2 /opt/x"),
    ],
)
def test_what_is_not_yet_the_command_is_refused(cron: str, line: str) -> None:
    """Oncecron before it would be a part of the schedule, and no host would run anything."""
    [(number, error)] = wrapped(f"{line}\n", cron).errors
    assert number == 1
    assert error.startswith(f"{CRONS[cron].title} does not read the first word")
    assert wrapped(f"{line}\n", "debian").changed == 1


# Which cron a host has


def test_the_cron_of_this_machine() -> None:
    """Debian's."""
    program("cron")
    assert installed_cron() == CRONS["debian"]


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
        ("usr/sbin/crond", b"ELF\0dillon's cron daemon\0", "dcron"),
        ("usr/sbin/bcron-sched", b"ELF", "bcron"),
        ("usr/local/bin/supercronic", b"ELF", "supercronic"),
        ("lib/systemd/system-generators/systemd-crontab-generator", b"#!/usr/bin/python3", "systemd-cron-1"),
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
    put(tmp_path, "usr/sbin/crond", b"ELF\0fcron\0")
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
