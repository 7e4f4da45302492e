"""`oncecron doctor`: what is wrong with a host and its store, by the installed console script."""

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from answers import answer, refused
from log_of import Store
from servers import Database, RedisServer, eventually, skewed
from servers.disk import Disk
from servers.namespaces import Machine
from servers.oncecron import CONSOLE_SCRIPT, Oncecron
from servers.postgres import password_of
from servers.require import program

import oncecron

Hosts = Callable[..., Oncecron]
FIELDS = ["state", "subject", "text", "cure"]
OF_HOST = {"cron", "path", "program"}
"""What depends on the machine of the tests."""


def diagnoses(host: Oncecron, *words: object) -> dict[str, dict[str, str]]:
    """Return what was found by subject, and check that the exit status says the same."""
    ended = host("doctor", "--json", *words)
    assert ended.err == "", ended
    found = json.loads(ended.out)
    assert all(list(each) == FIELDS for each in found)
    assert ended.status == int(any(each["state"] != "ok" for each in found))
    return {each["subject"]: each for each in found}


def wrong(host: Oncecron, *words: object) -> dict[str, str]:
    """Return the states that are not ok, by subject."""
    found = diagnoses(host, *words)
    return {
        name: each["state"]
        for name, each in found.items()
        if each["state"] != "ok" and name not in OF_HOST
    }


@pytest.mark.quick
def test_a_host_that_is_well(store: Store, new_host: Hosts) -> None:
    """Every store says what it is; the table has a line for each."""
    host = new_host("host-a")
    host.run("k", "--tick", "t", "--", "true")
    found = diagnoses(host)
    assert wrong(host) == {}
    assert {"configuration", "zone", "store", "server"} <= {*found}
    assert {"spool", "commands", "schedules"} <= {*found}
    heading, *rows, last = host("doctor").out.decode().splitlines()
    assert last == "keys and hosts: `oncecron check`"
    assert heading.split() == ["STATE", "SUBJECT", "FINDING"]
    assert {row.split()[0] for row in rows} <= {"ok", "warn"}


def test_which_oncecron_runs(store: Store, new_host: Hosts, public_path: Path) -> None:
    """With the Python that it has; another one on the PATH is a warning, as it is upgraded alone; a link is none."""
    here = f"{CONSOLE_SCRIPT} is oncecron {oncecron.__version__} in {Path(oncecron.__file__).parents[1]}, with Python"
    for name in ("link", "other"):
        directory = public_path / name
        directory.mkdir()
        if name == "link":
            (directory / "oncecron").symlink_to(CONSOLE_SCRIPT)
        else:
            shutil.copy(CONSOLE_SCRIPT, directory / "oncecron")
        found = diagnoses(new_host(PATH=f"{directory}:/usr/bin:/bin"))["program"]
        assert found["text"].startswith(here)
        assert (str(directory / "oncecron") in found["text"]) == (name == "other")
    assert found["state"] == "warn"
    assert (
        f"; another one is {directory}/oncecron; cron (PATH=/usr/bin:/bin) finds " in found["text"]
    )
    assert found["cure"] == "remove all but one"


def test_a_store_that_is_away_and_one_without_a_schema(host: Oncecron, database: Database) -> None:
    """What happened, and the cure of every other command."""
    found = diagnoses(host, "--store", "postgresql://u:s3cret@127.0.0.1:1/d")
    assert found["store"]["state"] == "fail"
    assert "Connection refused" in found["store"]["text"]
    assert "s3cret" not in str(found)
    found = diagnoses(host, "--store", database.url())
    assert "has no schema oncecron" in found["store"]["text"]
    assert "oncecron init" in found["store"]["text"]


def test_a_wrong_configuration_is_a_finding(host: Oncecron, public_path: Path) -> None:
    """Of the file, and of a missing store; a wrong line is 64 as everywhere."""
    file = public_path / "wrong.toml"
    file.write_text("nonsense = 1\n")
    file.chmod(0o644)
    assert wrong(host, "--config", file) == {"configuration": "fail"}
    file.write_text("[[ping]]\nservice = 'webhook'\nurl = 'http://h/s3cret'\n")
    assert wrong(host, "--config", file)["configuration"] == "warn"
    del host.environment["ONCECRON_STORE"]
    assert wrong(host) == {"store": "fail"}
    refused(host("doctor", "--format", "xml"), 64, "--format")


