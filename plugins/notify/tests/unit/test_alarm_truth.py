"""What an alarm says is true of the keys and hosts at that moment, and nothing that was said stays without an end.

Random lives (`lives`) in a real store; each minute a real pass. The oracle knows the lives alone. A channel may refuse
a message, or the pass may be killed before it is sent or before its acknowledgement is written down.
"""

from __future__ import annotations

import os
import random
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import story_stores
from lives import MINUTE, World

from oncecron.config.file import File
from oncecron.core.model import Retention
from oncecron.log.sources import Sources
from oncecron.watch.findings import STATES, Limits, finding, usual_states
from oncecron.watch.situation import situation_of
from oncecron_notify import notify as passes
from oncecron_notify.changes import Knowledge, identity, knowledge_in
from oncecron_notify.channels import Channel, ChannelError
from oncecron_notify.message import ENDED, Evidence, text
from oncecron_notify.notices import notices
from oncecron_notify.notify_table import Notify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lives import Due, Host, Key

    from oncecron.watch.findings import Finding
    from oncecron_notify.changes import Identity
    from oncecron_notify.message import Change, Message

LIVES = int(os.environ.get("ONCECRON_TEST_LIVES", "2"))
HOURS = 5
MISSED, SILENT, LATEST = 600.0, 900.0, 3
LIMITS = Limits(1, 3, usual_states())
OPS = Channel("ops", "command", "true", "text")
CHANNELS = (
    OPS,
    OPS._replace(name="pager", states=("critical",), lasting=300.0),
    OPS._replace(name="team", keys=("bill*", "load*"), zone="Europe/Berlin"),
)
NOTIFY = Notify(CHANNELS, 3600.0, None, LIMITS)
FILE = File(
    None, {}, {}, None, Retention(), notify={"channel": {each.name: {} for each in CHANNELS}}
)


class KilledError(Exception):
    """The pass is killed."""


class Told:
    """What a channel has been told, as whoever reads it knows it."""

    def __init__(self) -> None:
        self.open: dict[Identity, Change] = {}
        self.opened_at: dict[Identity, float] = {}
        self.ends: list[tuple[float, Finding]] = []
        """When an end was told, and of what."""
        self.refusals = 0

    def hear(self, message: Message) -> None:
        """Take a message."""
        for change in message.changes:
            which = identity(change.finding)
            if change.change in ENDED:
                self.open.pop(which, None)
                self.ends.append((message.at, change.finding))
            else:
                self.opened_at.setdefault(which, message.at)
                if which not in self.open:
                    self.opened_at[which] = message.at
                self.open[which] = change


