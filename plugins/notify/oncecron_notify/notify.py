"""One pass: what has changed is sent to each channel, what is acknowledged is written down, the rest is sent next time.

1. Read what each channel was notified of, then judge all keys.
2. For each channel compare. If there are changes, write down that a message about them is under way, if the document is
   still the one that was read.
3. Send one message for all changes of a channel, to all channels at the same time.
4. As each acknowledges, or fails, write that down.

The host that makes the pass holds the lease of its key, so no other host sends meanwhile. A pass that is killed between
2 and 4 leaves changes of which nobody can tell whether the channel knows them: the next pass sends them again, also
those that are over by then. So each change is sent at least once, and twice only where an acknowledgement or its record
was lost. A pass that has lost its lease to another one sends nothing once that has come to step 2.
"""

from __future__ import annotations

import functools
import itertools
import time
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from oncecron.config.ping_table import PING_TIMEOUT
from oncecron.core.errors import RecordRefusedError
from oncecron.core.text import Clock
from oncecron.host.local_time import shown_zone
from oncecron.log.silent_hosts import recent, silences
from oncecron.watch.findings import OK, check
from oncecron_notify.changes import (
    Identity,
    Knowledge,
    document_of,
    failing_channels,
    failure_after,
    findings_for,
    identity,
    knowledge_after,
    knowledge_in,
    knowledge_under_way,
    message_id,
    news_for,
    with_ids,
)
from oncecron_notify.channels import ChannelError, ping, send
from oncecron_notify.endings import Now, ending_of
from oncecron_notify.message import ENDED, Evidence, Message
from oncecron_notify.notices import Notice, notices, put_notice
from oncecron_notify.notify_table import NOTIFY_KEY, PING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oncecron.stores.reader import Reader
    from oncecron.watch.findings import Finding, Limits, Situation
    from oncecron_notify.changes import Ending, Known
    from oncecron_notify.channels import Channel
    from oncecron_notify.message import Change
    from oncecron_notify.notify_table import Notify

_ACCOUNTS = 5
"""The number of changes whose tick is explained in a message."""
_ABOUT_A_TICK = ("missed", "failed", "lost", "expired", "slow")


class Context(NamedTuple):
    """Where a pass is made, and what it asks about the log."""

    store: Reader
    namespace: str
    host: str
    now: float
    gather: Callable[[Limits], Situation]
    """Reads what is judged within these limits."""
    explain: Callable[[Finding, Clock], Evidence]
    """Returns what is known of the tick that a finding is about."""


class Prepared(NamedTuple):
    """What a pass has for a channel."""

    channel: Channel
    notice: Notice
    """As it was read."""
    knowledge: Knowledge
    """While the message is under way."""
    message: Message | None
    """None: nothing has changed."""


class Result(NamedTuple):
    """What came of it."""

    channel: str
    sent: int
    """How many changes it has acknowledged."""
    error: str | None = None
    new: bool = False
    """Whether this is the first failure after a success."""


def prepare(context: Context, notify: Notify) -> list[Prepared]:
    """Return what there is to send to each channel. Nothing is changed. Raises `StoreError`."""
    noticed = {each.channel: each for each in notices(context.store, notify.names)}
    # What only one host can see is left out.
    limits = notify.limits._replace(states={**notify.limits.states, "spooled": OK})
    situation = context.gather(limits)
    failing = failing_channels(noticed.values())
    judged = {
        zone: _judged(
            Now(situation, limits, Clock(utc=True, zone=shown_zone(zone)), notify.names, failing)
        )
        for zone in {channel.zone for channel in notify.channels}
    }
    unproven = unproven_silences(situation, limits)
    prepared = []
    for channel in notify.channels:
        notice, before = _notice_of(noticed, channel.name)
        findings, ending = judged[channel.zone]
        new = unproven - before.known.keys() - before.waiting.keys()
        findings = [each for each in findings if identity(each) not in new]
        before, found = news_for(
            channel, before, findings, context.now, ending, remind=notify.remind
        )
        knowledge = knowledge_under_way(before, found, context.now)
        message = None
        if found:
            found = with_ids(channel.name, knowledge, found)
            message = _message(context, channel, message_id(found))
            found = [_named(message, each) for each in found]
            message = message._replace(changes=found, open=len(findings_for(channel, findings)))
        prepared.append(Prepared(channel, notice, knowledge, message))
    return _with_evidence(context, prepared)


def unproven_silences(situation: Situation, limits: Limits) -> set[Identity]:
    """Return what is no news yet: a host that is back after hours comes to one key after the other."""
    hosts = list(recent(situation.hosts, situation.now))
    found = silences(hosts, (), situation.now, limits.silent_after)
    return {
        Identity("silent-host", key, None, each.host, None)
        for each in found
        if not each.is_proven
        for key in each.keys
    }


def _judged(
    now: Now,
) -> tuple[list[Finding], Callable[[Identity, Known], Ending | None] | None]:
    found = [
        each
        for each in check(now.situation, now.limits, now.clock).findings
        if each.key != NOTIFY_KEY or each.finding == "silent-host"
    ]
    if not now.situation.is_complete:
        return found, None
    return found, lambda which, before: ending_of(which, before, now)


