"""`oncecron config show` by the installed console script: each value and its source."""

import json
from pathlib import Path

import pytest
from answers import refused
from servers.oncecron import Oncecron

pytestmark = pytest.mark.quick
SECRET = "s3cret"


@pytest.fixture
def host(public_path: Path) -> Oncecron:
    """Give a host whose configuration has a section and a password."""
    host = Oncecron("", public_path)
    del host.environment["ONCECRON_STORE"]
    path = public_path / "oncecron.toml"
    path.write_text(
        f"store = 'postgresql://u:{SECRET}@192.0.2.1/d'\ngrace = '20s'\nskip_exit = 3\n"
        f"[job.bill]\ngrace = '30s'\ncommand = 'pay --token={SECRET}'\nschedule = '@daily'\n"
    )
    path.chmod(0o600)
    host.environment["ONCECRON_CONFIG"] = str(path)
    return host


def shown(host: Oncecron, *words: str) -> dict[str, tuple[str | None, str | None]]:
    """Return the value and the source of each option."""
    ended = host("config", "show", "--json", *words)
    assert ended.status == 0, ended
    assert SECRET.encode() not in ended.out
    rows = json.loads(ended.out)
    assert all(list(row) == ["option", "value", "source"] for row in rows)
    return {row["option"]: (row["value"], row["source"]) for row in rows}


def test_each_value_has_its_source(host: Oncecron) -> None:
    """The environment, the section, the top of the file, the default, or none."""
    path = host.environment["ONCECRON_CONFIG"]
    host.environment["ONCECRON_NAMESPACE"] = "staging"
    found = shown(host, "bill")
    assert found["config"] == (path, "$ONCECRON_CONFIG")
    assert found["namespace"] == ("staging", "$ONCECRON_NAMESPACE")
    assert found["grace"] == ("30s", f"{path} [job.bill]")
    assert found["schedule"] == ("@daily", f"{path} [job.bill]")
    assert found["command"] == ("pay --token=***", f"{path} [job.bill]")
    assert found["skip-exit"] == ("3", path)
    assert found["ttl"] == ("60s", "default")
    assert found["timeout"] == (None, None)
    assert found["store"] == ("postgresql://u:***@192.0.2.1/d", path)


def test_without_a_key_no_section_counts(host: Oncecron) -> None:
    """And no command is shown."""
    path = host.environment["ONCECRON_CONFIG"]
    found = shown(host)
    assert found["grace"] == ("20s", path)
    assert found["schedule"] == (None, None)
    assert "command" not in found


def test_the_store_file_counts(host: Oncecron, public_path: Path) -> None:
    """As in a firing, $ONCECRON_STORE_FILE before the file."""
    (public_path / "store").write_text(f"redis://:{SECRET}@h\n")
    (public_path / "store").chmod(0o600)
    host.environment["ONCECRON_STORE_FILE"] = str(public_path / "store")
    assert shown(host)["store"] == ("redis://:***@h", "$ONCECRON_STORE_FILE")


def test_the_services_that_hear_of_a_key(host: Oncecron) -> None:
    """Each is a value of its own, without what is secret in its URL; without a key, with its patterns."""
    path = Path(host.environment["ONCECRON_CONFIG"])
    with path.open("a") as file:
        for service, keys in (
            ("healthchecks", ["bi*", "x"]),
            ("webhook", ["y"]),
            ("sentry", ["*"]),
        ):
            url = f"https://u:{SECRET}@{service}.example:8443/{SECRET}?{SECRET}"
            file.write(f"[[ping]]\nservice = '{service}'\nurl = '{url}'\nkeys = {keys}\n")

    def pings(*words: str) -> list[str]:
        ended = host("config", "show", "--json", *words)
        assert SECRET.encode() not in ended.out
        rows = [row for row in json.loads(ended.out) if row["option"] == "ping"]
        assert {row["source"] for row in rows} == {f"{path} [[ping]]"}
        return [row["value"] for row in rows]

    first, last = (
        "healthchecks https://healthchecks.example:8443/***",
        "sentry https://sentry.example:8443/***",
    )
    assert pings("bill") == [first, last]
    webhook = "webhook https://webhook.example:8443/***"
    assert pings() == [f"{first} (bi*, x)", f"{webhook} (y)", f"{last} (*)"]


def test_what_a_firing_refuses_is_refused(host: Oncecron) -> None:
    """A wrong section of the key, a wrong key, a file that is not there."""
    path = Path(host.environment["ONCECRON_CONFIG"])
    with path.open("a") as file:
        file.write("[job.wrong]\nretry = 1\n")
    refused(host("config", "show", "wrong"), 78, f"{path} [job.wrong]: unknown key 'retry'")
    assert host("config", "show", "bill").status == 0
    refused(host("config", "show", "a b"), 64, "'a b' is not a valid key")
    refused(host("config", "show", "--config", "/none"), 78, "/none cannot be read")


def test_the_channels_of_notify_are_shown_without_their_secrets(
    host: Oncecron, public_path: Path
) -> None:
    """Those that are for a key, or all of them with their keys."""
    path = public_path / "notify.toml"
    path.write_text(
        "[notify.channel.ops]\nto = 'ops@example.com'\nkeys = ['bi*']\n"
        "[notify.channel.chat]\nurl = 'https://chat.example.com/hooks/s3cret'\nform = 'slack'\n"
        "[notify.channel.log]\ncommand = 'tell --token s3cret'\nkeys = ['x']\n"
    )
    path.chmod(0o600)

    def channels(*words: str) -> list[tuple[str, str]]:
        ended = host("config", "show", "--config", path, "--json", *words)
        assert ended.status == 0
        assert b"s3cret" not in ended.out
        rows = [row for row in json.loads(ended.out) if row["option"] == "channel"]
        return [(row["value"], row["source"].removeprefix(f"{path} ")) for row in rows]

    hook = "https://chat.example.com/***"
    assert channels("bill") == [
        ("ops@example.com", "[notify.channel.ops]"),
        (hook, "[notify.channel.chat]"),
    ]
    assert channels() == [
        ("ops@example.com (bi*)", "[notify.channel.ops]"),
        (f"{hook} (*)", "[notify.channel.chat]"),
        ("tell --token *** (x)", "[notify.channel.log]"),
    ]
