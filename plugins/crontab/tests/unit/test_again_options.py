"""A guarded command gets other options, and the environment of cron: text in, text out."""

from pathlib import Path

import pytest
from crontabs import runnable_commands
from hypothesis import given

from oncecron.config.options import RUN_OPTION
from oncecron.config.run_parser import parse_run
from oncecron.core.shell_words import simple_words
from oncecron.core.text import Clock
from oncecron.log.job_summary import JobSummary
from oncecron.watch.findings import Situation, check, cure, usual_limits
from oncecron_crontab.again import with_options
from oncecron_crontab.cron_environment import cron_environment
from oncecron_crontab.crons import CRONS
from oncecron_crontab.percent_sign import shell_command
from oncecron_crontab.plugin import PLUGIN
from oncecron_crontab.prefix import with_prefix

NOW = 1_764_000_000.0
OF_THE_TICK = ("schedule", "tz", "tick", "no-tick")
ADDED = (b"--again", b"--tick", b"a b")


def changed(command: str) -> str | None:
    found = with_options(command.encode(), ADDED, OF_THE_TICK, RUN_OPTION)
    return None if found is None else found.decode()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("oncecron run{} --key k -- job --tick x", ""),
        ("oncecron run{} --key k{} -- job", " --schedule '0 2 * * *' --tz=UTC"),
        ("oncecron run{} --key k{} job --tz z", " --no-tick"),
        ("cd /a && X=1 /usr/bin/oncecron run{} >>log -v{} --key k -c 'echo --tick' 2>&1 | cat", "  --tick t"),
        ("oncecron run{} -vc --tick{} --key k", " --tz z"),
        ("oncecron run{} --only-if '--tick x' >--tz{} --key k -- a; true --tick t", " --tick t"),
        ("oncecron run{} --key k -- oncecron run --key inner -- x", ""),
        ("test -e x || (oncecron run{} --key k)", ""),
    ],
)  # fmt: skip
def test_the_options_of_the_guard_are_others(command: str, options: str) -> None:
    """Whatever is around it; what belongs to another option, or to the command, stays."""
    before = command.format("", *[options] * (command.count("{}") - 1))
    after = command.format(" --again --tick 'a b'", *[""] * (command.count("{}") - 1))
    assert changed(before) == after


def test_the_string_of_a_shell_is_changed_too() -> None:
    """Where it is plain; else nobody knows what the shell makes of it."""
    found = changed("sh -c 'oncecron run --tick t --key k -- echo \"b  c\"' >x")
    assert (
        found == """sh -c 'oncecron run --again --tick '"'"'a b'"'"' --key k -- echo "b  c"' >x"""
    )
    assert changed('sh -c "oncecron run --key $K -- job"') is None


@pytest.mark.parametrize(
    "command", ["oncecron run --key a -- b; oncecron run --key c -- d", "echo 'a", "job"]
)
def test_what_has_no_guard_or_several_is_left(command: str) -> None:
    """Nobody can tell which run it would be."""
    assert changed(command) is None


@given(runnable_commands())
def test_the_command_behind_a_guard_stays(command: bytes) -> None:
    """Of whatever wrap writes, the words are the same but for the options."""
    options = {"key": "k", "schedule": "0 2 * * *", "tz": "UTC", "timeout": "1h"}
    wrapped = shell_command(with_prefix(b"/usr/bin/oncecron", options, command))
    found = with_options(wrapped, ADDED, OF_THE_TICK, RUN_OPTION)
    assert found is not None
    old, new = simple_words(wrapped), simple_words(found)
    if old is None or new is None:
        assert old == new
        return
    before, after = (parse_run([*map(bytes.decode, words[2:])]) for words in (old, new))
    assert before is not None
    assert after is not None
    assert after.command == before.command
    kept = {name: text for name, text in before.given.items() if name not in OF_THE_TICK}
    assert after.given == {**kept, "again": "true", "tick": "a b"}


# The environment


