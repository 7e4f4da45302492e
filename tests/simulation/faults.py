"""What goes wrong: each seed has its own kinds of fault, at random times.

A fault chooses its victim by a seed of its own, so that other faults can be taken out of a history. It prefers firings
in rare states.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kernel import CONT, KILL, STOP, TERM, Host, Process
from memory_reader import MemoryReader
from server import EPOCH

from oncecron.core.model import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firings import Life
    from memory_store import Row
    from world import World

Fault = tuple[float, str, int]
"""When, of which kind, and the seed of its choices."""

KINDS = (
    *("kill guard", "kill wrapper", "kill both", "kill job", "kill grandchild", "bug in guard"),
    *("stop guard", "stop wrapper", "stop both", "stall guard", "stall wrapper"),
    *("stall and kill guard", "freeze host", "pause machine", "crash host", "cut host"),
    *("late, then cut", "step host", "signal wrapper"),
    *("restart store", "store away", "cut all", "slow", "lose", "double", "replica away"),
    *("step store back", "pause", "drain", "stop", "release", "again", "no processes"),
    *("next stalls", "next is signalled"),
)
STATES = (
    *("Claiming", "Renewing", "Leaving", "Running", "Unclaimed", "Keeping", "Recording"),
    *("Waiting", "Retrying"),
)
OF_ALL_HOSTS = frozenset((
    *("restart store", "store away", "cut all", "slow", "lose", "double", "replica away"),
    "step store back",
))  # fmt: skip
_OF_A_FIRING = ("kill ", "stop ", "stall ", "signal ", "bug ")
_OF_THE_NETWORK = {
    "slow": "slow_until",
    "lose": "lossy_until",
    "double": "double_until",
    "replica away": "unconfirmed_until",
}
_IN_AMBUSH = (
    *("signal wrapper", "signal wrapper", "kill wrapper", "bug in guard", "stop", "release"),
    *("pause", "stop both", "pause machine", "freeze host", "cut host", "store away"),
    *("stall guard", "no processes"),
)
_AT_THE_STORE = ("granted", "granted", "retried")
_AT_A_GRANT = ("freeze host", "stop guard", "stop both", "cut host", "signal wrapper")
PERSON = "ann@desk"


class Blow(NamedTuple):
    """One fault on its way: what it may choose from, its victims, and how long it lasts."""

    draw: random.Random
    host: Host
    life: Life | None
    seconds: float
    until: float


def draw(seed: int, until: float, pause: float) -> Iterator[Fault]:
    """Yield the faults of a seed up to a time; what comes before does not depend on it."""
    chance, at = random.Random(f"{seed} faults"), 30.0
    # A swarm: each seed has other kinds.
    kinds = chance.sample(KINDS, chance.randint(4, len(KINDS)))
    while (at := at + chance.expovariate(1 / pause)) < until:
        kind = "ambush" if chance.random() < 0.5 else chance.choice(kinds)
        yield at, kind, chance.randrange(1 << 30)


class Nemesis:
    """Does what goes wrong. The method of a kind has its name; it returns how long the fault is felt, if it knows."""

    def __init__(self, world: World) -> None:
        self._world, self._kernel, self._network = world, world.kernel, world.network
        self._server, self._ledger = world.server, world.ledger
        self.people = MemoryReader(world.server)
        self._ambushes: dict[str, list[Callable[[Life], None]]] = {}
        """By state of a guard: what happens to the next firing that comes into it."""
        world.server.on_begin = self._begins

    def entered(self, life: Life, state: str = "") -> None:
        """Spring what waits for a firing in its state."""
        for spring in self._ambushes.pop(state or life.state, ()):
            spring(life)

    def _begins(self, row: Row) -> None:
        state = "retried" if row["cause"] == "retry" else "granted"
        for life in self._world.lives if state in self._ambushes else ():
            if life.spec and life.spec.firing.owner == row["owner"]:
                self.entered(life, state)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._ambushes.clear()
        self._world.runner.next.clear()
        for host in self._world.hosts:
            self._heal_host(host)
        self._network.heal()
        self._server.away_until = 0.0
        for key, of_host in list(self._server.stops):
            self.people.stop_starts(key, of_host, None)

    def _heal_host(self, host: Host) -> None:
        kernel = self._kernel
        self.thaw(host, True)
        if not host.up:
            kernel.boot(host)
        host.short_until = 0.0
        host.ahead = EPOCH + self._server.offset + host.random.uniform(-1, 1)
        for process in list(host.processes.values()):
            process.stall = 0
            if process.stopped:
                kernel.kill(process, CONT)

    def strike(self, kind: str, seed: int) -> None:
        """Carry out one fault on whom it chooses."""
        draw = random.Random(seed)
        self._strike(
            kind, draw, draw.choice(self._world.hosts), self._choose(random.Random(seed + 1))
        )

    def _strike(self, kind: str, draw: random.Random, host: Host, life: Life | None) -> None:
        now = self._kernel.now
        if now >= self._world.quiet_at:
            return  # of an ambush that sprang a moment before
        ttl = life.key.ttl if life else 30.0
        seconds = ttl * draw.choice((0.05, 0.3, 0.7, 1.0, 1.5, 3.0)) * draw.uniform(0.5, 1.5)
        blow = Blow(draw, host, life, seconds, now + seconds)
        if kind.startswith(_OF_A_FIRING):
            if life is None:
                return
            host = life.host
            self._note(kind, [life])
            self._hit(blow, life, kind)
        elif kind in _OF_THE_NETWORK:
            self._note(kind, self._world.lives)
            setattr(self._network, _OF_THE_NETWORK[kind], blow.until)
        else:
            lives = self._world.lives
            self._note(
                kind, lives if kind in OF_ALL_HOSTS else [x for x in lives if x.host is host]
            )
            method = getattr(self, "_" + kind.partition(",")[0].replace(" ", "_"))
            seconds = method(blow) or seconds
        if kind != "ambush":  # it is felt when it springs
            self._ledger.felt(now, now + seconds, None if kind in OF_ALL_HOSTS else host, kind)
        about = life and (life.key.name, life.host.name)
        self._kernel.trace("fault", kind, host.name, about, f"{seconds:.3f}")

    def _note(self, kind: str, lives: list[Life]) -> None:
        """Count the states that a fault meets."""
        for life in lives:
            if life.state in STATES and not life.is_over():
                self._world.runner.reached[f"{kind} beside {life.state}"] += 1

    def _choose(self, draw: random.Random) -> Life | None:
        lives = [each for each in self._world.lives if not each.wrapper.dead and each.guard]
        running = [life for life in lives if any(start.is_alive() for start in life.starts)]
        rare = [life for life in lives if life.state not in ("", "Running", "Claiming")]
        chosen = rare if rare and draw.random() < 0.6 else None
        if chosen is None:
            chosen = running if running and draw.random() < 0.8 else lives
        return draw.choice(chosen) if chosen else None

    # One firing

    def _hit(self, blow: Blow, life: Life, kind: str) -> None:
        kernel, (verb, _, what) = self._kernel, kind.partition(" ")
        wrapper, guard = life.wrapper, life.guard
        if verb == "bug":
            life.bug = True
        elif verb == "signal":
            kernel.kill(wrapper, blow.draw.choice((TERM, TERM, 2, 1, 10, 10)))
        elif verb == "stall":
            victim = wrapper if what == "wrapper" else guard
            self._stall(victim, blow.draw.randint(1, 60), blow.seconds, kills="kill" in what)
        elif what in ("job", "grandchild"):
            self._kill_of_job(life, what)
        else:
            victims = {"guard": [guard], "wrapper": [wrapper], "both": [guard, wrapper]}[what]
            for victim in victims:
                kernel.kill(victim, KILL if verb == "kill" else STOP)
                if verb == "stop":
                    kernel.at(blow.until, kernel.kill, victim, CONT)

    def _kill_of_job(self, life: Life, name: str) -> None:
        processes = [each for start in life.starts for each in start.processes]
        alive = [each for each in processes if each.name == name and not each.dead]
        for process in alive[:1]:
            process.start.hit = True
            self._kernel.kill(process, KILL)

    def _stall(self, process: Process, steps: int, seconds: float, *, kills: bool) -> None:
        """Stop or kill a process after so many of its steps, between any two."""

        def stall(process: Process) -> None:
            kernel = self._kernel
            if kills:
                kernel.exit(process, KILL)
            else:
                kernel.kill(process, STOP)
                kernel.at(kernel.now + seconds, kernel.kill, process, CONT)
            self._ledger.felt(kernel.now, kernel.now + seconds, process.host)

        process.stall, process.on_stall = steps, stall

    def _next_stalls(self, blow: Blow) -> None:
        steps, kills = blow.draw.randint(1, 120), blow.draw.random() < 0.3

        def stall(life: Life) -> None:
            self._stall(life.guard, steps, blow.seconds, kills=kills)

        self._world.runner.next.append(stall)

    def _next_is_signalled(self, blow: Blow) -> None:
        number = blow.draw.choice((TERM, TERM, 10))
        after = blow.draw.choice((0.001, 0.004, 0.01, 1.0))

        def send(life: Life) -> None:
            self._kernel.at(self._kernel.now + after, self._kernel.kill, life.wrapper, number)

        self._world.runner.next.append(send)

    def _ambush(self, blow: Blow) -> None:
        """Strike the next firing that comes into a state, or gets a lease, a moment later."""
        draw, state = blow.draw, blow.draw.choice((*STATES[1:], *_AT_THE_STORE))
        kinds = _AT_A_GRANT if state in _AT_THE_STORE else draw.choice((_IN_AMBUSH, KINDS))
        kind, after = draw.choice(kinds), draw.choice((0.0, 0.0005, 0.002, 0.01, 0.5))

        def spring(life: Life) -> None:
            self._kernel.at(self._kernel.now + after, self._strike, kind, draw, life.host, life)

        self._ambushes.setdefault(state, []).append(spring)

    # Hosts

    def _freeze_host(self, blow: Blow, *, counts: bool = True) -> None:
        if blow.host.up and not blow.host.frozen:
            self._kernel.freeze(blow.host)
            self._kernel.at(blow.until, self.thaw, blow.host, counts)

    def _pause_machine(self, blow: Blow) -> None:
        """Let the lease clock stand still too, as in a virtual machine that is not told of it."""
        self._freeze_host(blow, counts=False)

    def thaw(self, host: Host, counts: bool) -> None:
        """Let a host go on; if its lease clock stood still, it trusts leases that have ended for up to a ttl."""
        self._kernel.thaw(host, counts=counts)
        for life in self._world.lives if not counts else ():
            if life.host is host:
                life.trusts_until = self._kernel.now + life.key.ttl
                life.joint = max(life.joint, life.trusts_until)
                self._ledger.stood_still(life, host.frozen_at)

    def _crash_host(self, blow: Blow) -> float:
        if blow.host.up:
            self._kernel.crash(blow.host)
            self._kernel.at(blow.until + 20, self._kernel.boot, blow.host)
        return blow.seconds + 20

    def _step_host(self, blow: Blow) -> float:
        draw = blow.draw
        off = draw.choice((0.0, draw.uniform(-5, 5), draw.uniform(-400, 400)))
        blow.host.ahead = EPOCH + off
        return 70.0

    def _no_processes(self, blow: Blow) -> None:
        blow.host.short_until = blow.until

    # Network and store

    def _cut(self, host: str | None, until: float) -> None:
        holes = self._network.holes
        holes[host] = max(holes[host], until)

    def _cut_host(self, blow: Blow) -> None:
        self._cut(blow.host.name, blow.until)

    def _cut_all(self, blow: Blow) -> None:
        self._cut(None, blow.until)

    def _late(self, blow: Blow) -> float:
        """Let answers alone be late by a little less than a call may take; then let nothing pass."""
        host, ttl = (blow.life.host, blow.life.key.ttl) if blow.life else (blow.host, 30.0)
        begin = self._kernel.now + blow.draw.uniform(1, 2) * ttl
        self._network.late[host.name] = (begin, 0.95 * min(5.0, ttl / 6))
        self._kernel.at(begin, self._cut, host.name, begin + 2 * ttl)
        self._ledger.felt(self._kernel.now, begin + 2 * ttl, host)
        return 3 * ttl

    def _restart_store(self, blow: Blow) -> float:
        self._server.restart(blow.draw.choice((0.2, 3.0)))
        return 5.0

    def _store_away(self, blow: Blow) -> None:
        self._server.away_until = blow.until

    def _step_store_back(self, blow: Blow) -> float:
        offset = self._server.offset - blow.draw.choice((1.0, 20.0, 100.0))
        self._server.offset = max(-250.0, offset)
        return 300.0

    # People

    def _pause(self, blow: Blow) -> None:
        key = blow.life.key if blow.life else self._world.keys[0]
        self._stop_place(key.name, None, blow.seconds)

    def _drain(self, blow: Blow) -> None:
        self._stop_place(None, blow.host.name, blow.seconds)

    def _stop_place(self, key: str | None, host: str | None, seconds: float) -> None:
        self.people.stop_starts(key, host, PERSON)
        self._ledger.stopped(key or host, seconds)
        end = partial(self.people.stop_starts, key, host, None)
        self._kernel.at(self._kernel.now + seconds, end)

    def _stop(self, blow: Blow, word: str = "stop") -> None:
        if life := blow.life:
            number, grace = blow.draw.choice((TERM, 2, 9)), blow.draw.choice((None, 1.0))
            place = (life.key.name, blow.draw.randrange(life.key.shards))
            if lease := self._server.known(*place).lease:
                asked = Request(word, PERSON, number, grace)
                self.people.request(*place, lease["execution_id"], asked)
                self._ledger.asked(self._kernel.now, word, life.key.name)

    def _release(self, blow: Blow) -> None:
        self._stop(blow, "release")

    def _again(self, blow: Blow) -> None:
        if blow.life:
            self._world.fire(blow.host, blow.life.key, blow.draw, again=True)
