"""Run oncecron in virtual time and check its promises: `tests/simulate --seeds 20 --hours 2`.

One seed gives one history, byte for byte. Exit status: 0 if every promise held, 1 if not, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "proof"))

import broken
import mutations
import patched
import reached
from greenlet import GreenletExit
from shrink import HOUR, Only, smallest
from world import World

import oncecron

HERE = Path(__file__).parent
BROKEN_COPIES = {**mutations.ALL, **mutations.SIMULATED}
_SHOWN = 4
"""Violations of a seed that are shown."""
_LINES = 60
"""Of the history before a violation."""


def _arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(prog="tests/simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (1)")
    parser.add_argument(
        "--from", dest="first", type=int, default=1, metavar="SEED", help="the first seed (1)"
    )
    parser.add_argument("--hours", type=float, default=2.0, help="virtual hours of faults (2)")
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--items", action="store_true", help="let all keys have items")
    parser.add_argument("--trace", action="store_true", help="show the history")
    for name in Only._fields:
        parser.add_argument(
            f"--{name}", type=_numbers, metavar="N,...", help=f"only these {name} of the seed (all)"
        )
    parser.add_argument(
        "--as-found", action="store_true", help="do not find the smallest part of a seed that fails"
    )
    parser.add_argument(
        "--broken",
        choices=[*broken.ALL, *BROKEN_COPIES],
        metavar="NAME",
        help="break oncecron first, as broken.py or tests/proof/mutations.py says",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no seed after so much CPU time"
    )
    parser.add_argument("--reached", metavar="FILE", help="write what was reached, slower")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number != "none")


class Search:
    """Runs seeds one after the other, and counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._reached = reached.Reached() if options.reached else None
        self._firings, self._hours, self._begin = 0, 0.0, time.process_time()

    def run(self) -> int:
        options, found = self._options, 0
        for seed in range(options.first, options.first + options.seeds):
            found += self._run_one(seed)
            is_over = time.process_time() - self._begin >= options.seconds
            if is_over or (found and options.broken):
                break
        seconds = time.process_time() - self._begin
        speed = f"{self._firings / seconds:.0f} firings/s"
        days = f"{self._hours / 24 / seconds * 60:.1f} virtual days a minute"
        print(f"{self._firings} firings in {self._hours:.1f} virtual hours: {speed}, {days} of CPU")
        return 1 if found or (self._reached and self._write_reached()) else 0

    def _write_reached(self) -> bool:
        """Write what was reached; return whether something was that cannot be."""
        assert self._reached
        old = (HERE / "reached.txt").read_text(encoding="utf-8")
        reasons = {name: reason for name, (_, reason) in reached.read(old).items()}
        lines = [old.partition("\n# ")[0].rstrip(), "", *self._reached.text(reasons), ""]
        Path(self._options.reached).write_text("\n".join(lines), encoding="utf-8")
        unknown = self._reached.unknown()
        print("".join(f"not in the table of states: {name}\n" for name in unknown), end="")
        return bool(unknown)

    def _world(self, seed: int, hours: float, only: Only, **watched: Any) -> World:
        gc.collect()  # threads of the last world
        options = self._options
        given = {"calm": options.calm, "items": options.items}
        return World(seed, hours, **given, only=only, **watched)

    def _run_one(self, seed: int) -> int:
        options, before = self._options, time.process_time()
        tell = print if options.trace else None
        only = Only(*(getattr(options, name) for name in Only._fields))
        world = self._world(seed, options.hours, only, tell=tell)
        if self._reached:
            self._reached.watch(seed, world)
        else:
            world.run(for_kind="" if options.broken else None)
        violations = world.ledger.violations
        firings = len(world.all_lives)
        self._firings += firings
        self._hours += world.kernel.now / HOUR
        counts = f"{firings} firings, {world.ledger.starts} starts, {len(world.faults)} faults"
        seconds, digest = time.process_time() - before, world.kernel.hash.hexdigest()
        excused = f", excused {dict(world.ledger.excused)}" if world.ledger.excused else ""
        print(f"seed {seed}: {counts}, {seconds:.1f} s{excused}, {digest}", flush=True)
        for at, kind, text in violations[:_SHOWN]:
            print(f"    {at:.3f} {kind}: {text}")
        if violations and only == Only() and not options.as_found:
            self._shrink(seed, world)
        return len(violations)

    def _shrink(self, seed: int, world: World) -> None:
        """Show the smallest part of the seed that leads to the same kind of violation, and its history then."""
        kind, lines = world.ledger.violations[0].kind, []

        def found(hours: float, only: Only) -> float | None:
            lines.clear()
            again = self._world(seed, hours, only, tell=lines.append)
            return next((each.at for each in again.run(for_kind=kind) if each.kind == kind), None)

        numbers = (range(len(each)) for each in (world.hosts, world.keys, world.faults))
        hours, only = smallest(found, self._options.hours, Only(*map(tuple, numbers)))
        at, words = found(hours, only), f"tests/simulate --from {seed} --hours {hours:g}"
        for name, chosen in only._asdict().items():
            words += f" --{name} {','.join(map(str, chosen)) or 'none'}"
        words += " --items" if self._options.items else ""
        words += f" --broken {self._options.broken}" if self._options.broken else ""
        print(f"the smallest part that shows {kind}: {words}")
        for number in only.faults:
            print(f"    fault {number} at {world.faults[number][0]:.3f}: {world.faults[number][1]}")
        around = [
            line
            for line in lines
            if " VIOLATION " in line or at - 300 < float(line.split()[0]) < at + 60
        ]
        print("\n".join(around[-_LINES:]))


def main() -> int:
    options, usual = _arguments(), sys.unraisablehook
    # A process may be killed while a generator that it leaves is closed.
    sys.unraisablehook = lambda what: None if what.exc_type is GreenletExit else usual(what)
    if options.broken in broken.ALL:
        broken.ALL[options.broken]()
    elif options.broken and Path(oncecron.__file__).parent == patched.INSTALLED:
        return _run_copy(BROKEN_COPIES[options.broken])
    return Search(options).run()


def _run_copy(mutation: patched.Mutation) -> int:
    """Do the same with a copy of oncecron that is broken."""
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory) / "oncecron"
        shutil.copytree(patched.INSTALLED, package)
        for change in mutation.changes:
            change.apply(package)
        environment = {**os.environ, "PYTHONPATH": directory}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
