"""How likely a drill misses what is broken: what each drill of a broken copy of oncecron said.

`.venv-test/bin/python plugins/drill/tests/proof/misses.py` prints the table of docs/proof.md from misses.tsv. The long
form adds drills: `ONCECRON_TEST_DRILLS=misses tests/run plugins/drill/tests/proof/test_drill_misses.py`.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("misses.tsv")
SEEDS = range(701, 706)
"""Of the drills of each broken copy."""
MINUTES = 2.0
ENOUGH = 4
"""What is found in fewer of them needs a fault, or a calm, that shows it."""


class Drill(NamedTuple):
    """A line of the file: one drill of a broken copy."""

    mutation: str
    store: str
    seed: int
    day: str
    verdict: str
    rules: str
    """What was broken, by commas."""

    @property
    def found(self) -> bool:
        """Return whether it was found out."""
        return self.verdict == "violated"


def drills() -> list[Drill]:
    """Return all that were kept."""
    lines = FILE.read_text().splitlines()[1:] if FILE.exists() else []
    cells = [line.split("\t") for line in lines]
    return [Drill(name, store, int(seed), *rest) for name, store, seed, *rest in cells]


def keep(mutation: str, store: str, certificate: dict[str, Any]) -> Drill:
    """Add the certificate of a drill to the file."""
    rules = ",".join(sorted({each["rule"] for each in certificate["violations"]}))
    day = dt.datetime.now(dt.UTC).date().isoformat()
    drill = Drill(mutation, store, certificate["seed"], day, certificate["verdict"], rules)
    if not FILE.exists():
        FILE.write_text("\t".join(Drill._fields) + "\n")
    with FILE.open("a") as file:
        file.write("\t".join(map(str, drill)) + "\n")
    return drill


def table(found: Sequence[Drill]) -> Iterator[str]:
    """Yield the rows of the table in the order of the file; without a drill there is none."""
    yield "| broken | store | found | by the rules | last drilled |"
    yield "|---|---|--:|---|---|"
    for name, store in dict.fromkeys((drill.mutation, drill.store) for drill in found):
        its = [drill for drill in found if (drill.mutation, drill.store) == (name, store)]
        rules = sorted({rule for drill in its for rule in drill.rules.split(",") if rule})
        cells = (name, store, f"{sum(drill.found for drill in its)} of {len(its)}")
        yield f"| {' | '.join((*cells, ', '.join(rules) or '-', max(each.day for each in its)))} |"


if __name__ == "__main__":
    print("\n".join(table(drills())))
