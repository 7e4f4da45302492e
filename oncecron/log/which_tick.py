"""Which tick of a key `oncecron why` explains: what is wrong, the one that was named, or the newest with an outcome.

What is wrong is what `check` finds, by the same rules of `core`: an end that is none, then ticks that nobody started,
then ticks that were skipped because an earlier run was still running. A text is a tick as it is shown, or a time: that
of the first tick from its minute on.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core import tick
from oncecron.core.clock import believed
from oncecron.core.errors import NotFoundError, UsageError
from oncecron.core.log_rows import HistoryQuery, is_failure
from oncecron.core.model import OUTCOMES, REFUSAL_REASONS
from oncecron.core.text import listed
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.core.units import DAY, MINUTE, format_duration
from oncecron.host import local_time
from oncecron.log.gaps import expected_gaps, read_reasons
from oncecron.log.job_summary import DOUBTFUL, NO_END, STREAK_AT_MOST
from oncecron.log.jobs import as_known, states
from oncecron.log.missed import expected_shards, has_tick
from oncecron.log.tick_history import LOOKED_AT, Which, outcome_of, which_of
from oncecron.log.time_span import EXPECTED, read_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from oncecron.core.log_rows import Execution
    from oncecron.core.text import Clock
    from oncecron.log.job_summary import JobSummary
    from oncecron.log.sources import Sources

_RECENT_TROUBLE = 2 * DAY
"""`why` names the last tick that ended badly for so long, although later ones succeeded: until the next morning."""

WANTED = tuple(dict.fromkeys((*OUTCOMES, NO_END, "missed", "skipped", *REFUSAL_REASONS)))
"""What `--outcome` takes."""


class Choice(NamedTuple):
    """The tick to explain."""

    which: Which
    because: str
    """`newest`, `tick`, `time`, `outcome`; or what is wrong: `lost`, `failed`, `silent`, `missed`, `slow` or `overrun`.
    """
    note: str | None = None
    """A sentence about the choice, where it is not obvious."""
    newest: Which | None = None
    """The newest tick, where another one is wrong."""
    trouble: Which | None = None
    """The last tick that ended badly a short while ago, where nothing is wrong now."""


class Ticks:
    """The ticks of one key, to choose from."""

    def __init__(
        self, sources: Sources, key: str, spooled: Sequence[dict[str, Any]], clock: Clock
    ) -> None:
        """`spooled`: records of this host that the store does not have yet; `clock`: how times are shown."""
        self._sources = sources
        self._log = sources.log
        self._key = key
        self._spooled = spooled
        self._clock = clock
        self._keys = [known for known in sources.job_keys if known.key == key]

    # What is wrong

    def worst(self, job: JobSummary | None) -> Choice:
        """Return what is wrong with the key as `check` says it, else its newest tick."""
        newest = self._newest()
        found = self._wrong(job) if job else None
        if found is None:
            return Choice(newest, "newest", trouble=self._trouble(job, newest))
        which, because = found
        note = None
        if job and because == "slow":
            usual = format_duration(job.usual_duration or 0.0)
            end = f"to end it: `oncecron stop {self._key}`"
            note = f"Key {self._key} is slow: it usually takes {usual}; {end}"
        return Choice(which, because, note, newest=None if which == newest else newest)

    def _wrong(self, job: JobSummary) -> tuple[Which, str] | None:
        starts = {"lost": job.started_at, "failed": job.started_at}
        starts |= {"silent": job.silent_since, "slow": job.running_since}
        for word, _ in states(job):
            if word in starts and (run := self._started(starts[word])):
                return which_of(run), word
            if word == "missed":
                return Which(job.first_missed), word
            if word == "overrun" and (held := self._newest_unstarted("held")):
                return held, word
        return None

    def _trouble(self, job: JobSummary | None, newest: Which) -> Which | None:
        if job is None or (job.failed_at or 0.0) < self._sources.now - _RECENT_TROUBLE:
            return None
        for each in self._log.newest(STREAK_AT_MOST, [self._key]):
            if job.failed_at == (each.finished_at or each.started_at) and is_failure(each):
                return which_of(each) if which_of(each) != newest else None
        return None

    def _started(self, at: float | None) -> Execution | None:
        newest = self._log.newest(STREAK_AT_MOST, [self._key])
        return next((each for each in newest if each.started_at == at), None)

    def _newest(self) -> Which:
        """Return the newest tick that any host fired: the latest instant where all are instants, else the last fired.

        What a clock has written that was ahead is not the newest.
        """
        query, now = HistoryQuery(key=self._key, limit=LOOKED_AT), self._sources.now
        fired = [(each.started_at, which_of(each)) for each in self._log.history(query)]
        fired += [(skip.at, Which(skip.tick)) for skip in self._log.skips(query)]
        fired += [(record["fired_at"], Which(record["tick"])) for record in self._spooled]
        instants = [tick.instant_of(which.tick) for _, which in fired]
        ranked = [
            (at if None in instants else instant or at, which)
            for (at, which), instant in zip(fired, instants, strict=True)
        ]
        newest = max(ranked, key=lambda each: believed(each[0], now), default=(0.0, Which(None)))
        return newest[1]

    # By outcome

    def newest_with(self, words: Collection[str]) -> Choice:
        """Return the newest tick with one of these outcomes. Raises `NotFoundError`."""
        some = [*self._started_with(words), *self._not_started_with(words)]
        if not some:
            raise NotFoundError(
                f"no tick of key {self._key} on record has the outcome {' or '.join(words)}; "
                f"to see what there is: `oncecron history {self._key}`"
            )
        return Choice(max(some, key=lambda pair: pair[0])[1], "outcome")

    def _started_with(self, words: Collection[str]) -> Iterator[tuple[float, Which]]:
        meant = {*words, *([NO_END] if "lost" in words else [])}
        meant |= {*DOUBTFUL} if "running" in words else set()
        asked = {"running" if word in (NO_END, *DOUBTFUL) else word for word in meant} & {*OUTCOMES}
        queries = (HistoryQuery(key=self._key, outcomes=[word], limit=LOOKED_AT) for word in asked)
        rows = [self._known(each) for query in queries for each in self._log.history(query)]
        rows = sorted(
            (each for each in rows if each.outcome in meant), key=lambda each: -each.started_at
        )
        ticks = {which_of(each): each.started_at for each in reversed(rows)}
        for which, at in sorted(ticks.items(), key=lambda pair: -pair[1]):
            if self._outcome(which) in meant:
                yield at, which
                return
        if rows:
            yield rows[0].started_at, which_of(rows[0])

    def _not_started_with(self, words: Collection[str]) -> Iterator[tuple[float, Which]]:
        for reason in {*words} & {*REFUSAL_REASONS}:
            query = HistoryQuery(key=self._key, outcomes=[reason], limit=1)
            yield from ((skip.at, Which(skip.tick)) for skip in self._log.skips(query))
        if "skipped" in words and (skipped := self._newest_unstarted(None)):
            yield self._at(skipped), skipped
        if "missed" in words:
            yield from self._missed()

    def _newest_unstarted(self, reason: str | None) -> Which | None:
        query = HistoryQuery(key=self._key, outcomes=[reason] if reason else None, limit=None)
        skipped = (Which(skip.tick) for skip in self._log.skips(query) if skip.reason != "done")
        ticks = itertools.islice(dict.fromkeys(skipped), LOOKED_AT)
        return next((which for which in ticks if self._outcome(which) is None), None)

    def _missed(self) -> Iterator[tuple[float, Which]]:
        gaps = expected_gaps(self._sources, 0.0)
        mine = [each for (key, _), each in gaps.items() if key == self._key]
        for traced in self._log.traced(HistoryQuery(key=self._key, limit=None)) if mine else ():
            for each in mine:
                if each.shard == traced.execution.shard:
                    each.add(traced)
        for each in mine:
            each.end()
        read_reasons(mine, self._sources)
        for each in mine:
            for found in each.missing(self._log):
                last = Which(found.last_tick or found.tick)
                yield self._at(last), last

    # By name or time

    def named(self, text: str) -> Choice:
        """Return the tick with this name, or of the time that it says. Raises `UsageError`."""
        if tick.instant_of(text) is not None or self.is_on_record(text):
            return Choice(Which(text), "tick")
        try:
            at = read_time(text, self._sources.now, utc=self._clock.utc)
        except ValueError as error:
            raise UsageError(
                f"--tick: {text[:60]!r} is neither a tick on record nor a time; write a tick as `oncecron history "
                f"--wide` shows it, or a time: {EXPECTED}"
            ) from error
        start = at // MINUTE * MINUTE
        rows = [*self._fired(start), *self._scheduled(start)]
        of, which = min(rows, key=lambda row: row[0], default=(0.0, self._newest()))
        if which == Which(None):
            raise NotFoundError(f"no tick of key {self._key} is on record")
        if start <= of < start + MINUTE:
            return Choice(which, "time")
        shown, no_tick = self._clock.logged(start), self._no_tick(start)
        if no_tick:
            first = "The first tick after it" if rows else "No tick came after it; the newest one"
            return Choice(which, "time", f"{shown} is {no_tick}. {first}:")
        first = "The first tick since" if rows else "The newest tick; there is none since"
        return Choice(which, "time", f"{first} {shown}:")

    def _no_tick(self, at: float) -> str:
        """Return which schedules of the key have no tick at a time; empty: one has, or none is known."""
        plans = {
            f"{plan.schedule}{f' ({plan.zone})' if plan.zone else ''}": plan
            for _, plan in expected_shards(self._keys)
        }
        if not plans or any(has_tick(plan, at) for plan in plans.values()):
            return ""
        return f"no tick of the key's schedule, {listed([*plans])}"

    def is_on_record(self, text: str) -> bool:
        """Return whether a tick with this name was started or skipped."""
        query = HistoryQuery(key=self._key, tick=text, limit=1)
        return (
            any(True for _ in self._log.history(query))
            or any(True for _ in self._log.skips(query))
            or any(record.get("tick") == text for record in self._spooled)
        )

    def _fired(self, since: float) -> Iterator[tuple[float, Which]]:
        """Yield the ticks of a time, or without one, that were fired since then."""
        query = HistoryQuery(key=self._key, since=since - MAX_CLOCK_SKEW, limit=None)
        rows = [(each.started_at, which_of(each)) for each in self._log.history(query)]
        rows += [(each.at, Which(each.tick)) for each in self._log.skips(query)]
        rows += [(each["fired_at"], Which(each["tick"])) for each in self._spooled]
        for at, which in rows:
            instant = tick.instant_of(which.tick)
            of = at if instant is None else instant
            if of >= since and which != Which(None):
                yield of, which

    def _scheduled(self, since: float) -> Iterator[tuple[float, Which]]:
        """Yield the first tick since then of each schedule that the key is expected to follow."""
        for _, expected in expected_shards(self._keys):
            begin = max(since, expected.since) - 1
            with contextlib.suppress(ValueError):  # this host knows no such zone
                first = next(local_time.next_ticks(expected.schedule, expected.zone, begin))
                at = first.instant or 0.0
                if at < self._sources.now:
                    yield at, Which(first.text)

    def _outcome(self, which: Which) -> str | None:
        query = HistoryQuery(key=self._key, tick=which.tick, limit=LOOKED_AT)
        rows = (self._known(each) for each in self._log.history(query))
        return outcome_of([each for each in rows if which_of(each) == which])

    def _known(self, execution: Execution) -> Execution:
        leases = [lease for lease in self._sources.leases if lease.key == self._key]
        return as_known(execution, leases, self._sources.now)

    def _at(self, which: Which) -> float:
        return tick.instant_of(which.tick) or 0.0


def wanted_tick(text: str) -> str:
    """Return the text of `--tick`, an instant as it is recorded. Raises `UsageError` if it is empty."""
    if not text.strip():
        raise UsageError("--tick is empty (an unset variable?); leave it out for what is wrong")
    with contextlib.suppress(ValueError):  # a time may have a blank
        return str(tick.named_tick(text).text)
    return text
