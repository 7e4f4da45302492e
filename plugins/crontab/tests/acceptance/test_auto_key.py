"""`run --key auto`: the key that `crontab wrap` and oncecron-shell derive from the same command."""

import json
from pathlib import Path

from answers import refused
from servers.oncecron import Oncecron

from oncecron.core.derived_key import derived_key
from oncecron.host.names import user_name


def test_a_run_has_the_derived_key(host: Oncecron) -> None:
    """By its words or its string, with the user for the home directory, with a prefix; the job is given the key."""
    given = ("run", "--key", "auto", "--no-tick", "--min-gap", 0)
    shown = 'echo "$ONCECRON_KEY"'
    key = derived_key(shown.encode(), None, user_name)
    assert host(*given, "--shell", shown).out == f"{key}\n".encode()
    words = ("nice", "sh", "-c", shown)
    line = f"nice sh  -c '{shown}'"
    assert (
        host(*given, "--", *words).out
        == f"{derived_key(line.encode(), None, user_name)}\n".encode()
    )
    home = derived_key(f"cd; {shown}".encode(), "")
    assert host(*given, "-c", f"cd; {shown}").out == f"{user_name()}.{home}\n".encode()
    host.environment["ONCECRON_KEY_PREFIX"] = "x/"
    assert host(*given, "-c", f"cd; {shown}").out == f"x/{home}\n".encode()
    assert key in {row["key"] for row in json.loads(host("history", "--json").out)}
    host.environment["ONCECRON_KEY_PREFIX"] = "a b"
    refused(host(*given, "-c", shown), 64, "$ONCECRON_KEY_PREFIX: 'a b")


def test_without_a_command_there_is_no_key(host: Oncecron) -> None:
    """The section of the configuration that could have it is found by the key."""
    refused(host("run", "--key", "auto"), 64, "--key: auto derives the key from the command")
    refused(
        host("run", "--key", "auto", "-c", ""), 64, "--key: auto derives the key from the command"
    )


def test_no_job_has_this_key(host: Oncecron, public_path: Path) -> None:
    """In the configuration file and in a comment."""
    config = public_path / "oncecron.toml"
    config.write_text("[job.auto]\ntimeout = 9\n")
    config.chmod(0o600)
    told = host("run", "--config", str(config), "--key", "auto", "--", "true")
    refused(told, 78, "--key auto stands for")
    assert host("run", "--config", str(config), "--key", "x", "--", "true").status == 0
    crontab = public_path / "crontab"
    crontab.write_text("# oncecron: key=auto\n@daily x\n")
    done = host("crontab", "wrap", str(crontab))
    assert done.status == 1
    assert "key auto: without a key, it is derived" in done.err
