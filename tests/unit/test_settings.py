"""Where values come from, and what is told when one is wrong: always one line, never a password."""

import os
import sys
from pathlib import Path

import pytest
from config_files import only_this_directory, put, settings  # noqa: F401

from oncecron.cli.check import OPTIONS as CHECK_OPTIONS
from oncecron.config import file_reader
from oncecron.config.file import read_file
from oncecron.config.options import RUN_OPTIONS, STORE_OPTIONS
from oncecron.config.run_parser import ParsedRun
from oncecron.config.settings import Settings
from oncecron.core.errors import ConfigurationError, OncecronError, UsageError
from oncecron.core.log_rows import Expectation
from oncecron.log.sources import configured_keys
from oncecron.run.spec import make_spec
from oncecron.stores.address import parse_address

SECRET = "s3cret"
URL = f"postgresql://cron:{SECRET}@db.example.com/jobs"


pytestmark = pytest.mark.usefixtures("only_this_directory")


def complaint(error: type[OncecronError], **given: str) -> str:
    with pytest.raises(error) as caught:
        settings(given.pop("job", "billing"), **given).address()
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    return text


# Precedence


def test_an_option_beats_the_environment_which_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a job's section beats the top of the file, which beats the default."""
    assert settings()["namespace"] == "oncecron"
    path = put(
        tmp_path / "c.toml",
        'namespace = "top"\nttl = "40s"\n[job.billing]\nnamespace = "section"\n[job.other]\nttl = "9s"\n',
    )
    monkeypatch.setenv("ONCECRON_CONFIG", path)
    assert settings()["namespace"] == "section"
    assert settings("third")["namespace"] == "top"
    assert (settings()["ttl"], settings("other")["ttl"]) == (40.0, 9.0)
    monkeypatch.setenv("ONCECRON_NAMESPACE", "environment")
    assert settings()["namespace"] == "environment"
    assert settings(namespace="typed")["namespace"] == "typed"
    assert settings(namespace="typed").is_typed("namespace")
    assert not settings().is_typed("namespace")


def test_the_first_file_that_is_there_wins_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--config, $ONCECRON_CONFIG, the user's, the system's; nothing is merged."""
    put(tmp_path / "etc.toml", 'ttl = "10s"\ngrace = "1s"\n')
    assert settings()["ttl"] == 10.0
    (tmp_path / "xdg").mkdir()
    put(tmp_path / "xdg" / "oncecron" / "config.toml", 'ttl = "20s"\n')
    assert (settings()["ttl"], settings()["grace"]) == (20.0, 10.0)
    monkeypatch.setenv("ONCECRON_CONFIG", put(tmp_path / "env.toml", 'ttl = "30s"\n'))
    assert settings()["ttl"] == 30.0
    assert settings(config=put(tmp_path / "typed.toml", 'ttl = "35s"\n'))["ttl"] == 35.0


def test_a_section_with_a_schedule_says_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last change of the file on, whatever time of change a copy has kept; not of another store."""
    path = put(
        tmp_path / "c.toml",
        '[job.bill]\nschedule = "@daily"\ntz = "UTC"\nstarting_deadline = "1h"\n[job.other]\nretries = 1\n',
    )
    os.utime(path, (0, 0))
    [found] = configured_keys(Settings(CHECK_OPTIONS, {"config": path}))
    assert found[:2] == ("bill", 0)
    assert found.expected == Expectation("@daily", "UTC", 1, 3600.0, os.stat(path).st_ctime)
    for elsewhere in ({"store": "local"}, {"namespace": "staging"}):
        assert configured_keys(Settings(CHECK_OPTIONS, {"config": path, **elsewhere})) == ()
    assert configured_keys(Settings(CHECK_OPTIONS, {})) == ()
    monkeypatch.setenv("ONCECRON_STORE", "local")
    assert len(configured_keys(Settings(CHECK_OPTIONS, {"config": path}))) == 1
    put(Path(path), 'store = "redis://other"\n[job.bill]\nschedule = "@daily"\n')
    assert configured_keys(Settings(CHECK_OPTIONS, {"config": path})) == ()
    monkeypatch.delenv("ONCECRON_STORE")
    assert len(configured_keys(Settings(CHECK_OPTIONS, {"config": path}))) == 1


def test_an_empty_variable_is_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cron's environment lines can set one and unset none."""
    path = put(tmp_path / "c.toml", 'store = "sqlite:///from/file"\n')
    put(tmp_path / "store", "sqlite:///from/store-file\n")
    monkeypatch.setenv("ONCECRON_STORE", "")
    monkeypatch.setenv("ONCECRON_NAMESPACE", "")
    assert settings(config=path).address().target == "/from/file"
    assert settings()["namespace"] == "oncecron"
    monkeypatch.setenv("ONCECRON_STORE_FILE", str(tmp_path / "store"))
    assert settings(config=path).address().target == "/from/store-file"


