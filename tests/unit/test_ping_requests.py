"""Pings: what is one, what each service is sent, and where a failure is reported."""

import json
import marshal
import socket
import syslog
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from http import HTTPStatus
from itertools import product
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Answer, Recorder
from servers.kept import assert_nothing_kept
from servers.scripted import Scripted

from oncecron.config.ping_table import Ping
from oncecron.config.run_parser import ParsedRun
from oncecron.core.model import owner_digest
from oncecron.host import stderr
from oncecron.run.seams import Observer
from oncecron.run.spec import RunSpec, make_spec
from oncecron.run.wrapper import _observer
from oncecron.watch.http_request import Request, RequestError, send
from oncecron.watch.pinger import events_in
from oncecron.watch.pings import Channel, Story, request_for, run_id, summary

PATIENCE = 60.0
"""Seconds: no answer takes so long."""
OWNER = "3e4f6ad1-08b7-4c52-9a0e-111111111111"


def record(**values: Any) -> dict[str, Any]:
    """Return the record of an execution that succeeded, with other values where they are given."""
    return {
        "kind": "execution", "key": "bill", "shard": 0, "shards": 1, "tick": "t", "tick_instant": None,
        "host": "web1", "pid": 7, "user": "ann", "fired_at": 1.0, "attempt": 1, "outcome": "succeeded",
        "exit_code": 0, "signal": None, "cause": "schedule", "command": "pay s3cret", "started_at": 1000.25,
        "finished_at": 1001.5, "duration": 1.25, "fencing_token": 12345, "owner": OWNER, "note": None,
        "lost_reason": None, "request": None, "requested_by": None, "output": None, "output_cut": None,
        "retries": 0, "execution_id": 5, **values,
    }  # fmt: skip


def query(url: str) -> dict[str, str]:
    """Return the query of a URL; no name is there twice."""
    found = parse_qs(urlsplit(url).query, strict_parsing=True)
    assert all(len(values) == 1 for values in found.values())
    return {name: values[0] for name, values in found.items()}


# Who makes the pings


