"""What people's commands print about a made-up cluster, word by word: the files of `expected`.

The store and its clock are those of the pictures (`tools/fleet.py`), and the commands run in this process.
That every store gives the reports the same rows is shown by the contract. `ONCECRON_TEST_RENEW=1` writes the files
anew: read the difference before you commit it.
"""

import contextlib
import gc
import io
import os
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from fleet import Fleet

from oncecron import __version__
from oncecron.cli.main import invoke

EXPECTED = Path(__file__).with_name("expected")
COMMANDS = """\
audit reindex-search --since 2026-11-20T00:00Z
audit reindex-search --since 2026-11-20T00:00Z --json
check
check --json
history --utc --limit 12
history --utc --json --limit 2
history --utc --format csv --limit 3 tls-renew
history --utc --failed --limit 3
history --utc --id 52447
history --utc --skips --limit 5
history --utc --skips --limit 2 --outcome held reindex-search
history --utc --skips --json billing-nightly --tick 2026-11-20T02:00Z
history --utc --tick 2026-11-20T02:00Z billing-nightly
hosts --utc
hosts --utc --json web1
jobs --utc
jobs --utc --json billing-nightly newsletter sync-warehouse
locks --utc
locks --utc --json
locks --utc --pauses
next billing-nightly --since 2026-11-20
timeline --utc
timeline --utc billing-nightly
timeline --utc --json reindex-search
why --utc billing-nightly
why --utc billing-nightly --json
why --utc newsletter
why --utc reindex-search
why --utc sync-warehouse
""".splitlines()


def printed(words: list[str]) -> str:
    """Return what a command prints into pipes, and its status if it is not 0."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = invoke(words)
    text = out.getvalue() + err.getvalue() + (f"status {status}\n" if status else "")
    return text.replace(__version__, "VERSION"[: len(__version__)])


def name_of(line: str) -> str:
    """Return the name of the file of a command."""
    return re.sub(r"[ :=]+-*", "-", line.replace(" --utc", "")) + ".txt"


@pytest.mark.quick
def test_each_command_prints_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are there, and no others."""
    for name in (
        "oncecron_crontab",
        "oncecron_each",
        "oncecron_notify",
    ):  # whose cures and findings are told
        pytest.importorskip(name)
    renews = "ONCECRON_TEST_RENEW" in os.environ
    fleet = Fleet(str(tmp_path / "jobs.db"))
    fleet.fill()
    given = {"ONCECRON_HOST": "web1", "ONCECRON_STORE": f"sqlite://{fleet.path}", "COLUMNS": "100"}
    given |= {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "TZ": "UTC"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    threshold = gc.get_threshold()
    with fleet.clock():
        found = {name_of(line): f"$ oncecron {line}\n{printed(line.split())}" for line in COMMANDS}
    gc.set_threshold(*threshold)
    monkeypatch.undo()
    time.tzset()
    if renews:
        for file in EXPECTED.glob("*.txt"):
            file.unlink()
        for name, text in found.items():
            (EXPECTED / name).write_text(text, encoding="utf-8")
    expected = {file.name: file.read_text(encoding="utf-8") for file in EXPECTED.glob("*.txt")}
    assert found == expected
