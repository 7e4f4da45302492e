"""What a host that may fire can write without end: readers stay small, and print what a person can read.

ONCECRON_TEST_FLOOD says how many rows of each kind are written.
"""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from flooded import flood, put_notices
from log_of import PostgresLog, Store
from servers import Database
from servers.oncecron import CONSOLE_SCRIPT, Ended, Oncecron

from oncecron.stores.postgres.sql_files import MOST_KEYS
from oncecron_notify.notices import MOST_CHANNELS

ROWS = int(os.environ.get("ONCECRON_TEST_FLOOD", "1200"))
CONFIG = '[notify.channel.ops]\ncommand = "cat"\n'
JUNK = json.dumps(
    {"known": [], "failing": {"since": 1, "tried_at": time.time(), "tries": 9, "error": "x" * 100}}
)
ALLOWED = 30
"""Megabytes by which junk may let a reader grow that has no use for it."""


def measured(host: Oncecron, *words: str) -> tuple[Ended, int]:
    """Return what a command has left, and the most memory that it had, in MB."""
    script = (
        "import resource, subprocess, sys; ended = subprocess.run(sys.argv[2:]);"
        "open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss));"
        "sys.exit(ended.returncode)"
    )
    path = Path(host.environment["HOME"]) / "peak"
    command = ["python3", "-c", script, str(path), str(CONSOLE_SCRIPT), *words]
    done = subprocess.run(command, env=host.environment, capture_output=True, check=False)
    peak = int(path.read_text()) // 1024
    return Ended(done.returncode, done.stdout, done.stderr.decode()), peak


@pytest.fixture
def host(new_host: Callable[..., Oncecron], public_path: Path) -> Oncecron:
    """Give a host that notifies one channel, in a cluster where all is well."""
    config = public_path / "oncecron.toml"
    config.write_text(CONFIG)
    host = new_host(ONCECRON_CONFIG=str(config))
    assert host.run("honest", "--no-tick", "--", "true").status == 0
    return host


@pytest.mark.own_log
def test_channels_that_nobody_has_configured(
    store: Store, host: Oncecron, new_host: Callable[..., Oncecron]
) -> None:
    """They are neither findings nor messages; `doctor` has a line about them, and `prune` removes them."""
    put_notices(store, ROWS, JUNK)
    checked = host("check")
    assert (checked.status, checked.out.count(b"\n"), checked.err) == (0, 1, "")
    assert b"nothing to send" in host("notify", "--dry-run").out
    line = f"the store has records of {ROWS} channels that the configuration file does not name"
    assert host("doctor").out.decode().count(line) == 1
    owner = new_host(
        ONCECRON_STORE=store.owner_url, ONCECRON_CONFIG=host.environment["ONCECRON_CONFIG"]
    )
    elsewhere = new_host(ONCECRON_STORE=store.owner_url)
    assert b"channel" not in elsewhere("prune").out  # it does not know who notifies
    pruned = owner("prune")
    assert f"removed {ROWS} channels of notify that " in pruned.out.decode(), pruned.err
    assert line not in host("doctor").out.decode()


def test_a_document_that_is_too_long(store: Store, host: Oncecron) -> None:
    """It is not read, whoever has put it there: PostgreSQL refuses it, the others leave it where it is."""
    if isinstance(store, PostgresLog):
        with pytest.raises(Exception, match="document_text"):
            put_notices(store, 1, "x" * 5_000_000)
        return
    _, before = measured(host, "check")
    put_notices(store, 60, "x" * 5_000_000, names="ops")
    checked, after = measured(host, "check")
    assert checked.status in (0, 3)
    assert checked.err.count("\n") == 1
    assert "ops" in checked.err
    assert after - before < ALLOWED


