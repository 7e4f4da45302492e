"""What is wrong with the keys now, as a monitoring system asks: findings with a state, and how many keys are well.

A new finding is a row of `KINDS` and a rule below, about what `situation` has read. Plugins bring kinds and findings of
their own.
"""

from __future__ import annotations

import functools
import shlex

from oncecron.config.options import Option
from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.log_rows import is_internal
from oncecron.core.masking import visible
from oncecron.core.suggestion import not_one_of
from oncecron.core.text import count as many
from oncecron.core.text import listed, part_of
from oncecron.core.tick import instant_of
from oncecron.core.timing import (
    MISSED_AFTER,
    NOTABLE_CLOCK_SKEW,
    SILENT_AFTER,
    STOPPED_AFTER,
)
from oncecron.core.units import DAY, format_duration
from oncecron.log.job_summary import (
    SLOW_TIMES,
    STREAK_AT_MOST,
    has_failed,
    is_living,
    is_lost,
    is_slow,
)
from oncecron.log.missed import MISSED_AT_MOST
from oncecron.log.silent_hosts import (
    LAST_TICKS,
    NAMES_CURE,
    last_ticks,
    newest_rows,
    recent,
    same_names,
    silences,
)
from oncecron.plugins import brought, line_again

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oncecron.core.log_rows import KeyHost, LeaseView, Pause
    from oncecron.core.text import Clock
    from oncecron.log.job_summary import JobSummary

_SHORTEST_PATIENCE, LONGEST_PATIENCE = 60.0, 7 * DAY
"""What people may set of `missed_after` and, from 0 on, of `silent_after` and `for`: a pass is made each minute."""

OK, WARNING, CRITICAL = range(3)
"""The exit statuses of a monitoring plugin; `EX_UNKNOWN` is the fourth."""

STATES = ("ok", "warning", "critical")


class Kind(NamedTuple):
    """A kind of finding."""

    state: int
    """By default."""
    meaning: str
    """Also the help of its metric."""
    title: str
    """The short form of its sentence, with the fields of the finding: for the subject of a mail."""
    metric: str | None = None
    """Its gauge of each key, without the prefix; None: it is not about a key."""
    has_count: bool = False
    """Whether one finding stands for `Finding.count` of them in the performance data."""
    cure: str = ""
    """What to do, with the fields of the finding, in a message; empty: its sentence says it."""
    over: str = "is over"
    """What is said when it is over."""
    says: tuple[str, str] | None = None
    """The kind of finding, and the key, of which it says the same better."""