def test_cron_sets_what_nobody_else_may(tmp_path: Path) -> None:
    """The crontab wins over cron's defaults, these over PAM, and nothing over the name of the user."""
    (tmp_path / "etc/pam.d").mkdir(parents=True)
    (tmp_path / "etc/pam.d/crond").write_text(
        "# session required pam_env.so envfile=/etc/no\nauth include common\n"
        "session required pam_env.so envfile=/etc/locale\n"
    )
    (tmp_path / "etc/pam.d/common").write_text(
        "@include common\nauth required /lib/security/pam_env.so\n"
    )
    (tmp_path / "etc/environment").write_text(
        "PATH=/of/pam\nLANG=de\nA='b c'\n#B=1\nexport C=\"d\nnothing\n1=2\n"
        # As Debian 12's cron was seen to set them:
        'D=e # f\n G="h # i"\nJ=k  \nL="m n"  # o\nP=\'q\'r\'\nS=t\'\nU=v  \\\n  w\nX =y\nZ="\nB=""\nE=f\\\n'
    )
    (tmp_path / "etc/locale").write_text("LANG=C.UTF-8\nLOGNAME=x\n")
    named = {"HOME": "/srv", "LOGNAME": "y", "SHELL": "/bin/bash"}
    found = cron_environment(named, "ann", "/home/ann", CRONS["debian"], root=f"{tmp_path}/")
    assert found == {
        "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "A": "b c", "C": "d", "HOME": "/srv", "LOGNAME": "ann",
        "SHELL": "/bin/bash", "D": "e ", "G": "h ", "J": "k  ", "L": 'm n"  ', "P": "q'r", "S": "t'", "U": "v    w",
        "Z": "", "B": "",
    }  # fmt: skip
    other = cron_environment({}, "ann", "/home/ann", CRONS["cronie"], root=f"{tmp_path}/none")
    assert other == {
        "PATH": "/usr/bin:/bin", "HOME": "/home/ann", "LOGNAME": "ann", "USER": "ann", "SHELL": "/bin/sh",
    }  # fmt: skip


# Who names the command


def test_a_finding_of_a_scheduled_key_names_the_command() -> None:
    """With the tick that failed or was lost; of a key without a schedule nobody knows its line."""
    known = {"key": "k", "failures": 1, "missed": 0, "tick": "2026-11-20T02:00Z", "started_at": 1.0}
    of_all = {**dict.fromkeys(JobSummary._fields), **known}
    for outcome in ("failed", "lost"):
        for schedule, how in (
            ("@daily", "; to run this one again: `oncecron again k --tick 2026-11-20T02:00Z`"),
            (None, "; `oncecron why k` has the line that runs this one again"),
        ):
            job = JobSummary(**{**of_all, "outcome": outcome, "schedule": schedule})
            [found] = check(Situation(NOW, [job]), usual_limits(), Clock(utc=True)).findings
            assert found.finding == outcome
            assert cure(found).endswith(how)
            assert cure(found, has_account=True) + how == cure(found)


@pytest.mark.parametrize(
    ("missed", "made_up", "told"),
    [
        (1, None, "; to run it now: `oncecron again k --tick 2026-11-20T02:00Z`"),
        (3, None, "; to run the first one now: `oncecron again k --tick 2026-11-20T02:00Z`"),
        (3, "2026-11-20T03:00Z", "; to run the first one now: `oncecron again k --tick 2026-11-20T02:00Z`"),
        (3, "2026-11-20T02:00Z", "; to run the first one now: `oncecron again k --tick 2026-11-20T02:00Z`"),
    ],
)  # fmt: skip
def test_a_missed_tick_names_the_command(missed: int, made_up: str | None, told: str) -> None:
    """Also where the next firing makes it up, which is said then: nothing is older, and that firing is late."""
    known = {"key": "k", "failures": 0, "missed": missed, "first_missed": "2026-11-20T02:00Z"}
    known |= {"catching_up": 4, "first_caught_up": made_up, "schedule": "@hourly"}
    job = JobSummary(**{**dict.fromkeys(JobSummary._fields), **known})
    [found] = check(Situation(NOW, [job]), usual_limits(), Clock(utc=True)).findings
    assert cure(found).endswith(told)
    assert cure(found, has_account=True) == "see whether cron runs on its hosts, and has its line"
    is_made_up = found.reason.endswith("; the next firing makes up 4 ticks (--catch-up)")
    assert is_made_up == (made_up == "2026-11-20T02:00Z")


def test_a_tick_is_quoted_in_the_command() -> None:
    """It may be any name."""
    assert [*PLUGIN.again("k", "a$b")] == ["again k --tick 'a$b'"]
    assert [*PLUGIN.again("k", None)] == ["again k"]
