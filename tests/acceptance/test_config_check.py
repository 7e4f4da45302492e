"""`oncecron config check` by the installed console script: every problem of a file, and no store."""

import json
from pathlib import Path

import pytest
from answers import refused
from servers.oncecron import Oncecron

pytestmark = pytest.mark.quick
SECRET = "s3cret"
URL = f"https://hc.example/ping/{SECRET}"
PING = "[[ping]]\nservice = 'sentry'\n"


@pytest.fixture
def host(public_path: Path) -> Oncecron:
    """Give a host without a store, and without a configuration."""
    host = Oncecron("", public_path)
    del host.environment["ONCECRON_STORE"]
    return host


def problems(host: Oncecron, public_path: Path, text: str, mode: int = 0o600) -> list[str]:
    """Write a file and check it; return the lines without its path, none for a file that is well."""
    path = public_path / "oncecron.toml"
    path.write_text(text)
    path.chmod(mode)
    ended = host("config", "check", path)
    lines = ended.out.decode().splitlines()
    assert (ended.status, ended.err) == (78 if lines != [f"{path}: no problems"] else 0, "")
    assert SECRET.encode() not in ended.out
    assert all(line.startswith(str(path)) for line in lines)
    return [line.removeprefix(str(path)).strip() for line in lines] if ended.status else []


