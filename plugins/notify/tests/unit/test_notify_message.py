"""The messages of `oncecron notify`: what they say, how long they may be, and that no text in them takes effect."""

from __future__ import annotations

import email
import email.policy
import json
import re
from typing import TYPE_CHECKING

import pytest

from oncecron.core.text import Clock
from oncecron.log.job_summary import JobSummary
from oncecron.watch.findings import UNSTARTED, Limits, Situation, check, finding, usual_states
from oncecron_notify import channels
from oncecron_notify.changes import Failing
from oncecron_notify.channels import Channel, mail_of, render
from oncecron_notify.message import CHATS, Change, Evidence, Message, as_json, mail, summary, text
from oncecron_notify.notify import _about_a_tick
from oncecron_notify.plugin import of_channels

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_400_000.0
FORMS = ("text", "json", *CHATS)
_SIZES = {"text": 201_000, "slack": 40_000, "mattermost": 16_383, "discord": 2_000, "teams": 24_000}
HOSTILE = (
    "x\r\nBcc: eve@example.com\n\n<!channel> <@U1> @all @channel ``` \x1b[31m\u202e & <http://e|x>"
)


def message(*reasons: str, change: str = "problem", **more: object) -> Message:
    """Return a message with a finding for each reason."""
    found = [
        Change(change, finding("failed", f"key{number}", 1, reason, since=NOW), "ok")
        for number, reason in enumerate(reasons)
    ]
    values = {"evidence": {}, "open": len(found), **more}
    return Message("0" * 32, "ops", "oncecron", "web1", NOW, found, **values)  # type: ignore[arg-type]


def written(form: str, sent: str) -> str:
    """Return the text that a form shows."""
    if form == "text":
        return sent
    found = json.loads(sent)
    if form != "teams":
        return str(found.get("text") or found["content"])
    [attached] = found["attachments"]
    assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
    return "\n".join(line["inlines"][0]["text"] for line in attached["content"]["body"])


def channel(form: str) -> Channel:
    """Return a channel for a form."""
    return Channel("ops", "to" if form == "text" else "url", "ops@example.com", form)


