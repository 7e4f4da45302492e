"""Messages after a mistake say what was meant and what to type instead."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_tree import every_command

from oncecron.cli.main import invoke
from oncecron.config.options import STORE_OPTIONS
from oncecron.config.settings import Settings
from oncecron.core.errors import CommandError, ConfigurationError, OncecronError, StoreUnavailable
from oncecron.host.installation import broken
from oncecron.host.local_time import find_zone
from oncecron.run.program import look_up
from oncecron.run.reporter import Reporter
from oncecron.stores.address import as_role, command_line, parse_address
from oncecron.stores.postgres.address import explain

PASSWORD = "postgresql://u:s3cret@h/d"


@pytest.fixture(autouse=True)
def _only_this_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONCECRON_STORE", "ONCECRON_STORE_FILE", "ONCECRON_NAMESPACE", "ONCECRON_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("oncecron.config.file.SYSTEM_FILE", str(tmp_path / "etc.toml"))


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Carry out a command line; return its status, output and error output."""
    try:
        status = invoke(arguments)
    except OncecronError as error:
        status = error.exit_status
        sys.stderr.write(f"oncecron: {error}\n")
    out, err = capfd.readouterr()
    return status, out, err


# Time zones


def test_a_host_without_a_tz_database_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is right would not help."""
    monkeypatch.setattr("zoneinfo.available_timezones", set)
    with pytest.raises(ValueError, match=r"no tz database: install tzdata$"):
        find_zone("Europe/Berlln")


# The command line


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("wrap", "unknown command 'wrap'; did you mean `oncecron crontab wrap`?"),
        ("lint", "unknown command 'lint'; did you mean `oncecron crontab lint`?"),
        ("status", "`oncecron jobs` (every key), `oncecron locks` (what runs now)"),
        ("list", "or `oncecron history`?"), ("histroy", "did you mean `oncecron history`?"),
        ("crontab wrp", "did you mean `oncecron crontab wrap`?"), ("help histroy", "did you mean `oncecron history`?"),
        ("frob", "use `oncecron run --key NAME -- JOB`"),
        ("--store sqlite:////x history k", "--store; the options of a command go after it; see `oncecron --help`"),
        (f"--store={PASSWORD} locks", "no such option --store; the options of a command go after it"),
        ("--nonsense history", "no such option --nonsense; the options of a command go after it"),
        ("history --sinc 2h", "no such option --sinc; did you mean --since?"),
        ("drain web1 --for 5 hours", "unexpected argument 'hours'"),
        ("history a b", "unexpected argument 'b'; `oncecron history` takes one KEY at a time"),
        ("completion", "missing argument 'bash|zsh|fish'; see `oncecron completion --help`"),
        ("next", "give either a KEY or a schedule, such as '0 2 * * *'"),
        ("next 0 2 README.md docs man", "unexpected argument '2'; a schedule needs quotes, such as '0 2 * * *'"),
        ("next @reboot", "@reboot has no ticks"), ("next @dayly", "unknown schedule '@dayly'; did you mean @daily?"),
        ("pause k --for 5 minutes", "unexpected argument 'minutes'"),
        ("pause k --for 5minutes", "bad duration '5minutes', unknown unit 'minutes': expected a number and a unit"),
        ("history -n ten", "oncecron: --limit: 'ten' is not a whole number"),
        ("history -nten", "oncecron: --limit: 'ten' is not a whole number"),
        ("history --limit ten", "oncecron: --limit: 'ten' is not a whole number"),
        ("history -n 1 -n 2", "oncecron: --limit is given twice; leave one of them out"),
        ("timeline --since 1h --until 2h --store local", "--since is not before --until and before now: nothing lies"),
        ("history --id 3 -n 2", "--id selects one execution; leave out --limit"),
        ("check -t 5x", "oncecron: --timeout: bad duration '5x'"),
        ("check -w faild", "oncecron: --warning: 'faild' is not one of"),
        ("run --key k --timeout 1,5h --store local -- ls", "bad duration '1,5h', no unit after '1'"),
        ("run --key a --schedule */5 a b c d", "put quotes around all five: '*/5 * * * *'"),
    ],
)  # fmt: skip
def test_a_wrong_line_names_the_right_one(
    capfd: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    """In one line, with the status of a usage error."""
    status, out, err = said(capfd, *line.split())
    assert (status, out, err.count("\n")) == (64, "", 1)
    assert told in err
    assert "s3cret" not in err


@pytest.mark.parametrize("command", every_command())
def test_an_option_that_cannot_be_read_names_the_help_of_its_command(
    capfd: pytest.CaptureFixture[str], command: str
) -> None:
    """An unknown one, one without its value, and one with a value that it does not take."""
    for wrong in ("--nonsense", "--config", "--help=yes"):
        status, _, err = said(capfd, *command.split(), wrong)
        assert (status, err.count("\n")) == (64, 1)
        assert err.endswith(f"; see `oncecron {command} --help`\n")


@pytest.mark.parametrize("schedule", ["0 2 * * *", "@daily"])
def test_next_takes_a_schedule_in_the_place_of_a_key(
    capfd: pytest.CaptureFixture[str], schedule: str
) -> None:
    """It asks no store."""
    status, out, err = said(capfd, "next", schedule, "--tz", "Europe/Berlin", "--count", "1")
    assert (status, err) == (0, "")
    assert "  Europe/Berlin  " in out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-V", "oncecron "), ("help", "See what happened:"), ("help why", "Usage: oncecron why"),
        ("crontab help lint", "Usage: oncecron crontab lint"), ("why --help", "  oncecron why billing-nightly\n"),
    ],
)  # fmt: skip
def test_help_can_be_asked_for_in_several_ways(
    capfd: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    """All of them succeed."""
    status, out, err = said(capfd, *line.split())
    assert (status, err) == (0, "")
    assert told in out


def test_oncecron_alone_shows_short_help(capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the status of a usage error: in a crontab it is a mistake."""
    status, out, err = said(capfd)
    assert (status, out) == (64, "")
    assert "oncecron run --key NAME" in err
    assert err.count("\n") < 10


