"""`[[ping]]`: monitoring services hear of each start and each end, and no run is changed or held up by that."""

import json
import os
import re
import signal
import socket
import sys
import syslog
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_of import Store
from servers import Answer, Certificates, Received, Recorder, descendants, eventually
from servers.oncecron import SHORT_TTL, Firing, Oncecron
from servers.process import Process, kill_tree, process_table, wait_gone
from servers.require import require_root

Pingers = Callable[[], list[Process]]
Configure = Callable[..., Path]
NewRecorder = Callable[..., Recorder]


@pytest.fixture
def recorder(new_recorder: NewRecorder) -> Recorder:
    return new_recorder()


@pytest.fixture
def configure(public_path: Path) -> Configure:
    """Give a function that writes the configuration file of all hosts: (service, url, more of the table, more)."""

    def write(service: str, url: str, table: str = "", more: str = "") -> Path:
        path = public_path / "oncecron.toml"
        path.write_text(f"{more}\n[[ping]]\nservice = '{service}'\nurl = '{url}'\n{table}\n")
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def new_pinging(new_host: Callable[..., Oncecron], public_path: Path) -> Callable[..., Oncecron]:
    """Give a function that makes a host that reads the file, by its name."""

    def make(name: str = "host-a", **environment: str) -> Oncecron:
        host = new_host(name, ONCECRON_CONFIG=str(public_path / "oncecron.toml"), **environment)
        host.loses_no_output = True
        return host

    return make


@pytest.fixture
def host(new_pinging: Callable[..., Oncecron]) -> Oncecron:
    return new_pinging()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Give an event for which a server waits; it is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def pingers(public_path: Path) -> Pingers:
    """Give a function that returns the processes that ping for the hosts of this test, in nobody's tree."""

    def find() -> list[Process]:
        return [process for process in process_table() if _pings(process.pid, public_path)]

    return find


def _pings(pid: int, home: Path) -> bool:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        leads = os.getsid(pid) == pid
    except OSError:
        return False
    fds = [_target(f"/proc/{pid}/fd/{number}") for number in numbers]
    detached = leads and not any("signalfd" in fd for fd in fds)
    return (
        detached
        and any("oncecron-pings" in fd for fd in fds)
        and b"HOME=%s\0" % os.fsencode(home) in environment
    )


def _target(link: str) -> str:
    """Return what a descriptor is of, or nothing if it is closed by now, as each module is that a process imports."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def paths(requests: list[Received]) -> list[str]:
    return [request.path for request in requests]


# What each service is sent


def test_healthchecks_hears_of_a_success(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """The start, and the exit status 0, both with the id of the run and with what people want to read."""
    configure("healthchecks", f"{recorder.url}/ping/key/{{key}}?create=1")
    assert host.run("Bill.sh-1", "--tick", "t", "--capture", "1k", "--", "echo", "paid").status == 0
    start, end = recorder.wait_for(2)
    assert (start.method, start.path) == ("POST", "/ping/key/bill-sh-1/start")
    assert (end.method, end.path) == ("POST", "/ping/key/bill-sh-1/0")
    rid = start.query["rid"]
    assert start.query == end.query == {"create": "1", "rid": rid}
    assert str(uuid.UUID(rid)) == rid
    [owner] = {row["owner"] for row in json.loads(host("history", "--json").out)}
    assert rid.replace("-", "")[:12] == owner[:12], "history leads to the ping"
    assert start.body.startswith(b"started on host-a (Bill.sh-1, tick t, execution ")
    head, _, tail = end.body.decode().partition("\n\n")
    assert head.startswith("succeeded on host-a after ")
    assert tail == "paid\n"
    assert end.headers["user-agent"].startswith("oncecron/")


@pytest.mark.parametrize(("limit", "kept"), [(None, 10_000), ("300", 300), ("100000", 100_000)])
def test_the_end_of_the_output_is_cut_to_what_healthchecks_keeps(
    host: Oncecron, new_recorder: NewRecorder, configure: Configure, limit: str | None, kept: int
) -> None:
    """The server keeps the first bytes of a body, and says how many: the newest output is within them."""
    headers = (("Ping-Body-Limit", limit),) if limit else ()
    recorder = new_recorder(lambda _: Answer(headers=headers))
    configure("healthchecks", f"{recorder.url}/x")
    host.run("k", "--tick", "t", "--capture", "1M", "--", "seq", 30000)
    _, end = recorder.wait_for(2)
    assert kept - 4 < len(end.body) <= kept
    assert end.body.startswith(b"succeeded on host-a")
    assert end.body.endswith(b"\n29999\n30000\n")


def test_a_webhook_gets_the_fields_of_the_record(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """As JSON, with the digest of the owner's id; the id itself, the token and the command stay here."""
    configure("webhook", f"{recorder.url}/hook")
    script = "echo lost its way; exit 3"
    host.run("k", "--tick", "t", "--capture", "1k", "--", "sh", "-c", script)
    requests = recorder.wait_for(2)
    assert {(one.method, one.path) for one in requests} == {("POST", "/hook")}
    assert {one.headers["content-type"] for one in requests} == {"application/json"}
    start, end = (json.loads(one.body) for one in requests)
    [row] = json.loads(host("history", "--json", "--utc").out)
    shared = set(row) & set(end) - {"duration"}
    assert {name: end[name] for name in shared} == {name: row[name] for name in shared} | {
        "started_at": end["started_at"],
        "finished_at": end["finished_at"],
    }
    assert (start["event"], start["outcome"], start["finished_at"]) == ("start", "running", None)
    assert (end["event"], end["outcome"], end["exit_code"]) == ("end", "failed", 3)
    assert end["output"] == "lost its way\n"
    assert start["run_id"] == end["run_id"]
    assert list(start) == list(end)
    assert not {"command", "fencing_token"} & set(end)


