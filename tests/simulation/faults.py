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

from oncecron.core.log_rows import NewPause
from oncecron.core.model import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firings import Life
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
        yield at, chance.choice(kinds), chance.randrange(1 << 30)


def heal(world: World) -> None:
    """Let nothing go wrong any more."""
    kernel, server = world.kernel, world.server
    nemesis = Nemesis(world)
    for host in world.hosts:
        nemesis.thaw(host, True)
        if not host.up:
            kernel.boot(host)
        host.short_until = 0.0
        host.ahead = EPOCH + server.offset + host.random.uniform(-1, 1)
        for process in list(host.processes.values()):
            process.stall = 0
            if process.stopped:
                kernel.kill(process, CONT)
    world.network.heal()
    server.away_until = 0.0
    for key, of_host in list(server.stops):
        nemesis.people.allow_starts(key=key, host=of_host)


class Nemesis:
    """Does what goes wrong. The method of a kind has its name; it returns how long the fault is felt, if it knows."""

    def __init__(self, world: World) -> None:
        self._world, self._kernel, self._network = world, world.kernel, world.network
        self._server, self._ledger = world.server, world.ledger
        self.people = MemoryReader(world.server)

    def strike(self, kind: str, seed: int) -> None:
        """Carry out one fault."""
        draw, now = random.Random(seed), self._kernel.now
        host = draw.choice(self._world.hosts)
        life = self._choose(random.Random(seed + 1))
        ttl = life.key.ttl if life else 30.0
        seconds = ttl * draw.choice((0.05, 0.3, 1.0, 1.5, 3.0)) * draw.uniform(0.5, 1.5)
        blow = Blow(draw, host, life, seconds, now + seconds)
        if kind.startswith(_OF_A_FIRING):
            if life is None:
                return
            life.hit, host = True, life.host
            self._hit(blow, life, kind)
        elif kind in _OF_THE_NETWORK:
            setattr(self._network, _OF_THE_NETWORK[kind], blow.until)
        else:
            method = getattr(self, "_" + kind.partition(",")[0].replace(" ", "_"))
            seconds = method(blow) or seconds
        self._ledger.felt(now, now + seconds, None if kind in OF_ALL_HOSTS else host)
        about = life and (life.key.name, life.host.name)
        self._kernel.trace("fault", kind, host.name, about, f"{seconds:.3f}")

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

    # Hosts

    def _freeze_host(self, blow: Blow, *, counts: bool = True) -> None:
        if blow.host.up and not blow.host.frozen:
            self._kernel.freeze(blow.host)
            self._hit_all(blow.host)
            self._kernel.at(blow.until, self.thaw, blow.host, counts)

    def _pause_machine(self, blow: Blow) -> None:
        """Let the lease clock stand still too, as in a virtual machine that is not told of it."""
        self._freeze_host(blow, counts=False)

    def thaw(self, host: Host, counts: bool) -> None:
        """Let a host go on; if its lease clock stood still, it trusts leases that have ended for up to a ttl."""
        self._kernel.thaw(host, counts=counts)
        for life in self._world.lives if not counts else ():
            if life.host is host:
                life.joint = max(life.joint, self._kernel.now + life.key.ttl)

    def _crash_host(self, blow: Blow) -> float:
        if blow.host.up:
            self._hit_all(blow.host)
            self._kernel.crash(blow.host)
            self._kernel.at(blow.until + 20, self._kernel.boot, blow.host)
        return blow.seconds + 20

    def _hit_all(self, host: Host) -> None:
        for life in self._world.lives:
            life.hit |= life.host is host

    def _step_host(self, blow: Blow) -> float:
        draw = blow.draw
        off = draw.choice((0.0, draw.uniform(-5, 5), draw.uniform(-200, 200)))
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
        self.people.stop_starts(NewPause(key, host, PERSON, seconds=None))
        self._ledger.stopped(key or host, seconds)
        end = partial(self.people.allow_starts, key=key, host=host)
        self._kernel.at(self._kernel.now + seconds, end)

    def _stop(self, blow: Blow, word: str = "stop") -> None:
        if life := blow.life:
            life.hit = True
            number, grace = blow.draw.choice((TERM, 2, 9)), blow.draw.choice((None, 1.0))
            place = (life.key.name, blow.draw.randrange(life.key.shards))
            if lease := self._server.known(*place).lease:
                asked = Request(word, PERSON, number, grace)
                self.people.request(*place, lease["execution_id"], asked)

    def _release(self, blow: Blow) -> None:
        self._stop(blow, "release")

    def _again(self, blow: Blow) -> None:
        if blow.life:
            self._world.fire(blow.host, blow.life.key, blow.draw, again=True)