def test_an_observer_that_cannot_be_made_stops_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by a module that does not load."""

    def observe(_: RunSpec) -> Observer:
        raise ImportError("no module")

    said: list[str] = []
    monkeypatch.setattr(stderr, "complain", said.append)
    spec = make_spec(ParsedRun({"key": "k", "store": "sqlite:///x", "verbose": "1"}, ["true"]))
    spec = spec._replace(observe=observe, pings=(Ping("webhook", "http://h/"),))
    assert _observer(spec) is None
    assert said == ["key k: no ping is sent: ImportError: no module; reinstall oncecron"]


# Which events are pings


Taken = list[tuple[str, int, int | None]]


def told(*events: tuple[str, dict[str, Any]], failover: bool = False, close: bool = True) -> Taken:
    """Return the pings of events: kind, attempt, exit code."""
    story = Story(failover=failover)
    pings = [ping for kind, fields in events for ping in story.take(kind, fields)]  # type: ignore[arg-type]
    pings += story.close() if close else ()
    return [(kind, fields["attempt"], fields["exit_code"]) for kind, fields in pings]


START = ("start", record(exit_code=None))
AGAIN = ("start", record(attempt=2, exit_code=None, execution_id=6))


def test_two_attempts_are_one_run() -> None:
    """The first start, and the end after which none follows."""
    kept = ("keep", record(exit_code=3, outcome="failed"))
    end = ("end", record(attempt=2, exit_code=4, outcome="failed"))
    assert told(START, kept, AGAIN, end) == [("start", 1, None), ("end", 2, 4)]
    assert told(START, end, end) == [("start", 1, None), ("end", 2, 4)]


def test_each_tick_that_is_made_up_is_a_run() -> None:
    """And so is each shard: both are more than one run of a firing."""
    parts = [record(tick=tick, shard=shard, exit_code=3) for tick in ("t", "u") for shard in (0, 1)]
    events = [(kind, part) for part in parts for kind in ("start", "end")]
    assert [kind for kind, *_ in told(*events)] == ["start", "end"] * 4


def test_an_attempt_that_never_came_ends_with_the_last_one() -> None:
    """The lease was lost between two attempts: another host runs the next one with --failover alone."""
    kept = ("keep", record(exit_code=3, outcome="failed"))
    assert told(START, kept) == [("start", 1, None), ("end", 1, 3)]
    assert told(START, kept, failover=True) == [("start", 1, None)]


@pytest.mark.parametrize(
    ("failover", "attempt", "ends"),
    [(False, 1, True), (True, 1, False), (True, 2, False), (True, 3, True)],
)
def test_a_loss_is_the_end_where_no_host_may_go_on(
    failover: bool, attempt: int, ends: bool
) -> None:
    """With --failover, each of two hosts may take over; what they start is a run of theirs."""
    lost = record(outcome="lost", attempt=attempt, retries=2, exit_code=None)
    kinds = [kind for kind, *_ in told(START, ("end", lost), failover=failover)]
    assert kinds == (["start", "end"] if ends else ["start"])


def test_what_never_started_has_no_end() -> None:
    """Another host may run the tick; and of a job whose guard and wrapper were killed, nothing is known."""
    assert told(("end", record(outcome="not-started", exit_code=None))) == []
    assert told(START) == [("start", 1, None)]


@given(st.lists(st.binary(max_size=300)), st.integers(min_value=0))
def test_events_are_read_whole(contents: list[bytes], cut: int) -> None:
    """However far a writer has got."""
    frames = [marshal.dumps(("end", {"output": content})) for content in contents]
    data = b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)
    events, size = events_in(data[: cut % (len(data) + 1)])
    rest, more = events_in(data[size:])
    assert [fields["output"] for _, fields in [*events, *rest]] == contents
    assert size + more == len(data)


# What each service is sent


def test_a_run_has_an_id_that_is_no_secret() -> None:
    """A UUID that begins as the published owner does; another one for each firing and shard."""
    text = run_id(record())
    found = uuid.UUID(text)
    assert (str(found), found.version, found.variant) == (text, 8, uuid.RFC_4122)
    assert text.replace("-", "")[:12] == owner_digest(OWNER)[:12]
    assert run_id(record(attempt=2)) == text
    assert len({run_id(record(shard=shard)) for shard in range(50)}) == 50
    assert run_id(record(owner=OWNER[:-1] + "2")) != text


OUTCOMES = {
    "succeeded": ("0", "complete", "ok"), "failed": ("fail", "fail", "error"),
    "timed-out": ("fail", "fail", "error"), "stopped": ("fail", "fail", "error"),
    "lost": ("fail", "fail", "error"), "not-started": ("fail", "fail", "error"),
}  # fmt: skip


@pytest.mark.parametrize(("outcome", "code"), list(product(OUTCOMES, [None, 0, 3])))
def test_each_outcome_has_a_word_of_each_service(outcome: str, code: int | None) -> None:
    """Only a success is one, whatever the exit status; a failure has its own where there is one."""
    if (outcome, code) in {("succeeded", 3), ("succeeded", None), ("failed", 0)}:
        return  # cannot be
    ended = record(outcome=outcome, exit_code=code)
    action, state, status = OUTCOMES[outcome]
    if (outcome, code) == ("failed", 3):
        action = "3"
    assert (
        urlsplit(request_for("healthchecks", "http://h/u", "end", ended).url).path == f"/u/{action}"
    )
    cronitor = query(request_for("cronitor", "http://h/u", "end", ended).url)
    assert (cronitor["state"], cronitor.get("status_code")) == (
        state,
        None if code is None else str(code),
    )
    assert query(request_for("sentry", "http://h/u", "end", ended).url)["status"] == status


def test_cronitor_and_sentry_get_start_and_end_by_one_id() -> None:
    """In the query, beside what the URL has there; a long message is cut to its newest end."""
    url, ended = "http://h/k/?environment=staging", record(output="x" * 3000 + "3000\n")
    sent = {}
    for service in ("cronitor", "sentry"):
        for kind in ("start", "end"):
            request = request_for(service, url, kind, ended)  # type: ignore[arg-type]
            path = urlsplit(request.url).path
            assert (request.method, request.body, path) == ("GET", None, "/k/")
            sent[service, kind] = query(request.url)
    message = sent["cronitor", "end"].pop("message")
    assert (len(message), message[-6:]) == (2000, "x3000\n")
    assert sent["cronitor", "start"].pop("message")
    cronitor = {"environment": "staging", "series": run_id(record()), "host": "web1"}
    assert sent["cronitor", "start"] == {**cronitor, "state": "run"}
    ending = {"state": "complete", "status_code": "0", "metric": "duration:1.250"}
    assert sent["cronitor", "end"] == {**cronitor, **ending}
    sentry = {"environment": "staging", "check_in_id": run_id(record())}
    assert sent["sentry", "start"] == {**sentry, "status": "in_progress"}
    assert sent["sentry", "end"] == {**sentry, "status": "ok", "duration": "1.250"}


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hc/u", "https://hc/u/start?rid={}"),
        ("https://hc/u/", "https://hc/u/start?rid={}"),
        ("https://hc/p/u?create=1", "https://hc/p/u/start?create=1&rid={}"),
    ],
)
def test_the_action_of_healthchecks_comes_before_the_query(url: str, sent: str) -> None:
    """And the query that was there stays."""
    assert request_for("healthchecks", url, "start", record()).url == sent.format(run_id(record()))


@given(st.text(), st.text(), st.integers(10, 400))
def test_a_body_is_never_longer_than_its_limit(note: str, output: str, limit: int) -> None:
    """Cut between characters, and the newest output is kept."""
    ended = record(note=note, output=output, outcome="lost", exit_code=None)
    body = request_for("healthchecks", "http://h/u", "end", ended, limit).body
    assert body is not None
    assert len(body) <= limit
    text = body.decode()
    room = limit - len(summary("end", ended).encode()) - 2
    if room >= len("\U00010000".encode()) and output:
        assert text.endswith(output[-1])
    message = query(request_for("cronitor", "http://h/u", "end", ended).url)["message"]
    assert len(message) <= 2000


def test_a_webhook_has_nothing_that_is_secret() -> None:
    """Neither the owner's id, nor the token, nor the command."""
    request = request_for("webhook", "http://h/u", "end", record())
    assert request.body
    fields = json.loads(request.body)
    assert not any(secret in request.body.decode() for secret in (OWNER, "12345", "s3cret"))
    assert (fields["started_at"], fields["finished_at"]) == (
        "1970-01-01T00:16:40.250Z",
        "1970-01-01T00:16:41.500Z",
    )


