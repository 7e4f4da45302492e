"""`oncecron notify` by the installed console script: mail, webhooks and commands, on every store."""

import json
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from answers import refused
from log_of import Store
from planting import last_started
from servers import Answer, Certificates, Received, Recorder, SmtpSink, eventually
from servers.oncecron import SHORT_TTL, Ended, Oncecron, recording_script
from servers.process import kill_tree

from oncecron_notify.message import CHATS
from oncecron_notify.notify_times import NOTIFY_WAITS

Hosts = Callable[..., Oncecron]
Recorders = Callable[..., Recorder]
PASS = "oncecron/notify"
FAILING = ("--no-tick", "--", "sh", "-c", "echo the end; exit 3")


class Cluster:
    """Hosts with one configuration file, and a recorder for each webhook in it."""

    def __init__(self, directory: Path, new_host: Hosts) -> None:
        self._new_host = new_host
        self.file = directory / "notify.toml"

    def configure(self, text: str, top: str = 'capture = "4k"\n') -> None:
        """Write the configuration file."""
        self.file.write_text(f"{top}{text}")
        self.file.chmod(0o600)

    def host(self, name: str = "host-a", **environment: str) -> Oncecron:
        """Return a host that reads it."""
        return self._new_host(name, ONCECRON_CONFIG=str(self.file), **environment)


@pytest.fixture
def cluster(public_path: Path, new_host: Hosts) -> Cluster:
    """Give hosts that share a configuration file."""
    return Cluster(public_path, new_host)


def hook(recorder: Recorder, name: str = "hook", more: str = "") -> str:
    """Return the section of a webhook."""
    return f'[notify.channel.{name}]\nurl = "{recorder.url}/hook"\n{more}'


def bodies(recorder: Recorder) -> list[dict[str, Any]]:
    """Return what a webhook has received."""
    return [json.loads(each.body) for each in recorder.received]