def test_all_problems_are_found_at_once(host: Oncecron, public_path: Path) -> None:
    """At the top and in every table; a store that nobody could reach is not asked."""
    found = problems(
        host,
        public_path,
        'stor = "local"\nttl = "1s"\nstore = "postgresql://u@192.0.2.1/d"\n'
        '[job.a]\nretry = 1\ngrace = "x"\n[job.b]\nshards = 0\n'
        '[retention]\nlogs = "1d"\nskips = "x"\n[redis]\ndb = 1\nwait = "x"\n',
    )
    assert [line.partition(";")[0].partition(", no number")[0] for line in found] == [
        ": unknown key 'stor'",
        ": ttl: '1s' is too small",
        "[job.a]: unknown key 'retry'",
        "[job.a]: grace: bad duration 'x'",
        "[job.b]: shards: '0' is too small",
        "[retention]: unknown key 'logs'",
        "[retention]: skips: bad duration 'x'",
        "[redis]: unknown key 'db'",
        "[redis]: wait: 'x' is not a whole number from 0 to 1000",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttl = \n", ": Invalid value (at line 1, column 7); correct the TOML there"),
        ("job = 3\n", ": job must be a table: [job]"),
        ("[job]\ntimeout = 3\n", "[job]: 'timeout' in [job] needs the name of a job"),
        ("[job.a.b]\nttl = 9\n", '[job.a.b]: a key with dots needs quotes; write [job."a.b"]'),
        ("[job.auto]\nttl = 9\n", "[job.auto]: --key auto stands for the derived key"),
        ("[job.a]\n", "[job.a]: the section is empty; remove it"),
        ("[job.'a b']\nttl = 9\n", '[job."a b"]: no job can have this key; use 1 to 200 of'),
        ("[job.a]\nschedule = '0 25 * * *'\n", "[job.a]: schedule: invalid hour '25'"),
        ("[job.a]\ntz = 'Europe/Berln'\n", "[job.a]: tz: unknown time zone 'Europe/Berln'"),
        ("[job.a]\nschedule = '@daily'\nno_tick = true\n", "[job.a]: schedule and no_tick: only one of them can set"),
        ("on_store_error = 'run'\n[job.a]\nfailover = true\n", "[job.a]: failover and on_store_error: a waiting host"),
        ("[job.a]\ncommand = ''\n", "[job.a]: command: the command is empty"),
        (f"store = 'mysql://u:{SECRET}@h/d'\n", ": store: 'mysql://u:***@h/d': unknown kind"),
        ("[job.a]\nstore = 'nothing'\n", "[job.a]: store: "),
        ("store = 'local'\nlog = 'redis://h'\n", ": log: redis://h cannot hold the log"),
        ("[job.a]\nstore = 'local'\nlog = 'local'\n", "[job.a]: log: "),
        ("store_file = '/no/such/file'\n", ": store_file: store file /no/such/file cannot be read"),
        ("store = 'redis://h'\nnamespace = 'a b'\n", ": store: invalid namespace 'a b' for Redis"),
        ("ping = 3\n", ": ping must be an array of tables: [[ping]]"),
        ("[ping]\nservice = 'webhook'\n", ": ping must be an array of tables: [[ping]]"),
        (f"[[ping]]\nservice = 'sentri'\nurl = '{URL}'\n", "[[ping]]: service: 'sentri' is not one of healthchecks, "),
        (f"[[ping]]\nservice = ['sentry']\nurl = '{URL}'\n", "[[ping]]: service: ['sentry'] is not one of "),
        (f"[[ping]]\nservice = '{URL}'\nurl = 'http://h'\n", "[[ping]]: service: 'https://hc.example/***' is not"),
        (f"{PING}url = 'http://h'\n'{URL}' = 1\n", "[[ping]]: unknown key 'https://hc.example/***'"),
        (f"{PING}urls = 1\nurl = '{URL}'\n", "[[ping]]: unknown key 'urls'; did you mean url?"),
        (PING, "[[ping]]: url must be an address such as https://HOST/PATH"),
        (f"{PING}url = 'ftp://h/{SECRET}'\n", "[[ping]]: url must be an address"),
        (f"{PING}url = '{URL} x'\n", "[[ping]]: url must be an address"),
        (f"{PING}url = '{URL}/\u00e9'\n", "[[ping]]: url must be an address"),
        (f"{PING}url = 'https://{SECRET}@/'\n", "[[ping]]: url must be an address"),
        (f"{PING}url_file = 3\n", "[[ping]]: url_file must be the path of a file"),
        (f"{PING}url = '{URL}'\nurl_file = 'x'\n", "[[ping]]: url and url_file contradict each other"),
        (f"{PING}url = '{URL}{{kye}}'\n", "[[ping]]: url: unknown placeholder; known ones"),
        (f"{PING}url = '{URL}'\nkeys = 'a'\n", "[[ping]]: keys must be a list of keys or"),
        (f"{PING}url = '{URL}'\nkeys = []\n", "[[ping]]: keys must be a list of keys or"),
        (f"{PING}url = '{URL}'\nkeys = ['a b']\n", "[[ping]]: keys: no job can have a key"),
        (f"{PING}url = '{URL}'\n[[ping]]\nurl = '{URL}'\n", "[[ping]] 2: service must be one of"),
    ],
)  # fmt: skip
def test_what_a_file_must_not_hold(host: Oncecron, public_path: Path, text: str, told: str) -> None:
    """One line, with the section, the name and the cure."""
    found = problems(host, public_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(told)


def test_owner_and_mode_are_checked_with_the_rest(host: Oncecron, public_path: Path) -> None:
    """In one go: what other users can write, a password that they can read, and the content."""
    url = f"store = 'postgresql://u:{SECRET}@h/d'\n"
    found = problems(host, public_path, f"{url}stor = 1\n", 0o666)
    assert len(found) == 3
    assert found[0].startswith(": other users can write to ")
    assert "unknown key 'stor'" in found[1]
    assert "it holds a password and is world-readable; run `chmod 640 " in found[2]
    assert problems(host, public_path, url, 0o640) == []


def test_the_url_of_a_ping_is_a_secret(host: Oncecron, public_path: Path) -> None:
    """Who knows it can report successes that never were."""
    text = f"[[ping]]\nservice = 'healthchecks'\nurl = '{URL}/{{key}}-{{shard}}'\nkeys = ['a-*b*', 'd.e']\n"
    [found] = problems(host, public_path, text, 0o644)
    assert found.startswith(
        "[[ping]]: url: this URL is a secret, and the file is world-readable; move the URL"
    )
    assert problems(host, public_path, text, 0o640) == []
    secret = public_path / "url"
    secret.write_text(f"{URL}/{{key}}\n")
    text = f"{PING}url_file = 'url'\n"
    secret.chmod(0o640)
    assert problems(host, public_path, text, 0o644) == []
    secret.chmod(0o644)
    [found] = problems(host, public_path, text, 0o644)
    cure = f"run `chmod 640 {secret}`"
    assert found == f"[[ping]]: url_file: {secret}: it holds a secret and is world-readable; {cure}"
    secret.unlink()
    [found] = problems(host, public_path, text, 0o644)
    assert found.startswith(f"[[ping]]: url_file: {secret} cannot be read: No such file")


def test_a_file_that_is_well(host: Oncecron, public_path: Path) -> None:
    """Also if the environment would fill a gap, or would be wrong itself."""
    host.environment["ONCECRON_STORE"] = "nothing"
    host.environment["ONCECRON_STORE_FILE"] = "/no/such/file"
    text = "[job.a]\nschedule = '@daily'\ntz = 'Europe/Berlin'\ncommand = 'true'\n"
    assert problems(host, public_path, text) == []
    assert problems(host, public_path, "") == []


def test_the_file_that_run_reads_is_the_default(host: Oncecron, public_path: Path) -> None:
    """$ONCECRON_CONFIG, or none at all."""
    ended = host("config", "check")
    assert (ended.status, ended.out) == (0, b"no configuration file\n")
    path = public_path / "named.toml"
    host.environment["ONCECRON_CONFIG"] = str(path)
    ended = host("config", "check")
    assert (ended.status, ended.err) == (78, "")
    assert (
        ended.out.decode()
        == f"{path}: cannot be read: No such file or directory; correct the path\n"
    )
    assert host("config", "check", public_path).out.endswith(
        b"not a regular file; name another file\n"
    )
    refused(host("config", "check", ""), 64, "FILE is empty (an unset variable?)")


def test_json_has_every_field(host: Oncecron, public_path: Path) -> None:
    """One array, empty for a file that is well."""
    path = public_path / "oncecron.toml"
    path.write_text("[job.a]\nretry = 1\n")
    path.chmod(0o600)
    assert json.loads(host("config", "check", "--json", path).out) == [
        {
            "file": str(path),
            "section": "[job.a]",
            "name": "retry",
            "message": "unknown key 'retry'",
            "cure": "did you mean retries?",
        }
    ]
    path.write_text("")
    assert json.loads(host("config", "check", "--json", path).out) == []