def test_the_json_form_has_the_published_fields() -> None:
    """All of them always; times with their offset."""
    found = json.loads(as_json(message("failed", evidence={0: Evidence(["a", "b"], None)})))
    [change] = found.pop("changes")
    assert found == {
        "format": 1, "id": "0" * 32, "channel": "ops", "namespace": "oncecron", "host": "web1",
        "at": "2026-11-23T02:13:20.000Z", "test": False, "state": "critical",
        "summary": "oncecron CRITICAL: key0 failed",
        "open": 1,
    }  # fmt: skip
    assert change == {
        "id": "", "change": "problem", "finding": "failed", "state": "critical", "key": "key0", "shard": None,
        "count": 1, "tick": None, "since": "2026-11-23T02:13:20.000Z", "reason": "failed", "host": None,
        "channel": None, "keys": [], "explained": False, "previous": "ok", "account": ["a", "b"], "output": None,
        "cure": "correct the cause; the next tick runs as usual; `oncecron why key0` has the line that runs this one "
        "again",
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_changes_are_one_message_that_a_chat_accepts(form: str) -> None:
    """What does not fit is counted; a program gets all of it."""
    evidence = {place: Evidence(["word " * 500] * 50, "x" * 100_000) for place in range(10)}
    found = message(*("failed " + "long " * 200 for _ in range(1000)), evidence=evidence)
    sent = render(channel(form), found)
    if form == "json":
        assert len(json.loads(sent)["changes"]) == 1000
        return
    body = written(form, sent)
    size = len(json.dumps(sent)) if form == "teams" else len(body)
    assert size <= _SIZES[form]
    if form == "discord":
        assert "... cut here, because the chat takes no more; see 'oncecron check'" in body
    else:
        assert (
            "more changes; see `oncecron check`".replace(
                "`", "`" if form in ("text", "teams") else "'"
            )
            in body
        )
    assert "Now 1000 findings are open." in body


@pytest.mark.parametrize("form", CHATS)
@pytest.mark.parametrize("letter", ["x", "@", "<", "&", '"', "\\", "ä", "\N{OPEN HANDS SIGN}"])
def test_what_is_too_long_for_a_chat_is_cut_at_a_character(form: str, letter: str) -> None:
    """Whatever it makes of a letter, up to what it accepts. The end says how many findings there are."""
    measured = CHATS[form]
    for reason in ("is short", f"{letter * 900} " * 30):
        found = message(*[reason] * 30, evidence={0: Evidence([letter * 900] * 9)})
        sent = render(channel(form), found)
        body = written(form, sent)
        assert measured.size(json.loads(sent)) <= measured.most
        assert "Now 30 findings are open." in body
        if "cut here" in body:
            assert measured.size(json.loads(sent)) > measured.most - 50
        assert form != "discord" or "cut here" in body
        assert "\ud83d" not in body


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_text_takes_no_effect(form: str) -> None:
    """In a reason, an account and an output: no header, no mention, no code of a terminal, no login."""
    login = "postgresql://u:s3cret@db/x"
    evidence = {0: Evidence([HOSTILE, login], HOSTILE)}
    found = message(HOSTILE, f"cannot reach {login}", evidence=evidence)
    sent = render(channel(form), found)
    if form == "json":
        assert sent.isascii()
        assert sent.isprintable()
        return
    body = written(form, sent)
    shown = body.replace("\u00a0", " ").replace("\u200b", "")
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "s3cret" not in body
    if form == "slack":
        assert "<" not in body
        assert ">" not in body
    if form == "mattermost":
        assert all(sign not in body for sign in ("@a", "@c", "<!", "<@", "<h"))
    if form == "discord":
        assert json.loads(sent)["allowed_mentions"] == {"parse": []}
        short = written(form, render(channel(form), message("<@1> *b* [a](b)")))
        assert short.startswith("oncecron CRITICAL: key0 \\<@1\\> \\*b\\* \\[a\\](b)\n```\n")
    if form == "teams":
        assert '"TextBlock"' not in sent, "it would be Markdown"
    elif form != "text":
        assert body.count("```") == 2
        assert body.endswith("\n```")


def test_a_hostile_text_adds_no_header_to_a_mail() -> None:
    """The subject is one line, in ASCII on the wire; the text arrives as it is."""
    ops = channel("text")._replace(sender="cron@example.com")
    found = message(HOSTILE + " ü€" * 100)
    raw = mail_of(ops, found)
    sent = email.message_from_bytes(raw, policy=email.policy.default)
    assert sent.keys() == [
        *("To", "From", "Subject", "Date", "Message-ID", "Auto-Submitted"),
        *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
    ]
    assert raw.partition(b"\n\n")[0].isascii()
    assert sent["Subject"] == summary(found)
    assert sent["Message-ID"] == f"<{'0' * 32}@oncecron.invalid>"
    assert sent.get_content() == text(found).partition("\n\n")[2]


def test_a_subject_stands_on_one_line() -> None:
    """The longest key; the worst is named, and how many others there are."""
    worst = Change("problem", finding("failed", "k" * 200, 1, "failed (exit status 3)"), "ok")
    found = message("failed")
    lines = mail_of(channel("text"), found._replace(changes=[worst, *found.changes])).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith(b"Subject:"))
    assert re.fullmatch(rb"Subject: oncecron CRITICAL: k{30,}\.\.\. and 1 more", lines[place])
    assert len(lines[place]) <= 78
    assert not lines[place + 1].startswith((b" ", b"\t"))


@pytest.mark.parametrize(
    ("kind", "key", "host", "reason", "to_do"),
    [
        ("lost", "k", None, "was lost", "To do: see what it has left half done; the next tick runs as usual; "),
        ("missed", "k", None, "missed 1 tick", "see whether cron runs on its hosts, and has its line"),
        ("missed", "k", None, "missed 1 tick; a runs l now: `oncecron forget k`", None),
        ("silent", "k", None, "has been fired; it has never run; skipped as held on a", None),
        ("silent-host", None, "a b", "a b has fired nothing", "if it is retired: `oncecron forget --host 'a b'`"),
        ("silent-host", "k", "a", "has not been fired by a", "see whether the crontab of a has its line"),
        ("zone", "k", None, "starts 2 h late; use --tz UTC", None),
    ],
)  # fmt: skip
def test_a_finding_says_what_to_do(
    kind: str, key: str | None, host: str | None, reason: str, to_do: str | None
) -> None:
    """Below its sentence, once; what is over needs nothing."""
    found = finding(kind, key, 1, reason, host=host, explained=kind in UNSTARTED and "; " in reason)
    for change in ("problem", "recovered"):
        said = text(message("x")._replace(changes=[Change(change, found, "ok")]))
        is_said = change == "problem" and to_do is not None
        assert ("To do: " in said) == is_said
        assert not is_said or str(to_do) in said


