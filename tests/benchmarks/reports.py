"""What the commands cost that look at all keys of a large log, and what a claim costs beside them.

Run by hand: `tests/benchmarks/run reports`. 500 keys, 50 hosts, a million executions and half a million skips on each
store. Commands are whole processes, measured in turn (A B C A B C ...), medians of all rounds.

    well       every key has run at its last tick
    outage     every key is due every minute, and no host has fired any for a day
    claim      connect, claim and end in this process, in turns of half a second: without any other load, while one
               host runs `oncecron check` again and again, and as often without; the ratio is of neighbouring turns
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from large_logs import STORES, Filled, Size, claim, fill, firing, host

from oncecron.core.model import Lease
from oncecron.core.tick import named_tick

COMMANDS: dict[str, list[str]] = {
    "check": ["check"],
    "jobs": ["jobs"],
    "metrics": ["metrics"],
    "hosts": ["hosts"],
    "notify": ["notify", "--dry-run"],
}
"""What is measured: add a command that looks at all keys here."""
TURN = 0.5
"""Seconds of claims without a break, with or without a check beside them."""
OUTAGE = 86400
CONFIGURATION = """\
[notify.channel.ops]
to = "ops@example.com"
"""


class Sample(NamedTuple):
    """One command; seconds."""

    whole: float
    cpu: float
    """Of its process alone, without that of the server."""


def environment_of(store: Filled, directory: Path) -> dict[str, str]:
    """Return the environment of a command, in whose home there is a configuration."""
    configuration = directory / ".config" / "oncecron" / "config.toml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(CONFIGURATION)
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(directory),
        "XDG_STATE_HOME": str(directory),
        "ONCECRON_STORE": store.url,
    }


class Bench:
    """The measurements on one store."""

    def __init__(self, store: Filled, script: Path, directory: Path) -> None:
        self.store = store
        self.script = str(script)
        self.environment = environment_of(store, directory)
        self.number = itertools.count(1)

    def command(self, words: list[str]) -> Sample:
        """Return what a command takes as a whole process."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        done = subprocess.run(
            [self.script, *words], env=self.environment, capture_output=True, check=False
        )
        whole = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode > 2 or done.stderr:
            raise RuntimeError(
                f"{words}: {done.returncode} {(done.stderr or done.stdout).decode()}"
            )
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Sample(whole, cpu)

    def commands(self, rounds: int) -> dict[str, list[Sample]]:
        """Return the times of all commands, in turn."""
        times: dict[str, list[Sample]] = {name: [] for name in COMMANDS}
        for words in COMMANDS.values():
            self.command(words)
        for _ in range(rounds):
            for name, words in COMMANDS.items():
                times[name].append(self.command(words))
        return times

    def claim(self) -> float:
        """Return the seconds of a claim and its end, for a new tick of a key that no report knows well."""
        wanted = firing("claimed", named_tick(f"n{next(self.number)}-{os.getpid()}"), host(7))
        began = time.monotonic()
        answer = claim(self.store.url, wanted)
        took = time.monotonic() - began
        if not isinstance(answer, Lease):
            raise TypeError(str(answer))
        return took

    def turn(self) -> float:
        """Return the median of the claims of a turn."""
        times = []
        end = time.monotonic() + TURN
        while time.monotonic() < end:
            times.append(self.claim())
        return statistics.median(times)

    def turn_beside_checks(self) -> float:
        """Return the same while a host looks at all keys again and again."""
        loop = subprocess.Popen(
            ["/bin/sh", "-c", f"echo; while :; do {self.script} check >/dev/null; done"],
            env=self.environment, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            assert loop.stdout
            loop.stdout.readline()
            return self.turn()
        finally:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.communicate()

    def claims(self, rounds: int) -> dict[str, list[float]]:
        """Return the medians of turns: alone, beside checks, and alone again."""
        self.claim()
        turns: dict[str, list[float]] = {"alone": [], "beside checks": [], "alone again": []}
        for _ in range(rounds):
            turns["alone"].append(self.turn())
            turns["beside checks"].append(self.turn_beside_checks())
            turns["alone again"].append(self.turn())
        return turns


def ratio(turns: dict[str, list[float]], one: str, other: str) -> float:
    """Return the median ratio of the turns of a round."""
    pairs = zip(turns[one], turns[other], strict=True)
    return statistics.median(a / b for a, b in pairs)


def report(results: dict[str, Any]) -> str:
    """Return a Markdown table."""
    lines = [
        f"| | {' | '.join(results)} |",
        f"|---|{'--:|' * len(results)}",
    ]
    for state, name in itertools.product(("well", "outage"), COMMANDS):
        cells = (_cell(each[state][name]) for each in results.values())
        lines.append(f"| {name}, {state}: whole (cpu), ms | {' | '.join(cells)} |")
    for name in ("alone", "beside checks"):
        cells = (
            f"{statistics.median(each['claims'][name]) * 1000:.1f}" for each in results.values()
        )
        lines.append(f"| claim {name}, ms | {' | '.join(cells)} |")
    for name in ("beside checks", "alone again"):
        cells = (f"{ratio(each['claims'], name, 'alone'):.2f}" for each in results.values())
        lines.append(f"| claim {name}, of alone | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(samples: list[Sample]) -> str:
    whole, cpu = (statistics.median(each) * 1000 for each in zip(*samples, strict=True))
    return f"{whole:.0f} ({cpu:.0f})"


def main() -> None:
    """Fill the stores, measure, print the table, and write everything as JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("environment", type=Path, help="virtual environment with oncecron")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--store", action="append", help="only this store")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    size = Size(500, 50, options.executions, 20)
    script = options.environment.absolute() / "bin" / "oncecron"
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        for kind in STORES:
            if options.store and kind.name not in options.store:
                continue
            store = kind(Path(name))
            try:
                began = time.monotonic()
                fill(store, size)
                print(f"{store.name} filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
                bench = Bench(store, script, Path(name))
                results[store.name] = {"well": bench.commands(options.rounds)}
                results[store.name]["claims"] = bench.claims(options.rounds)
                store.stop_for(OUTAGE)
                results[store.name]["outage"] = bench.commands(max(1, options.rounds // 4))
                print(f"{store.name} measured", file=sys.stderr)
            finally:
                store.close()
    print(
        f"{size.keys} keys, {size.hosts} hosts, {size.executions} executions, {size.skips} skips, {options.rounds} "
        f"rounds, {os.cpu_count()} processors, Python {sys.version.split()[0]}\n"
    )
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