def test_the_url_may_be_in_a_file_of_its_own(
    host: Oncecron, recorder: Recorder, public_path: Path
) -> None:
    """So everybody may read the configuration file."""
    secret, file = public_path / "url", public_path / "oncecron.toml"
    secret.write_text(f"{recorder.url}/{{key}}\n")
    secret.chmod(0o600)
    file.write_text("[[ping]]\nservice = 'healthchecks'\nurl_file = 'url'\n")
    file.chmod(0o644)
    assert host.run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert paths(recorder.wait_for(2)) == ["/k/start", "/k/0"]


# What is wrong with a ping


@pytest.mark.parametrize(
    "table",
    ["service = 'healthcheks'\nurl = '{}'", "service = 'webhook'\nurl = '{}/s3cret'"],
)
def test_a_mistake_in_a_ping_stops_no_job(
    host: Oncecron, recorder: Recorder, public_path: Path, table: str
) -> None:
    """An unknown service, a secret that everybody may read: no ping, no word to cron, one line to a person."""
    file = public_path / "oncecron.toml"
    file.write_text(f"[[ping]]\n{table.format(recorder.url)}\n")
    file.chmod(0o644)
    assert host.run("k", "--tick", "t", "--", "echo", "ran") == (0, b"ran\n", "")
    ended = host.run("other", "-v", "--tick", "t", "--", "sh", "-c", "exit 3")
    assert (ended.status, ended.err.count("[[ping]]: ")) == (3, 1)
    assert "s3cret" not in ended.err
    assert recorder.received == []


# Who pings, and when


def test_three_hosts_ping_once(
    store: Store,
    new_pinging: Callable[..., Oncecron],
    recorder: Recorder,
    configure: Configure,
    pingers: Pingers,
) -> None:
    """One start and one end of each tick, by the host that ran it; a skip is no ping."""
    configure("webhook", f"{recorder.url}/hook")
    hosts = [new_pinging(name) for name in ("host-a", "host-b", "host-c")]
    for tick in ("one", "two"):
        firings = [host.fire("k", "--tick", tick, "--", "sleep", "0.3") for host in hosts]
        assert {firing.wait().status for firing in firings} == {0}
    hosts[0].run("k", "--tick", "two", "--", "true")
    recorder.wait_for(4)
    eventually(lambda: not pingers())
    events = [json.loads(one.body) for one in recorder.received]
    assert sorted((event["tick"], event["event"]) for event in events) == [
        *(("one", "end"), ("one", "start"), ("two", "end"), ("two", "start"))
    ]
    winners = {row.tick: row.host for row in store.executions("k")}
    assert all(event["host"] == winners[event["tick"]] for event in events)