class Oracle:
    """Judges sentences by the lives alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told = {channel.name: Told() for channel in CHANNELS}
        self.said: list[str] = []
        """Every sentence, to see that all kinds come up."""

    @property
    def now(self) -> float:
        """Return the time of the pass."""
        return self.world.now

    def hear(self, message: Message) -> None:
        """Judge a message that a channel has got."""
        told = self.told[message.channel]
        before = dict(told.open)
        told.hear(message)
        here = [each.finding for each in message.changes if each.change not in ENDED]
        lost = {each.key for each in here if each.finding == "lost"}
        for change in message.changes:
            found = change.finding
            which = (
                f"{message.channel}: {change.change}: {found.finding}: {found.key}: {found.reason}"
            )
            assert not (found.finding == "expired" and found.key in lost), f"twice: {which}"
            self.said.append(which)
            if change.change == "closed":
                assert self._is_closed(change), which
            elif change.change == "recovered":
                assert self._is_well(change, before.get(identity(found)), told), which
                self._no_other(change, told, which)
            else:
                assert self.is_so(found) is not False, which
                assert self._names_rightly(found), which
        head = text(message).partition("\n")[0]
        assert len(head) <= 69, head

    def _no_other(self, change: Change, told: Told, which: str) -> None:
        found = change.finding
        for other in told.open.values():
            there = other.finding
            as_bad = STATES.index(there.state) >= STATES.index(change.previous)
            if as_bad and self.is_so(there) is not False:
                assert found.key is None or found.key != there.key, (which, there)
                assert found.host is None or found.host != there.host, (which, there)

    # What is wrong

    def is_so(self, found: Finding) -> bool | None:
        """Return whether a finding is true now; None: both can be said."""
        judge = getattr(self, "_" + found.finding.replace("-", "_"))
        return judge(found) if found.key is None else judge(found, self.world.keys[found.key])

    def _missed(self, found: Finding, key: Key) -> bool:
        late = [
            due
            for due in key.not_started(self.now, "nobody", "drained", "paused", "held")
            if (due.tick.instant or 0.0) <= self.now - MISSED
        ]
        is_missed = any(due.how == "nobody" for due in late) or self._one_is_dead_of_drained(late)
        return (
            is_missed
            and found.tick in [due.tick.text for due in late]
            and 0 < found.count <= len(late)
        )

    def _one_is_dead_of_drained(self, late: list[Due]) -> bool:
        """Judge that a tick which drained hosts have skipped may be missed: another host, now dead, could run it."""
        return any(due.how == "drained" for due in late)

    def _failed(self, _found: Finding, key: Key) -> bool:
        ended = key.newest_ended(self.now)
        return ended is not None and ended.known_outcome(self.now) == "failed"

    def _lost(self, _found: Finding, key: Key) -> bool:
        ended = key.newest_ended(self.now)
        return ended is not None and ended.known_outcome(self.now) == "lost"

    def _expired(self, _found: Finding, key: Key) -> bool:
        newest = key.runs[-1]
        return (newest.outcome == "running" or newest.kept) and not newest.is_living(self.now)

    def _overrun(self, found: Finding, key: Key) -> bool:
        return len(key.not_started(self.now, "held")) == found.count

    def _slow(self, found: Finding, key: Key) -> bool:
        run = key.living(self.now)
        return run is not None and self.now - run.started > MINUTE and run.host.name in found.reason

    def _silent_host(self, found: Finding, key: Key | None = None) -> bool:
        host = self.world.hosts[found.host]
        newest = host.newest(key.name if key else None)
        if newest is None or host.drained or self.now - newest < SILENT:
            return False
        if key is not None and key.is_retired:
            return False
        if key is not None:
            is_there = not host.has_line(key) or self._was_up_between(host, key.name)
            lives = (host.newest() or 0.0) > newest and is_there
            return lives and self._fired_by_others(key.name, newest)
        is_expected = any(not self.world.keys[name].is_retired for name in host.fired)
        return is_expected and any(
            self._fired_by_others(name, host.newest(name) or 0.0) for name in host.fired
        )

    def _was_up_between(self, host: Host, key: str) -> bool:
        """Judge that a host which was down at each of a key's last ticks was not down all the time."""
        last = sorted(self._first_fired(key).values())[-LATEST:]
        return any(last[0] < at < last[-1] for each in host.fired.values() for _, at in each)

    def _fired_by_others(self, key: str, since: float) -> bool:
        return sum(at > since for at in self._first_fired(key).values()) >= LATEST

    def _first_fired(self, key: str) -> dict[str, float]:
        first: dict[str, float] = {}
        for host in self.world.hosts.values():
            for tick, at in host.fired.get(key, ()):
                first[tick] = min(at, first.get(tick, at))
        return first

    def _standstill(self, found: Finding) -> bool:
        """Judge that no host has fired since, and that each of the keys is missed."""
        keys = [self.world.keys[name] for name in found.keys]
        late = [key.not_started(self.now, "nobody", "drained", "paused", "held") for key in keys]
        return self._fired_last() <= (found.since or 0.0) + 1 and len(keys) > 1 and all(late)

    def _fired_last(self) -> float:
        return max(host.newest() or 0.0 for host in self.world.hosts.values())

    def _stopped(self, found: Finding, key: Key | None = None) -> bool:
        """Judge that the key or the host is held back, or all that fire or are expected."""
        if key is not None:
            return key.paused is not None
        if found.host is not None:
            return self.world.hosts[found.host].drained is not None
        hosts = [host for host in self.world.hosts.values() if host.fired]
        keys = [each for each in self.world.keys.values() if not each.is_retired]
        return all(host.drained for host in hosts) or all(each.paused for each in keys)

    def _channel(self, found: Finding) -> bool:
        return self.told[found.channel].refusals > 1

    def _names_rightly(self, found: Finding) -> bool:
        """Judge what a sentence says beside its subject: a successor, hosts without a line, a dead host's keys."""
        reason = found.reason
        key = self.world.keys[found.key] if found.key else None
        if renamed := re.search(r"its command as (\S+) now", reason):
            while key is not None and key.renamed_to not in (None, renamed[1]):
                key = self.world.keys[str(key.renamed_to)]
            return key is not None and key.renamed_to == renamed[1]
        if gone := re.search(r"; (.*) fires? other keys, but ", reason):
            hosts = [self.world.hosts[name] for name in re.findall(r"web\d", gone[1])]
            return key is not None and all(
                (host.newest() or 0.0) > (host.newest(key.name) or 0.0) for host in hosts
            )
        if found.finding == "silent-host" and key is None:
            fired = self.world.hosts[str(found.host)].fired
            return {*found.keys} == {each for each in fired if not self.world.keys[each].is_retired}
        return True

    # How it ended

    def _is_well(self, change: Change, problem: Change | None, told: Told) -> bool:
        found = change.finding
        since = found.since or told.opened_at[identity(found)]
        whole = {
            "channel": lambda: self.told[str(found.channel)].refusals == 0,
            "standstill": lambda: self._fired_last() > since,
            "stopped": lambda: not self.is_so(found),
        }
        if found.finding in whole:
            return whole[found.finding]()
        if found.finding == "silent-host":
            host = self.world.hosts[str(found.host)]
            return (host.newest(found.key) or 0.0) > since and self._is_a_time(found.reason, host)
        key = self.world.keys[str(found.key)]
        if key.is_retired or (found.reason.startswith("is well") and not self._ended_well(key)):
            return False
        if found.finding in ("failed", "lost", "expired"):
            return self._ended_well(key)
        if found.finding == "slow":
            run = key.living(self.now)
            return run is None or run.started > since
        begin = problem.finding.tick if problem else None
        started = any((run.tick.text or "") > (begin or "") for run in key.runs)
        return started and self.is_so(found._replace(tick=begin, count=1)) is not True

    def _ended_well(self, key: Key) -> bool:
        ended = key.newest_ended(self.now)
        return ended is not None and ended.known_outcome(self.now) == "succeeded"

    def _is_a_time(self, reason: str, host: Host) -> bool:
        said = re.search(r"at (\S+Z)$", reason)
        times = {_utc(at) for each in host.fired.values() for _, at in each}
        return said is None or said[1] in times

    def _is_closed(self, change: Change) -> bool:
        found = change.finding
        for pattern, judge in _CLOSED.items():
            if match := re.search(pattern, found.reason):
                return judge(self, found, match)
        return False

    def _is_stopped(self, found: Finding, by: re.Match[str]) -> bool:
        if by[1] == "drained":
            stop = self.world.hosts[str(found.host)].drained
        else:
            key = self.world.keys[str(found.key)]
            stop = key.paused if by[1] == "paused" else key.forgotten
        return stop is not None and stop[0] == by[2]

    def _fires_nothing_expected(self, found: Finding, by: re.Match[str]) -> bool:
        keys = [self.world.keys[name] for name in self.world.hosts[by[1]].fired]
        last = max((key.forgotten or ("", 0.0) for key in keys), key=lambda each: each[1])
        return all(key.is_retired for key in keys) and last[0] == by[2]

    def _is_forgotten(self, found: Finding, _: object) -> bool:
        host = self.world.hosts[str(found.host)]
        return host.newest(found.key) is None and host.forgotten_at is not None

    def _is_tried_again(self, found: Finding, _: object) -> bool:
        runs = self.world.keys[str(found.key)].runs
        return any(run.kept and run.is_living(self.now) for run in runs)

    def _is_of_newest_run(self, found: Finding, _: object) -> bool:
        newest = self.world.keys[str(found.key)].newest_ended(self.now)
        how = newest and newest.known_outcome(self.now)
        return self.is_so(found) is False and (how is None or how in found.reason)

    def _is_running(self, found: Finding, _: object) -> bool:
        return self.world.keys[str(found.key)].living(self.now) is not None

    def _is_over(self, found: Finding, _: object) -> bool:
        return self.is_so(found._replace(count=1)) is not True

    # What is never said

    def misses_nothing(self) -> None:
        """Judge that the first channel, which has just acknowledged, knows of all that is wrong beyond doubt."""
        ops = self.told["ops"].open
        known = {(which.finding, which.key, which.host) for which in ops}
        known |= {
            ("missed", key, None)
            for change in ops.values()
            if change.finding.finding == "standstill"
            for key in change.finding.keys
        }
        for key in self.world.keys.values():
            late = [
                due
                for due in key.not_started(self.now, "nobody")
                if (due.tick.instant or 0.0) < self.now - MISSED
            ]
            ended = key.newest_ended(self.now)
            outcome = ended and ended.known_outcome(self.now)
            if late:
                assert ("missed", key.name, None) in known, key.name
            if outcome in ("failed", "lost") and not key.forgotten and not self.world.is_pruned:
                assert (outcome, key.name, None) in known, (key.name, outcome)
        for host in self.world.hosts.values():
            dead = finding("silent-host", None, 1, "", host=host.name)
            ticks = [self._fired_by_others(each, host.newest() or 0.0) for each in host.fired]
            ticks.append(any(not self.world.keys[each].is_retired for each in host.fired))
            if host.lives_from > self.now and all(ticks) and self.is_so(dead):
                assert ("silent-host", None, host.name) in known, host.name
        found = notices(self.world.reader, ["ops"])
        for which in [each for notice in found for each in knowledge_in(notice).known]:
            if which.key is not None and which.finding not in ("slow", "expired"):
                key = self.world.keys[which.key]
                is_of_a_run = which.finding in ("failed", "lost")
                assert not (key.forgotten if is_of_a_run else key.is_retired), which
            if which.finding == "silent-host":
                assert not self.world.hosts[str(which.host)].drained, which

    def everything_has_ended(self) -> None:
        """Judge that each problem was told an end, or was covered by another one that was told an end since."""
        for channel in CHANNELS:
            told = self.told[channel.name]
            for which, change in told.open.items():
                assert any(
                    at >= told.opened_at[which] and _is_about(change.finding, over)
                    for at, over in told.ends
                ), (channel.name, which)


