"""A job goes on where the attempt before it has stopped, whoever was killed in between.

The job of the long tests appends numbers to a file, each with the time, and leaves the last one as its place after
that. Then every number must be there, and after a kill only what was written shortly before may be there twice.
"""

import itertools
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from answers import answer
from breakable import Breakable, start_breakable
from log_of import Store
from servers import FaultProxy, PostgresServer, eventually
from servers.oncecron import SHORT_TTL, Ended, Firing, Oncecron, installed
from servers.process import Process, descendants, kill_tree, send

KILLS = int(os.environ.get("ONCECRON_TEST_KILLS", "8"))
TTL = ("--ttl", SHORT_TTL)
TICK = ("--tick", "one")
SOON = ("--retry-delay", "0s..0s")
REPEATED = 1.0 + 2.0
"""Seconds: what may be repeated, and what two busy cores take."""
COUNT = """
read -r n <"$ONCECRON_PLACE" || n=0
while [ $n -lt $2 ]; do
  n=$((n + 1)); read -r up _ </proc/uptime
  echo $n $up $ONCECRON_ATTEMPT >>"$1"; echo $n >"$ONCECRON_PLACE"; sleep 0.03
done
"""


class Number(NamedTuple):
    """What the job has written."""

    number: int
    at: float
    """Seconds since the start of this machine."""
    attempt: int


class Numbers:
    """The file of the numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def job(self, until: int = 1_000_000) -> list[str]:
        return ["sh", "-c", COUNT, "count", str(self.path), str(until)]

    def all(self) -> list[Number]:
        lines = (line.split() for line in self.path.read_text().splitlines())
        return [Number(int(n), float(at), int(attempt)) for n, at, attempt in lines]

    def last(self) -> int:
        lines = self.path.read_bytes()[-200:].splitlines()
        return int(lines[-1].split()[0]) if lines else 0

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more are there, and longer than what may be repeated."""
        wanted, until = self.last() + count, time.monotonic() + REPEATED + 0.5
        eventually(lambda: self.last() >= wanted and time.monotonic() >= until, 30)

    def check(self, faults: list[float]) -> list[float]:
        """Fail if one is missing, or if more were repeated than were written just before a fault, or after it.

        `faults`: when each began. Returns how many seconds before it each took away.
        """
        attempts = [
            list(each) for _, each in itertools.groupby(self.all(), key=lambda one: one.attempt)
        ]
        for each in attempts:
            assert [one.number for one in each] == list(
                range(each[0].number, each[0].number + len(each))
            )
        taken = []
        for before, after in itertools.pairwise(attempts):
            gap = f"{before[-1]} was followed by {after[0]}"
            assert after[0].number <= before[-1].number + 1, f"missing: {gap}"
            began = max(at for at in faults if at <= after[0].at)
            repeated = [one.at for one in before if one.number >= after[0].number]
            taken.append(max(0.0, began - min(repeated, default=began)))
            assert taken[-1] <= REPEATED, f"repeated: {gap}, and it was at {began} that one began"
        assert attempts[0][0].number == 1
        assert len(attempts[-1]) > 1
        return taken


@pytest.fixture
def numbers(public_path: Path) -> Numbers:
    return Numbers(public_path / "numbers")


SAYS = 'cat "$ONCECRON_PLACE"; echo "after $ONCECRON_ATTEMPT" >"$ONCECRON_PLACE"; '


@pytest.mark.quick
def test_a_retry_finds_what_was_left(store: Store, host: Oncecron) -> None:
    """With the end: nothing waits for a look. Success ends it, and leaves it on record; nothing is left behind."""
    script = SAYS + 'ls -ld "$ONCECRON_PLACE" >&2; [ $ONCECRON_ATTEMPT = 3 ]'
    ended = host.run("k", *TICK, "--retries", 5, *SOON, "--", "sh", "-c", script)
    assert (ended.status, ended.out) == (0, b"after 1\nafter 2\n")
    lines = ended.err.splitlines()
    assert [line.split()[0] for line in lines] == ["-rw-------"] * 3
    assert not any(Path(line.split()[-1]).parent.exists() for line in lines)
    assert b"goes on after" not in host("why", "k").out
    log = host("history", "k", "--json").out
    assert [log.count(b'"after %d"' % number) for number in (1, 2, 3)] == [1, 1, 1]
    again = host.run("k", *TICK, "--again", "--", "sh", "-c", SAYS)
    assert again == Ended(0, b"", "")