def test_lint_at_a_terminal_advises_lint(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And wrap advises wrap."""
    pytest.importorskip("oncecron_crontab")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    for command in ("lint", "wrap"):
        _, _, err = said(capfd, "crontab", command)
        assert f"`crontab -l | oncecron crontab {command}`" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "cd /srv",
            "cd is a command of the shell, not a program; to have a shell run it, use --shell 'cd /srv && COMMAND'",
        ),
        ("source env.sh", "use --shell 'source env.sh && COMMAND'"),
        ("export A=1", "use --shell 'export A=1 && COMMAND'"),
        (". /etc/profile", "use --shell '. /etc/profile && COMMAND'"),
        ("ulimit -n 4096", "use --shell 'ulimit -n 4096 && COMMAND'"), ("if true", "use --shell 'if true'"),
        ("eval ls", "use --shell 'eval ls'"),
        ("X=1 cmd", "X=1 sets a variable, which a shell does; to have a shell run it, use --shell 'X=1 cmd'"),
        ("~/job", "only a shell expands ~; to have a shell run it, use --shell '~/job'"),
    ],
)  # fmt: skip
def test_what_only_a_shell_knows_names_shell(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    told: str,
) -> None:
    """Also where PATH has a directory of that name, as `.` has everywhere; the status is that of a shell."""
    monkeypatch.setenv("PATH", str(tmp_path))
    store = f"sqlite://{tmp_path}/s.db"
    status, _, err = said(
        capfd, "run", "--key", "k", "--no-tick", "--store", store, "--", *words.split()
    )
    assert (status, err.count("\n")) == (127, 1)
    assert f"{told}\n" in err


def test_a_command_line_as_one_word_needs_a_shell() -> None:
    """A program that is only missing does not."""
    for line in (r"echo hi | wc", "cmd1 && cmd2", "(ls)"):
        with pytest.raises(CommandError, match=re.escape(f"use --shell '{line}'") + "$"):
            look_up(line, line)
    with pytest.raises(CommandError, match=r"not found in PATH=.*; write its absolute path$"):
        look_up("no-such-program", "no-such-program")


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"#!/bin/sh\n", 0o644, "is not executable; run `chmod +x {}`"),
        (
            b"#!/bin/sh\r\ntrue\r\n",
            0o755,
            "so its interpreter is not found; run `sed -i 's/\\r$//' {}`",
        ),
        (
            b"#!/no/such/perl\n",
            0o755,
            "interpreter /no/such/perl was not found; install it, or correct the first line",
        ),
        (None, 0o755, "{} is a directory; name a program"),
    ],
)
def test_a_program_that_cannot_be_executed_has_a_cure(
    tmp_path: Path, content: bytes | None, mode: int, told: str
) -> None:
    """With the status of a shell."""
    path = tmp_path / "job"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(CommandError, match=re.escape(told.format(path)) + "$") as caught:
        look_up(str(path), str(path))
    assert caught.value.exit_status == 126


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("", "$ONCECRON_STORE in place of a URL with a password: set it to that URL"),
        ("/var/lib/x.db", "is not a store; write sqlite:///var/lib/x.db"), ("Local", "is not a store; write local"),
        ("postgresql:/h/d", "is not a store; write postgresql://"),
        ("postgress://h/d", "unknown kind 'postgress'; write postgresql://"),
        ("sqlite3:///x.db", "unknown kind 'sqlite3'; write sqlite://"),
        ("REDIS://h", "unknown kind 'REDIS'; write redis://"),
    ],
)  # fmt: skip
def test_a_store_that_is_nearly_right_is_named(store: str, told: str) -> None:
    """The rest of the address stays as it is."""
    with pytest.raises(ConfigurationError, match=re.escape(told) + "$"):
        parse_address(store)


def test_sql_is_printed_for_a_server_that_is_down(capfd: pytest.CaptureFixture[str]) -> None:
    """It is not asked."""
    store = "postgresql://127.0.0.1:1/d"
    assert said(capfd, "init", "--print-sql", "--store", store)[::2] == (0, "")


# An installation that lacks something


@pytest.mark.parametrize(
    ("missing", "line", "told"),
    [
        ("click", "history", "click cannot be loaded: "), ("click", "run --kye k -- true", "click cannot be loaded: "),
        ("click", "each --key k -- true", "-m pip install --upgrade click`"),
        ("redis", "history --store redis://127.0.0.1:1", "redis cannot be loaded: "),
        ("psycopg", "history --store postgresql://127.0.0.1:1/d", "psycopg cannot be loaded: "),
        ("prometheus_client", "metrics --store local", "-m pip install --upgrade prometheus-client`"),
        ("prometheus_client", "metrics --listen 127.0.0.1:0 --store local", "such as /opt/oncecron/bin/oncecron"),
        ("waitress", "web --listen 0 --store local", "-m pip install --upgrade waitress`"),
        ("jinja2", "report --html - --store local", "-m pip install --upgrade jinja2`"),
        ("_sqlite3", "history --store local", "cannot load what oncecron needs: "),
        ("_sqlite3", "run --key k --no-tick --store local -- true", "use the python3 of the distribution"),
        ("oncecron.cli.why", "why k --store local", "a part of oncecron is missing: "),
        ("oncecron.run.guard", "run --key k --no-tick --store local -- true", "install oncecron again in "),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_has_a_cure(
    tmp_path: Path, missing: str, line: str, told: str
) -> None:
    """It is no internal error: a wrong Python, a package that is missing or too old, half an installation."""
    block = f"import sys; sys.modules[{missing!r}] = None; import oncecron.__main__ as main; main.main()"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
    }
    ended = subprocess.run(
        [sys.executable, "-P", "-c", block, *line.split()],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.count("\n")) == (78, 1), ended
    assert told in ended.stderr


def test_a_package_that_is_too_old_is_replaced() -> None:
    """An old version lacks a name, and says so."""
    error = ImportError("cannot import name 'ParameterSource' from 'click.core'", name="click.core")
    assert str(broken(error)).startswith(f"click cannot be loaded: {error}; ")


# Commands to paste


@pytest.mark.parametrize(
    ("variable", "store", "namespace", "shown"),
    [
        (None, "postgresql://h/d", "oncecron", "`oncecron init --store postgresql://h/d`"),
        (None, "redis://h", "jobs", "`oncecron init --store redis://h --namespace jobs`"),
        (None, "sqlite:///a b", "oncecron", "`oncecron init --store 'sqlite:///a b'`"),
        (None, PASSWORD, "jobs", "`oncecron init --namespace jobs`"),
        (PASSWORD, PASSWORD, "oncecron", '`oncecron init --store "$ONCECRON_STORE"`'),
    ],
)
def test_a_command_names_store_and_namespace(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, store: str, namespace: str, shown: str
) -> None:
    """Quoted for the shell, and never with a password."""
    if variable:
        monkeypatch.setenv("ONCECRON_STORE", variable)
    assert command_line("init", store, namespace) == shown


def test_a_command_repeats_what_was_typed() -> None:
    """And not what comes from the environment or the file, which still applies."""
    given = {"store": PASSWORD, "namespace": "jobs"}
    shown = '`oncecron locks --store "$ONCECRON_STORE" --namespace jobs`'
    assert Settings(STORE_OPTIONS, given).command("locks") == shown
    assert Settings(STORE_OPTIONS, {}).command("locks") == "`oncecron locks`"


def test_an_owner_connects_without_the_password_of_another() -> None:
    """The rest of the URL stays."""
    assert as_role("postgresql://u:p@a:1,b/d?user=x", "dba") == "postgresql://dba@a:1,b/d?user=x"
    assert as_role("postgresql://u@a/d?password=p", "dba") == "postgresql://dba@a/d?password=***"
    assert as_role("postgresql:///d", "dba") == "postgresql://dba@/d"


def test_two_servers_are_told_apart() -> None:
    """On one line, with the hint of libpq in brackets."""
    refused = "failed: Connection refused\n\tIs the server running?\n"
    message = f'connection to server at "a", port 1 {refused}connection to server at "b" {refused}'
    told = str(explain([("a,b", message)], "postgresql://a,b/d"))
    assert told.endswith(
        'at "a", port 1 failed: Connection refused (Is the server running?); connection to server at "b" failed: '
        "Connection refused (Is the server running?)"
    )


def test_what_libpq_repeats_comes_once() -> None:
    """With and without TLS, the same server gives the same answer."""
    line = 'connection to server at "a", port 1 failed: FATAL: password authentication failed for user "u"'
    said = line.replace("FATAL: ", "FATAL:  28P01: ")
    told = str(
        explain(
            [("a", f"{said}\nLOCATION:  auth_failed, auth.c:335\n{said}\n")], "postgresql://a/d"
        )
    )
    assert (
        told
        == f"PostgreSQL postgresql://a/d: {line}; check the password in the store's URL or in ~/.pgpass"
    )


class Disk:
    """A spool that knows that the store is away."""

    def note_unreachable(self, _key: str) -> bool:
        return False


def reporter(disk: Disk, verbose: int) -> Reporter:
    """Return the reporter of a firing that runs all the same, so that nothing is recorded."""
    spec = SimpleNamespace(
        firing=SimpleNamespace(key="k"),
        spool=disk,
        verbose=verbose,
        log=None,
        on_store_error="run",
        skip_exit=0,
    )
    return Reporter(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verbose", "told"),
    [(0, ""), (1, "oncecron: key k: away; the command starts without a lease\n")],
)
def test_a_second_failure_is_told_to_who_asks(
    capfd: pytest.CaptureFixture[str], verbose: int, told: str
) -> None:
    """Cron would mail it each minute."""
    reporter(Disk(), verbose).say_store_failure(StoreUnavailable("away"))
    assert capfd.readouterr().err == told
