"""Secrets in a command or in the address of a store are in no record, no message and no file name."""

from collections.abc import Callable
from pathlib import Path

import pytest
from log_of import SQLiteLog, Store
from servers.oncecron import Oncecron

SECRET = "Xq7Vd9-hunter2"
NESTED = f"PGPASSWORD={SECRET} sh -c 'true --store postgresql://u:{SECRET}@h/d'"


def everything(host: Oncecron, key: str) -> str:
    """Return all that the commands for people and for programs say about a key."""
    reading = [
        *(("history", "--format", each) for each in ("table", "json", "ndjson", "csv")),
        *(("history", "--id", 1), ("history", "--skips"), ("jobs",), ("locks",), ("audit",)),
        *(("why", key), ("why", key, "--json"), ("jobs", "--json"), ("locks", "--pauses")),
    ]
    ended = [host(*words) for words in reading]
    return "".join(f"{each.out.decode()}{each.err}" for each in ended)


def on_disk(directory: Path) -> str:
    """Return the names and the contents of all files below a directory."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return "".join(f"{path} {path.read_bytes().decode('utf-8', 'replace')}" for path in found)


@pytest.mark.own_log
def test_a_secret_in_a_command_is_in_no_record(
    store: Store, new_host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Neither in the store, nor in the log beside it; and the command gets its own words."""
    log = SQLiteLog(public_path / "log" / "log.db")
    host = new_host(ONCECRON_LOG=log.url)
    ended = host.run("k", "--tick", "one", "--shell", f"{NESTED}; echo {SECRET}")
    assert (ended.status, ended.out, ended.err) == (0, f"{SECRET}\n".encode(), "")
    ended = host.run("k", "--tick", "two", "--", "printf", "%s", f"--password={SECRET}")
    assert (ended.status, ended.out, ended.err) == (0, f"--password={SECRET}".encode(), "")
    for each in (store, log):
        first, second = (row.command for row in each.executions("k"))
        assert first.endswith(" -c PGPASSWORD=***")
        assert second == "printf %s --password=***"
    told = everything(host, "k")
    assert SECRET not in told
    assert "--password=***" in told


def test_a_secret_is_in_no_spooled_record_and_no_message(public_path: Path) -> None:
    """Where the store is away, and where the command is wrong; nor in the name of the spool."""
    away = f"postgresql://u:{SECRET}@127.0.0.1:1/d?password={SECRET}&sslmode=disable"
    host = Oncecron(away, public_path)
    short = ("--connect-timeout", "1s")
    ended = host.run("k", *short, "--on-store-error", "run", "--", "true", f"--token={SECRET}")
    assert ended.status == 0
    said = ended.err
    for words in (f"psql postgresql://u:{SECRET}@h/d", f"/no/such --password={SECRET}"):
        ended = host.run("broken", *short, "--", words)
        assert ended.status == 127
        assert "use --shell" in ended.err
        said += ended.err
    said += host("flush").err + host("jobs").err
    assert SECRET not in said
    spooled = on_disk(public_path)
    assert "true --token=***" in spooled
    assert "postgresql://u:***@h/d" in spooled
    assert SECRET not in spooled


def test_a_crontab_that_cannot_be_wrapped_shows_no_secret(public_path: Path) -> None:
    """Its user may have mailed the messages; the crontab itself is written as it is."""
    crontab = public_path / "crontab"
    crontab.write_text(
        f"@reboot a --token={SECRET}\n# oncecron: store=postgresql:/u:{SECRET}%40@h/d\n0 2 * * * b\n"
    )
    ended = Oncecron("local", public_path)("crontab", "wrap", crontab)
    assert ended.status == 1
    assert "a --token=***" in ended.err
    assert "postgresql:/u:***@h/d" in ended.err
    assert SECRET not in ended.err
    assert f"--token={SECRET}\n" in ended.out.decode()