def test_another_host_goes_on_by_hand(store: Store, new_host: Callable[..., Oncecron]) -> None:
    """By --again, after a failure; an empty line takes the place back; another tick begins without."""
    a, b = new_host("host-a"), new_host("host-b")
    assert a.run("k", *TICK, "--", "sh", "-c", SAYS + "exit 3").status == 3
    assert b.run("k", "--tick", "two", "--", "sh", "-c", SAYS + "exit 3").out == b""
    taken_back = 'cat "$ONCECRON_PLACE"; echo >"$ONCECRON_PLACE"; exit 3'
    assert b.run("k", *TICK, "--again", "--", "sh", "-c", taken_back) == Ended(3, b"after 1\n", "")
    assert a.run("k", *TICK, "--again", "--", "sh", "-c", SAYS) == Ended(0, b"", "")


def test_people_are_shown_the_place(store: Store, new_host: Callable[..., Oncecron]) -> None:
    """By `why` and `jobs KEY`, as long as the tick is not done; masked, and without control characters."""
    a, b = new_host("host-a"), new_host("host-b")
    script = 'printf "https://ann:secret@h/\\033[1m\\n" >"$ONCECRON_PLACE"; exit 3'
    assert a.run("k", *TICK, "--", "sh", "-c", script).status == 3
    shown = b"https://ann:***@h/\\x1b[1m"
    assert b"The next attempt goes on after " + shown in b("why", "k").out
    assert shown in b("jobs", "k").out
    [job] = answer(b, "jobs", "k")
    assert job["place"] == "https://ann:***@h/\x1b[1m"
    assert answer(b, "jobs")[0]["place"] is None
    long = (
        'head -c 4000 /dev/zero | tr "\\0" x >"$ONCECRON_PLACE"; echo >>"$ONCECRON_PLACE"; exit 3'
    )
    a.run("k", *TICK, "--again", "--", "sh", "-c", long)
    assert b"x" * 200 + b"... (all of it: `oncecron " in b("why", "k").out
    a.run("k", *TICK, "--again", "--", "true")
    assert b"goes on after" not in b("why", "k").out
    assert answer(b, "jobs", "k")[0]["place"] is None


def test_people_are_shown_the_place_of_who_left_no_other(
    store: Store, new_host: Callable[..., Oncecron]
) -> None:
    """An attempt that begins with one and comes no further, and one whose host dies: the next attempt finds it."""
    a, b = new_host("host-a"), new_host("host-b")
    first = '[ $ONCECRON_ATTEMPT = 2 ] || echo 41 >"$ONCECRON_PLACE"; exit 3'
    assert a.run("k", *TICK, "--retries", 1, *SOON, "--", "sh", "-c", first).status == 3
    assert b"The next attempt goes on after 41\n" in b("why", "k").out
    assert [row["place"] for row in answer(b, "history", "k")] == ["41", "41"]
    assert answer(b, "jobs", "k")[0]["place"] == "41"
    beat = 'echo 42 >"$ONCECRON_PLACE"; sleep 60'
    firing = a.fire("j", *TICK, "--ttl", SHORT_TTL, "--", "sh", "-c", beat)
    eventually(lambda: answer(b, "jobs", "j")[0]["place"] == "42")
    kill_tree(firing.process.pid)
    firing.wait()
    other = b.run("j", "--tick", "two", "--wait", "30s", "--", "true")
    assert other.status == 0, other.err
    assert b"The next attempt goes on after 42\n" in b("why", "j", *TICK).out