def test_values_of_toml_may_be_numbers_and_truths(tmp_path: Path) -> None:
    """`retries = 3`, `no_tick = true`, and with `-` or `_`."""
    path = put(
        tmp_path / "c.toml",
        'skip_exit = 3\nconnect-timeout = 5\n[job.billing]\nno_tick = true\nwait = "1m"\n',
    )
    found = settings(config=path)
    assert (found["skip-exit"], found["connect-timeout"]) == (3, 5.0)
    assert (found["no-tick"], found["wait"]) == (True, 60.0)


# The store


def test_where_the_store_may_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """store_file, $ONCECRON_STORE_FILE, $ONCECRON_STORE, --store: each beats those before it."""
    put(tmp_path / "beside", "sqlite:///beside\n")
    path = put(tmp_path / "c.toml", 'store_file = "beside"\n')
    assert settings(config=path).address().target == "/beside"
    put(tmp_path / "named", "sqlite:///named\n")
    monkeypatch.setenv("ONCECRON_STORE_FILE", str(tmp_path / "named"))
    assert settings(config=path).address().target == "/named"
    monkeypatch.setenv("ONCECRON_STORE", "sqlite:///environment")
    assert settings(config=path).address().target == "/environment"
    assert settings(config=path, store="sqlite:///typed").address().target == "/typed"


def test_the_source_of_a_wrong_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads cron's mail need not look for it."""
    path = put(tmp_path / "c.toml", "store = 'redis://h#1'\nlog = 'sqlite://x'\n")
    told = [complaint(ConfigurationError, config=path)]
    put(tmp_path / "named", "mysql://h\n")
    monkeypatch.setenv("ONCECRON_STORE_FILE", str(tmp_path / "named"))
    told.append(complaint(ConfigurationError, config=path))
    monkeypatch.setenv("ONCECRON_STORE", "sqlite")
    told.append(complaint(ConfigurationError, config=path))
    told.append(complaint(ConfigurationError, config=path, store="db"))
    with pytest.raises(ConfigurationError) as caught:
        settings(config=path, store="local").log()
    told.append(str(caught.value))
    assert [each.split(": ")[0] for each in told] == [
        f"{path} store", "$ONCECRON_STORE_FILE", "$ONCECRON_STORE", "--store", f"{path} log",
    ]  # fmt: skip


def test_local_is_a_file_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert parse_address("local")[:2] == ("sqlite", "/state/oncecron/oncecron.db")


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("sqlite:///", "three slashes"),
        (f"mysql://u:{SECRET}@h/d", "mysql://u:***@h/d"),
        (f"postgresql://u:{SECRET}/x@h/d", "%2F"),
        (f"postgresql://u:x@{SECRET}@h/d", "%40"),
        (f"host=h password={SECRET}", "password=***"),
        ("postgresql://h:5432/a@b", "@ as %40 in the database"),
        ("postgresql://h/a@b", "@ as %40 in the database"),
        (f"u:{SECRET}@postgresql://h/d", "unknown kind '***'"),
    ],
)
def test_what_is_no_store(store: str, told: str) -> None:
    """The sentence says what to write instead."""
    assert told in complaint(ConfigurationError, store=store)


def test_what_a_redis_store_need_not_say_may_stand_in_the_file(tmp_path: Path) -> None:
    """For a Redis store alone; a wrong URL or namespace is refused before anything runs."""
    path = put(tmp_path / "c.toml", f'[redis]\nusername = "cron"\npassword = "{SECRET}"\n')
    found = settings(config=path, store="redis://h/3").address()
    assert found[:3] == ("redis", "redis://h/3", (("username", "cron"), ("password", SECRET)))
    assert settings(config=path, store="sqlite:///a").address().options == ()
    assert "is only for redis+sentinel://" in complaint(
        ConfigurationError, config=path, store="redis://h?sentinel_username=u"
    )
    path = put(tmp_path / "d.toml", "[redis]\nssl_check_hostname = false\n")
    assert "write rediss://" in complaint(ConfigurationError, config=path, store="redis://h")
    assert "namespace" in complaint(ConfigurationError, store="redis://h", namespace="a b")