def test_a_role_that_may_not_fire(ready: Database, public_path: Path) -> None:
    """With the command that gives the right."""
    found = diagnoses(Oncecron(ready.url("reader"), public_path))
    url = ready.url("owner").replace(f":{password_of('owner')}@", "@")
    assert found["role"] == {
        "state": "warn",
        "subject": "role",
        "text": "role reader may read, but start no job",
        "cure": f"have owner, the owner, run `oncecron init --run-role reader --store {url}`",
    }


def test_a_session_without_a_lease_is_named(ready: Database, public_path: Path) -> None:
    """Any role that may connect can take the session lock of a key."""
    host = Oncecron(ready.url("runner"), public_path)
    host.run("k", "--tick", "t", "--", "true")
    owner = Oncecron(ready.url("owner"), public_path)
    with ready.connect("reader") as stranger:
        stranger.execute(
            "select pg_advisory_lock('oncecron.job_key'::regclass::oid::int4, key_id) from oncecron.keys"
        )
        found = diagnoses(owner)["locks"]
        assert found["state"] == "warn"
        assert f"backend {stranger.info.backend_pid} " in found["text"]
        assert "oncecron release k --force" in found["cure"]
    eventually(lambda: diagnoses(owner)["locks"]["state"] == "ok")


def test_settings_of_redis_that_lose_data(
    new_redis: Callable[..., RedisServer], public_path: Path
) -> None:
    """Eviction refuses every claim; without an AOF a crash loses the log, and a start delays all firings."""
    server = new_redis(aof=False)
    host = Oncecron(server.url(), public_path)
    assert wrong(host) == {"persistence": "warn", "firings": "warn"}
    server.connect().config_set("maxmemory-policy", "allkeys-lru")
    assert wrong(host) == {"persistence": "warn", "firings": "warn", "eviction": "fail"}


def test_the_cure_of_a_redis_without_an_append_only_file_keeps_its_data(
    new_redis: Callable[..., RedisServer], public_path: Path
) -> None:
    """A restart that finds the setting, and no such file, begins empty."""
    server = new_redis(aof=False)
    cure = diagnoses(Oncecron(server.url(), public_path))["persistence"]["cure"]
    [command] = re.findall(r"`redis-cli (.*?)`, and then", cure)
    client = server.connect()
    client.set("of-others", "kept")
    client.execute_command(*command.split())
    eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    server.settings["appendonly"] = "yes"
    server.restart()
    assert server.connect().get("of-others") == b"kept"


@pytest.mark.parametrize(("seconds", "state"), [(-60, "warn"), (600, "fail")])
def test_a_wrong_clock(ready: Database, public_path: Path, seconds: int, state: str) -> None:
    """Against the clock of the server."""
    host = Oncecron(ready.url("owner"), public_path)
    host.environment = skewed(seconds, host.environment)
    assert diagnoses(host)["clock"]["state"] == state