def test_the_summary_says_what_happened() -> None:
    """In one line, without what is usual."""
    assert summary("start", record()) == "started on web1 (bill, tick t, execution 5)"
    ended = record(
        outcome="failed", exit_code=3, attempt=2, shard=1, shards=4, note="w\nhy", tick=None
    )
    assert summary("end", ended) == (
        "failed on web1 after 1.2 s: exit status 3; w\\nhy (bill, shard 1 of 4, attempt 2, execution 5)"
    )


def test_a_url_has_the_key_and_the_shard() -> None:
    """In the letters that services take."""
    ping = Ping("healthchecks", "https://hc/{key}-{shard}?key={key}")
    assert (
        ping.url_of("Bill.sh-3f/a@b:c_d", 2)
        == "https://hc/bill-sh-3f-a-b-c_d-2?key=bill-sh-3f-a-b-c_d"
    )


@given(st.text("ab-", max_size=8), st.text("ab-*", min_size=1, max_size=6))
def test_a_star_stands_for_any_characters(key: str, pattern: str) -> None:
    """As in a shell, which has more patterns."""
    assert Ping("webhook", "https://h", (pattern,)).is_for(key) == fnmatchcase(key, pattern)


# How it is sent


def test_a_login_is_a_header(new_recorder: Callable[..., Recorder]) -> None:
    """As in any URL: percent-decoded, and not in the path."""
    recorder = new_recorder()
    send(Request("GET", f"{recorder.url.replace('://', '://ann:p%40ss@')}/x?a=b"), PATIENCE)
    [request] = recorder.received
    assert request.headers["authorization"] == "Basic YW5uOnBAc3M="
    assert (request.path, request.query) == ("/x", {"a": "b"})


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (503, True), (429, True), (404, False), (302, False)]
)
def test_some_answers_are_final(
    new_recorder: Callable[..., Recorder], status: int, again: bool
) -> None:
    """What the server may take another time is tried again."""
    recorder = new_recorder(lambda _: Answer(status))
    moved = ", a redirection, which is not followed" if status == HTTPStatus.FOUND else ""
    with pytest.raises(RequestError, match=f"^HTTP status {status}{moved}$") as raised:
        send(Request("GET", recorder.url), PATIENCE)
    assert raised.value.again is again


def test_a_closed_connection_is_no_answer(new_recorder: Callable[..., Recorder]) -> None:
    """It may be tried again."""
    recorder = new_recorder(lambda _: None)
    with pytest.raises(RequestError, match="closed the connection without an answer"):
        send(Request("GET", recorder.url), PATIENCE)


def test_an_answer_must_be_whole_in_time() -> None:
    """A server that sends a little again and again would else hold the ping up for ever."""
    over = threading.Event()

    def drip() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05):  # far below the timeout: no single read ever takes so long
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(RequestError, match=r"no answer within 0\.5 s"):
                send(Request("GET", f"http://127.0.0.1:{server.getsockname()[1]}/"), 0.5)
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_ping_that_fails_leaves_nothing(
    scheme: str, new_scripted: Callable[..., Scripted]
) -> None:
    """The process of pings collects no cycles, and a firing with a thousand shards pings as often."""
    url = new_scripted(lambda _connection, _: None).url.replace("redis", scheme)

    def step() -> None:
        with pytest.raises(RequestError):
            send(Request("GET", url), PATIENCE)

    assert_nothing_kept(step, 100)  # each reads the authorities, which are large


def test_a_port_that_cannot_be_is_no_crash() -> None:
    """Whatever the URL holds, the reason is one line without it."""
    with pytest.raises(RequestError) as raised:
        send(Request("GET", "http://127.0.0.1:99999/s3cret"), PATIENCE)
    assert "s3cret" not in str(raised.value)


def test_a_bug_keeps_no_ping_back(
    new_recorder: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported without its text, which may hold the URL; the next ping is sent."""
    logged: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _, text: logged.append(text))
    recorder = new_recorder()
    channel = Channel(Ping("webhook", f"{recorder.url}/s3cret"), "bill", verbose=0)
    channel.send("start", record(started_at="s3cret"))
    channel.send("end", record())
    channel.finish()
    assert logged == [f"key bill: the start ping to webhook {recorder.url}/*** failed: TypeError"]
    assert [json.loads(one.body)["event"] for one in recorder.received] == ["end"]