def test_more_findings_than_anybody_reads(store: Store, host: Oncecron) -> None:
    """A thousand lines and one, and a message that fits; the counts are of all."""
    flood(store, ROWS)
    checked = host("check", "--timeout", "5m", deadline=300)
    assert checked.status == 2
    lines = checked.out.decode().splitlines()
    assert len(lines) == 1 + 1000 + 1
    assert lines[-1].endswith("more findings; `oncecron check --json` has all of them")
    document = json.loads(host("check", "--json", "--timeout", "5m", deadline=300).out)
    assert len(document["findings"]) == 1000 + int(lines[-1].split()[1])
    assert len(host("notify", "--dry-run").out) < 250_000


@pytest.mark.own_log
def test_a_new_channel_finds_no_room(store: Store, host: Oncecron, public_path: Path) -> None:
    """It says so at each pass, and the known ones go on; a `prune` makes room."""
    config = Path(host.environment["ONCECRON_CONFIG"])
    inbox = {name: public_path / name for name in ("ops", "late")}
    sections = {
        name: f'[notify.channel.{name}]\ncommand = "cat >>{path}"\n' for name, path in inbox.items()
    }
    config.write_text(sections["ops"])
    host.run("first", "--no-tick", "--", "false")
    assert host("notify", "--now").status == 0
    put_notices(store, MOST_CHANNELS, JUNK)
    config.write_text("".join(sections.values()))
    host.run("second", "--no-tick", "--", "false")
    passed = host("notify", "--now")
    assert passed.status == 1
    assert "oncecron: channel late: the store has what 100 channels were notified of" in passed.err
    assert "second" in inbox["ops"].read_text()
    assert not inbox["late"].exists()
    assert host("prune", "--store", store.owner_url).status == 0
    assert host("notify", "--now").status == 0
    assert "second" in inbox["late"].read_text()
    assert inbox["ops"].read_text().count("oncecron CRITICAL: second") == 1


def test_keys_that_a_role_makes_up(granted: Database, public_path: Path) -> None:
    """A full schema lets known keys run, names the cure where a new one fires, and takes it again after a `prune`."""
    owner = Oncecron(granted.url(), public_path)
    runner = Oncecron(granted.url("runner"), public_path)
    assert runner.run("known", "--no-tick", "--", "true").status == 0
    granted.execute(
        "insert into oncecron.job_key (key) select 'junk-' || n from generate_series(2, %s) n",
        MOST_KEYS,
    )
    refused = runner.run("new", "--no-tick", "--", "true")
    assert refused.status == 78
    assert "room for no other one; have its owner run `oncecron prune`" in refused.err
    assert runner.run("known", "--no-tick", "--", "true").status == 0
    assert owner("check", "--timeout", "5m", deadline=300).status in (0, 2)
    assert owner("prune", deadline=300).status == 0
    assert runner.run("new", "--no-tick", "--", "true").status == 0
    assert owner("jobs").out.count(b"\n") == 1 + 2


def test_texts_that_a_role_makes_long(granted: Database, public_path: Path) -> None:
    """Whoever asks for the newest executions of all keys does not hold their commands and notes in memory."""
    owner = Oncecron(granted.url(), public_path)
    assert owner.run("known", "--no-tick", "--", "true").status == 0
    _, before = measured(owner, "check")
    text = "x" * 65_000
    with granted.connect("runner", autocommit=True) as role:
        for number in range(500):
            at = time.time()
            record = {
                "kind": "execution", "key": f"junk-{number % 20}", "shard": 0, "tick": f"t{number}", "attempt": 1,
                "outcome": "failed", "exit_code": 1, "host": "ghost", "pid": 1, "user": "evil", "command": text,
                "started_at": at, "finished_at": at, "duration": 1.0, "cause": "schedule", "note": text[:9000],
                "owner": str(uuid.uuid4()), "output": None,
            }  # fmt: skip
            role.execute("select oncecron.deliver_v1(%s, null, null)", [json.dumps(record)])
    checked, after = measured(owner, "check")
    assert checked.out.count(b"\n") == 1 + 20
    assert after - before < ALLOWED