def test_records_that_wait_and_hosts_that_differ(any_store: Store, new_host: Hosts) -> None:
    """In the spool of this user; and other words under one key."""
    a, b = new_host("host-a"), new_host("host-b")
    a.run("k", "--tick", "1", "--", "true")
    b.run("k", "--tick", "2", "--", "true", "or", "false")
    found = diagnoses(a)["commands"]
    assert (found["state"], found["text"]) == ("warn", "hosts have different commands under k")
    assert "k is true on host-a; true or false on host-b" in found["cure"]
    path = Path(any_store.url.removeprefix("sqlite://"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("begin exclusive")
        assert a.run("k", "--tick", "3", "--connect-timeout", "1s", "--", "true").status == 69
    assert diagnoses(a)["spool"]["state"] == "warn"
    assert a("flush").status == 0
    assert diagnoses(a)["spool"]["state"] == "ok"


def test_hosts_that_disagree_about_a_zone(
    store: Store, new_host: Hosts, public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has another tz database; the job has run on both, and `check` says so."""
    del store
    old, new = new_host("old"), new_host("new")
    monkeypatch.delenv("PYTHONTZPATH", raising=False)
    for host, hours in ((old, 6), (new, 5)):
        zones = public_path / f"zones-{hours}" / "Asia"
        zones.mkdir(parents=True)
        shutil.copy(f"/usr/share/zoneinfo/Etc/GMT-{hours}", zones / "Almaty")
        host.environment["PYTHONTZPATH"] = str(zones.parent)
        host.run("bill", "--schedule", "0 3 1 1 *", "--tz", "Asia/Almaty", "--", "true")
    assert [each["outcome"] for each in answer(new, "history", "bill")] == ["succeeded"] * 2
    checked = new("check", "bill")
    assert (checked.status, b"bill has two ticks for one local time, " in checked.out) == (1, True)
    assert b"--tz Asia/Almaty is +05:00 on new, +06:00 on old" in checked.out
    for host in (old, new):  # its line names another zone, or its database is the same
        host.environment["PYTHONTZPATH"] = str(public_path / "zones-5")
        host.run("bill", "--schedule", "0 3 1 1 *", "--tz", "Asia/Almaty", "--", "true")
    assert new("check", "bill").status == 0


def test_a_full_disk_keeps_no_record(any_store: Store, new_host: Hosts) -> None:
    """Nobody would see it before the store is away, and then the record is lost."""
    host = new_host("host-a")
    disk = Disk(1)
    try:
        os.chown(disk.path, os.geteuid(), os.getegid())
        host.environment["XDG_STATE_HOME"] = str(disk.path)
        assert diagnoses(host)["spool"]["state"] == "ok"
        disk.fill()
        found = diagnoses(host)["spool"]
        assert found["state"] == "fail"
        assert found["cure"].endswith("No space left on device")
        disk.free()
        assert diagnoses(host)["spool"]["state"] == "ok"
    finally:
        disk.remove()


SETUP = """\
mount -t tmpfs -o mode=755 tmpfs /var/spool/cron
install -d -m 1730 -g crontab /var/spool/cron/crontabs
mount -t tmpfs -o mode=755 tmpfs /etc/cron.d
touch /run/empty
[ ! -e /etc/crontab ] || mount --bind /run/empty /etc/crontab
"""
SHELL = CONSOLE_SCRIPT.with_name("oncecron-shell")


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("own", f"0 2 * * * {CONSOLE_SCRIPT} run --key k -- x\n", f"find {CONSOLE_SCRIPT}"),
        ("own", f"PATH={CONSOLE_SCRIPT.parent}\n0 2 * * * oncecron run --key k -- x\n", "find oncecron"),
        ("own", f"SHELL={SHELL}\n0 2 * * * x\n", f"find {SHELL}"),
        ("own", "0 2 * * * x\n", "no line of the crontabs"),
        ("own", "0 2 * * * $HOME/bin/oncecron run --key k -- x\n", "find $HOME/bin/oncecron"),
        ("app", f"0 2 * * * root cd / && {CONSOLE_SCRIPT} run --key k -- x\n", f"find {CONSOLE_SCRIPT}"),
        ("own", "# x\n0 2 * * * oncecron run --key k -- x\n", "line 2 finds no oncecron in its PATH (/usr/bin:/bin)"),
        ("own", "PATH=/opt\n0 2 * * * oncecron run --key k -- x\n", "line 2 finds no oncecron in its PATH (/opt)"),
        ("app", "0 2 * * * root /opt/oncecron run --key k -- x\n", "/etc/cron.d/app line 1 finds no /opt/oncecron"),
        ("app", "SHELL=/opt/oncecron-shell\n0 2 * * * root x\n", "/etc/cron.d/app line 2 finds no /opt/oncecron-shell"),
        ("own", "* * * * * /opt/oncecron notify\n", "line 1 finds no /opt/oncecron"),
        ("own", f"* * * * * sleep 1; {CONSOLE_SCRIPT} notify\n", f"find {CONSOLE_SCRIPT}"),
        ("app.bak", "0 2 * * * root /opt/away/oncecron run --key k -- x\n", "no line of the crontabs"),
    ],
)  # fmt: skip
def test_the_crontabs_find_oncecron(public_path: Path, file: str, text: str, found: str) -> None:
    """By their PATH, a full path or SHELL; a host whose lines all do so is well, wherever oncecron is installed."""
    program("crontab")
    machine = Machine("spool", ["mount", "uts"], setup=SETUP)
    try:
        command = "crontab -" if file == "own" else f"cat >/etc/cron.d/{file}"
        machine.run(["/bin/sh", "-c", command], input=text)
        host = Oncecron("local", public_path, prefix=machine.prefix)
        path = diagnoses(host)["path"]
    finally:
        machine.remove()
    assert found in path["text"]
    assert path["state"] == ("warn" if "finds no" in found else "ok")
    assert path["cure"] == (
        f"write {CONSOLE_SCRIPT} there, as `oncecron crontab wrap` does"
        if "finds no" in found
        else None
    )