_CLOSED = {
    r"(forgotten|paused|drained) by (\S+) (?:at|since)": Oracle._is_stopped,
    r"that (\S+) used to fire is .* by (\S+)$": Oracle._fires_nothing_expected,
    "it was forgotten, or|the host was forgotten, or": Oracle._is_forgotten,
    "tried again soon": Oracle._is_tried_again,
    "newest run: ": Oracle._is_of_newest_run,
    "no run on record": lambda *_: True,
    "no longer slow": Oracle._is_running,
    "by what is expected|no longer due": Oracle._is_over,
}
"""Which judge is asked about what is said of an end without recovery."""


def _is_about(found: Finding, over: Finding) -> bool:
    same_key = found.key is not None and found.key == over.key
    return same_key or (found.host is not None and over.host == found.host)


def _utc(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_pass(oracle: Oracle, fates: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a pass; `fates` says what becomes of a channel's message, and of the pass."""
    world, reader = oracle.world, oracle.world.reader
    heard: list[Message] = []

    def send(channel: Channel, message: Message) -> None:
        if fates.get(channel.name) == "refused":
            raise ChannelError("no")
        heard.append(message)

    def send_all(prepared: Any) -> Iterator[Any]:
        if fates["pass"] == "killed before":
            raise KilledError
        answers = [*real(prepared)]
        if fates["pass"] == "killed after":
            raise KilledError
        yield from answers

    real = passes.send_all
    with monkeypatch.context() as patched:
        patched.setattr(passes, "send", send)
        patched.setattr(passes, "send_all", send_all)
        context = passes.Context(
            reader,
            "default",
            "web1",
            world.now,
            lambda limits: situation_of(Sources(reader, reader, world.now), FILE, limits),
            lambda _found, _clock: Evidence(),
        )
        try:
            results = [*passes.deliver(context, NOTIFY, passes.prepare(context, NOTIFY))]
        except KilledError:
            results = []
    for message in heard:
        oracle.hear(message)
    for result in results:
        told = oracle.told[result.channel]
        told.refusals = told.refusals + 1 if result.error else 0


def live(
    seed: object, directory: Path, monkeypatch: pytest.MonkeyPatch, hours: float = HOURS
) -> list[str]:
    """Let keys and hosts live, judge all that is said, and return it."""
    draw = random.Random(str(seed))
    world = World(draw, directory, monkeypatch)
    oracle = Oracle(world)
    for minute in range(round(hours * 60)):
        world.pass_minute()
        if minute > 20 and draw.random() < 0.06:
            world.befall()
        refused = {channel.name: "refused" for channel in CHANNELS if draw.random() < 0.1}
        killed = draw.choices(("", "killed before", "killed after"), (18, 1, 1))[0]
        make_pass(oracle, {"pass": killed, **refused}, monkeypatch)
        if not killed and not refused:
            oracle.misses_nothing()
    world.heal()
    for _ in range(60):
        world.pass_minute()
        make_pass(oracle, {"pass": ""}, monkeypatch)
    for notice in notices(world.reader, NOTIFY.names):
        known = knowledge_in(notice)
        assert known == Knowledge(told=known.told), notice
    oracle.everything_has_ended()
    world.close()
    return oracle.said


@pytest.mark.parametrize(
    "number", story_stores.rotated(range(300), LIVES * story_stores.seed(), LIVES)
)
def test_what_is_said_is_true(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each problem, each recovery and each end for another reason; and all is said, once for each event."""
    assert live(f"truth {number}", tmp_path, monkeypatch)