def test_each_shard_has_a_place(any_store: Store, host: Oncecron) -> None:
    """Its own, also where one firing runs them all."""
    shards = ("--shards", 2, "--retries", 1, *SOON)
    script = 'cat "$ONCECRON_PLACE"; echo "of $ONCECRON_SHARD" >"$ONCECRON_PLACE"; exit 3'
    ended = host.run("k", *TICK, *shards, "--", "sh", "-c", script)
    assert sorted(ended.out.split(b"\n")[:-1]) == [b"of 0", b"of 1"]


@pytest.mark.parametrize("killed", ["guard", "host"])
def test_a_host_that_waits_goes_on(
    store: Store, new_host: Callable[..., Oncecron], numbers: Numbers, killed: str
) -> None:
    """--failover: what the guard, or the whole host, has not sent is repeated, and nothing else."""
    a, b = new_host("host-a"), new_host("host-b")
    goes_on = ("k", *TICK, "--failover")
    holder = a.fire(*goes_on, *TTL, "--", *numbers.job())
    numbers.wait_for_more(20)
    waiting = b.fire(*goes_on, "--", *numbers.job(numbers.last() + 60))
    eventually(lambda: any(skip.reason == "held" for skip in store.skips("k")), 30)
    began = now()
    if killed == "guard":
        send([holder.guard()], signal.SIGKILL)
    else:
        kill_tree(holder.process.pid)
    holder.wait()
    assert waiting.wait(60) == Ended(0, b"", "")
    assert len(numbers.check([began])) == 1


def shown_place(host: Oncecron) -> str | None:
    """Return the place that the store has, as people are shown it."""
    return next((row["place"] for row in answer(host, "jobs", "k")), None)


def path_in(told: Path) -> Path:
    """Wait until a job has written into a file where its place is."""
    return Path(
        eventually(lambda: told.read_text().splitlines()[0], retry_on=(OSError, IndexError))
    )


