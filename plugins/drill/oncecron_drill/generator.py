"""What the hosts' crontabs say: keys with jobs of every kind, and when each host fires them, drawn from a seed.

Every host fires every tick of every key, at a moment of its own. Most keys are given their ticks by name, every few
seconds, so that a few minutes hold several hundred; `minute` and `schedule` have real minutes and the hosts' clocks.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

CHILDREN = Path(__file__).resolve().parent
_PYTHON = (str(Path(sys.executable).resolve()), "-S", "-E")
"""The interpreter itself: a shim in front of it would only cost time."""
WITNESS_WORDS = (*_PYTHON, str(CHILDREN / "witness.py"))
LETTERS_WORDS = (*_PYTHON, str(CHILDREN / "letters.py"))
TTL = 6.0
"""Seconds; the shortest that there is."""
CONNECT_TIMEOUT = 8.0
MINUTE = 60.0
MOSTLY, NEARLY_ALWAYS = 0.8, 0.95
SOON, LATE, VERY_LATE = 0.3, 2.0, 9.0
"""Within so many seconds after the tick a host fires: mostly, nearly always, and else."""


@dataclass(frozen=True)
class Key:
    """One line of the crontab."""

    name: str
    period: float
    """Seconds between two ticks."""
    seconds: float
    """How long its job lives, at most."""
    job: str = ""
    """Options of witness.py."""
    run: str = ""
    """Options of `oncecron run`."""
    rule: str = "name"
    """Who names its ticks: name, instant (given as --tick), minute, schedule (the host's clock), none."""
    again: float = 0.0
    """Share of its ticks that a person runs once more."""
    fenced: bool = False
    attempts: int = 1
    """How many its job takes where nobody hinders it, a second apart at most."""
    parts: int = 1
    items: int = 0
    """How many items a tick has, for `oncecron each`; 0: `oncecron run`."""

    @property
    def longest(self) -> float:
        """How many seconds a tick takes, at most, where nobody hinders it."""
        return self.attempts * self.seconds + self.attempts - 1

    @property
    def by_clock(self) -> bool:
        """Whether the host's clock names the tick, and so says when it fires."""
        return self.rule in ("minute", "schedule")

    def options(self, tick: str | None) -> list[str]:
        """Return the options of `oncecron run` that say which tick."""
        if tick is not None:
            return ["--tick", tick]
        return {"minute": [], "schedule": ["--schedule", "* * * * *"], "none": ["--no-tick"]}[
            self.rule
        ]


KEYS = (
    Key("quick", 5, 0.1, "--seconds 0.1"),
    Key("long", 10, 11, "--seconds 11 --ignore-term", "--grace 2s"),
    Key("fails", 14, 0.3, "--seconds 0.3 --exit 3"),
    Key("forks", 11, 5, "--seconds 5 --fork --setsid", "--grace 1s"),
    Key("stubborn", 8, 9, "--seconds 9 --ignore-term --setsid", "--grace 1s"),
    Key("daemon", 13, 1, "--seconds 1 --daemon 1"),
    Key("loud", 17, 0.2, "--seconds 0.2 --output 1000000", "--capture 4k"),
    Key("fenced", 10, 11, "--seconds 11 --ignore-term", fenced=True),
    Key("instants", 9, 2, "--seconds 2", rule="instant"),
    Key("minute", MINUTE, 3, "--seconds 3", rule="minute"),
    Key("schedule", MINUTE, 1, "--seconds 1", "--tz UTC", rule="schedule"),
    Key("catches-up", 2 * MINUTE, 1, "--seconds 1", "--tz UTC --catch-up 1h", rule="schedule"),
    Key("waits", 12, 4, "--seconds 4", "--wait 5s"),
    Key("limited", 8, 5, "--seconds 5 --fork --setsid", "--timeout 1500ms --grace 3s"),
    Key("alone", 10, 3, "--seconds 3", "--min-gap 2s", rule="none"),
    Key("again", 9, 1, "--seconds 1", again=0.3),
    Key("failover", 11, 8, "--seconds 8 --setsid", "--failover --grace 1s"),
    Key("overtaken", 10, 7, "--seconds 7", "--failover", rule="instant"),
    Key("leader", 12, 8, "--seconds 8 --ignore-term", "--failover --grace 1s", rule="none"),
    Key("retries", 9, 0.4, "--seconds 0.4 --fail-before 3", "--retries 2 --retry-delay 200ms..1s", attempts=3),
    Key("gives-up", 16, 0.3, "--seconds 0.3 --exit 3", "--retries 1 --retry-delay 200ms", attempts=2),
    Key("persists", 13, 3, "--seconds 3 --fail-before 3", "--failover --retries 3 --retry-delay 500ms..1s", attempts=3),
    Key("parts", 11, 2, "--seconds 2", "--shards 3", parts=3),
    Key("shared", 14, 7, "--seconds 7", "--shards 2 --failover", parts=2),
)  # fmt: skip
_REPEATED = "--slots 3 --wait 20s --batch 2 --retries 9 --retry-delay 200ms --in-doubt retry"
ITEM_KEYS = (
    Key("letters", 12, 0.4, run="--slots 3 --wait 20s", items=20),
    Key("payments", 17, 0.5, run=_REPEATED, items=10),
)  # fmt: skip
"""Each item of the first is begun once at most; those of the second are repeated where they are in doubt."""


@dataclass(frozen=True)
class Shot:
    """One host fires one line."""

    at: float
    """Seconds after the start of the run."""
    host: str
    key: Key
    tick: str | None
    again: bool = False

    def command(self, oncecron: Sequence[str], journal: Path, fenced: list[str]) -> list[str]:
        """Return what cron would start."""
        verb = "each" if self.key.items else "run"
        words = [*oncecron, verb, "--key", self.key.name, *self.key.options(self.tick)]
        words += ["--ttl", f"{TTL:g}s", "--connect-timeout", f"{CONNECT_TIMEOUT:g}s"]
        words += ["--again"] if self.again else []
        if self.key.items:
            words += ["--items", f"seq {self.key.items}", *shlex.split(self.key.run), "--"]
            ledgers = journal.parent / "items"
            return [*words, *LETTERS_WORDS, str(ledgers), f"{self.key.seconds}"]
        return [*words, *shlex.split(self.key.run), "--", *self.job(journal, fenced)]

    def job(self, journal: Path, fenced: list[str]) -> list[str]:
        """Return the job of a key without items."""
        job = [*WITNESS_WORDS, str(journal), *shlex.split(self.key.job)]
        return [*job, "--fenced", "|".join(fenced)] if self.key.fenced else job


def shots(
    seed: int, keys: Sequence[Key], hosts: Sequence[str], begin: float, seconds: float
) -> list[Shot]:
    """Return all firings of so many seconds in their order; `begin` is the run's start in seconds since the epoch."""
    found: list[Shot] = []
    for key in keys:
        random = Random(f"{seed} {key.name}")
        first = MINUTE - begin % MINUTE + 1 if key.by_clock else random.uniform(0, key.period)
        for number in range(1 + int((seconds - first) // key.period)):
            found += _of_tick(random, key, hosts, number, first + number * key.period, begin)
    return sorted(found, key=lambda shot: shot.at)


def _of_tick(
    random: Random, key: Key, hosts: Sequence[str], number: int, due: float, begin: float
) -> list[Shot]:
    tick = {"name": f"t{number}", "instant": _instant(begin, number)}.get(key.rule)
    # Of every second tick one host is the first: else it would always be the one that starts programs fastest.
    first = random.choice(hosts) if random.random() < 0.5 and not key.by_clock else None
    found = [
        Shot(due + _lateness(random, key) + (0 if first in (None, host) else SOON), host, key, tick)
        for host in hosts
    ]
    if random.random() < key.again:
        at = max(shot.at for shot in found) + random.uniform(0.2, 3)
        found.append(Shot(at, random.choice(hosts), key, tick, again=True))
    return found


def _lateness(random: Random, key: Key) -> float:
    kind = random.random()
    if kind < MOSTLY or key.by_clock:
        return random.uniform(0, SOON)
    return random.uniform(0, LATE if kind < NEARLY_ALWAYS else VERY_LATE)


def _instant(begin: float, number: int) -> str:
    """Return the text of an instant; they are a minute apart, as a crontab's, however fast they come."""
    moment = datetime.fromtimestamp(begin, UTC) - timedelta(days=2) + timedelta(minutes=number)
    return moment.strftime("%Y-%m-%dT%H:%MZ")