# Wrong values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stor = 'local'\n", "unknown key 'stor'; did you mean store?"),
        ("key = 'k'\n", "unknown key 'key'"),
        ("schedule = '0 2 * * *'\n", "unknown key 'schedule'; it belongs in a [job.KEY] section"),
        ("[jobs.k]\nretries = 1", "unknown key 'jobs'; did you mean [job.KEY]?"),
        ("[job.billing]\nretry = 1", "[job.billing]: unknown key 'retry'; did you mean retries?"),
        ("[retention]\nskip = '1d'", "did you mean skips?"),
        (f"#\nstore = {SECRET}\n", ": Invalid value (at line 2, column 9); correct the TOML there"),
        ("config = 'x'\n", "unknown key 'config'"),
        ("[job.billing]\nagain = true\n", "unknown key 'again'"),
        ("[redis]\nwait = [1]\n", "[redis]: wait must be a text"),
        ("[redis]\nssl_ca_certs = 'ca'\n", "[redis]: ssl_ca_certs: the path 'ca' must be absolute"),
        ("redis = 1\n", "redis must be a table"),
        ("ttl = ['60s']\n", "ttl must be a text, a number, true or false"),
        ('[job."a.b"]\nttl = 1', '[job."a.b"]: ttl: '),
        ('[job.billing]\ncommand = "echo a\\u0000b"\n', "command contains a NUL byte"),
        ('store_file = "a\\u0000b"\n', "store_file contains a NUL byte"),
        ("store_file = 1979-05-27\n", "store_file must be a text"),
        ("ttl = " + "1" * 5000 + "\n", "c.toml: a number in it has too many digits"),
        ("ttl = 0x" + "1" * 5000 + "\n", "c.toml: a number in it has too many digits"),
        ("ttl = " + "[" * 10_000 + "\n", "c.toml: it is nested too deeply"),
        ("[job.bill.sh-1]\nttl = '60s'\n", 'a key with dots needs quotes; write [job."bill.sh-1"]'),
        ("job.a.b.c.ttl = '60s'\n", '[job."a.b.c"]'),
        ("[job.'a.b']\nagain = true\n", "[job.\"a.b\"]: unknown key 'again'"),
    ],
)
def test_what_a_file_must_not_hold(tmp_path: Path, text: str, told: str) -> None:
    """An unknown key is an error: a misspelt one would be without effect."""
    path = put(tmp_path / "c.toml", text)
    key = next((key for key in ("a.b", "a.b.c", "bill.sh-1") if key in text), "billing")
    line = complaint(ConfigurationError, config=path, job=key)
    assert told in line
    assert path in line


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[job.other]\nttl = "1s"\n', ["other"]),
        ("[job.other]\ntlt = 1\n", ["other"]),
        ("[job.other.sh]\nttl = 40\n[job.other.py]\nttl = 40\n", ["other", "other.sh", "other.py"]),
        ("[job.auto]\nttl = 40\n", ["auto"]),
    ],
)
def test_a_wrong_section_stops_its_own_job_alone(
    tmp_path: Path, text: str, keys: list[str]
) -> None:
    """Other jobs run, and commands without a key as well."""
    path = put(tmp_path / "c.toml", f'{text}[job.billing]\nttl = "9s"\n')
    for key in keys:
        with pytest.raises(ConfigurationError, match=rf"c.toml \[job.{keys[0]}"):
            settings(key, config=path)
    assert settings("billing", config=path)["ttl"] == 9.0
    assert settings("unnamed", config=path)["ttl"] == 60.0
    assert Settings(STORE_OPTIONS, {"config": path})["namespace"] == "oncecron"


OBSERVERS = (
    *(
        "[[ping]]\nservice = 'healthcheks'\n",
        "[[pings]]\nservice = 'x'\n",
        "[ping]\nurl = 1\n",
        "ping = 3\n",
    ),
    *(
        "notify = 1\n",
        "[notfy.channel.a]\ntimeout = '5s'\n",
        "ping_url = 'http://h/s'\n",
        "[notifier]\nto = 'a'\n",
    ),
    *(
        "[check]\ntimeout = '3s'\n",
        "[pages]\ntitle = 'x'\n",
        "[metrics]\ngrace = 1\n",
        "[another-tool]\nx.y = 1\n",
    ),
)
OF_JOBS = (
    *(
        "grce = 9\n",
        "[jobs.a]\ntimeout = 9\n",
        "[defaults]\nttl = 9\n",
        "[all.jobs]\nttl = 9\n",
        "job = 3\n",
    ),
    *(
        "[retentions]\nskips = '1d'\n",
        "[[redis]]\nwait = 1\n",
        "[[billing]]\ntimeout = 9\n",
        "other = 'x'\n",
    ),
    *("retries = 2\n", "command = 'x'\n", "shards = 2\n", "only-if = 'x'\n", "slots = 2\n"),
)


