"""What is wrong with the keys now, as a monitoring system asks: findings with a state, and how many keys are well.

missed      scheduled ticks that are missed since the newest start (`due`)
silent      a key without a schedule has not run for three times its longest recent gap
failed      the last ticks ended badly, as many in a row as --failures says
lost        the newest execution was lost, or has no end on record and no living lease
            (neither where all items of the tick are done by now)
expired     a lease has expired, and no host has taken the key over since
slow        the job has been running for --slow times its usual duration, and for a minute more
in-doubt    items of the newest list: whether the command has run for them is not known
left        items of an older tick: no newer one runs them
overrun     scheduled ticks were skipped since the newest start, because it was still running
channel     messages of `oncecron notify` to a channel fail
spooled     records wait in the spool of this host
silent-host a host has fired none of the last three ticks of a key, or fewer hosts than --min-hosts have fired one
clock       the clock of a host differs from the store's
future      a tick, a start or a pause of a key is in the future
zone        a key starts the same quarters of an hour after its ticks
same-name   two machines have the name of one host
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncecron.alerts.kinds import CRITICAL, KINDS, OK, STATES, WARNING
from oncecron.core.missed import MISSED_AT_MOST
from oncecron.core.text import part_of
from oncecron.core.timing import NOTABLE_CLOCK_SKEW, SLOW_AND_MORE
from oncecron.core.units import DAY, format_duration
from oncecron.each.reports import in_doubt, left_behind, newest_lists
from oncecron.log.hosts import (
    LAST_TICKS,
    NAMES_CURE,
    clock_difference,
    last_ticks,
    newest_rows,
    recent,
    same_names,
)
from oncecron.log.jobs import NO_END, STREAK_AT_MOST, is_living

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from oncecron.core.log_rows import HostTicks, LeaseView
    from oncecron.core.text import Clock
    from oncecron.each.reports import ListView
    from oncecron.log.jobs import JobSummary

_FAILED = ("failed", "timed-out", "unclaimed", "not-started")
_NAMED_FINDINGS = 3
_LISTED_FINDINGS = 1000
"""More come from a store into which somebody has written junk, and nobody reads them."""


class Finding(NamedTuple):
    """What is wrong, in the order of its published fields."""

    finding: str
    state: str
    key: str | None
    shard: int | None
    count: int  # type: ignore[assignment]  # published name; nobody counts in a tuple
    """How many ticks, runs in a row, items, or records."""
    tick: str | None
    """The first one that is meant."""
    since: float | None
    reason: str
    host: str | None = None
    """The host that is meant."""
    channel: str | None = None
    """The channel of `notify` that is meant."""


class Limits(NamedTuple):
    """From when on something is wrong."""

    failures: int
    """Ticks in a row that ended badly."""
    slow: float
    """How many times the usual duration."""
    states: Mapping[str, int]
    """The state of each kind of finding; `OK`: it is not looked for."""
    min_hosts: int = 1
    """How many hosts have to fire the last three ticks of a key."""


class Checked(NamedTuple):
    """What a check has found."""

    findings: list[Finding]
    """The worst first, then by key."""
    keys: int
    well: int
    """Keys without a finding."""

    @property
    def state(self) -> int:
        """Return the worst state."""
        return max((STATES.index(each.state) for each in self.findings), default=OK)


def check(
    jobs: Sequence[JobSummary],
    leases: Sequence[LeaseView],
    spooled: int,
    limits: Limits,
    now: float,
    clock: Clock,
    hosts: Iterable[HostTicks] = (),
    drained: Collection[str] = (),
    others: Iterable[Finding] = (),
    *,
    lists: Sequence[ListView] = (),
) -> Checked:
    """Return what is wrong with these keys; `spooled`: records that wait on this host; `hosts`: those of all keys."""
    keys = {job.key for job in jobs}
    found = [each for job in jobs for each in _of_key(job, limits, now, clock)]
    found += _expired([lease for lease in leases if lease.key in keys], now, clock)
    found += _of_items([view for view in lists if view.key in keys])
    found += _of_hosts(
        [each for each in recent(hosts, now) if each.key in keys], drained, limits, now
    )
    if spooled:
        waiting = f"{_many(spooled, 'record')} in the spool of this host: the store was unreachable"
        found.append(finding("spooled", None, spooled, waiting))
    found += others
    judged = [
        each._replace(state=STATES[limits.states[each.finding]])
        for each in found
        if limits.states[each.finding] != OK
    ]
    judged.sort(key=lambda each: (-STATES.index(each.state), each.key or "~"))
    return Checked(judged, len(keys), len(keys - {each.key for each in judged}))


def _of_key(job: JobSummary, limits: Limits, now: float, clock: Clock) -> Iterator[Finding]:
    if job.missed:
        many = _many(job.missed, "tick", MISSED_AT_MOST)
        yield finding(
            "missed",
            job.key,
            job.missed,
            f"missed {many} since {job.first_missed}",
            tick=job.first_missed,
        )
    if job.silent_since is not None:
        since = clock.seconds(job.silent_since)
        yield finding("silent", job.key, 1, f"has not run since {since}", since=job.silent_since)
    if job.settled:
        pass
    elif job.outcome in ("lost", NO_END):
        reason = "was lost: its host died or was cut off"
        yield finding("lost", job.key, 1, reason, since=job.started_at)
    elif _is_failed(job) and job.streak >= limits.failures:
        many = _many(job.streak, "run", STREAK_AT_MOST)
        how = (
            f"{job.outcome}{_status(job)}, {many} in a row"
            if job.streak > 1
            else f"{job.outcome}{_status(job)}"
        )
        yield finding("failed", job.key, job.streak, how, since=job.failed_at)
    if job.overruns:
        skipped = _many(job.overruns, "tick", MISSED_AT_MOST)
        yield finding(
            "overrun", job.key, job.overruns, f"skipped {skipped}: the run before was still running"
        )
    yield from _slow(job, limits, now)


def _slow(job: JobSummary, limits: Limits, now: float) -> Iterator[Finding]:
    if job.running_since is None or job.usual_duration is None:
        return
    ran = now - job.running_since
    if ran > limits.slow * job.usual_duration and ran > job.usual_duration + SLOW_AND_MORE:
        usual = format_duration(round(job.usual_duration, 1))
        reason = f"has been running on {job.running_host} for {format_duration(round(ran))}, usually {usual}"
        yield finding("slow", job.key, 1, reason, since=job.running_since)


def _expired(leases: Sequence[LeaseView], now: float, clock: Clock) -> Iterator[Finding]:
    for lease in leases:
        if lease.expires_at is None or is_living(lease, now):
            continue
        shard = f"shard {part_of(lease.shard, lease.shards)}: " if lease.shards > 1 else ""
        since = clock.seconds(lease.expires_at)
        reason = (
            f"{shard}the lease of {lease.host} has expired at {since}, and no host has taken over"
        )
        yield finding("expired", lease.key, 1, reason, since=lease.expires_at, shard=lease.shard)


def _of_items(lists: Sequence[ListView]) -> Iterator[Finding]:
    for view in newest_lists(lists).values():
        if view.lost:
            yield finding("in-doubt", view.key, view.lost, in_doubt(view), tick=view.tick)
    for view, left, reason in left_behind(lists):
        yield finding("left", view.key, left, reason, tick=view.tick)


def _of_hosts(
    rows: Sequence[HostTicks], drained: Collection[str], limits: Limits, now: float
) -> Iterator[Finding]:
    for key, (ticks, _, present, silent) in sorted(last_ticks(rows, drained).items()):
        for host, since in silent:
            reason = f"has not been fired by {host} for the last {len(ticks)} ticks"
            yield finding("silent-host", key, 1, reason, since=since, host=host)
        if len(ticks) == LAST_TICKS and len(present) < limits.min_hosts:
            few = f"has been fired by {_many(len(present), 'host')} in its last {len(ticks)} ticks"
            missing = limits.min_hosts - len(present)
            yield finding("silent-host", key, missing, f"{few}, and not by {limits.min_hosts}")
    for host, reason in same_names(rows).items():
        yield finding("same-name", None, 1, f"{reason}; {NAMES_CURE}", host=host)
    for row in newest_rows(rows, now - DAY):
        if abs(row.clock_ahead) > NOTABLE_CLOCK_SKEW:
            reason = f"the clock of {row.host} {clock_difference(row.clock_ahead)}"
            yield finding("clock", None, 1, reason, since=row.seen_at, host=row.host)


def finding(
    kind: str,
    key: str | None,
    count: int,
    reason: str,
    *,
    tick: str | None = None,
    since: float | None = None,
    shard: int | None = None,
    host: str | None = None,
    channel: str | None = None,
) -> Finding:
    """Return a finding in the default state of its kind."""
    state = STATES[KINDS[kind]]
    return Finding(kind, state, key, shard, count, tick, since, reason, host, channel)


def _is_failed(job: JobSummary) -> bool:
    return job.outcome in _FAILED and not (job.outcome == "unclaimed" and job.exit_code == 0)


def _status(job: JobSummary) -> str:
    if job.signal is not None:
        return f" (signal {job.signal})"
    return f" (exit status {job.exit_code})" if job.exit_code else ""


def _many(count: int, what: str, at_most: int | None = None) -> str:
    more = "+" if at_most is not None and count >= at_most else ""
    return f"{count}{more} {what}{'s' if count != 1 else ''}"


def lines(checked: Checked, states: Mapping[str, int]) -> Iterator[str]:
    """Yield what a monitoring plugin prints: a line with performance data, and a line for each finding.

    The format is of the Monitoring Plugins Development Guidelines: `TEXT | LABEL=VALUE;WARN;CRIT ...`, where `;0`
    as the limit of WARN or CRIT says that every value above 0 has this state.
    """
    named = [sentence(each) for each in checked.findings[:_NAMED_FINDINGS]]
    if len(checked.findings) > _NAMED_FINDINGS:
        named.append(f"and {len(checked.findings) - _NAMED_FINDINGS} more")
    named.append(f"{checked.well} of {_many(checked.keys, 'key')} ok")
    limits = {WARNING: ";0", CRITICAL: ";;0"}
    data = [
        f"{kind}={_count(checked, kind)}{limits[state]}" for kind, state in states.items() if state
    ]
    text = without_bars("; ".join(named))
    yield f"ONCECRON {STATES[checked.state].upper()}: {text} | {' '.join(data)} keys={checked.keys}"
    for each in checked.findings[:_LISTED_FINDINGS]:
        yield without_bars(f"{each.state}: {sentence(each)}")
    if more := len(checked.findings[_LISTED_FINDINGS:]):
        yield f"and {_many(more, 'more finding')}; `oncecron check --json` has all of them"


def _count(checked: Checked, kind: str) -> int:
    counted = ("missed", "overrun", "spooled", "silent-host", "in-doubt", "left")
    return sum(each.count if kind in counted else 1
               for each in checked.findings if each.finding == kind)  # fmt: skip


def sentence(finding: Finding) -> str:
    """Return the key and what is wrong with it."""
    return f"{finding.key} {finding.reason}" if finding.key else finding.reason


def without_bars(text: str) -> str:
    """Return a text without the sign behind which performance data begin."""
    return text.replace("|", "/")
