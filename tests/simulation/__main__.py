"""Run oncecron in virtual time and check its promises: `tests/simulate --seeds 20 --hours 2`.

One seed gives one history, byte for byte. Exit status: 0 if every promise held, 1 if not, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

import broken
from reached import Reached
from shrink import shrink
from world import HOUR, World

_SHOWN = 4
"""Violations of a seed that are shown."""


def _arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(prog="tests/simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (1)")
    parser.add_argument(
        "--from", dest="first", type=int, default=1, metavar="SEED", help="the first seed (1)"
    )
    parser.add_argument("--hours", type=float, default=2.0, help="virtual hours of faults (2)")
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--trace", action="store_true", help="show the history")
    parser.add_argument(
        "--minimise", action="store_true", help="find the fewest faults that show what was found"
    )
    parser.add_argument(
        "--broken",
        choices=broken.ALL,
        metavar="NAME",
        help="break oncecron first, as broken.py says",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no seed after so much CPU time"
    )
    parser.add_argument("--reached", action="store_true", help="list what was reached, slower")
    return parser.parse_args()


class Search:
    """Runs seeds one after the other, and counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._reached = Reached() if options.reached else None
        self._firings, self._hours, self._begin = 0, 0.0, time.process_time()

    def run(self) -> int:
        """Run them all; return the exit status."""
        options, found = self._options, 0
        for seed in range(options.first, options.first + options.seeds):
            found += self._run_one(seed)
            is_over = time.process_time() - self._begin >= options.seconds
            if is_over or (found and (options.broken or options.minimise)):
                break
        seconds = time.process_time() - self._begin
        speed = f"{self._firings / seconds:.0f} firings/s"
        days = f"{self._hours / 24 / seconds * 60:.1f} virtual days a minute"
        print(f"{self._firings} firings in {self._hours:.1f} virtual hours: {speed}, {days} of CPU")
        if self._reached:
            print("\n".join(["", *self._reached.report()]))
            unknown = self._reached.unknown()
            print("".join(f"# not in the table of states\n{name}\n" for name in unknown), end="")
            found += len(unknown)
        return 1 if found else 0

    def _run_one(self, seed: int) -> int:
        options, before = self._options, time.process_time()
        gc.collect()  # threads of the last world
        world = World(
            seed,
            options.hours,
            calm=options.calm,
            tell=print if options.trace else None,
            watch=self._reached.watch if self._reached else None,
        )
        violations = world.run(at_once=bool(options.broken))
        firings = len(world.all_lives)
        self._firings += firings
        self._hours += world.kernel.now / HOUR
        if self._reached:
            self._reached.counts.update(world.runner.reached)
        counts = f"{firings} firings, {world.ledger.starts} starts, {len(world.faults)} faults"
        seconds, digest = time.process_time() - before, world.kernel.hash.hexdigest()
        excused = f", excused {dict(world.ledger.excused)}" if world.ledger.excused else ""
        print(f"seed {seed}: {counts}, {seconds:.1f} s{excused}, {digest}", flush=True)
        for at, kind, text in violations[:_SHOWN]:
            print(f"    {at:.3f} {kind}: {text}")
        if violations and options.minimise:
            self._minimise(world, seed)
        return len(violations)

    def _minimise(self, world: World, seed: int) -> None:
        """Show the fewest faults that lead to the same kind of violation, and the history around it."""
        at, kind, _ = world.ledger.violations[0]
        hours, until = self._options.hours, at + 200 if at < world.quiet_at else world.end
        faults = [each for each in world.faults if each[0] <= at]
        lines: list[str] = []

        def run(chosen: list[tuple[float, str, int]]) -> list[tuple[float, str, str]]:
            lines.clear()
            again = World(seed, hours, chosen=chosen, tell=lines.append)
            return [each for each in again.run(until=until) if each.kind == kind]

        faults = shrink(faults, lambda chosen: bool(run(chosen)))
        at, _, text = run(faults)[0]
        print(f"shrunk to {len(faults)} of {len(world.faults)} faults: {faults}\n{kind}: {text}")
        key = next((word.strip(":") for word in text.split() if word.startswith("key")), "")
        around = [line for line in lines if at - 300 < float(line.split()[0]) < at + 60]
        print("\n".join(line for line in around if key in line))


def main() -> int:
    """Run what the command line says."""
    options = _arguments()
    if options.broken:
        broken.ALL[options.broken]()
    return Search(options).run()


if __name__ == "__main__":
    sys.exit(main())