def test_a_mail_says_a_thing_once() -> None:
    """The subject, what happened, what to do, in the zone of the channel; of several changes each in a line first."""
    evidence = {0: Evidence(["Tick 1 of key key0 failed on web1."], "no route")}
    one = message("failed (exit status 3)", evidence=evidence, zone="Europe/Berlin")
    assert summary(one) == "oncecron CRITICAL: key0 failed (exit status 3)"
    *lines, to_do, blank, last = mail(one).splitlines()
    assert lines == ["Tick 1 of key key0 failed on web1.", "The end of its output:", "| no route"]
    assert (to_do, blank) == ("To do: correct the cause; the next tick runs as usual", "")
    assert "`oncecron why key0` has the line" in mail(message("failed"))
    assert last.endswith("namespace oncecron, at 2026-11-23 03:13:20 CET.")
    assert text(one) == f"{summary(one)}\n\n{mail(one)}"
    long = message("failed: " + "x" * 100)
    assert mail(long).startswith("critical: key0 failed: xxx")
    assert mail(message("failed", change="reminder")).startswith(
        "critical (reminder): key0 failed\n"
    )
    several = mail(message("failed", "failed", evidence=evidence)).splitlines()
    assert several[0] == "critical: key0 failed"
    assert several[4:7] == ["", "key0:", "  Tick 1 of key key0 failed on web1."]
    kinds = ("missed", "missed", "failed", "missed")
    found = [
        Change("problem", finding(kind, f"k{n}", 1, kind), "ok") for n, kind in enumerate(kinds)
    ]
    many = message("failed")._replace(changes=found)
    cron = "  To do: see whether cron runs on its hosts, and has its line"
    lines = mail(many).splitlines()
    assert lines[:3] == ["critical: k0 missed", "critical: k1 missed", cron]
    assert (lines[3], lines[5:7]) == ("critical: k2 failed", ["critical: k3 missed", cron])
    assert [place for place, _ in _about_a_tick(many)] == [0, 2]


def test_a_command_in_a_message_is_of_its_namespace() -> None:
    """It is read where another one may be set."""
    other = message("failed", "failed")._replace(namespace="prod")
    assert "`oncecron why key1 --namespace prod` has the line" in mail(other)
    assert json.loads(as_json(other))["changes"][0]["cure"].count("--namespace prod`") == 1
    many = message(*["failed"] * 2000)._replace(namespace="prod")
    assert "more changes; see `oncecron check --namespace prod`\n" in mail(many)
    assert "--namespace" not in mail(message("failed", "failed"))


def test_a_channel_that_fails_is_no_failure_of_the_pass_too() -> None:
    """A pass by hand exits with 1 then."""
    job = JobSummary(**{**dict.fromkeys(JobSummary._fields), "key": "oncecron/notify",
                        "outcome": "failed", "failures": 2, "missed": 0})  # fmt: skip
    for failing, kinds in (({}, ["failed"]), ({"ops": Failing(NOW, NOW, 2, "no")}, ["channel"])):
        situation = Situation(NOW, [job], remarks=lambda _, each=failing: of_channels(each, NOW))
        found = check(situation, Limits(1, 3, usual_states()), Clock(utc=True)).findings
        assert [each.finding for each in found] == kinds


def test_a_sendmail_that_is_a_script_without_an_interpreter_is_run(tmp_path: Path) -> None:
    """By sh, as cron itself does."""
    script = tmp_path / "sendmail"
    script.write_text(f'read -r line; echo "$1 $line" >{tmp_path}/sent\n')
    script.chmod(0o755)
    channels._run([str(script), "-t"], b"To: ops\n", 30.0, {}, "sendmail")
    assert (tmp_path / "sent").read_text() == "-t To: ops\n"
