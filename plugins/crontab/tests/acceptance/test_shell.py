"""`run --shell` and `oncecron-shell`, the shell of a whole crontab."""

import json
import os
from pathlib import Path

import pytest
from answers import refused
from log_of import Store
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron

from oncecron.core.derived_key import derived_key
from oncecron.host.names import user_name

SHELL = CONSOLE_SCRIPT.with_name("oncecron-shell")


@pytest.fixture
def cron(any_store: Store, public_path: Path) -> Oncecron:
    """Give a host whose cron calls oncecron-shell."""
    host = Oncecron(any_store.url, public_path, script=SHELL, SHELL=str(SHELL))
    host.environment["HERE"] = str(public_path)
    return host


def keys(cron: Oncecron) -> list[str]:
    """Return the keys of what ran."""
    cron.script = CONSOLE_SCRIPT
    told = json.loads(cron("history", "--json").out)
    cron.script = SHELL
    return [row["key"] for row in told]


# run --shell


def test_a_string_is_run_by_the_shell_of_the_environment(host: Oncecron) -> None:
    """$SHELL, by which cron would run it; /bin/sh where there is none."""
    assert host("run", "--key", "a", "-c", "echo $0 'b  c' | cat; exit 3") == Ended(
        3, b"/bin/sh b  c\n", ""
    )
    host.environment["SHELL"] = "/bin/bash"
    assert host("run", "--key", "b", "--shell", "[[ x ]] && echo $0") == Ended(
        0, b"/bin/bash\n", ""
    )
    del host.environment["SHELL"]
    assert host("run", "--key", "c", "-vc", "echo $0").out == b"/bin/sh\n"
    host.environment["SHELL"] = str(SHELL)  # which would guard it once more
    assert host("run", "--key", "d", "-c", "echo $0").out == b"/bin/sh\n"
    assert {row["key"] for row in json.loads(host("history", "--json").out)} == set("abcd")


def test_the_command_of_the_configuration_file(host: Oncecron, public_path: Path) -> None:
    """It is a shell's, and what is typed wins."""
    config = public_path / "oncecron.toml"
    config.write_text("[job.a]\ncommand = 'echo configured | cat'\n")
    config.chmod(0o600)
    host.environment["ONCECRON_CONFIG"] = str(config)
    assert host("run", "--key", "a", "--no-tick") == Ended(0, b"configured\n", "")
    assert host("run", "--key", "a", "--no-tick", "--").out == b"configured\n"
    assert host("run", "--key", "a", "--no-tick", "-c", "echo typed").out == b"typed\n"
    assert host("run", "--key", "a", "--no-tick", "echo", "typed").out == b"typed\n"
    refused(host("run", "--key", "b"), 64, "set `command` in [job.b]")


# oncecron-shell


@pytest.mark.parametrize("command", ["/bin/echo 'a b'", "echo 'a b' | cat"])
def test_a_line_runs_once(cron: Oncecron, command: str) -> None:
    """Under the key that wrap derives, for commands that need a shell and those that do not."""
    assert cron("-c", command) == Ended(0, b"a b\n", "")
    assert cron("-c", command) == Ended(0, b"", "")
    assert keys(cron) == [derived_key(command.encode(), None, user_name)]


def test_a_host_without_the_program_claims_nothing(cron: Oncecron, public_path: Path) -> None:
    """So that it does not win every tick: where the command needs no shell, its program is looked for."""
    program = public_path / "program"
    refused(cron("-c", f"{program} --all"), 127, f"{program} was not found")
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert cron("-c", f"{program} --all") == Ended(0, b"ran\n", "")


def test_a_host_that_fails_the_test_of_a_line_claims_nothing(
    cron: Oncecron, public_path: Path
) -> None:
    """Another one, or this one later, runs the tick."""
    program = public_path / "program"
    command = f"[ -x {program} ] && {program} | cat"
    assert cron("-c", command) == Ended(0, b"", "")
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert cron("-c", command) == Ended(0, b"ran\n", "")
    assert keys(cron) == [derived_key(command.encode(), None, user_name)]


def test_the_command_s_own_shell_is_a_shell(cron: Oncecron) -> None:
    """Programs that start commands by $SHELL would guard them, too."""
    assert cron("-c", "echo $SHELL").out == b"/bin/sh\n"
    assert cron("-c", "ONCECRON=off; echo $SHELL").out == b"/bin/sh\n"


def test_a_command_knows_its_directory(cron: Oncecron, public_path: Path) -> None:
    """Cron sets no $PWD, every shell does; a name of the directory that leads there stays."""
    link = public_path / "link"
    link.symlink_to(public_path)
    cron.prefix = ["/usr/bin/env", "-C", str(public_path)]
    cron.environment.pop("PWD", None)
    for pwd, expected in (
        (None, public_path),
        (link, link),
        ("/nowhere", public_path),
        (".", public_path),
    ):
        cron.environment |= {"PWD": str(pwd)} if pwd else {}
        for command in (
            f"/usr/bin/printenv PWD {'x' if pwd is None else 'y' + str(pwd)}",
            f"echo $PWD; : {pwd}",
        ):
            assert cron("-c", command).out.splitlines()[:1] == [bytes(expected)], (pwd, command)


@pytest.mark.parametrize("off", ["", "ONCECRON=off; "])
def test_another_shell(cron: Oncecron, public_path: Path, off: str) -> None:
    """Lines of a crontab that had SHELL=/bin/bash need it, also those without a word that only bash knows."""
    cron.environment["ONCECRON_SHELL"] = "/bin/bash"
    assert cron("-c", f"{off}[[ $0 = /bin/bash ]] && echo $SHELL") == Ended(0, b"/bin/bash\n", "")
    profile = public_path / "profile"
    profile.write_text("export FROM=profile\n")
    cron.environment["BASH_ENV"] = str(profile)
    assert cron("-c", f"{off}/usr/bin/printenv FROM").out == b"profile\n"