def test_retries_are_one_run(
    host: Oncecron, recorder: Recorder, configure: Configure, public_path: Path, pingers: Pingers
) -> None:
    """One start before the first attempt, one end after the last one."""
    configure("webhook", f"{recorder.url}/hook")
    script = f"echo x >>{public_path}/n; test $(wc -l <{public_path}/n) -ge 3"
    options = ("--tick", "t", "--retries", 3, "--retry-delay", "50ms..60ms")
    assert host.run("k", *options, "--", "sh", "-c", script).status == 0
    recorder.wait_for(2)
    eventually(lambda: not pingers())
    events = [json.loads(one.body) for one in recorder.received]
    assert [(one["event"], one["attempt"], one["outcome"]) for one in events] == [
        ("start", 1, "running"),
        ("end", 3, "succeeded"),
    ]
    assert events[0]["run_id"] == events[1]["run_id"]
    newest = max(row["execution_id"] for row in json.loads(host("history", "--json").out))
    assert events[1]["execution_id"] == newest


def test_a_killed_guard_is_a_failure(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """The wrapper, which ends the job, also reports that."""
    configure("webhook", f"{recorder.url}/hook")
    firing = host.fire("k", "--tick", "t", "--", "sleep", "60")
    recorder.wait_for(1)
    os.kill(firing.guard().pid, signal.SIGKILL)
    assert firing.wait().status == 75
    end = json.loads(recorder.wait_for(2)[1].body)
    assert (end["event"], end["outcome"], end["lost_reason"]) == ("end", "lost", "guard-killed")


def vanish(firing: Firing) -> None:
    """Kill everything of a firing at once, as when its host loses its power."""
    firing.job()
    kill_tree(firing.process.pid)
    firing.wait()


def test_a_run_whose_host_died_gets_its_end_from_the_firing_that_finds_it(
    store: Store,
    new_pinging: Callable[..., Oncecron],
    recorder: Recorder,
    configure: Configure,
    pingers: Pingers,
) -> None:
    """Once, with the id of its start, however many hosts find its lease expired; then comes their own start."""
    configure("healthchecks", f"{recorder.url}/x")
    a, *others = (new_pinging(name) for name in ("host-a", "host-b", "host-c", "host-d"))
    first = a.fire("k", "--tick", "one", "--ttl", SHORT_TTL, "--", "sleep", "600")
    [start] = recorder.wait_for(1)
    vanish(first)
    words = ("--tick", "two", "--wait", "20s", "--", "sleep", "0.2")
    firings = [host.fire("k", *words) for host in others]
    assert {firing.wait().status for firing in firings} == {0}
    recorder.wait_for(4)
    eventually(lambda: not pingers())
    lost, own_start, own_end = sorted(recorder.received[1:], key=lambda one: one.path != "/x/fail")
    assert (start.path, lost.path, lost.query) == ("/x/start", "/x/fail", start.query)
    assert lost.body.startswith(b"lost on host-a: its lease ended, found by host-")
    assert b"(k, tick one, execution " in lost.body
    assert (own_start.path, own_end.path) == ("/x/start", "/x/0")
    assert own_start.query == own_end.query != start.query


def test_a_takeover_of_a_dead_host_reports_no_end_of_its_run(
    any_store: Store,
    new_pinging: Callable[..., Oncecron],
    recorder: Recorder,
    configure: Configure,
    pingers: Pingers,
) -> None:
    """The tick goes on, and has one end; with no attempt left, the firing that is refused reports it."""
    configure("webhook", f"{recorder.url}/x")
    a, b = new_pinging("host-a"), new_pinging("host-b")
    words = ("--tick", "one", "--failover", "--retries", "1", "--ttl", SHORT_TTL, "--")
    for host, count in ((a, 1), (b, 2)):
        firing = host.fire("k", *words, "sleep", "600")
        recorder.wait_for(count)
        vanish(firing)
    assert a.run("k", *words, "true").status == 0
    recorder.wait_for(3)
    eventually(lambda: not pingers())
    events = [json.loads(one.body) for one in recorder.received]
    assert [(one["event"], one["host"], one["attempt"], one["outcome"]) for one in events] == [
        ("start", "host-a", 1, "running"),
        ("start", "host-b", 2, "running"),
        ("end", "host-b", 2, "lost"),
    ]
    assert [one["run_id"] for one in events[1:]] == [events[1]["run_id"]] * 2
    assert (events[2]["lost_reason"], events[2]["duration"]) == ("expired", None)


def test_a_release_reports_the_end_of_a_dead_run(
    any_store: Store,
    new_pinging: Callable[..., Oncecron],
    recorder: Recorder,
    configure: Configure,
) -> None:
    """Nobody else does: the next firing finds nothing lost."""
    configure("healthchecks", f"{recorder.url}/x")
    a, b = new_pinging("host-a"), new_pinging("host-b")
    firing = a.fire("k", "--tick", "one", "--ttl", SHORT_TTL, "--", "sleep", "600")
    [start] = recorder.wait_for(1)
    vanish(firing)
    eventually(lambda: b("release", "k").status == 0, 20)
    start, end = recorder.wait_for(2)
    assert (end.path, end.query) == ("/x/fail", start.query)
    assert end.body.startswith(b"lost on host-a: released by ")


def test_a_job_without_a_lease_is_reported(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """With --on-store-error run it runs, and the service must not report that it did not."""
    configure("webhook", f"{recorder.url}/hook")
    host.environment["ONCECRON_STORE"] = "redis://127.0.0.1:1"
    words = ("--tick", "t", "--on-store-error", "run", "--connect-timeout", "1s")
    assert host.run("k", *words, "--", "true").status == 0
    start, end = (json.loads(one.body) for one in recorder.wait_for(2))
    assert (start["event"], end["event"], end["outcome"]) == ("start", "end", "succeeded")
    assert end["note"].startswith("without a lease")


# What it costs the job


@pytest.mark.slow
def test_a_server_that_hangs_costs_the_job_nothing(
    any_store: Store,
    host: Oncecron,
    new_recorder: NewRecorder,
    configure: Configure,
    release: threading.Event,
    pingers: Pingers,
) -> None:
    """The job ends, the lease is released and oncecron exits while the first ping still has no answer."""
    recorder = new_recorder(lambda _: (release.wait(), Answer())[1])
    configure("healthchecks", f"{recorder.url}/x")
    assert host.run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert host.run("k", "--tick", "u", "--", "true") == (0, b"", "")
    assert [row.outcome for row in any_store.executions("k")] == ["succeeded", "succeeded"]
    assert pingers(), "they wait for their answers"
    ends = [path for path in paths(recorder.received) if path.endswith("/0")]
    assert ends == [], "an end comes after its start"
    eventually(lambda: not pingers(), 40)
    ends = [path for path in paths(recorder.received) if path.endswith("/0")]
    assert ends == ["/x/0"] * 4, "two tries of each end"


@pytest.mark.parametrize(
    ("status", "more"), [(301, ", a redirection, which is not followed"), (404, "")]
)
def test_a_refusal_is_final(
    host: Oncecron, new_recorder: NewRecorder, configure: Configure, status: int, more: str
) -> None:
    """Another try would be refused too, and a redirect must not give the URL to another server."""
    elsewhere = new_recorder()
    headers = (("Location", f"{elsewhere.url}/x"),)
    recorder = new_recorder(lambda _: Answer(status, headers))
    configure("healthchecks", f"{recorder.url}/s3cret")
    ended = host.run("k", "-v", "--tick", "t", "--", "true")
    assert ended.status == 0
    assert (
        f"ping to healthchecks {recorder.url}/*** failed: HTTP status {status}{more}\n" in ended.err
    )
    assert "s3cret" not in ended.err
    assert (len(recorder.received), elsewhere.received) == (2, [])


def test_a_wrong_certificate_is_refused(
    host: Oncecron, new_recorder: NewRecorder, configure: Configure, certificates: Certificates
) -> None:
    """Unless $SSL_CERT_FILE names its authority."""
    recorder = new_recorder(certificate=certificates["server.crt"])
    configure("healthchecks", f"{recorder.url}/x")
    ended = host.run("k", "-v", "--tick", "t", "--", "true")
    assert ended.status == 0
    assert "failed: its certificate is refused: " in ended.err
    assert recorder.received == []
    host.environment["SSL_CERT_FILE"] = str(certificates["ca.crt"])
    assert host.run("k", "--tick", "u", "--", "true") == (0, b"", "")
    assert paths(recorder.wait_for(2)) == ["/x/start", "/x/0"]


def test_no_proxy_is_used(host: Oncecron, new_recorder: NewRecorder, configure: Configure) -> None:
    """What a variable of the job says is not for the pings."""
    proxy, recorder = new_recorder(), new_recorder()
    configure("healthchecks", f"{recorder.url}/x")
    host.environment |= {"http_proxy": proxy.url, "ALL_PROXY": proxy.url}
    assert host.run("k", "--tick", "t", "--", "true").status == 0
    recorder.wait_for(2)
    assert proxy.received == []


def test_the_job_is_alone_with_what_it_would_have(
    host: Oncecron,
    new_recorder: NewRecorder,
    configure: Configure,
    release: threading.Event,
    pingers: Pingers,
) -> None:
    """No descriptor, no child, no output of the pings is the job's, and no URL is in the process table."""
    recorder = new_recorder(lambda _: (release.wait(), Answer())[1])
    configure("healthchecks", f"{recorder.url}/s3cret")
    firing = host.fire("k", "--tick", "t", "--", "sleep", "60")
    recorder.wait_for(1)
    job = firing.job()
    # A program that has just begun opens its libraries for a moment.
    eventually(lambda: sorted(os.listdir(f"/proc/{job.pid}/fd")) == ["0", "1", "2"])
    assert len(descendants(firing.process.pid)) == 3, "wrapper, guard, job"
    [pinger] = pingers()
    assert pinger.parent not in {one.pid for one in descendants(firing.process.pid)}
    given = {os.readlink(f"/proc/{pinger.pid}/fd/{number}") for number in (0, 1, 2)}
    assert given == {"/dev/null"}
    assert len(os.listdir(f"/proc/{pinger.pid}/fd")) <= 3 + 3 + 2, "its own, and a socket"
    assert os.readlink(f"/proc/{pinger.pid}/cwd") == "/"
    assert not any(
        "s3cret" in Path(f"/proc/{one.pid}/cmdline").read_text()
        for one in (*descendants(firing.process.pid), pinger)
    )
    os.kill(firing.process.pid, signal.SIGTERM)
    firing.wait()


def test_a_ping_survives_the_firing(
    host: Oncecron,
    new_recorder: NewRecorder,
    configure: Configure,
    release: threading.Event,
    pingers: Pingers,
) -> None:
    """Killed together, wrapper and guard leave a ping that ends by itself, and no end that nobody knows."""
    recorder = new_recorder(lambda _: (release.wait(), Answer())[1])
    configure("healthchecks", f"{recorder.url}/x")
    firing = host.fire("k", "--tick", "t", "--", "sleep", "60")
    recorder.wait_for(1)
    [pinger] = pingers()
    guard, job = firing.guard(), firing.job()
    os.kill(firing.process.pid, signal.SIGSTOP)  # else it kills what the guard leaves
    os.kill(guard.pid, signal.SIGKILL)
    os.kill(firing.process.pid, signal.SIGKILL)
    firing.wait()
    wait_gone([guard, job])
    assert pinger.alive()
    os.kill(pinger.pid, signal.SIGTERM)  # as systemd does at the end of a unit
    release.set()
    wait_gone([pinger])
    assert set(paths(recorder.received)) == {"/x/start"}


def test_a_killed_ping_changes_nothing(
    any_store: Store, host: Oncecron, recorder: Recorder, configure: Configure, pingers: Pingers
) -> None:
    """The job goes on, and its end is recorded."""
    configure("healthchecks", f"{recorder.url}/x")
    firing = host.fire("k", "--tick", "t", "--", "sleep", "60")
    recorder.wait_for(1)
    [pinger] = pingers()
    os.kill(pinger.pid, signal.SIGKILL)
    os.kill(firing.job().pid, signal.SIGKILL)
    assert firing.wait() == (137, b"", "")
    assert [row.outcome for row in any_store.executions("k")] == ["failed"]


def test_the_first_process_of_a_container_waits_for_the_end(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """Its exit would kill the ping."""
    require_root("a container of its own")
    configure("healthchecks", f"{recorder.url}/x")
    host.prefix = ["unshare", "--pid", "--fork", "--mount-proc"]
    assert host.run("k", "--tick", "t", "--", "false").status == 1
    assert paths(recorder.received) == ["/x/start", "/x/1"]


def test_a_ping_needs_little_memory(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """Where the limit of the address space is low, as on a host that has many jobs."""
    configure("healthchecks", f"{recorder.url}/x")
    host.prefix = ["sh", "-c", 'ulimit -v 500000; exec "$@"', "sh"]
    assert host.run("k", "--tick", "t", "--", "true") == (0, b"", "")
    assert paths(recorder.wait_for(2)) == ["/x/start", "/x/0"]


def test_the_system_log_has_what_failed(
    host: Oncecron, recorder: Recorder, configure: Configure, public_path: Path
) -> None:
    """Under cron nothing else is printed; the line names the key, the service and the reason."""
    require_root("a system log of its own")
    recorder.close()
    configure("healthchecks", f"{recorder.url}/s3cret")
    device = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"
    mounts = f'{device} && ln -s {public_path}/log /dev/log && exec "$@"'
    host.prefix = ["unshare", "--mount", "sh", "-c", mounts, "sh"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(public_path / "log"))
        log.settimeout(30)
        assert host.run("k", "--tick", "t", "--", "true") == (0, b"", "")
        lines = [log.recv(4096).decode() for _ in range(2)]
    priority = syslog.LOG_CRON | syslog.LOG_WARNING
    for line, kind in zip(lines, ("start", "end"), strict=True):
        assert line.startswith(f"<{priority}>")
        expected = (
            f"key k: the {kind} ping to healthchecks {recorder.url}/*** failed: Connection refused"
        )
        assert re.search(rf" oncecron\[[0-9]+\]: {re.escape(expected)}$", line.rstrip("\0\n")), line


def test_a_kernel_without_files_in_memory_pings_too(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """The events wait in a file without a name instead."""
    configure("healthchecks", recorder.url)
    children = Path(__file__).resolve().parent.parent / "children"
    host.prefix = [sys.executable, str(children / "refusing.py"), "memfd_create", "EPERM"]
    assert host.run("k", "--tick", "t", "--", "true").status == 0
    assert paths(recorder.wait_for(2)) == ["/start", "/0"]


# What a firing imports for it


def imported(host: Oncecron, *words: object) -> set[str]:
    """Fire and return the modules that wrapper and guard have imported, but for those that every firing loads."""
    host.prefix = [sys.executable, "-X", "importtime"]
    lines = host.run("k", *words, "--", "true").err.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_only_a_winner_that_pings_imports_what_it_takes(
    host: Oncecron, recorder: Recorder, configure: Configure
) -> None:
    """Another key pays for nothing but the table, and a skip for the memory of events alone."""
    configure("webhook", f"{recorder.url}/hook", "keys = ['other']")
    other = imported(host, "--tick", "t")
    assert "oncecron.run" in other
    assert not {"oncecron.watch", "http.client", "ssl"} & other
    configure("webhook", f"{recorder.url}/hook")
    skipped = imported(host, "--tick", "t")
    ours = {"oncecron.watch", "oncecron.watch.pinger"}
    assert {name for name in skipped - other if name.startswith("oncecron")} == ours
    assert not {"http.client", "ssl", "threading"} & skipped
    assert recorder.received == []