@pytest.mark.parametrize("text", OBSERVERS)
def test_who_only_looks_on_stops_no_job(tmp_path: Path, text: str) -> None:
    """A mistake in what concerns pings, channels or pages is noted; every option has its value."""
    path = put(tmp_path / "c.toml", f'ttl = "9s"\n{text}')
    found = settings(config=path)
    assert found["ttl"] == 9.0
    assert {problem.stops for problem in found.file.problems} == {False}
    assert found.file.pings_for("billing") == ()


@pytest.mark.parametrize("text", OF_JOBS)
def test_what_may_concern_a_job_stops_it(tmp_path: Path, text: str) -> None:
    """A misspelt name would be without effect: no timeout, a shorter lease."""
    with pytest.raises(ConfigurationError):
        settings(config=put(tmp_path / "c.toml", text))


@pytest.mark.parametrize("error", [PermissionError(13, "no"), FileNotFoundError(2, "no")])
def test_a_secret_of_another_user_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The user of a monitoring system need not read it."""
    path = put(tmp_path / "c.toml", "[[ping]]\nservice = 'webhook'\nurl_file = 'u'\n")
    real = file_reader._open_private

    def opened(path: str, what: str, *, trusting: bool) -> int:
        if path.endswith("/u"):
            raise error
        return real(path, what, trusting=trusting)

    monkeypatch.setattr(file_reader, "_open_private", opened)
    [problem] = settings(config=path).file.problems
    assert problem.private == isinstance(error, PermissionError)


def test_a_module_of_the_pings_that_does_not_load_stops_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an installation that is half removed."""
    monkeypatch.setitem(sys.modules, "oncecron.config.ping_table", None)
    path = put(tmp_path / "c.toml", "[[ping]]\nservice = 'webhook'\nurl = 'http://h/'\n")
    [problem] = settings(config=path).file.problems
    assert not problem.stops
    assert "the pings cannot be read: ModuleNotFoundError" in problem.text


def test_sections_that_are_alike_are_wrong_alike(tmp_path: Path) -> None:
    """What is found to be right is not checked again, and no other value passes for it."""
    values = ("1", "1", "true", "1.0", '"x"', '"x"')
    text = "\n".join(f"[job.j{number}]\nretries = {each}" for number, each in enumerate(values))
    path = put(tmp_path / "c.toml", text)
    assert [settings(f"j{number}", config=path)["retries"] for number in (0, 1)] == [1, 1]
    for number in (2, 3, 4, 5):
        assert f"[job.j{number}]: retries" in complaint(
            ConfigurationError, job=f"j{number}", config=path
        )


def test_a_section_for_auto_stops_the_jobs_with_a_derived_key(tmp_path: Path) -> None:
    """It was meant for them."""
    path = put(tmp_path / "c.toml", "[job.auto]\nttl = 40\n")
    with pytest.raises(ConfigurationError, match="stands for the derived key"):
        Settings(RUN_OPTIONS, {"config": path, "key": "auto"}, "true-1")


@pytest.mark.parametrize("name", ["config", "ONCECRON_CONFIG"])
def test_a_named_file_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An unnamed one is not."""
    path = str(tmp_path / "nothing.toml")
    given = {}
    if name == "config":
        given = {"config": path}
    else:
        monkeypatch.setenv(name, path)
    told = complaint(ConfigurationError, **given)
    assert f"{path} cannot be read: No such file or directory; correct the path" in told


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, other bytes than UTF-8, a store file with two lines or none."""
    assert "is not a regular file" in complaint(ConfigurationError, config=str(tmp_path))
    (tmp_path / "latin").write_bytes(b"# \xe4\n")
    told = complaint(ConfigurationError, config=str(tmp_path / "latin"))
    assert "it is not UTF-8; save it as UTF-8" in told
    for text in ("", "a\nb\n"):
        monkeypatch.setenv("ONCECRON_STORE_FILE", put(tmp_path / "store", text))
        assert "one line" in complaint(ConfigurationError)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Editors on Windows write one, in front of settings and of a store's URL."""
    store = put(tmp_path / "store", "\ufeffpostgresql://db/app\n")
    path = put(tmp_path / "c.toml", f'\ufeffttl = "40s"\nstore_file = "{store}"\n')
    found = Settings(RUN_OPTIONS, {"config": path}, "billing")
    assert found["ttl"] == 40
    assert found.address().target == "postgresql://db/app"


# Secrets