@pytest.mark.parametrize("shell", ["bash", str(SHELL)])
def test_what_is_no_other_shell_is_refused(cron: Oncecron, shell: str) -> None:
    """A name that cron would not find, and this program itself."""
    cron.environment["ONCECRON_SHELL"] = shell
    refused(cron("-c", "true"), 64, f"$ONCECRON_SHELL: '{shell}' is not the path of a shell")


def test_another_shell_that_is_not_there_is_a_broken_host(cron: Oncecron) -> None:
    """Found before any claim."""
    cron.environment["ONCECRON_SHELL"] = "/bin/no-such-shell"
    refused(cron("-c", "true"), 127, "/bin/no-such-shell")
    refused(cron("-c", "ONCECRON=off true"), 127, "/bin/no-such-shell")
    del cron.environment["ONCECRON_SHELL"]
    assert cron("-c", "true") == Ended(0, b"", "")
    assert keys(cron) == [derived_key(b"true", None, user_name)]


@pytest.mark.parametrize(
    "command",
    [
        "ONCECRON=off echo ran",
        "run-parts --help >/dev/null 2>&1; echo ran",
        "test -x /usr/sbin/anacron; echo ran",
        "echo ran; : oncecron run --key x",
        "echo ran; : oncecron each --key x",
    ],
)
def test_what_runs_on_every_host(cron: Oncecron, command: str) -> None:
    """Each time, without a store."""
    cron.environment["ONCECRON_STORE"] = "nonsense"
    for _ in range(2):
        assert cron("-c", command) == Ended(0, b"ran\n", "")


def test_off_for_the_lines_below(cron: Oncecron) -> None:
    """As a variable of the crontab; any other value guards."""
    cron.environment |= {"ONCECRON": "off", "ONCECRON_STORE": "nonsense"}
    assert cron("-c", "echo ran; exit 3") == Ended(3, b"ran\n", "")
    cron.environment["ONCECRON"] = "on"
    assert cron("-c", "echo ran").status == 78


def test_a_guard_by_hand_is_not_guarded_again(cron: Oncecron) -> None:
    """A wrapped crontab below SHELL= works as before."""
    command = f"{CONSOLE_SCRIPT} run --key by-hand --no-tick -- echo ran"
    assert cron("-c", command).out == b"ran\n"
    assert keys(cron) == ["by-hand"]
    command = f"cd / && {CONSOLE_SCRIPT} each --key each --tick t --items 'echo a; echo b' -- echo"
    assert cron("-c", command).out == b"a\nb\n"
    assert sorted(set(keys(cron))) == ["by-hand", "each"]


def test_a_prefix_of_the_crontab(cron: Oncecron) -> None:
    """For users whose commands are alike."""
    cron.environment["ONCECRON_KEY_PREFIX"] = "alice/"
    assert cron("-c", "/bin/true").status == 0
    assert keys(cron) == ["alice/" + derived_key(b"/bin/true")]
    cron.environment["ONCECRON_KEY_PREFIX"] = "a b"
    refused(cron("-c", "/bin/true"), 64, "$ONCECRON_KEY_PREFIX: 'a b")


def test_a_line_below_the_home_directory_has_the_key_of_its_user(
    cron: Oncecron, public_path: Path
) -> None:
    """The one that `crontab wrap` gives it in the crontab of that user."""
    command = "cd ~; true"
    assert cron("-c", command).status == 0
    crontab = public_path / "crontab"
    crontab.write_text(f"@daily {command}\n")
    assert keys(cron) == [f"{user_name()}.{derived_key(command.encode(), '')}"]
    cron.script = CONSOLE_SCRIPT
    wrapped = cron("crontab", "wrap", str(crontab)).out.decode()
    assert f" --key {user_name()}.{derived_key(command.encode(), '')} " in wrapped


def test_options_come_from_the_job_s_section(cron: Oncecron, public_path: Path) -> None:
    """By the key that is derived."""
    config = public_path / "oncecron.toml"
    config.write_text(
        f'[job."{derived_key(b"exec sleep 60", None, user_name)}"]\ntimeout = "100ms"\n'
    )
    config.chmod(0o600)
    cron.environment["ONCECRON_CONFIG"] = str(config)
    assert cron("-c", "exec sleep 60").status == 124


def test_bytes_that_are_no_utf_8(cron: Oncecron, public_path: Path) -> None:
    """Arrive as they were, either way."""
    for command in (b'/bin/echo "\xfc"', b"echo \xfc"):
        assert cron("-c", command).out == b"\xfc\n"


@pytest.mark.parametrize(
    "arguments", [(), ("-c",), ("-l",), ("-c", "true", "x"), ("true",), ("-i",), ("--nonsense",)]
)
def test_what_is_no_call_of_cron_s_is_refused(cron: Oncecron, arguments: tuple[str, ...]) -> None:
    """It is no shell to log in with."""
    refused(cron(*arguments), 64, "is for SHELL= in a crontab")


def test_without_a_store_nothing_runs(cron: Oncecron) -> None:
    """As with `run`: one line, mailed by cron."""
    del cron.environment["ONCECRON_STORE"]
    refused(cron("-c", "touch $HERE/ran"), 78, "no store is configured")
    assert not os.path.exists(f"{cron.environment['HERE']}/ran")