def said(body: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return the changes of a message."""
    return [(each["change"], each["finding"], each["key"]) for each in body["changes"]]


def well(ended: Ended) -> Ended:
    """Check that a command succeeded and has not complained."""
    assert (ended.status, ended.err) == (0, ""), ended
    return ended


def passed(host: Oncecron) -> Ended:
    """Make a pass that prints nothing: as cron starts it, but at any time."""
    return well(host("notify", "--now"))


def test_a_failure_and_its_end_are_told_once_to_every_channel(
    store: Store, cluster: Cluster, new_recorder: Recorders, smtp_sink: SmtpSink, public_path: Path
) -> None:
    """By mail, to webhooks in each form, and to a command: one message each time, with what has happened."""
    recorder = new_recorder()
    smtp_sink.sendmail_in(public_path)
    told = public_path / "told"
    facts = (
        '"$ONCECRON_NOTIFY_STATE $ONCECRON_NOTIFY_CHANGES $ONCECRON_NOTIFY_CHANNEL $ONCECRON_STORE"'
    )
    cluster.configure(
        '[notify.channel.ops]\nto = ["ops@example.com", "ann@example.com"]\n'
        + "".join(
            f'[notify.channel.{form}]\nurl = "{recorder.url}/{form}"\nform = "{form}"\n'
            for form in ("json", *CHATS)
        )
        + f"[notify.channel.log]\ncommand = '''(echo {facts}; cat) >> {told}'''\n"
        + '[notify.channel.other]\ncommand = "exit 1"\nkeys = ["report-*"]\n'
    )
    host = cluster.host(PATH=f"{public_path}:/usr/bin:/bin")
    well(host("notify"))
    assert (recorder.received, smtp_sink.mails, told.exists()) == ([], [], False)
    assert host.run("billing", *FAILING).status == 3
    for _ in range(2):
        passed(host)
    assert host.run("billing", "--no-tick", "--", "true").status == 0
    for _ in range(2):
        passed(host)

    problem, over = [mail.content for mail in smtp_sink.mails]
    assert [mail.to for mail in smtp_sink.mails] == [["ops@example.com", "ann@example.com"]] * 2
    assert problem["Subject"] == "oncecron CRITICAL: billing failed (exit status 3)"
    assert over["Subject"] == "oncecron OK: billing is well again"
    text = problem.get_content()
    for words in ("host-a started it", "| the end", "Sent by host-a"):
        assert words in text
    by_path = {
        form: [each for each in recorder.received if each.path == f"/{form}"]
        for form in ("json", *CHATS)
    }
    assert [len(each) for each in by_path.values()] == [2, 2, 2, 2, 2]
    found = [json.loads(each.body) for each in by_path["json"]]
    assert [said(each) for each in found] == [
        [("problem", "failed", "billing")],
        [("recovered", "failed", "billing")],
    ]
    [change] = found[0]["changes"]
    assert (change["state"], change["previous"], change["output"]) == (
        "critical",
        "ok",
        "the end\n",
    )
    assert "host-a failed after" in " ".join(change["account"])
    assert [each["state"] for each in found] == ["critical", "ok"]
    for request, body in zip(by_path["json"], found, strict=True):
        assert request.headers["idempotency-key"] == body["id"]
        assert request.headers["content-type"] == "application/json; charset=utf-8"
    for form in CHATS:
        assert b"CRITICAL: billing failed" in by_path[form][0].body
    lines = told.read_text().splitlines()
    assert lines[0] == "critical 1 log "
    assert "ok 1 log " in lines


def test_hosts_that_fire_together_send_one_message(
    store: Store, cluster: Cluster, new_recorder: Recorders
) -> None:
    """One of them makes the pass of a minute; the others are skipped, without a word."""
    recorder = new_recorder()
    cluster.configure(hook(recorder))
    hosts = [cluster.host(name) for name in ("host-a", "host-b", "host-c")]
    for host in hosts:
        host.script = recording_script()
    hosts[0].run("billing", *FAILING)
    firings = [host.start("notify") for host in hosts]
    for firing in firings:
        well(firing.wait())
    [body] = bodies(recorder)
    assert said(body) == [("problem", "failed", "billing")]
    outcomes = [each.outcome for each in store.executions(PASS)]
    assert set(outcomes) == {"succeeded"}
    assert len(outcomes) + len(store.skips(PASS)) == 3


def failing_channel_findings(host: Oncecron) -> list[tuple[str, str | None]]:
    """Return the findings about channels that `check` has."""
    found = json.loads(host("check", "--json").out)["findings"]
    return [(each["state"], each["channel"]) for each in found if each["finding"] == "channel"]


def test_a_channel_that_fails_is_tried_again_and_the_others_are_told(
    store: Store, cluster: Cluster, new_recorder: Recorders
) -> None:
    """Cron gets one line of it; once it works again it gets what it missed, and the others learn that too."""
    broken, sound = new_recorder(lambda _: Answer(HTTPStatus.BAD_GATEWAY)), new_recorder()
    cluster.configure(hook(broken, "broken") + hook(sound, "sound"))
    host = cluster.host()
    host.run("billing", *FAILING)
    first = host("notify")
    assert first.status == 0, first
    assert first.err == (
        f"oncecron: channel broken: {broken.url}/***: HTTP status 502; it is tried again at each pass\n"
    )
    assert failing_channel_findings(host) == []
    by_hand = host("notify", "--now")
    assert (by_hand.status, by_hand.err) == (1, first.err)
    assert failing_channel_findings(host) == [("critical", "broken")]
    assert b"failing_channels 1.0" in host("metrics").out
    assert host("notify", "--now").status == 1
    assert [said(body) for body in bodies(sound)] == [
        [("problem", "failed", "billing")],
        [("problem", "channel", None)],
    ]
    assert {body["id"] for body in bodies(broken)} == {bodies(broken)[0]["id"]}
    assert host.run("billing", "--no-tick", "--", "true").status == 0
    broken.behave = lambda _: Answer()
    for _ in range(2):
        passed(host)
    assert failing_channel_findings(host) == []
    assert said(bodies(broken)[-1]) == [("recovered", "failed", "billing")]
    assert [each for body in bodies(sound)[2:] for each in said(body)] == [
        ("recovered", "failed", "billing"),
        ("recovered", "channel", None),
    ]


def slow(received: Received) -> Answer | None:
    """Never answer."""
    threading.Event().wait(60)
    return None


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (
            lambda _: Answer(302, (("Location", "/other"),)),
            "HTTP status 302, a redirection, which is not followed",
        ),
        (lambda _: Answer(500), "HTTP status 500"),
        (lambda _: None, "/***: the server closed the connection without an answer"),
        (slow, "/***: no answer within 1 s"),
    ],
    ids=["moved", "error", "closed", "slow"],
)
def test_what_is_no_acknowledgement(
    cluster: Cluster, new_recorder: Recorders, behave: Any, why: str
) -> None:
    """A redirection is not followed, and a server that hangs costs its timeout."""
    recorder = new_recorder(behave)
    cluster.configure(hook(recorder, more='timeout = "1s"\n' if behave is slow else ""))
    host = cluster.host()
    host.run("billing", *FAILING)
    ended = host("notify", "--now")
    assert ended.status == 1
    assert why in ended.err
    assert len(recorder.received) == 1
    recorder.behave = lambda _: Answer()
    cluster.configure(hook(recorder))
    passed(host)
    assert said(bodies(recorder)[1]) == [("problem", "failed", "billing")]


def test_a_server_with_a_wrong_certificate_gets_nothing(
    cluster: Cluster, new_recorder: Recorders, certificates: Certificates
) -> None:
    """Nobody vouches for it."""
    recorder = new_recorder(certificate=certificates["server.crt"])
    cluster.configure(hook(recorder))
    host = cluster.host()
    host.run("billing", *FAILING)
    ended = host("notify", "--now")
    assert "its certificate is refused: " in ended.err
    assert recorder.received == []
    trusting = cluster.host(SSL_CERT_FILE=str(certificates["ca.crt"]))
    passed(trusting)
    assert len(recorder.received) == 1


def test_a_pass_that_fails_as_cron_starts_it_complains_once(store: Store, cluster: Cluster) -> None:
    """Cron mails each line, every minute."""
    cluster.configure('[notify.channel.log]\ncommand = "echo no space; echo left >&2; exit 3"\n')
    cluster.host().run("billing", *FAILING)
    first, second = (cluster.host(ONCECRON_KEY=PASS)("notify") for _ in range(2))
    assert (first.status, second) == (0, Ended(0, b"", ""))
    assert "channel log: the command failed with exit status 3: left; it is tried" in first.err


def test_a_command_that_hangs_is_killed_with_all_that_it_started(
    cluster: Cluster, public_path: Path
) -> None:
    """In its session. And what an acknowledged command leaves running is left alone, and waited for by nobody."""
    alive = public_path / "alive"
    lives = f"sh -c 'echo $$ >> {alive}; exec sleep 600'"
    command = f"{lives} & ({lives} &); wait"
    cluster.configure(f"[notify.channel.log]\ntimeout = 5\ncommand = '''{command}'''\n")
    host = cluster.host()
    host.run("billing", *FAILING)
    for how in ("--now", "--test"):
        ended = host("notify", how)
        assert "the command has not ended within 5 s and was killed" in ended.err
    pids = alive.read_text().split()
    assert len(pids) == 4
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    cluster.configure('[notify.channel.log]\ncommand = "sleep 30 & exit 0"\n')
    passed(host)


def test_a_mail_that_is_refused_is_sent_again(
    cluster: Cluster, smtp_sink: SmtpSink, public_path: Path
) -> None:
    """Sendmail says why; without it, a line says what to install."""
    cluster.configure('[notify.channel.ops]\nto = "ops@example.com"\n')
    bare = cluster.host(PATH=str(public_path))
    bare.run("billing", *FAILING)
    missing = bare("notify", "--now")
    if "sendmail was not found" not in missing.err:  # this machine has one
        assert "sendmail failed" in missing.err or missing.status == 0
    smtp_sink.sendmail_in(public_path)
    smtp_sink.refusal = "451 try later"
    host = cluster.host(PATH=f"{public_path}:/usr/bin:/bin")
    host.run("import", *FAILING)
    ended = host("notify", "--now")
    assert ended.status == 1
    assert "sendmail failed with exit status 1: " in ended.err
    smtp_sink.refusal = None
    passed(host)
    [mail] = smtp_sink.mails
    assert "import failed" in mail.content.get_content()


def test_the_ping_comes_after_each_pass_that_worked(
    store: Store, cluster: Cluster, new_recorder: Recorders
) -> None:
    """So that somebody outside notices when no host makes a pass, or no message arrives."""
    pinged, hooked = new_recorder(), new_recorder()
    ping = f'[notify]\nping_url = "{pinged.url}/uuid"\n'
    cluster.configure(ping + hook(hooked))
    host = cluster.host()
    passed(host)
    passed(host)
    assert [(each.method, each.path) for each in pinged.received] == [("GET", "/uuid")] * 2
    host.run("billing", *FAILING)
    hooked.behave = lambda _: Answer(500)
    assert host("notify", "--now").status == 1
    assert len(pinged.received) == 2
    hooked.behave = lambda _: Answer()
    pinged.behave = lambda _: Answer(500)
    for _ in range(3):
        failing = host("notify", "--now")
        assert f"channel ping_url: {pinged.url}/***: HTTP status 500" in failing.err
    assert failing_channel_findings(host) == [("critical", "ping_url")]
    pinged.behave = lambda _: Answer()
    passed(host)
    assert failing_channel_findings(host) == []


def test_a_dry_run_prints_what_would_be_sent_and_a_test_sends_what_is_none(
    store: Store, cluster: Cluster, new_recorder: Recorders
) -> None:
    """Neither changes anything: the next pass sends all."""
    recorder = new_recorder()
    cluster.configure(hook(recorder) + '[notify.channel.log]\ncommand = "cat >&2"\n')
    host = cluster.host()
    host.run("report", "--no-tick", "--", "true")
    assert well(host("notify", "--dry-run")).out.decode().splitlines() == [
        f"channel hook, {recorder.url}/***: nothing to send",
        "channel log, cat >&2: nothing to send",
    ]
    host.run("billing", *FAILING)
    shown = well(host("notify", "-n")).out.decode()
    assert "CRITICAL: billing failed (exit status 3)" in shown
    assert recorder.received == []
    assert sorted(well(host("notify", "--test")).out.decode().splitlines()) == [
        f"channel hook, {recorder.url}/***: acknowledged",
        "channel log, cat >&2: acknowledged",
    ]
    [body] = bodies(recorder)
    assert (body["test"], body["changes"]) == (True, [])
    recorder.behave = lambda _: Answer(500)
    tested = host("notify", "--test")
    assert (tested.status, tested.err.count("\n")) == (1, 1)
    recorder.behave = lambda _: Answer()
    printed = sorted(passed(host).out.decode().splitlines())
    assert printed == ["hook: sent 1 change", "log: sent 1 change"]
    assert said(bodies(recorder)[-1]) == [("problem", "failed", "billing")]


def test_a_host_without_channels_does_not_take_the_pass(
    store: Store, cluster: Cluster, new_host: Hosts
) -> None:
    """It claims nothing, and says what is missing; so does one with a mistake in its file."""
    refused(new_host()("notify"), 78, "no channel is configured; add a section [notify.channel.")
    cluster.configure('[notify.channel.ops]\nto = "a b"\n')
    refused(cluster.host()("notify"), 78, "[notify.channel.ops]: to: 'a b' is not a mail address")
    both = cluster.host()("notify", "--now", "--test")
    refused(both, 64, "--now and --test contradict each other; leave one out")
    assert cluster.host().run("billing", "--no-tick", "--", "true").status == 0
    assert store.executions(PASS) == store.skips(PASS) == []


def test_a_wrong_channel_silences_no_other_one(
    store: Store, cluster: Cluster, new_recorder: Recorders
) -> None:
    """It is named by each pass, and its host lets the hosts go first whose file is right."""
    recorder = new_recorder()
    cluster.configure(f"{hook(recorder)}[notify.channel.ops]\nto = 'a b'\n")
    host = cluster.host()
    host.run("billing", *FAILING)
    named = "[notify.channel.ops]: to: 'a b' is not a mail address; write NAME@HOST"
    ended = host("notify", "--now")
    assert (ended.status, ended.out) == (78, b"hook: sent 1 change\n")
    assert ended.err == f"oncecron: {cluster.file} {named}\n"
    assert said(bodies(recorder)[0]) == [("problem", "failed", "billing")]
    begun = time.monotonic()
    assert host("notify").status in (0, 78)
    assert time.monotonic() - begun >= NOTIFY_WAITS


def test_a_store_that_is_away_is_no_recovery(cluster: Cluster) -> None:
    """Nothing is sent; the firing says that the store cannot be reached."""
    cluster.configure(
        '[notify.channel.log]\ncommand = "echo sent >&2; exit 1"\n', 'connect-timeout = "1s"\n'
    )
    away = cluster.host(ONCECRON_STORE="postgresql://u@127.0.0.1:1/d")
    for words in (("notify",), ("notify", "--dry-run")):
        ended = away(*words)
        assert (ended.status, ended.out) == (69, b""), ended
        assert "Connection refused" in ended.err


def test_a_store_that_is_typed_reaches_the_pass(
    cluster: Cluster, public_path: Path, any_store: Store
) -> None:
    """Also one that no other process of this host may see in its environment. The cure names its namespace."""
    told = public_path / "told"
    cluster.configure(f'[notify.channel.log]\ncommand = "tee {told} >&2; exit 3"\n')
    host = cluster.host(ONCECRON_STORE="postgresql://u@127.0.0.1:1/d")
    url = any_store.url
    where = ("--store", url, "--namespace", "other", "--config", cluster.file)
    assert host("init", *where).status == 0
    assert host.run("billing", *where, *FAILING).status == 3
    del host.environment["ONCECRON_CONFIG"]
    assert "exit status 3: oncecron CRITICAL: billing failed" in host("notify", *where).err
    again = "`oncecron run --key billing --no-tick --again --namespace other -- sh -c "
    assert again in told.read_text()


def test_a_missed_key_that_is_forgotten_does_not_run_again(
    store: Store, cluster: Cluster, new_recorder: Recorders, operator: Oncecron
) -> None:
    """Its end says who forgot it."""
    recorder = new_recorder()
    cluster.configure(hook(recorder))
    host = cluster.host()
    host.run("removed", "--schedule", "* * * * *", "--tz", "UTC", "--", "true")
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    last_started(store, "removed", hour_ago.strftime("%Y-%m-%dT%H:%MZ"))
    passed(host)
    assert operator("forget", "removed").status == 0
    for _ in range(2):
        passed(host)
    problem, over = bodies(recorder)
    assert said(problem) == [("problem", "missed", "removed")]
    assert said(over) == [("closed", "missed", "removed")]
    forgotten = r"oncecron CLOSED: removed was forgotten by \S+@\S+ at \S+Z"
    assert re.match(forgotten.partition(":")[0], over["summary"])
    [change] = over["changes"]
    assert re.fullmatch(forgotten.partition("removed ")[2], change["reason"])
    assert "runs again" not in json.dumps(over)


def test_a_lost_run_is_one_change_in_the_time_of_its_channel(
    store: Store, cluster: Cluster, new_recorder: Recorders, public_path: Path
) -> None:
    """Its expired lease is no other one; the account has the same zone."""
    recorder, told = new_recorder(), public_path / "told"
    berlin = f"[notify.channel.log]\ncommand = 'cat >> {told}'\ntz = \"Europe/Berlin\"\n"
    cluster.configure(hook(recorder) + berlin)
    host = cluster.host()
    firing = host.fire("billing", "--tick", "1", "--ttl", SHORT_TTL, "--", "sleep", "60")
    firing.job()
    eventually(lambda: store.executions("billing") != [])  # a log of its own hears of it later
    kill_tree(firing.process.pid)
    eventually(lambda: b"billing was lost" in host("check").out, 30)
    passed(host)
    [body] = bodies(recorder)
    assert said(body) == [("problem", "lost", "billing")]
    assert len(body["changes"][0]["account"]) > 0
    text = told.read_text()
    assert re.search(
        r"^critical: billing was lost: the lease of host-a has expired at ", text, re.MULTILINE
    )
    there = r"\d\d:\d\d:\d\d"
    assert re.search(rf"has expired at \S+ {there} CES?T, and", text)
    assert re.search(r"^On \S+ \(CES?T, by the store's clock\):$", text, re.MULTILINE)
    assert re.search(rf"^{there} host-a started it", text, re.MULTILINE)
    assert re.search(rf"at \S+ {there} CES?T\.$", text, re.MULTILINE)
    assert "Z" not in text.replace("ONCECRON", "")
    assert text.count(": billing was lost") == 2  # of the summary, and at length
