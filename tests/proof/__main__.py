"""Attack oncecron and check its promises: `tests/chaos --store postgres --minutes 10 --seed 7`.

Hosts fire the installed console script every few seconds while a nemesis kills, stops, freezes, cuts off and fills;
afterwards a checker compares what the jobs wrote themselves with the job-execution log. Exit status: 0 if every promise
held (with --mutation: if every broken copy was found out), 1 if not, 2 for a wrong command line.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import clusters  # noqa: E402 - found by the lines above
import mutations  # noqa: E402
from run import Proof, one  # noqa: E402
from servers.oncecron import CONSOLE_SCRIPT  # noqa: E402
from summary import summary  # noqa: E402

from oncecron_drill.checker import check  # noqa: E402
from oncecron_drill.narration import draw  # noqa: E402
from oncecron_drill.rules.verdict import Verdict  # noqa: E402

SEEDS = 3
"""Runs of a broken copy until it is found out: what shows it may not have met the right moment in one."""


def arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(prog="tests/chaos", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--store", choices=clusters.KINDS, action="append", help="one of them, again for more (all)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="how long the nemesis strikes on each store (1)"
    )
    any_seed = SystemRandom().randrange(10**6)
    parser.add_argument(
        "--seed", type=int, default=any_seed, help="repeat these firings and faults"
    )
    parser.add_argument(
        "--faults",
        default="",
        help="only the kinds whose names contain one of these words, by commas",
    )
    parser.add_argument(
        "--mutation",
        choices=["all", *mutations.ALL],
        help=f"find out a broken copy of oncecron instead, with up to {SEEDS} seeds from --seed on",
    )
    parser.add_argument(
        "--directory", type=Path, help="where histories and logs are kept (a new one in /tmp)"
    )
    return parser.parse_args()  # fmt: skip


def tell(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


def prove(
    store: str, seed: int, minutes: float, directory: Path, words: tuple[str, ...] | None, oncecron: Path
) -> Verdict:  # fmt: skip
    """Run on one store and print the verdict; `words` are parts of the names of faults, None for all faults."""
    tell(f"{store}: seed {seed}, {minutes:g} min, kept in {directory}")
    wanted = Proof(
        store, seed, minutes, directory, [str(oncecron)], rooted=os.geteuid() == 0,
        faults=lambda kind: words is None or any(word in kind for word in words),
    )  # fmt: skip
    history = one(wanted, tell)
    verdict = check(history)
    tell(summary(verdict, history))
    if verdict.violations:
        tell(draw(history, verdict.violations[0]))
    return verdict


def prove_mutation(name: str, options: argparse.Namespace, top: Path) -> bool:
    """Run a broken copy where it shows soonest, with one seed after another; return whether it was found out."""
    mutation = mutations.ALL[name]
    store = next(kind for kind in options.store or mutation.stores if kind in mutation.stores)
    script = mutations.copy(mutation, new_directory(top / f"{name}-{store}") / "mutated")
    for seed in range(options.seed, options.seed + SEEDS):
        directory = new_directory(top / f"{name}-{store}-{seed}")
        verdict = prove(store, seed, options.minutes, directory, mutation.shows, script)
        rules = ", ".join(sorted({violation.rule for violation in verdict.violations}))
        tell(f"{name}: seed {seed}, {f'found out by {rules}' if rules else 'NOT found out'}")
        if rules:
            return True
    return False


def new_directory(path: Path) -> Path:
    """Make a directory that jobs of every user can enter."""
    path.mkdir(parents=True)
    path.chmod(0o755)
    return path


def main() -> int:
    """Run on each store that is asked for, or each mutation."""
    options = arguments()
    top = options.directory or Path(tempfile.mkdtemp(prefix="oncecron-chaos-", dir="/tmp"))
    top.mkdir(parents=True, exist_ok=True)
    top.chmod(0o755)
    if os.geteuid() != 0:
        tell(
            "not root: hosts are process trees on one network; left out are the faults of their networks (cut off, "
            "link down, packets lost, swallowed or reset), full disks, and the two faults of the clock and the network"
        )
    if options.mutation:
        names = list(mutations.ALL) if options.mutation == "all" else [options.mutation]
        found_out = {name: prove_mutation(name, options, top) for name in names}
        tell(f"{sum(found_out.values())} of {len(found_out)} mutations found out")
        return 0 if all(found_out.values()) else 1
    words = tuple(word.strip() for word in options.faults.split(",") if word.strip()) or None
    verdicts = []
    for store in options.store or clusters.KINDS:
        directory = new_directory(top / f"{store}-{options.seed}-{time.strftime('%H%M%S')}")
        verdicts.append(
            prove(store, options.seed, options.minutes, directory, words, CONSOLE_SCRIPT)
        )
    return 1 if any(verdict.violations for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
