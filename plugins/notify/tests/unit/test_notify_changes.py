"""What a channel is notified of: once in both directions, and again where nobody can tell whether it knows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from oncecron.core.text import Clock
from oncecron.watch.findings import Limits, Situation, check, finding, usual_states
from oncecron_notify.changes import (
    Ending,
    Failing,
    Knowledge,
    document_of,
    failing_channels,
    failure_after,
    knowledge_after,
    knowledge_in,
    knowledge_under_way,
    message_id,
    news_for,
    with_ids,
)
from oncecron_notify.channels import Channel
from oncecron_notify.notices import LONGEST_DOCUMENT, Notice
from oncecron_notify.notify_times import CHANNEL_FORGOTTEN
from oncecron_notify.plugin import of_channels

if TYPE_CHECKING:
    from oncecron.watch.findings import Finding
    from oncecron_notify.message import Change

NOW = 1_795_400_000.0
DAY = 86400.0
OPS = Channel("ops", "command", "true", "text")
FAILED = finding("failed", "billing", 1, "failed (exit status 3)", since=NOW - 60)
SLOW = finding("slow", "import", 1, "has been running for 3h", since=NOW - 7200)
HOST_IS_DEAD = finding(
    "silent-host", None, 2, "web2 has fired nothing", since=NOW - 1000, host="web2"
)._replace(keys=("billing", "mail"))
MISSED = finding("missed", "billing", 2, "missed 2 ticks", tick="2026-11-20T02:00Z")


def is_well(*_: object) -> Ending:
    """Say that what a finding is about is well again."""
    return Ending("recovered", "is well", is_covered=True)


def changes(
    channel: Channel, known: Knowledge, findings: list[Finding], now: float, **options: Any
) -> list[Change]:
    """Return what a channel is notified of."""
    options.setdefault("ending", is_well)
    return news_for(channel, known, findings, now, **options).changes


def said(found: list[Change]) -> list[tuple[str, str, str | None, str]]:
    """Return what changes say."""
    return [
        (each.change, each.finding.finding, each.finding.key, each.finding.state) for each in found
    ]


def know(*findings: Finding, at: float = NOW) -> Knowledge:
    """Return what a channel knows that has acknowledged these findings."""
    found = changes(OPS, Knowledge(), [*findings], at)
    return knowledge_after(knowledge_under_way(Knowledge(), found, at), found, at)


def test_a_finding_is_told_once_and_its_end_once() -> None:
    """In both directions; a count that grows, other words and a later tick are no change."""
    [problem] = changes(OPS, Knowledge(), [FAILED], NOW)
    assert said([problem]) == [("problem", "failed", "billing", "critical")]
    known = know(FAILED)
    grown = FAILED._replace(count=7, reason="failed, 7 runs in a row", since=NOW, tick="t")
    assert changes(OPS, known, [grown], NOW + DAY) == []
    [over] = changes(OPS, known, [], NOW + 120)
    assert said([over]) == [("recovered", "failed", "billing", "ok")]
    assert (over.previous, over.finding.since) == ("critical", FAILED.since)
    known = knowledge_after(knowledge_under_way(known, [over], NOW + 120), [over], NOW + 120)
    assert known == Knowledge(told=known.told)
    assert [(each.at, each.change, each.key) for each in known.told] == [
        (NOW, "problem", "billing"), (NOW + 120, "recovered", "billing"),
    ]  # fmt: skip
    assert knowledge_in(Notice("ops", 1, document_of(known))) == known
    assert changes(OPS, known, [], NOW + 180) == []


def test_what_gets_worse_is_a_change_and_what_gets_better_is_none() -> None:
    """A warning that becomes critical; after that, a warning again is nothing new."""
    known = know(SLOW)
    worse = SLOW._replace(state="critical")
    [change] = changes(OPS, known, [worse], NOW)
    assert (change.change, change.previous) == ("worse", "warning")
    known = knowledge_after(knowledge_under_way(known, [change], NOW), [change], NOW)
    assert changes(OPS, known, [SLOW], NOW) == []
    assert changes(OPS, known, [worse], NOW) == []


def test_findings_of_one_key_are_apart() -> None:
    """By kind and by shard."""
    shards = [
        finding("expired", "billing", 1, "expired", since=NOW, shard=shard) for shard in (0, 1)
    ]
    known = know(FAILED, shards[0])
    found = changes(OPS, known, [FAILED, *shards, MISSED], NOW)
    assert [(each.finding.finding, each.finding.shard) for each in found] == [
        ("expired", 1),
        ("missed", None),
    ]
    [over] = changes(OPS, known, [], NOW)
    assert said([over]) == [("recovered", "expired", "billing", "ok")]  # one event


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([MISSED], []),  # as bad
        ([MISSED._replace(state="warning")], ["failed"]),
        ([SLOW._replace(state="critical")], ["failed"]),  # of another key
        ([HOST_IS_DEAD], ["failed"]),  # a warning
        ([HOST_IS_DEAD._replace(state="critical")], ["failed"]),  # other hosts run the key
    ],
)
def test_nothing_is_well_as_long_as_something_as_bad_is_known_of_it(
    others: list[Finding], told: list[str]
) -> None:
    """Of the same key. Its end is told with the end of the other, and of both together one."""
    known = know(FAILED, *others)
    news = news_for(OPS, known, others, NOW, is_well)
    assert [each.finding.finding for each in news.changes] == told
    assert news.knowledge == known
    if not told:
        news = news_for(OPS, known, [], NOW, is_well)
        assert [each.finding.key for each in news.changes] == ["billing"]
        assert len(news.knowledge.known) == 1


def test_what_is_closed_is_told_whatever_else_is_open() -> None:
    """That a key is forgotten is no recovery. What cannot be told yet stays known."""
    known = know(FAILED, MISSED)
    [change] = changes(OPS, known, [MISSED], NOW, ending=lambda *_: Ending("closed", "is gone"))
    assert (change.change, change.finding.reason) == ("closed", "is gone")
    news = news_for(OPS, known, [MISSED], NOW, lambda *_: None)
    assert (news.changes, news.knowledge) == ([], known)


def test_a_finding_has_to_last_for_the_time_of_its_channel() -> None:
    """At each pass it has to be there; a minute without it, and it begins anew."""
    slow = OPS._replace(lasting=300.0)
    known = Knowledge()
    for later, present, told in (
        *((0, True, []), (240, True, []), (270, False, []), (300, True, [])),
        *((540, True, []), (600, True, ["problem"]), (660, True, []), (720, False, ["recovered"])),
    ):
        at = NOW + later
        news = news_for(slow, known, [FAILED] if present else [], at, is_well)
        assert [each.change for each in news.changes] == told, later
        under_way = knowledge_under_way(news.knowledge, news.changes, at)
        known = knowledge_after(under_way, news.changes, at) if news.changes else under_way
        assert knowledge_in(Notice("ops", 1, document_of(known))) == known
    assert known == Knowledge(told=known.told[-50:])


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (OPS._replace(states=("critical",)), ["failed", "missed"]),
        (OPS._replace(findings=("missed", "slow")), ["missed", "slow"]),
        (OPS._replace(keys=("imp*",)), ["slow"]),
        (
            OPS._replace(keys=("bill*",), findings=("silent-host", "missed")),
            ["missed", "silent-host"],
        ),
        (OPS._replace(keys=("other",)), []),
    ],
)
def test_a_channel_chooses(channel: Channel, told: list[str]) -> None:
    """Keys, kinds and states; a dead host is for those whose keys it fired."""
    found = changes(channel, Knowledge(), [FAILED, MISSED, SLOW, HOST_IS_DEAD], NOW)
    assert sorted(each.finding.finding for each in found) == told


def test_what_a_channel_is_for_no_more_ends_without_a_word() -> None:
    """It is still there."""
    pager = OPS._replace(states=("critical",))
    news = news_for(pager, know(FAILED, SLOW), [FAILED, SLOW], NOW, is_well)
    assert (news.changes, news.knowledge.known) == ([], know(FAILED).known)


def test_findings_of_one_host_are_apart() -> None:
    """Each host of a key, each clock."""
    silent = [
        finding("silent-host", "billing", 1, "silent", since=NOW, host=host)
        for host in ("web1", "web2", None)
    ]
    clock = finding("clock", None, 1, "wrong", since=NOW, host="web1")
    known = know(*silent, clock)
    assert len(known.known) == 4
    over = changes(OPS, known, [], NOW)
    assert [(each.finding.key, each.finding.host) for each in over] == [
        ("billing", "web1"),
        ("billing", "web2"),
        ("billing", None),
        (None, "web1"),
    ]


def test_a_reminder_comes_after_its_time_and_then_again() -> None:
    """Whatever the clocks of two hosts differ."""
    known = know(FAILED)
    for later in (1.0, -300.0, DAY - 1):
        assert changes(OPS, known, [FAILED], NOW + later, remind=DAY) == []
    [reminder] = changes(OPS, known, [FAILED], NOW + DAY, remind=DAY)
    assert reminder.change == "reminder"
    under_way = knowledge_under_way(known, [reminder], NOW + DAY)
    assert under_way == known
    known = knowledge_after(under_way, [reminder], NOW + DAY)
    assert changes(OPS, known, [FAILED], NOW + DAY + 60, remind=DAY) == []
    assert len(changes(OPS, known, [FAILED], NOW + 2 * DAY, remind=DAY)) == 1
    assert changes(OPS, known, [FAILED], NOW + 9 * DAY) == []


def test_what_was_not_acknowledged_is_told_again_and_its_end_too() -> None:
    """Nobody can tell whether the message has arrived; what came and went meanwhile is told as well."""
    found = changes(OPS, Knowledge(), [FAILED], NOW)
    lost = knowledge_under_way(Knowledge(), found, NOW)
    assert said(changes(OPS, lost, [FAILED], NOW + 60)) == said(found)
    assert said(changes(OPS, lost, [], NOW + 60)) == [("recovered", "failed", "billing", "ok")]
    over = changes(OPS, know(FAILED), [], NOW)
    lost = knowledge_under_way(know(FAILED), over, NOW)
    assert said(changes(OPS, lost, [], NOW + 60)) == said(over)
    assert said(changes(OPS, lost, [FAILED], NOW + 60)) == said(found)


def ids(known: Knowledge, found: list[Change], at: float, channel: str = "ops") -> list[str]:
    """Return the ids of changes that are sent at a time."""
    return [
        each.change_id for each in with_ids(channel, knowledge_under_way(known, found, at), found)
    ]


def test_a_change_that_is_sent_again_has_the_same_id() -> None:
    """In whichever message it comes; another one, later or for another channel, has another id."""
    first = changes(OPS, Knowledge(), [MISSED], NOW)
    lost = knowledge_under_way(Knowledge(), first, NOW)
    again = changes(OPS, lost, [SLOW, MISSED], NOW + 60)
    known = [ids(Knowledge(), first, NOW)[0]]
    assert ids(lost, again, NOW + 60)[1] == known[0]
    assert ids(knowledge_under_way(lost, again, NOW + 60), again, NOW + 120)[1] == known[0]
    over = changes(OPS, lost, [], NOW + 60)
    known += ids(lost, over, NOW + 60)
    lost = knowledge_under_way(lost, over, NOW + 60)
    assert ids(lost, changes(OPS, lost, [], NOW + 120), NOW + 120) == known[1:]
    back = changes(OPS, lost, [MISSED], NOW + 180)  # whoever has seen its end has to hear of it
    known += ids(lost, back, NOW + 180)
    known += ids(Knowledge(), first, NOW + DAY) + ids(Knowledge(), first, NOW, "other")
    for at in (NOW, NOW + DAY):
        reminders = changes(OPS, know(MISSED, at=at), [MISSED], NOW + 9 * DAY, remind=DAY)
        known += ids(know(MISSED, at=at), reminders, NOW + 9 * DAY)
    assert len({*known}) == len(known) == 7
    assert (
        message_id(with_ids("ops", knowledge_under_way(Knowledge(), first, NOW), first))
        not in known
    )


def test_what_is_worse_keeps_its_id_where_it_is_sent_again_as_a_problem() -> None:
    """Nobody can tell by then what the channel knew before."""
    critical = SLOW._replace(state="critical")
    worse = changes(OPS, know(SLOW), [critical], NOW + 60)
    lost = knowledge_under_way(know(SLOW), worse, NOW + 60)
    again = changes(OPS, lost, [critical], NOW + 120)
    assert (worse[0].change, again[0].change) == ("worse", "problem")
    assert ids(know(SLOW), worse, NOW + 60) == ids(lost, again, NOW + 120)


def test_what_has_to_last_takes_no_more_than_the_document_holds() -> None:
    """Beside a full one. Somebody may have written junk."""
    many = [finding("failed", f"job-{number}", 1, "failed") for number in range(9000)]
    news = news_for(OPS, Knowledge(), many, NOW, is_well)
    full = knowledge_after(
        knowledge_under_way(news.knowledge, news.changes, NOW), news.changes, NOW
    )
    waiting = news_for(OPS._replace(lasting=60.0), full, many, NOW, is_well).knowledge.waiting
    assert len(waiting) > 500
    assert len(document_of(full._replace(waiting=waiting))) < LONGEST_DOCUMENT


def test_a_channel_knows_no_more_than_its_document_holds() -> None:
    """The others come when some have recovered; none is forgotten, and none is told twice."""
    many = [finding("failed", f"job-{number}", 1, "failed") for number in range(5000)]
    known, told = Knowledge(), list[str]()
    while found := changes(OPS, known, many, NOW):
        assert len(found) > min(1000, len(many) - 1)
        told += [str(each.finding.key) for each in found]
        known = knowledge_after(knowledge_under_way(known, found, NOW), found, NOW)
        assert len(document_of(known)) < LONGEST_DOCUMENT
        assert not changes(OPS, known, many, NOW)
        many = [each for each in many if each.key not in told]
        over = changes(OPS, known, many, NOW)
        known = knowledge_after(knowledge_under_way(known, over, NOW), over, NOW)
    assert sorted(told) == sorted(f"job-{number}" for number in range(5000))


def test_a_row_that_cannot_be_read_is_no_recovery() -> None:
    """What is not seen may still be there; what is new is told all the same."""
    assert said(changes(OPS, know(FAILED), [SLOW], NOW, ending=None)) == [
        ("problem", "slow", "import", "warning")
    ]


def test_a_channel_has_its_keys_and_never_its_own_failure() -> None:
    """A finding of no key is for every channel."""
    mine = OPS._replace(keys=("bill*", "report"))
    broken = [
        finding("channel", None, 1, "fails", since=NOW, channel=name) for name in ("ops", "chat")
    ]
    found = changes(mine, Knowledge(), [SLOW, FAILED, *broken], NOW)
    assert [(each.finding.key, each.finding.channel) for each in found] == [
        ("billing", None),
        (None, "chat"),
    ]


def test_a_document_is_read_as_it_was_document_of() -> None:
    """With every field; also a failure."""
    under_way = knowledge_under_way(
        know(FAILED, SLOW), changes(OPS, know(FAILED, SLOW), [], NOW), NOW
    )
    for notified in (
        Knowledge(),
        know(FAILED, SLOW, MISSED),
        under_way,
        under_way._replace(failing=Failing(NOW, NOW + 60, 2, "HTTP status 500")),
    ):
        assert knowledge_in(Notice("ops", 3, document_of(notified))) == notified


@pytest.mark.parametrize(
    "document",
    [
        *(
            "",
            "{",
            "[]",
            "null",
            "{}",
            '{"known": []}',
            '{"known": [{}], "waiting": [], "failing": null}',
        ),
        '{"known": 3, "waiting": [], "failing": null}',
        '{"known": [], "waiting": [{}], "failing": null}',
        '{"known": [], "waiting": [], "failing": {}}',
        '{"known": [], "waiting": [], "failing": {"since": 1, "tried_at": 1e300, "tries": 1, "error": ""}}',
        '{"known": [], "waiting": [], "failing": {"since": 1, "tried_at": 1, "tries": "1", "error": ""}}',
        *(
            document_of(know(FAILED)).replace(*swap)
            for swap in (
                ('"billing"', "7"),
                ('"critical"', '"bad"'),
                ('"shard":null', '"shard":"x"'),
                (f"{NOW!r}", "Infinity"),
            )
        ),
        "[" * 100_000,
    ],
)
def test_a_document_that_nobody_wrote_counts_as_none(
    document: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named, and everything is told again: a role that may write it can cause noise, not silence."""
    assert knowledge_in(Notice("ops\x1b[31m", 1, document)) == Knowledge()
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith(r"oncecron: what channel ops\x1b[31m was notified of cannot be read")


def test_a_channel_that_fails_twice_in_a_row_is_a_finding_as_long_as_it_is_tried() -> None:
    """A single failure is repaired a minute later, and a channel that was removed is no finding for ever."""
    failing = None
    for number, at in enumerate(itertools.islice(itertools.count(NOW, 60.0), 3)):
        failing = failure_after(failing, f"HTTP status 50{number}", at)
        notice = Notice("chat", 1, document_of(Knowledge(failing=failing)))
        found = channel_findings(notice, at)
        assert len(found) == (number > 0)
    [finding_] = found
    assert (finding_.channel, finding_.key, finding_.since) == ("chat", None, NOW)
    assert (finding_.finding, finding_.state) == ("channel", "critical")
    assert finding_.reason == "channel chat of notify fails: HTTP status 502"
    assert channel_findings(notice, at + CHANNEL_FORGOTTEN + 1) == []


def channel_findings(notice: Notice, now: float) -> list[Finding]:
    """Return what is wrong with the channel of a document."""
    found = [*of_channels(failing_channels([notice]), now)]
    situation = Situation(now, [], remarks=lambda _: found)
    return check(situation, Limits(1, 3, usual_states()), Clock(utc=True)).findings
