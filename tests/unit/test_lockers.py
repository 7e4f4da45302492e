"""Lockers that oncecron replaces: which are found, and what is left without them."""

import pytest
from crontabs import commands
from hypothesis import given

from oncecron.core.derived_key import derived_key
from oncecron.crontab.lockers import find_lockers, random_delay, without_lockers
from oncecron.crontab.scanner import scan
from oncecron.crontab.wrap import WrapSettings, unwrap, wrap

REPLACED = {
    "flock -n /run/x job -a": ("flock -n /run/x", "job -a"),
    "/usr/bin/flock -xn -E 5 /run/x  job": ("/usr/bin/flock -xn -E 5 /run/x", "job"),
    "flock --nonblock --conflict-exit-code=0 /run/x job": (
        "flock --nonblock --conflict-exit-code=0 /run/x",
        "job",
    ),
    "flock -n /run/x -c 'a && b' >>log": ("flock -n /run/x", "/bin/sh -c 'a && b' >>log"),
    "cd /srv && flock -n x job; echo": ("flock -n x", "cd /srv && job; echo"),
    "setlock -nX /run/x job": ("setlock -nX /run/x", "job"),
    "lckdo -e /run/x job": ("lckdo -e /run/x", "job"),
    "run-one job 'a  b'": ("run-one", "job 'a  b'"),
    "lockrun --lockfile=/run/x -- job": ("lockrun --lockfile=/run/x --", "job"),
    "solo -port=3801 job": ("solo -port=3801", "job"),
}


@pytest.mark.parametrize(("command", "found"), REPLACED.items())
def test_a_locker_that_gives_up_at_once(command: str, found: tuple[str, str]) -> None:
    """It and the blanks behind it are cut out, nothing else."""
    (locker,) = find_lockers(command.encode())
    text, rest = found
    assert locker.text.decode() == text
    assert without_lockers(command.encode(), [locker], b"/bin/sh") == rest.encode()


@pytest.mark.parametrize(
    "command",
    [
        *("flock /run/x job", "flock -w 10 /run/x job", "flock -s -n /run/x job", "flock -n 9", "flock -n", "job"),
        *("flock -n $LOCK job", 'flock -n "$LOCK" job', "flock -n /run/\\%x job", "nice flock -n /run/x job"),
        *("setlock /run/x job", "setlock -N /run/x job", "lckdo -w /run/x job", "lckdo -W 5 /run/x job"),
        *("run-one -x job", "run-this-one job", "lockrun --wait --lockfile=/run/x -- job", "lockrun job", "solo job"),
        *("(flock -n 9 || exit 1; job) 9>/run/x", "flock -n /run/x 'open", "flock -n /run/x -z job", ""),
    ],
)  # fmt: skip
def test_what_is_left_alone(command: str) -> None:
    """A locker that waits, or shares its lock, or cannot be read for certain."""
    assert find_lockers(command.encode()) == []


@given(commands())
def test_no_command_is_too_odd(command: bytes) -> None:
    """What is cut out begins with a locker."""
    for locker in find_lockers(command):
        assert command[locker.start :].startswith(locker.text[:4])
    random_delay(command)


UNLOCKING = WrapSettings("/usr/bin/oncecron", "UTC", unlock=True)
KEEPING = UNLOCKING._replace(unlock=False)


def test_wrap_names_a_locker_and_removes_it_with_unlock() -> None:
    """The key is the one of the command that is left, as it is after unwrap, which does not restore the locker."""
    line = b"* * * * * flock -n /run/x job%in\n"
    kept = wrap(scan(line), KEEPING)
    assert b"-- flock -n /run/x job%in" in kept.data
    ((_, reason),) = kept.warnings
    assert reason.startswith("`flock -n /run/x` is not needed")
    assert unwrap(scan(kept.data)).data == line
    done = wrap(scan(line), UNLOCKING)
    assert f" --key {derived_key(b'job')} ".encode() in done.data
    assert done.data.endswith(b" -- job%in\n")
    ((_, reason),) = done.warnings
    assert reason.startswith("`flock -n /run/x` is removed")
    assert unwrap(scan(done.data)).data == b"* * * * * job%in\n"
    assert wrap(scan(done.data), UNLOCKING) == (done.data, 0, [], [], [])


def test_a_string_goes_to_the_shell_of_the_crontab() -> None:
    """The one that flock would take."""
    done = wrap(scan(b"SHELL=/bin/bash\n* * * * * flock -n /run/x -c 'a; b'\n"), UNLOCKING)
    assert done.data.endswith(b" -- /bin/bash -c 'a; b'\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * * * flock -n /run/x a\n* * * * * flock -n /run/x b\n", "also in another line"),
        ("* * * * * flock -n /run/x a\n@reboot b --lock /run/x\n", "also in another line"),
        ("* * * * * flock -n /run/x a || echo held\n", "`||`"),
    ],
)
def test_a_locker_that_does_more_stays(text: str, why: str) -> None:
    """Two commands that exclude each other, or a command for the case that the lock is held."""
    done = wrap(scan(text.encode()), UNLOCKING)
    assert b"flock -n /run/x a" in done.data
    reasons = [reason for _, reason in done.warnings]
    assert all(reason.startswith("`flock -n /run/x` stays") and why in reason for reason in reasons)
    assert reasons


@pytest.mark.parametrize(
    "delay",
    ["sleep $((RANDOM \\% 60))", "sleep `shuf -i 0-60 -n 1`", "perl -e 'sleep int(rand(9))'"],
)
def test_a_random_delay_is_named(delay: str) -> None:
    """It does no harm, and hosts need it no longer."""
    done = wrap(scan(f"* * * * * {delay}; job\n".encode()), UNLOCKING)
    assert delay in done.data.decode().replace("'\\''", "'")
    ((_, reason),) = done.warnings
    assert "delays the job for a random time" in reason