@pytest.mark.parametrize("name", ["password", "sentinel_password", "ssl_keyfile_password"])
def test_a_password_for_redis_in_a_file_that_everybody_may_read(tmp_path: Path, name: str) -> None:
    """Refused as well; a path of a certificate is not one."""
    text = f'[redis]\n{name} = "{SECRET}"\n'
    assert "chmod 640" in complaint(
        ConfigurationError, config=put(tmp_path / "c.toml", text, 0o644)
    )
    path = put(tmp_path / "c.toml", text, 0o640)
    assert settings(config=path, store="rediss://h").address().options == ((name, SECRET),)
    path = put(tmp_path / "d.toml", '[redis]\nssl_ca_certs = "/ca"\nwait = 1\n', 0o644)
    address = settings(config=path, store="rediss://h").address()
    assert address.options == (("ssl_ca_certs", "/ca"), ("wait", "1"))


@pytest.mark.parametrize("what", ["file", "job", "store file"])
def test_a_password_that_everybody_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """As libpq refuses it; without a password any mode will do."""
    path = tmp_path / "secret"

    def use(url: str, mode: int) -> Settings:
        if what == "store file":
            monkeypatch.setenv("ONCECRON_STORE_FILE", put(path, url, mode))
            return settings()
        section = "[job.billing]\n" if what == "job" else ""
        return settings(config=put(path, f'{section}store = "{url}"\n', mode))

    with pytest.raises(ConfigurationError, match="chmod 640") as caught:
        use(URL, 0o644).address()
    assert SECRET not in str(caught.value)
    assert use(URL, 0o640).address().target == URL
    assert use("postgresql://cron@db/jobs", 0o644).address().kind == "postgres"


def test_a_log_is_not_read_by_everybody_with_its_password(tmp_path: Path) -> None:
    """As a store is not; a job may have a log of its own."""
    text = f'store = "local"\n[job.billing]\nlog = "{URL}"\n'
    with pytest.raises(ConfigurationError, match="chmod 640"):
        settings(config=put(tmp_path / "open", text, 0o644))
    path = put(tmp_path / "closed", text, 0o640)
    given = {"config": str(path)}
    own, others = (Settings(RUN_OPTIONS, given, key).log() for key in ("billing", "other"))
    assert own is not None
    assert (own.target, others) == (URL, None)


def test_the_store_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again means the same store, whatever stands in the file by then."""
    path = put(tmp_path / "store", "postgresql://h/jobs\n")
    monkeypatch.setenv("ONCECRON_STORE_FILE", path)
    found = settings(log="postgresql://h/log")
    assert found.address().target == "postgresql://h/jobs"
    put(tmp_path / "store", "postgresql://h/log\n")
    assert found.log() is not None
    assert found.address().target == "postgresql://h/jobs"


@pytest.mark.parametrize("rule", [{"tick": "t1"}, {"no-tick": "true"}, {"schedule": "@daily"}, {}])
def test_what_is_configured_for_another_rule_does_not_apply(
    tmp_path: Path, rule: dict[str, str]
) -> None:
    """A tick named by hand is none the worse for the gap and the deadline of the crontab's line."""
    text = 'store = "local"\n[job.k]\nmin_gap = "5m"\nstarting_deadline = "1h"\n'
    given = {"key": "k", "config": put(tmp_path / "c.toml", text), **rule}
    firing = make_spec(ParsedRun(given, ["true"])).firing
    has_gap, has_deadline = firing.tick.rule in ("minute", "none"), firing.tick.instant is not None
    assert firing.min_gap == (300.0 if has_gap else None)
    assert firing.starting_deadline == (3600.0 if has_deadline else None)


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    """The wrong file."""
    path = put(tmp_path / "large", "")
    os.truncate(path, 1 << 40)
    with pytest.raises(ConfigurationError, match="larger than 1 MiB"):
        read_file(path)


def test_an_empty_path_is_an_unset_variable() -> None:
    """Typed, it does not mean the files that are looked for."""
    with pytest.raises(UsageError, match="--config"):
        read_file("")


def test_a_user_without_an_entry_and_without_home_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container; the configuration and the state are looked for there."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(ConfigurationError, match=r"user 54321 has no home directory; set \$HOME"):
        read_file(None)


def test_the_store_itself_is_no_log_however_it_is_held() -> None:
    """What is not the server's to know makes no other store of it."""
    given = {"store": "postgresql://h/d?hold=no", "log": "postgresql://h/d"}
    with pytest.raises(ConfigurationError, match="is the store itself"):
        Settings(RUN_OPTIONS, given).log()