def test_what_the_guard_had_not_seen_is_in_the_record(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """It is killed before its first look: the wrapper reads the place, and removes the file."""
    told = public_path / "told"
    script = f'echo 41 >"$ONCECRON_PLACE"; echo "$ONCECRON_PLACE" >{told}; exec sleep 60'
    firing = host.fire("k", *TICK, "--", "sh", "-c", script)
    path = path_in(told)
    send([firing.guard()], signal.SIGKILL)
    assert firing.wait(20).status == 75
    assert not path.parent.exists()
    again = host.run("k", *TICK, "--again", "--", "sh", "-c", SAYS)
    assert again == Ended(0, b"41\n", "")


def test_a_killed_guard_takes_no_place_back(
    store: Store, host: Oncecron, public_path: Path
) -> None:
    """Nor does its wrapper, which finds none in the file: what heartbeats had brought stays."""
    assert host.run("k", *TICK, "--", "sh", "-c", SAYS + "exit 3").status == 3
    told = public_path / "told"
    script = f'echo 41 >"$ONCECRON_PLACE"; echo "$ONCECRON_PLACE" >{told}; exec sleep 60'
    firing = host.fire("k", *TICK, "--again", "--", "sh", "-c", script)
    path = path_in(told)
    eventually(lambda: shown_place(host) == "41", 30)
    path.write_bytes(b"")
    send([firing.guard()], signal.SIGKILL)
    assert firing.wait(20).status == 75
    again = host.run("k", *TICK, "--again", "--", "sh", "-c", SAYS)
    assert again == Ended(0, b"41\n", "")


def test_a_record_does_not_depend_on_a_place(any_store: Store, host: Oncecron) -> None:
    """A wrapper that can open nothing any more says how the command ended."""
    firing = host.fire("k", *TICK, "--", "sleep", "60")
    firing.job()
    resource.prlimit(firing.wrapper.pid, resource.RLIMIT_NOFILE, (3, 3))
    send([firing.guard()], signal.SIGKILL)
    ended = firing.wait(20)
    assert ended.status == 75
    assert "the oncecron guard was killed" in ended.err


def test_a_frozen_holder_that_thaws_cannot_move_the_place(
    store: Store, new_host: Callable[..., Oncecron], public_path: Path
) -> None:
    """Its job writes on until it is killed, and its end is on record; the place is that of who went on."""
    a, b = new_host("host-a"), new_host("host-b")
    goes_on = ("k", *TICK, "--failover")
    told, thawed, seen = (public_path / name for name in ("told", "thawed", "seen"))
    writes = (
        f"trap '' TERM; while :; do echo 41 >\"$ONCECRON_PLACE\"; echo x >>{told}; sleep 0.1; done"
    )
    holder = a.fire(*goes_on, *TTL, "--", "sh", "-c", writes)
    eventually(lambda: shown_place(a) == "41")
    for _ in range(2):  # what was born meanwhile as well
        frozen = descendants(holder.process.pid)
        send(frozen, signal.SIGSTOP)
    waits = f"until [ -e {thawed} ]; do sleep 0.1; done; exit 3"
    script = f'cp "$ONCECRON_PLACE" {seen}; echo 77 >"$ONCECRON_PLACE"; {waits}'
    other = b.fire(*goes_on, "--", "sh", "-c", script)
    eventually(seen.exists, 30)
    send(frozen, signal.SIGCONT)
    assert holder.wait().status == 75
    assert a("flush").status == 0
    thawed.touch()
    assert other.wait().status == 3
    assert seen.read_text() == "41\n"
    again = a.run("k", *TICK, "--again", "--", "sh", "-c", SAYS)
    assert again == Ended(0, b"77\n", "")


class Ground:
    """A store, two hosts, and what can be done to them."""

    def __init__(
        self, path: Path, log: Store, store: Breakable | None, ways: list[FaultProxy]
    ) -> None:
        urls = [store.url(via=way) for way in ways] if store else [log.url] * 2
        self.log, self._store, self._ways = log, store, ways
        self.hosts = [
            Oncecron(url, path, f"host-{name}") for url, name in zip(urls, "ab", strict=True)
        ]
        of_store = ("cut off", "store restarted") if store else ()
        self.faults = ("job", "guard", "wrapper", "host", "both", *of_store)

    def do(self, fault: str, holder: Firing, host: int) -> None:
        """Do it, and wait until nothing of the firing is left that does not survive it."""
        guard = holder.guard()
        if fault == "store restarted":
            assert self._store
            self._store.stop("fast")
            self._store.server.start()
        elif fault == "job":
            send([holder.job()], signal.SIGKILL)
        else:
            self._end(fault, holder, guard, host)
            holder.wait()
            eventually(lambda: not guard.alive(), 30)
            for way in self._ways:
                way.passing()

    def _end(self, fault: str, holder: Firing, guard: Process, host: int) -> None:
        if fault == "cut off":
            self._ways[host].deaf()
        elif fault == "host":
            kill_tree(holder.process.pid)
        else:
            alone = {"guard": [guard], "wrapper": [holder.wrapper]}
            send(alone.get(fault, [holder.wrapper, guard]), signal.SIGKILL)


@pytest.fixture(params=["postgres", "redis", "sqlite"])
def ground(request: pytest.FixtureRequest, public_path: Path) -> Ground:
    if request.param == "sqlite":
        return Ground(public_path, request.getfixturevalue("any_store"), None, [])
    new = [request.getfixturevalue(f"new_{name}") for name in ("postgres", "redis", "proxy")]
    store = start_breakable(str(request.param), *new[:2])
    return Ground(public_path, store.log, store, [new[2](store.server) for _ in "ab"])


def now() -> float:
    """Return the seconds since the start of this machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.timeout(300 + 30 * KILLS)
def test_no_number_is_missing_whatever_happens(ground: Ground, numbers: Numbers) -> None:
    """A job, a guard, a wrapper, both, a host are killed, one is cut off, the store restarts: somebody goes on.

    A killed wrapper stops the tick for all but those that run it again, as all of these do.
    """
    began, places, waiting = [0.0], itertools.cycle((0, 1)), 0
    # Whoever loses its lease without a fault repeats more than it may: they are as long as a user's shortest.
    goes_on = ("--ttl", 6, *TICK, "--again", "--failover", "--retries", 1000, *SOON, "--")

    def fire() -> tuple[Firing, int]:
        host = next(places)
        return ground.hosts[host].fire("k", *goes_on, *numbers.job()), host

    def waits() -> bool:
        return sum(skip.count for skip in ground.log.skips("k")) >= waiting

    holder, standby = fire(), None
    for fault in itertools.islice(itertools.cycle(ground.faults), KILLS):
        numbers.wait_for_more(5)
        if standby is None:
            standby, waiting = fire(), waiting + 1
            eventually(waits, 60)
        began.append(now())
        ground.do(fault, *holder)
        if holder[0].process.poll() is not None:
            holder, standby = standby, None
    numbers.wait_for_more(5)
    taken = numbers.check(began)
    most = ", ".join(f"{seconds:.2f}" for seconds in sorted(taken)[:-4:-1])
    print(f"{len(taken)} attempts ended; seconds before a fault that were repeated: {most}, ...")
    assert len(taken) >= KILLS - KILLS // len(ground.faults) - 1
    kill_tree(holder[0].process.pid)


def test_a_holder_that_is_cut_off_is_followed_from_its_last_word(
    breakable: Breakable, public_path: Any, new_proxy: Callable[..., FaultProxy], numbers: Numbers
) -> None:
    """What it did without the store is repeated, and its late record does not move the place of who goes on."""
    way = new_proxy(breakable.server)
    cut_off = Oncecron(breakable.url(via=way), public_path, "host-a")
    other = Oncecron(breakable.url(), public_path, "host-b")
    goes_on = ("k", *TICK, "--failover", "--ttl")
    holder = cut_off.fire(*goes_on, SHORT_TTL, "--", *numbers.job())
    numbers.wait_for_more(20)
    waiting = other.fire(*goes_on, 12, "--", *numbers.job(numbers.last() + 400))
    eventually(lambda: any(skip.reason == "held" for skip in breakable.log.skips("k")), 30)
    way.deaf()
    last = numbers.last()
    assert holder.wait(40).status == 75
    way.passing()
    assert cut_off("flush").status == 0
    assert waiting.wait(90) == Ended(0, b"", "")
    first = next(one for one in numbers.all() if one.attempt == 2)
    assert last - REPEATED / 0.03 <= first.number <= last + 1 + 0.5 / 0.03
    present = {one.number for one in numbers.all()}
    assert present == set(range(1, max(present) + 1))


def test_a_place_waits_for_a_store_that_restarts(
    breakable: Breakable, public_path: Any, numbers: Numbers
) -> None:
    """The job goes on, and the place is sent when the store is back."""
    host = Oncecron(breakable.url(), public_path)
    firing = host.fire("k", *TICK, "--retries", 0, "--", *numbers.job())
    numbers.wait_for_more(5)
    breakable.stop("fast")
    numbers.wait_for_more(5)
    breakable.server.start()
    numbers.wait_for_more(5)
    eventually(lambda: str(numbers.last()).encode() >= _place(host).encode() > b"", 30)
    before = numbers.last()
    eventually(lambda: int(_place(host)) >= before, 30)
    kill_tree(firing.process.pid)


def _place(host: Oncecron) -> str:
    [row] = json.loads(host("history", "k", "--json").out)
    return str(row["place"] or "")


def test_a_job_without_a_store_leaves_its_place_with_its_record(
    new_postgres: Callable[..., PostgresServer], public_path: Path
) -> None:
    """--on-store-error run: it begins without one; the next attempt goes on from there, if it was needed at all."""
    server = new_postgres()
    host = Oncecron(installed(server.create_database()).url(), public_path)
    assert host.run("k", *TICK, "--", "sh", "-c", SAYS + "exit 3").status == 3
    away = ("--connect-timeout", "1s", "--on-store-error", "run", "--")
    for status, left in ((3, b"after 1\n"), (0, b"")):
        server.stop()
        tick = ("--tick", f"tick-{status}")
        ended = host.run("k", *tick, *away, "sh", "-c", f"{SAYS}exit {status}")
        assert (ended.status, ended.out) == (status, b"")
        server.start()
        assert host("flush").status == 0
        assert host.run("k", *tick, "--again", "--", "sh", "-c", SAYS).out == left


BAD = {
    "a link": ('ln -sf /etc/passwd "$ONCECRON_PLACE"', "is not a regular file"),
    "a fifo": ('rm "$ONCECRON_PLACE"; mkfifo "$ONCECRON_PLACE"', "is not a regular file"),
    "a directory": ('rm "$ONCECRON_PLACE"; mkdir "$ONCECRON_PLACE"', "is not a regular file"),
    "1 GB": ('truncate -s 1G "$ONCECRON_PLACE"', "is longer than 4096 bytes"),
    "no newline": ('printf 42 >"$ONCECRON_PLACE"', "does not end in a newline"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_place_is_ignored_with_a_line(
    any_store: Store, host: Oncecron, public_path: Path, bad: str
) -> None:
    """The last good one stays, and the job ends as it ends."""
    script, why = BAD[bad]
    go = public_path / "go"
    good = (
        f'cat "$ONCECRON_PLACE"; echo 41 >"$ONCECRON_PLACE"; until [ -e {go} ]; do sleep 0.05; done'
    )
    firing = host.fire("k", *TICK, "--", "sh", "-c", f"{good}; {script}; exit 3")
    eventually(lambda: shown_place(host) == "41")
    go.touch()
    ended = firing.wait()
    assert (ended.status, ended.out) == (3, b"")
    assert ended.err.count("\n") == 1
    assert why in ended.err
    assert host.run("k", *TICK, "--again", "--", "sh", "-c", SAYS) == Ended(0, b"41\n", "")


def test_a_job_that_needs_no_place_is_not_mailed_about_it(
    any_store: Store, host: Oncecron, public_path: Path
) -> None:
    """Where none can be made: a line if it failed, or goes on; the variable of an outer run does not stand in."""
    (public_path / "file").touch()
    nowhere = {"XDG_STATE_HOME": str(public_path / "file"), "ONCECRON_PLACE": "outer"}
    usual = {name: host.environment.get(name, "") for name in nowhere}
    host.environment |= nowhere
    script = 'echo "${ONCECRON_PLACE-none}"; exit '
    assert host.run("k", *TICK, "--", "sh", "-c", script + "0") == Ended(0, b"none\n", "")
    retried = host.run("k", "--tick", "two", "--retries", 2, *SOON, "--", "sh", "-c", script + "3")
    assert (retried.status, retried.out) == (3, b"none\n" * 3)
    assert "key k: the command runs without $ONCECRON_PLACE: " in retried.err
    assert retried.err.count("\n") == 1
    assert b"no $ONCECRON_PLACE" in host("doctor").out
    host.environment |= usual
    assert host.run("k", "--tick", "two", "--again", "--", "sh", "-c", SAYS + "exit 3").status == 3
    host.environment |= nowhere
    goes_on = host.run("k", "--tick", "two", "--again", "--", "true")
    assert "the command runs without $ONCECRON_PLACE: " in goes_on.err


def test_the_next_start_removes_what_killed_processes_left(
    any_store: Store, host: Oncecron, public_path: Path
) -> None:
    """Wrapper and guard at once, as by the kernel when memory is short."""
    told = public_path / "told"
    script = f'echo "$ONCECRON_PLACE" >{told}; exec sleep 60'
    firing = host.fire("k", *TTL, *TICK, "--", "sh", "-c", script)
    path = path_in(told)
    both = [firing.guard(), firing.wrapper]
    send(both, signal.SIGSTOP)  # or the guard ends its job before its turn comes
    send(both, signal.SIGKILL)
    firing.wait()
    assert path.exists()
    assert host.run("k", "--tick", "two", "--wait", "30s", "--", "true").status == 0
    assert list(path.parent.parent.iterdir()) == []