def _notice_of(noticed: dict[str, Notice], channel: str) -> tuple[Notice, Knowledge]:
    notice = noticed.get(channel)
    return (notice, knowledge_in(notice)) if notice else (Notice(channel, 0, ""), Knowledge())


def _message(context: Context, channel: Channel, number: str) -> Message:
    where = (channel.name, context.namespace, context.host, context.now)
    return Message(number, *where, (), {}, 0, zone=channel.zone)


def _named(message: Message, change: Change) -> Change:
    found = change.finding
    return change._replace(finding=found._replace(reason=message.named(found.reason)))


def trial_messages(context: Context, notify: Notify) -> list[Prepared]:
    """Return what `--test` sends, each time another message."""
    return [
        Prepared(
            channel,
            Notice(channel.name, 0, ""),
            Knowledge(),
            _message(context, channel, f"{time.time_ns():032x}")._replace(test=True),
        )
        for channel in notify.channels
    ]


# The ticks behind the findings


def _with_evidence(context: Context, prepared: Sequence[Prepared]) -> list[Prepared]:
    explain = functools.cache(context.explain)
    explained = []
    for each in prepared:
        if each.message is not None:
            first = itertools.islice(_about_a_tick(each.message), _ACCOUNTS)
            clock = Clock(utc=True, zone=shown_zone(each.channel.zone))
            evidence = {}
            for place, change in first:
                known = explain(change.finding, clock)
                sentences = [*map(each.message.named, known.account)]
                evidence[place] = known._replace(account=sentences)
            each = each._replace(message=each.message._replace(evidence=evidence))  # noqa: PLW2901 - the same with more
        explained.append(each)
    return explained


def _about_a_tick(message: Message) -> Iterator[tuple[int, Change]]:
    """Yield what can be explained; of missed ticks one key, since their stories are alike."""
    has_missed = False
    for place, change in enumerate(message.changes):
        found = change.finding
        if change.change in ENDED or not found.key or found.finding not in _ABOUT_A_TICK:
            continue
        if not (has_missed and found.finding == "missed"):
            yield place, change
        has_missed |= found.finding == "missed"


# To the channels


def deliver(context: Context, notify: Notify, prepared: Sequence[Prepared]) -> Iterator[Result]:
    """Send what was prepared, and yield what came of each channel. Raises `StoreError`."""
    under_way = []
    well = True
    for each in prepared:
        try:
            is_new = document_of(each.knowledge) != (
                each.notice.document or document_of(Knowledge())
            )
            if (each.message or is_new) and _put(context, each, each.knowledge) and each.message:
                under_way.append(each)
        except RecordRefusedError as refused:  # the others have room
            well = False
            yield Result(each.channel.name, 0, str(refused), new=True)
    for each, error in send_all(under_way):
        changed = each.message.changes if each.message else ()
        if error is None:
            knowledge = knowledge_after(each.knowledge, changed, context.now)
            result = Result(each.channel.name, len(changed))
        else:
            failing = failure_after(each.knowledge.failing, error, context.now)
            knowledge = each.knowledge._replace(failing=failing)
            result = Result(each.channel.name, 0, error, new=failing.tries == 1)
        version = each.notice.version + 1
        _put(context, each._replace(notice=each.notice._replace(version=version)), knowledge)
        well = well and error is None
        yield result
    if notify.ping_url is not None and well:
        yield _ping(context, notify.ping_url)


def _put(context: Context, each: Prepared, knowledge: Knowledge) -> bool:
    """Write the document of a channel; return False if another pass has written it meanwhile."""
    return put_notice(context.store, each.notice._replace(document=document_of(knowledge)))


def send_all(prepared: Sequence[Prepared]) -> Iterator[tuple[Prepared, str | None]]:
    """Send to all channels at the same time; yield each with its error, if it has one, as they answer or time out."""
    answers: SimpleQueue[tuple[Prepared, str | None]] = SimpleQueue()

    def ask(each: Prepared, message: Message) -> None:
        error = None
        try:
            send(each.channel, message)
        except ChannelError as failed:
            error = str(failed)
        except Exception as fault:  # noqa: BLE001 - of one channel; it must not silence the others
            error = f"internal error: {type(fault).__name__}: {fault}"
        answers.put((each, error))

    asked = [Thread(target=ask, args=(each, each.message)) for each in prepared if each.message]
    for thread in asked:
        thread.daemon = True
        thread.start()
    for _ in asked:
        yield answers.get()


def _ping(context: Context, url: str) -> Result:
    noticed = {each.channel: each for each in notices(context.store, [PING])}
    notice, before = _notice_of(noticed, PING)
    try:
        ping(url, PING_TIMEOUT)
    except ChannelError as error:
        failing = failure_after(before.failing, str(error), context.now)
        after, result = Knowledge(failing=failing), Result(PING, 0, str(error), failing.tries == 1)
    else:
        after, result = Knowledge(), Result(PING, 0)
    if after != before:
        put_notice(context.store, notice._replace(document=document_of(after)))
    return result