_WHERE_LINE = "; `oncecron why {key}` has the line that runs this one again"
_RUNS_AGAIN = f"the next tick runs as usual{_WHERE_LINE}"
_LINE = "see whether cron runs on its hosts, and has its line"
KINDS = {
    "missed": Kind(
        CRITICAL, "Scheduled ticks that no host has started since the newest start.", "{key} missed {ticks}",
        "missed_ticks", has_count=True, cure=_LINE,
    ),
    "silent": Kind(
        CRITICAL, "1: a key without a schedule has not run for three times its longest gap.", "{key} has not run",
        "silent", cure=_LINE,
    ),
    "failed": Kind(
        CRITICAL, "How many ticks in a row have ended badly.", "{key} failed", "failures",
        cure="correct the cause; " + _RUNS_AGAIN,
    ),
    "lost": Kind(
        CRITICAL, "1: the newest run was lost.", "{key} was lost", "lost",
        cure="see what it has left half done; " + _RUNS_AGAIN,
    ),
    "expired": Kind(
        CRITICAL, "Leases that have expired and that no host has taken over.", "{key} has an expired lease",
        "expired_leases", cure="the next firing takes over; to see who had it: `oncecron locks {key}`",
    ),
    "standstill": Kind(
        CRITICAL, "No host has fired since several keys were due.", "no host fires",
        cure="on each host, see whether cron runs, and whether it reaches the store: `oncecron doctor`",
    ),
    "slow": Kind(
        WARNING, "1: the job runs for more than three times its usual duration, and a minute.", "{key} is slow",
        "slow", cure="see what it waits for; to end it: `oncecron stop {key}`",
    ),
    "overrun": Kind(
        WARNING, "Ticks since the newest start that were skipped during the run.", "{key} skipped {ticks}",
        "overrun_ticks", has_count=True, cure="see why it takes so long, or run it less often",
    ),
    "stopped": Kind(
        WARNING, "All hosts are drained or all keys are paused, or a drain or a pause without an end is a day old.",
        "{reason}",
    ),
    "spooled": Kind(
        WARNING, "Records wait in the spool of this host.", "{records} wait in a spool", has_count=True,
        cure="deliver them: `oncecron flush`",
    ),
    "configuration": Kind(
        WARNING, "The configuration file of this host has a mistake.", "a configuration file has a mistake",
        cure="correct it, and see whether that is all: `oncecron config check`",
    ),
    "silent-host": Kind(
        WARNING, "Hosts that used to fire the key and have fired none of its last three ticks.",
        "{host} fires nothing", "silent_hosts",
    ),
    "clock": Kind(
        WARNING, "The clock of a host is not the store's.", "the clock of {host} is wrong",
        cure="set the clocks of host and store by NTP",
    ),
    "future": Kind(
        WARNING, "1: a tick, a start or the pause of the key is in the future.", "{key} has a time in the future",
        "in_future", over="has no tick, start or pause in the future any more",
    ),
    "zone": Kind(
        WARNING, "1: the key starts some quarters of an hour after its ticks, or its hosts disagree about its zone.",
        "{key} has a wrong time zone", "wrong_zone", over="starts at the times of its schedule again",
    ),
    "same-name": Kind(
        WARNING, "Two machines have the name of one host.", "two machines are called {host}"
    ),
}  # fmt: skip


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Return the kinds of finding, also those of the plugins."""
    return KINDS | dict(brought(lambda each: each.kinds.items()))


def usual_states() -> dict[str, int]:
    """Return the state of each kind of finding by default."""
    return {name: kind.state for name, kind in kinds().items()}


_NAMED_FINDINGS = 3
_NAMED_KEYS = 3
_LISTED_FINDINGS = 1000
"""More come from a store into which somebody has written junk, and nobody reads them."""


def _number(name: str, text: str, default: int, maximum: int) -> Option:
    return Option(
        name, "integer", text, "N", "What counts", str(default), minimum=1, maximum=maximum
    )


def _kinds(name: str, text: str, short: str | None = None) -> Option:
    return Option(name, "text", text, "FINDING,...", "What counts", short=short)


OPTIONS = (
    _number("failures", "Report a key as failed after N ticks in a row that ended badly.", 1, 100),
    _number(
        "slow",
        "Report a job as slow when it runs N times as long as usual, and a minute longer.",
        SLOW_TIMES,
        1000,
    ),
    _number(
        "min-hosts",
        "Report a key as `silent-host` if fewer than N hosts fired one of its last three ticks.",
        1,
        10_000,
    ),
    Option(
        "missed-after", "duration", "Report a tick as missed when it was due this long ago.", "DURATION", "What counts",
        format_duration(MISSED_AFTER), minimum=_SHORTEST_PATIENCE,
        maximum=LONGEST_PATIENCE,
    ),
    Option(
        "silent-after", "duration",
        "Report a host as silent when it has fired none of the last three ticks, and nothing for this long.",
        "DURATION", "What counts", format_duration(SILENT_AFTER),
        maximum=LONGEST_PATIENCE,
    ),
    Option(
        "stopped-after", "duration", "Report it when all hosts are drained, or all keys are paused, for this long.",
        "DURATION", "What counts", format_duration(STOPPED_AFTER), maximum=LONGEST_PATIENCE,
    ),
    _kinds("warning", "Let these findings be warnings, such as `failed,lost`.", "w"),
    _kinds("critical", "Let these findings be critical, such as `slow,overrun`.", "c"),
    _kinds("ignore", "Do not look for these findings."),
)  # fmt: skip
_STATE_OF = {"warning": WARNING, "critical": CRITICAL, "ignore": OK}


def states_of(given: Mapping[str, str | None]) -> dict[str, int]:
    """Return the state of each kind of finding by the options `warning`, `critical` and `ignore`.

    Raises `ValueError` for an unknown kind, with the name of the option in front.
    """
    states = usual_states()
    for option, state in _STATE_OF.items():
        for kind in (given.get(option) or "").split(","):
            name = kind.strip()
            if name and name not in states:
                raise ValueError(f"{option}: {not_one_of(name, states)}")
            if name:
                states[name] = state
    return states


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
    keys: tuple[str, ...] = ()
    """The keys that are meant, where there is no single one: those of a host that fires nothing."""
    explained: bool = False
    """Whether the reason says why, so that nobody needs to look at cron and its line."""

    def named(self) -> tuple[str, ...]:
        """Return the keys that it is about; none: it is about all of them."""
        return (self.key,) if self.key is not None else self.keys


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
    missed_after: float = MISSED_AFTER
    """See `log.missed`."""
    silent_after: float = SILENT_AFTER
    """See `log.silent_hosts`."""
    stopped_after: float = STOPPED_AFTER
    """See `watch.standstill`."""


def limits_of(values: Mapping[str, Any], states: Mapping[str, int]) -> Limits:
    """Return what the values of `OPTIONS` set."""
    return Limits(
        *(values["failures"], values["slow"], states, values["min-hosts"]),
        *(values["missed-after"], values["silent-after"], values["stopped-after"]),
    )


def usual_limits() -> Limits:
    """Return the defaults of `oncecron check`."""
    return Limits(failures=1, slow=SLOW_TIMES, states=usual_states())


class Situation(NamedTuple):
    """What is judged, of all keys or of some: see `situation`."""

    now: float
    jobs: Sequence[JobSummary]
    leases: Sequence[LeaseView] = ()
    hosts: Sequence[KeyHost] = ()
    """Of all keys; none where nobody looks for findings about hosts."""
    pauses: Sequence[Pause] = ()
    """Of keys and of hosts."""
    hints: Mapping[str, str] = {}
    """What explains missed ticks, and what to do, by key."""
    remarks: Callable[[Clock], Iterable[Finding]] = lambda _clock: ()
    """What is judged elsewhere, its times in the zone of who reads them: what plugins find, times that cannot be."""
    spooled: int = 0
    """Records that wait on this host."""
    mistakes: Sequence[str] = ()
    """In the configuration file of this host."""
    is_complete: bool = True
    """Whether each row of the store could be read."""


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


def check(situation: Situation, limits: Limits, clock: Clock) -> Checked:
    """Return what is wrong with the keys of a situation. One event is one finding."""
    keys = {job.key for job in situation.jobs}
    found = [each for job in situation.jobs for each in _of_key(job, situation, limits, clock)]
    found += _expired([lease for lease in situation.leases if lease.key in keys], clock)
    found += _of_hosts(situation, keys, limits, clock)
    found += [each for each in situation.remarks(clock) if each.key is None or each.key in keys]
    if situation.spooled:
        records = many(situation.spooled, "record")
        waiting = f"{records} in the spool of this host: the store was unreachable"
        found.append(finding("spooled", None, situation.spooled, waiting))
    found += [finding("configuration", None, 1, each) for each in situation.mistakes]
    judged = [
        each._replace(state=STATES[limits.states[each.finding]])
        for each in found
        if limits.states[each.finding] != OK
    ]
    judged = _one_per_run(_without_silenced(judged))
    # "~" is behind all letters: what is about no key comes last, but for what is about all of them.
    judged.sort(key=lambda each: (-STATES.index(each.state), not is_of_all(each), each.key or "~"))
    # A dead host leaves its keys to the others: what is missed then says so of its key.
    named = {
        key for each in judged if each.finding != "silent-host" or each.key for key in each.named()
    }
    # What oncecron runs for itself counts where it is asked for, or is not well.
    counted = {key for key in keys if not is_internal(key) or key in named} or keys
    return Checked(judged, len(counted), len(counted - named))


def is_of_all(found: Finding) -> bool:
    """Return whether a finding is about everything: that no host fires, or that people hold back all."""
    return found.finding in ("standstill", "stopped") and not (found.key or found.host)


UNSTARTED = ("missed", "silent")
"""The findings about a key that nobody starts, which others may explain."""


def _without_silenced(found: Sequence[Finding]) -> list[Finding]:
    """Leave out what is missed because no host fires, as long as that is as bad."""
    silenced = {
        key: STATES.index(each.state)
        for each in found
        if each.finding == "standstill"
        for key in each.keys
    }
    return [
        each
        for each in found
        if each.finding not in UNSTARTED
        or silenced.get(each.key or "", OK) < STATES.index(each.state)
    ]


_SAID_BY = {"expired": "lost", "overrun": "slow"}
"""Which finding of the same key says it too, as long as that is as bad."""


def _one_per_run(found: Sequence[Finding]) -> list[Finding]:
    by_kind = {(each.finding, each.key): each for each in found}
    said_better = {kinds()[each.finding].says for each in found}
    kept = []
    for each in found:
        if other := by_kind.get((_SAID_BY.get(each.finding, ""), each.key)):
            if STATES.index(other.state) >= STATES.index(each.state):
                continue
        elif (each.finding, each.key) in said_better:
            continue
        elif each.finding == "lost" and (expired := by_kind.get(("expired", each.key))):
            each = each._replace(reason=f"was lost: {expired.reason}")  # noqa: PLW2901 - the same with more
        elif each.finding == "slow" and (overrun := by_kind.get(("overrun", each.key))):
            skipped = many(overrun.count, "tick", MISSED_AT_MOST)
            each = each._replace(reason=f"{each.reason}; it skipped {skipped}")  # noqa: PLW2901
        kept.append(each)
    return kept


def _of_key(
    job: JobSummary, situation: Situation, limits: Limits, clock: Clock
) -> Iterator[Finding]:
    hint = situation.hints.get(job.key, "")
    is_explained = bool(hint)
    if job.missed:
        ticks = many(job.missed, "tick", MISSED_AT_MOST)
        more = hint or _made_up(job)
        reason = f"missed {ticks} since {clock.said_tick(job.first_missed)}{more and '; '}{more}"
        first = job.first_missed
        yield finding("missed", job.key, job.missed, reason, tick=first, explained=is_explained)
    if job.silent_since is not None:
        since = clock.logged(job.silent_since)
        reason = f"has been fired since {since}; {hint}" if hint else f"has not run since {since}"
        at = job.silent_since
        yield finding("silent", job.key, 1, reason, since=at, explained=is_explained)
    if is_lost(job):
        reason = "was lost: its host died or was cut off"
        yield finding("lost", job.key, 1, reason, since=job.started_at, tick=_scheduled(job))
    elif has_failed(job) and job.failures >= limits.failures:
        how = f"{job.outcome}{_status(job)}"
        if job.outcome == "stopped":
            how = f"was {how}, because oncecron was stopped or killed, perhaps with its host"
        if job.failures > 1:
            how += f", {many(job.failures, 'run', STREAK_AT_MOST)} in a row"
        tick = _scheduled(job)
        yield finding("failed", job.key, job.failures, how, since=job.failed_at, tick=tick)
    if job.overruns:
        skipped = many(job.overruns, "tick", MISSED_AT_MOST)
        reason = f"skipped {skipped}: the run before was still running"
        start = max(job.running_since or 0.0, job.started_at or 0.0) or None
        yield finding("overrun", job.key, job.overruns, reason, since=start)
    yield from _slow(job, limits, situation.now)


def _made_up(job: JobSummary) -> str:
    first, missed = instant_of(job.first_caught_up), instant_of(job.first_missed)
    if first is None or missed is None or missed < first:
        return ""
    return f"the next firing makes up {many(job.catching_up, 'tick')} (--catch-up)"


def _scheduled(job: JobSummary) -> str | None:
    """Return the tick of the newest end, of a key with a schedule: a line in a crontab runs it."""
    return job.tick if job.schedule else None


def _slow(job: JobSummary, limits: Limits, now: float) -> Iterator[Finding]:
    if is_slow(job, now, limits.slow):
        ran = format_duration(round(now - (job.running_since or now)))
        usual = format_duration(job.usual_duration or 0.0)
        reason = f"has been running on {listed(job.running_on)} for {ran}, usually {usual}"
        yield finding("slow", job.key, 1, reason, since=job.running_since)


def _expired(leases: Sequence[LeaseView], clock: Clock) -> Iterator[Finding]:
    for lease in leases:
        if lease.expires_at is None or is_living(lease):
            continue
        shard = f"shard {part_of(lease.shard, lease.shards)}: " if lease.shards > 1 else ""
        since = clock.logged(lease.expires_at)
        reason = (
            f"{shard}the lease of {lease.host} has expired at {since}, and no host has taken over"
        )
        yield finding("expired", lease.key, 1, reason, since=lease.expires_at, shard=lease.shard)


def _of_hosts(
    situation: Situation, keys: Collection[str], limits: Limits, clock: Clock
) -> Iterator[Finding]:
    now = situation.now
    all_rows = list(recent(situation.hosts, now))
    rows = [row for row in all_rows if row.key in keys]
    drained = {pause.host for pause in situation.pauses if pause.host is not None}
    retired = {job.key for job in situation.jobs if job.retired}
    gone: dict[str, set[str]] = {}
    for host, since, of_host, is_whole, _ in silences(all_rows, drained, now, limits.silent_after):
        of_host = tuple(key for key in of_host if key not in retired)  # noqa: PLW2901 - nobody expects it
        silent_on = [key for key in of_host if key in keys]
        if is_whole and silent_on:
            for key in of_host:
                gone.setdefault(key, set()).add(host)
            jobs = tuple(key for key in of_host if not is_internal(key)) or of_host
            which = f"{many(len(jobs), 'key')}: {listed(jobs, _NAMED_KEYS)}"
            reason = f"{host} has fired nothing since {clock.logged(since)} ({which})"
            found = finding("silent-host", None, len(jobs), reason, since=since, host=host)
            yield found._replace(keys=jobs)
        for key in () if is_whole else silent_on:
            last = clock.logged(since)
            reason = f"has not been fired by {host} since {last}, which fires other keys"
            yield finding("silent-host", key, 1, reason, since=since, host=host)
    # Each tick has one host at least.
    expected = [row for row in rows if row.key not in retired] if limits.min_hosts > 1 else []
    for key, (ticks, _, present, _) in sorted(last_ticks(expected, drained).items()):
        if len(ticks) == LAST_TICKS and len(present | gone.get(key, set())) < limits.min_hosts:
            few = f"has been fired by {many(len(present), 'host')} in its last {len(ticks)} ticks"
            missing = limits.min_hosts - len(present)
            yield finding("silent-host", key, missing, f"{few}, and not by {limits.min_hosts}")
    for host, reason in same_names(rows).items():
        yield finding("same-name", None, 1, f"{reason}; {NAMES_CURE}", host=host)
    for row in newest_rows(rows, now - DAY):
        if abs(row.clock_ahead) > NOTABLE_CLOCK_SKEW:
            side = "ahead of" if row.clock_ahead > 0 else "behind"
            reason = f"the clock of {row.host} is {abs(row.clock_ahead):.1f} s {side} the store's"
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
    explained: bool = False,
) -> Finding:
    """Return a finding in the default state of its kind."""
    state = STATES[kinds()[kind].state]
    return Finding(
        kind, state, key, shard, count, tick, since, reason, host, channel, explained=explained
    )


def _status(job: JobSummary) -> str:
    if job.signal is not None:
        return f" (signal {job.signal})"
    return f" (exit status {job.exit_code})" if job.exit_code else ""


def lines(
    checked: Checked, states: Mapping[str, int], *, for_people: bool = False
) -> Iterator[str]:
    """Yield what a monitoring plugin prints: a line with performance data, and a line for each finding.

    `for_people`: the first line names no finding, and the performance data come last.

    The format is of the Monitoring Plugins Development Guidelines: `TEXT | LABEL=VALUE;WARN;CRIT ...`, where `;0` as
    the limit of WARN or CRIT says that every value above 0 has this state.
    """
    few = checked.findings[: 0 if for_people else _NAMED_FINDINGS]
    named = [sentence(each) for each in few]
    if named and len(checked.findings) > len(named):
        named.append(f"and {len(checked.findings) - len(named)} more")
    named.append(f"{checked.well} of {many(checked.keys, 'key')} ok")
    limits = {WARNING: ";0", CRITICAL: ";;0"}
    data = [
        f"{kind}={_count(checked, kind)}{limits[state]}" for kind, state in states.items() if state
    ]
    text = without_bars("; ".join(named))
    performance = f"| {' '.join(data)} keys={checked.keys}"
    yield f"ONCECRON {STATES[checked.state].upper()}: {text}{'' if for_people else f' {performance}'}"
    for each in checked.findings[:_LISTED_FINDINGS]:
        yield without_bars(f"{each.state}: {sentence(each)}")
    if more := len(checked.findings[_LISTED_FINDINGS:]):
        yield f"and {many(more, 'more finding')}; `oncecron check --json` has all of them"
    if for_people:
        yield performance


def _count(checked: Checked, kind: str) -> int:
    counts = (each.count for each in checked.findings if each.finding == kind)
    return sum(counts) if kinds()[kind].has_count else len([*counts])


def sentence(finding: Finding) -> str:
    """Return the key and what is wrong with it."""
    return f"{finding.key} {finding.reason}" if finding.key else finding.reason


def title(found: Finding) -> str:
    """Return the same in a few words."""
    if found.finding == "silent-host" and found.key:
        return f"{found.key} is not fired by {found.host or 'enough hosts'}"
    if found.finding == "stopped":
        return sentence(found).partition(":")[0].partition(" by ")[0]
    counts = {what: many(found.count, what[:-1]) for what in ("ticks", "records")}
    return kinds()[found.finding].title.format(**found._asdict(), **counts)


def cure(found: Finding, *, has_account: bool = False) -> str:
    """Return what to do about a finding; empty: its sentence says it.

    `has_account`: what `oncecron why` says stands beside it, with the line that runs it again.
    """
    if found.explained:
        return ""
    if found.finding == "silent-host":
        return _cure_of_silence(found)
    text = kinds()[found.finding].cure
    if found.finding == "missed":
        return text + ("" if has_account else _line_of_missed(found))
    if not text.endswith(_WHERE_LINE):
        return text.format(**found._asdict())
    done = text.removesuffix(_WHERE_LINE)
    if has_account:
        return done
    key, tick = found.key or "", found.tick
    line = line_again(key, tick) if tick else None
    how = f"; to run this one again: `oncecron {line}`" if line else _WHERE_LINE.format(key=key)
    return done + how


def _line_of_missed(found: Finding) -> str:
    line = line_again(found.key or "", found.tick) if found.tick else None
    which = "it" if found.count == 1 else "the first one"
    return f"; to run {which} now: `oncecron {line}`" if line else ""


def _cure_of_silence(found: Finding) -> str:
    host = shlex.quote(visible(found.host or ""))
    if found.key is None:
        forget = f"if it is retired: `oncecron forget --host {host}`"
        return f"see whether it is up, cron runs there, and it can reach the store; {forget}"
    if found.host is None:
        return f"see which hosts fire it: `oncecron why {found.key}`, `oncecron hosts`"
    return f"see whether the crontab of {host} has its line"


def without_bars(text: str) -> str:
    """Return a text without the sign behind which performance data begin."""
    return text.replace("|", "/")
